"""The pure core of vectors: canonical places, the fold of deltas into states, and what follows from them (D3)."""
