"""Results over revised streams: the tasks that correct them, and what each computes again."""
