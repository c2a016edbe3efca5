"""The terms of all holders, as this peer learns them, and the announcements of its own."""
