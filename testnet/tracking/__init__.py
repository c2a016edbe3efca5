"""Person tracking: tags that readers see in rooms, who may be where, and the right alarms."""
