"""What holds for every test of a run.

Property tests try the same examples in every run, so that a change is judged by what it changed;
`make soak` looks for new ones (`--hypothesis-profile=soak`).
"""

from __future__ import annotations

import os
import sys

from hypothesis import settings

# A process that compiles all our modules takes twice the CPU time to start of one that reads them
# compiled, and tests start hundreds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No deadline: how long an example takes says how busy the machine is.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("dev", settings.get_profile("ci"), max_examples=20)
settings.register_profile("soak", deadline=None)
settings.load_profile("ci")
