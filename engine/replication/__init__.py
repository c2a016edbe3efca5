"""Which peer has what: terms, followers, copies of tasks, moves, standbys, leaders, views."""
