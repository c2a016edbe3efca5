"""Results within the bound when inputs are missing: the tentative suffix, and its corrections."""
