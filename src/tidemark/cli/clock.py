"""`clock`: whether the clock and the log agree, and what to do if they do not.

Belongs here: the command and its output. The steps of a reset are in `tidemark/coordinator/reset_clock.py`.
"""

from typing import Any

import click

from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, console, say, table
from tidemark.model.timegrid import SECOND_US, from_us
from tidemark.shard_state.clock_reset import ShardTime, read_resets, read_times
from tidemark.storage.home import Home
from tidemark.tables.table_watermarks import read_table_watermarks, tables_with_watermarks


@command
@click.option("--reset", is_flag=True, help="The clock is right and the log is ahead of it: go on from now.")
@as_json
def clock(home: Home, reset: bool, as_json: bool) -> None:
    """Compare the clock with the log, the writers and the tables. Exits with 1 if they disagree.

    --reset is for a log that was written under a wrong clock. All rows stay as they are; the next write is received
    now, and watermarks that are ahead fall to now. No process may write to the home meanwhile.
    """
    from tidemark.event_time.clock import system_clock

    if reset:
        from tidemark.coordinator.reset_clock import reset_clock

        reset_clock(home)
    now_us, times, tables = system_clock(), read_times(home), _watermarks(home)
    advice = _advice(times, tables, now_us, home.settings.clock_leap_ms * 1_000)
    if as_json:
        resets = [_shown(each) for each in read_resets(home)]
        answer_json({**_as_json(times, tables, now_us), "resets": resets, "advice": advice})
    else:
        _show(times, tables, now_us)
        if reset:
            say("The clock was reset: everything goes on from now.")
        for sentence in advice or ["The clock and the log agree."]:
            say(sentence)
    if advice:
        raise click.exceptions.Exit(1)


def _watermarks(home: Home) -> dict[str, int]:
    found = read_table_watermarks(home.plans, tables_with_watermarks(home.plans))
    return {table: each.watermark_us for table, each in found.items() if each.watermark_us is not None}


def _advice(times: list[ShardTime], tables: dict[str, int], now_us: int, bound_us: int) -> list[str]:
    found = []
    leapt = [time.shard for time in times if time.clock_us is not None and abs(time.clock_us - now_us) > bound_us]
    if leapt:
        found.append(
            f"The clock leapt while {_shards(leapt)} ran: writes are refused. Set the clock right. If it is right now, "
            "start the writer again."
        )
    ahead = [time.shard for time in times if time.latest_us > now_us + bound_us]
    if ahead:
        found.append(
            f"The log of {_shards(ahead)} is ahead of the clock: writes are refused. If the clock is wrong, set it "
            "right. If it is right, stop all writers and run ./tidemark clock --reset."
        )
    beyond = [table for table, watermark_us in tables.items() if watermark_us > now_us + bound_us]
    if beyond and not ahead:
        found.append(
            f"The watermark of {', '.join(beyond)} is ahead of the clock. If the clock is right, stop all writers and "
            "run ./tidemark clock --reset."
        )
    return found


def _shards(numbers: list[int]) -> str:
    return f"shard{'s' if len(numbers) > 1 else ''} {', '.join(str(number) for number in numbers)}"


def _as_json(times: list[ShardTime], tables: dict[str, int], now_us: int) -> dict[str, Any]:
    return {
        "now": _shown(now_us),
        "shards": [
            {
                "shard": time.shard,
                "received": _shown(time.received_us),
                "writer_clock": _shown(time.clock_us),
                "ahead_s": round((time.latest_us - now_us) / SECOND_US, 3) if time.latest_us else None,
                "watermarks": {stream: _shown(watermark_us) for stream, watermark_us in time.watermarks.items()},
            }
            for time in times
        ],
        "tables": {table: _shown(watermark_us) for table, watermark_us in tables.items()},
    }


def _show(times: list[ShardTime], tables: dict[str, int], now_us: int) -> None:
    rows = table("Clock and log, UTC", "what", "time")
    rows.add_row("clock of this machine", _shown(now_us))
    for time in times:
        if time.clock_us is not None:
            rows.add_row(f"shard {time.shard}, clock of its writer", _shown(time.clock_us))
        rows.add_row(f"shard {time.shard}, last write received", _shown(time.received_us) or "nothing yet")
        for stream, watermark_us in time.watermarks.items():
            rows.add_row(f"shard {time.shard}, watermark of {stream}", _shown(watermark_us))
    for name, watermark_us in tables.items():
        rows.add_row(f"watermark of table {name}", _shown(watermark_us))
    console().print(rows)


def _shown(time_us: int | None) -> str | None:
    return from_us(time_us).isoformat(timespec="seconds") if time_us else None
