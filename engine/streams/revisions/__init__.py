"""Revisions: corrections of tuples after they were final.

The stable prefix of a stream never changes. A stream beside it, `<stream>/revisions`, corrects it:
with deletions and insertions of tuples, each at a place in the same time line, so that one boundary
counts for both. A reader that applies the revisions up to a boundary to the tuples up to it has the
corrected stream as of that boundary.
"""
