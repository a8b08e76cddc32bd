"""The commands that start runs, look at them, or are for developers.

Belongs here: one module per command or small group of commands, each of them thin. How commands are called and answers
printed is in `tidemark.cli`, which also has the commands that need neither Dagster nor Spark.
"""
