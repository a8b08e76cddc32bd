"""W1 at the door: one conversation, from its hello to its end, with a producer or a subscriber (W1 to W7)."""
