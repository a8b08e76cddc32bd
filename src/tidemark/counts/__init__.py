"""Counts over trailing windows: the windows, and answers from the tables or from memory (R2, R3)."""
