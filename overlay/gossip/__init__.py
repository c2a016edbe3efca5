"""Failure detection and dissemination between peers that distrust each other."""
