"""The network door: what listens, who may speak, and how frames become writes (W1 to W10)."""
