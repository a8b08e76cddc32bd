"""Windows over event time: one definition, one rule of lateness, the same rows live and in a backfill (N1 to N3)."""
