"""What every scenario is made of: peers, stages, a screen, patience, pictures, checks."""
