"""The executor of tasks in plain Python: it needs no Java, and the tests compare Spark with it."""
