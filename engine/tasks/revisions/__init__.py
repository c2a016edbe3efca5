"""Results over revised streams: the tasks that correct them, and the repeated computation of
windows."""
