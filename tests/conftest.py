"""Property tests try the same examples in every run, so that a change is judged by what it changed;
`make soak` looks for new ones (`--hypothesis-profile=default`)."""

from __future__ import annotations

from hypothesis import settings

# No deadline: how long an example takes says how busy the machine is.
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")
