"""`medusa`: the commands of a participant's clients."""
