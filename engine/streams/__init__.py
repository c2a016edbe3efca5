"""Streams on disk. This folder has what its rooms share: messages, settings, the form of rows."""
