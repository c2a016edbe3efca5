"""What steps in plain Python are made of: the values of expressions, and the rows of a job."""
