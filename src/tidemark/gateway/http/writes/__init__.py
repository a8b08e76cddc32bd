"""`POST /v1/deltas`: from a body to a write, and from what became of it to an answer (W8).

Belongs here: everything that only writes need.
"""
