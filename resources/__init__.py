"""Dagster's resources: the Spark session, the lake as Spark writes it, and the platform as assets see it.

Belongs here: these resources, and what they need of Spark and Dagster. Does not belong here: code that needs neither
(the library, `tidemark`), computations (`assets`), rules for data (`expectations`), schedules and runs
(`orchestration`). Nothing in here imports those three.
"""
