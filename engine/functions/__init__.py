"""Functions of users: the code that an operator allows, its process, and tasks that call it."""
