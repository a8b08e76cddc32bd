"""What assets and producers talk to: the coordinator, the Spark session, the Delta lake, the home directory.

Belongs here: anything with state outside the process. Does not belong here: what is computed (`assets`),
what must be true (`expectations`), what runs when (`orchestration`). Nothing in here imports those.
"""
