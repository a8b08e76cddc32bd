"""The commands that need neither Dagster nor Spark: the same for people and scripts.

Belongs here: one module per command or small group of commands, each of them thin. Answers go to standard output
(`--json` for scripts), everything else to standard error; 0 means done, 1 that the work or a check failed, 2 that the
command was used wrongly. A module is imported when its command is called. Commands that start runs are in
`orchestration/cli`.
"""
