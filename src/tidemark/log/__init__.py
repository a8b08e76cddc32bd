"""The write-ahead log and the files that it is sealed into: frames, log files, segments, manifests and ledgers.

Belongs here: formats, and reading and writing them. Does not belong here: when a shard writes, seals or recovers
(`shard_state`, `coordinator`).

    frames, log_file, log_content   the write-ahead log, byte by byte
    groups, log_rows, control       the content of a frame: writes and control messages
    segments, segment_files         Parquet files that the log is sealed into
    manifest, manifest_files        which segments a shard has, in order

    ledger, ledger_runs, run_info   a durable map from text to bytes, for producers' marks
"""
