"""Vectors: canonical places, the fold of deltas into states, and the index that finds the nearest of them."""
