"""Windows over event time: one definition, one verdict on lateness, the same rows live and in a backfill (N1 to N3)."""
