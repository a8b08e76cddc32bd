"""Vectors: their states, checkpoints, conflicts and index, as tables."""
