"""Dagster's resources: the Spark session, the lake as Spark writes it, and the platform as assets see it.

Belongs here: what hands these out, and what they need of Spark and Dagster. Does not belong here: what needs neither
(the library, `tidemark`), what is computed (`assets`), what must be true (`expectations`), what runs when
(`orchestration`). Nothing in here imports those three.
"""
