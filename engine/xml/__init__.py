"""Untrusted XML, as a small tree."""
