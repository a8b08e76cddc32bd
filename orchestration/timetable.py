"""How often the daemon looks, and when schedules run.

Belongs here: the intervals of sensors and the times of schedules, with the reason for each. Does not belong here: what
they start (`sensors.py`, `compact_sensor.py`, `automation.py`, `schedules.py`).
"""

# Sensors, in seconds from the beginning of one tick to that of the next; Dagster has none shorter than five. Most of a
# tick is waiting for news (`news.py`), so these count only while there is news all the time.
DRAIN_EVERY_S = 5  # new segments
VECTORS_EVERY_S = 5  # new vector deltas, which a drain has to bring first
TABLES_EVERY_S = 5  # partitions that are behind their inputs
COMPACTION_EVERY_S = 30  # the rules let a vector wait for a minute (K3); the sensor looks twice as often

# The pages and the daemon ask the server of definitions whether it is another one, as after an edit; by itself Dagster
# asks every second, which idle pages pay for on both sides.
WATCHED_EVERY_S = 5

# Schedules, as cron has it, in UTC.
DRAIN_AT = "5 * * * *"  # a floor under the sensor: a missed segment goes unnoticed for an hour at most
# One run an hour is enough, and it is tried more often: most obstacles pass by themselves.
WINDOWED_COUNTS_AT = "*/10 * * * *"
MAINTENANCE_AT = "30 3 * * *"
# A run that failed is tried again at these times: most failures (a busy disk, a killed process) pass by themselves.
# A partition that fails again and again is left alone for longer and longer (`backoff.py`).
RETRY_AT = "*/10 * * * *"
