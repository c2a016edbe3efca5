"""The poster's demonstration of high availability: a chain of servers, all killed at once."""
