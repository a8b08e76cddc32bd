"""The commands that start runs or show them, and those for developers.

Belongs here: one module per command or small group of commands, each of them thin. `tidemark.cli` calls commands and
prints answers; it also has the commands that need neither Dagster nor Spark.
"""
