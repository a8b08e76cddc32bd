"""What exists: one package per stage, pure DataFrame transformations beside thin assets.

Belongs here: tables, how their rows are computed, and the assets that write them. Does not belong here: sessions,
tables as files, the log (`resources`); what must be true (`expectations`); what runs when (`orchestration`).
"""
