"""Joins of two streams by key: pairs of deltas in a pane, pairs of sessions that meet (N4)."""
