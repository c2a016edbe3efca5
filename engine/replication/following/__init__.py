"""Followers: local copies of logs of other peers; where each comes from, and how it goes on."""
