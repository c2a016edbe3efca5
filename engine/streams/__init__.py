"""Streams on disk. This folder has the modules that its rooms share: messages, settings, the form
of rows."""
