"""The dialect of Borealis: its documents, read as queries of our boxes."""
