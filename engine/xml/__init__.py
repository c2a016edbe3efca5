"""XML from strangers, as a small tree."""
