"""Links between real peers on this machine that can be cut and healed; `links.py` is the front."""
