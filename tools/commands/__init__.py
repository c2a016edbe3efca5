"""The commands `medusa` and `medusa-peer`."""
