"""Revisions: what was said of tuples after they were final.

The stable prefix of a stream never changes. What corrects it is a stream beside it,
`<stream>/revisions`: deletions and insertions of tuples, each at a place in the same time line, so
that one boundary tells how far both are. Whoever folds the two has the stream as it is by then.
"""
