"""How often the daemon looks, and what runs at which time.

Belongs here: the intervals of sensors and the times of schedules, with the reason for each. Does not belong here: what
they do (`sensors.py`, `compact_sensor.py`, `automation.py`, `schedules.py`).
"""

# Sensors, in seconds. A look costs a query or two; what is found starts a run, which costs seconds.
DRAIN_EVERY_S = 5  # new segments: what a user waits for most
VECTORS_EVERY_S = 10  # new vector deltas, which a drain has to bring first
TABLES_EVERY_S = 10  # partitions that are behind their inputs
COMPACTION_EVERY_S = 30  # a vector may wait for a minute by the rules (K3); it is looked at twice as often

# Schedules, as cron has it, in UTC.
DRAIN_AT = "5 * * * *"  # a floor under the sensor: what it misses goes unnoticed for an hour at most
# Once an hour is wanted, and it is tried as often as this: what keeps it from being computed mostly passes.
WINDOWED_COUNTS_AT = "*/10 * * * *"
MAINTENANCE_AT = "30 3 * * *"
# A run that failed is tried again at these times: most failures (a busy disk, a killed process) pass by themselves.
# What fails again and again is left alone for longer and longer (`backoff.py`).
RETRY_AT = "*/10 * * * *"
