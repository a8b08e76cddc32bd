"""Vectors: their states, and the index that finds the nearest of them."""
