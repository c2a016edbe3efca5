"""Results over revised streams: which tasks correct them, and what each computes again."""
