"""The nightly work: small files of closed hours become large ones, old files go, and every stored byte is read again.

Belongs here: the job. `resources/lake.py` maintains a table, `tidemark/observe/verification.py` verifies stored bytes.
"""

import dagster as dg

from assets.tables import EVERY_TABLE
from resources.platform import TidemarkResource
from tidemark.model.errors import DamageError
from tidemark.model.timegrid import HOUR_US
from tidemark.observe.verification import prove

# Producers' clocks and their allowed disorder reach back this far at most; an hour is closed after that.
CLOSED_AFTER_US = 2 * HOUR_US


@dg.op
def maintain_tables(context: dg.OpExecutionContext, tidemark: TidemarkResource) -> None:
    """Compact the closed partitions of every table and delete files beyond the retention; no row changes."""
    now_us = tidemark.now_us()
    for spec in EVERY_TABLE.values():
        if tidemark.lake.version(spec.name) is None:
            continue
        version = tidemark.lake.maintain(spec, closed_before_us=now_us - CLOSED_AFTER_US)
        context.log.info("%s is maintained, at version %d", spec.name, version)


@dg.op(ins={"start": dg.In(dg.Nothing)})
def verify_log(context: dg.OpExecutionContext, tidemark: TidemarkResource) -> None:
    """Read every segment, log file and manifest again and compare each with its checksum."""
    proof = prove(tidemark.lake.home)
    context.log.info("%d segments and %d log files are what was written", proof.segments, proof.log_files)
    if proof.damage:
        raise DamageError(
            f"{len(proof.damage)} stored file(s) are damaged: {' '.join(proof.damage)} "
            "Nothing was changed; './tidemark verify' shows the same list."
        )


@dg.job(
    executor_def=dg.in_process_executor,
    description="Compact closed partitions, delete files beyond the retention, verify every checksum.",
)
def maintenance_job() -> None:
    """Tables first: a damaged segment must not keep them from being maintained."""
    verify_log(start=maintain_tables())
