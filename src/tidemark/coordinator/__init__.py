"""The coordinator: puts writes in order, numbers each, makes it safe in milliseconds and tells who waits (C1 to C15).

Belongs here: a platform and its shards while they run. The way of a write:

    platform     splits by shard, watermarks over shards    shard, aio   what callers call: threads, coroutines
    core         a shard in steps, without threads          writer       the threads that take the steps
    engine       numbers, gathers, flushes, tells           queue        who comes next when there is more than room
    bounds       what may be in memory and on the disk      retries      whether a retry is the same write
    flusher      from numbered writes to a synced frame     handles      what a producer waits on

Does not belong here: decoding (`door`), verdicts (`verdicts`), formats (`log`), what outlives a
process (`shard_state`).
"""
