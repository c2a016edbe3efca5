"""The intrusion query of the papers over several participants' connections."""
