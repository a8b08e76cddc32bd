"""Counts per minute, hour, day and week: slices of deltas, and sums of slices (R1)."""
