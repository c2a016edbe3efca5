"""Functions of users: which code an operator allows, its process, and tasks that call it."""
