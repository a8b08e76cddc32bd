"""Counts over trailing windows: what a window is, and who answers from the tables or from memory (R2, R3)."""
