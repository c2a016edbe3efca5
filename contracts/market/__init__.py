"""The load market: who offers which task to whom at what price. Sans IO."""
