"""Person tracking: tags that readers see in rooms, permissions to be in a room, and the right
alarms."""
