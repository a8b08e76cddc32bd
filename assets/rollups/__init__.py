"""Counts per minute, hour and week: slices of deltas, and sums of slices (R1)."""
