"""The engine: streams, epochs, boxes, tasks, and the Spark that runs them."""
