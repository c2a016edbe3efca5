"""`medusa`: what a participant's clients do, at a prompt."""
