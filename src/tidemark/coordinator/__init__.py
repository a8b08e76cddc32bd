"""The coordinator: orders and numbers writes, makes each safe in milliseconds, and notifies waiters (C1 to C15).

Belongs here: a platform and its shards while they run. The path of a write:

    platform     splits by shard, watermarks over shards    shard, aio   what callers call: threads, coroutines
    core         a shard in steps, without threads          writer       the threads that take the steps
    engine       numbers, gathers, flushes, notifies        queue        which write is next when there is no room
    bounds       limits for memory and disk                 retries      whether a retry is the same write
    flusher      from numbered writes to a synced frame     handles      what a producer waits on

Does not belong here: decoding (`door`), verdicts (`verdicts`), formats (`log`), state that outlives
a process (`shard_state`).
"""
