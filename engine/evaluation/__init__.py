"""Parts of steps in plain Python: the values of expressions, and the rows of a job."""
