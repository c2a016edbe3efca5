"""Results over revised streams: the tasks that correct them, and the windows computed again."""
