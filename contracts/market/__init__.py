"""The load market: each peer offers tasks to its partners, at prices within contracts. Sans IO."""
