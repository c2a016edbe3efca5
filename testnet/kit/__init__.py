"""The common parts of scenarios: peers, stages, a screen, patience, pictures, checks."""
