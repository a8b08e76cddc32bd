"""The hello: who speaks, as what, and how its numbers go on (W5, W10, Q2).

Belongs here: from a hello to a session, or to a refusal in words. What the session does then is its own.
"""

from collections.abc import Mapping
from itertools import groupby

from tidemark.coordinator.platform import Platform
from tidemark.coordinator.slots import SLOTS, shard_of_slot
from tidemark.gateway.w1.connection import refuse
from tidemark.gateway.w1.producing import Numbering
from tidemark.model.settings import is_name
from tidemark.model.shard_errors import CoordinatorError, NumberingError
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import Hello, Role


def check_hello(hello: Hello, shards: int) -> None:
    """Refuse what no server of this version can do, by its name."""
    if hello.role is Role.REPLICA:
        raise refuse(NackReason.NOT_SUPPORTED, "The role `replica` is not supported by this version.")
    if hello.role is not Role.PRODUCER:
        return
    if hello.producer is None or not is_name(hello.producer):
        raise refuse(
            NackReason.BAD_HELLO,
            f"{hello.producer!r} is no name for a producer. Use a lower-case letter, then up to 62 of a-z, 0-9 and _.",
        )
    if hello.shard is not None and not 0 <= hello.shard < shards:
        raise refuse(
            NackReason.BAD_HELLO, f"There is no shard {hello.shard}; they go from 0 to {shards - 1}. Leave it out."
        )


def open_producer(platform: Platform, hello: Hello) -> tuple[Numbering, int]:
    """An instance of the producer of a hello, and its mark. Waits for the disk.

    A client that says its own instance goes on as it: the answer to a hello may be lost, and with a new instance for
    each hello the client would come back with one that it was never told of.

    The caller lets no two of these run at once, so that nothing comes between the look at the instance and the new one.
    """
    producer = hello.producer or ""
    shards = [hello.shard] if hello.shard is not None else list(platform.shards)
    newest = {number: platform.shards[number].producer_instance(producer) for number in shards}
    current = sum(newest.values())
    if hello.instance and current > hello.instance:
        raise refuse(
            NackReason.FENCED,
            f"Producer {producer!r} was opened by another program since (instance {current}, yours was "
            f"{hello.instance}). Stop one of them, or give it a name of its own.",
        )
    is_thin = hello.shard is None and len(platform.shards) > 1
    try:
        opened = {
            number: platform.shards[number].open_producer(
                producer, is_thin=is_thin, instance=instance if current == hello.instance else 0
            )
            for number, instance in newest.items()
        }
    except NumberingError as error:
        raise refuse(NackReason.NUMBERING, str(error)) from error
    except CoordinatorError as error:
        raise refuse(NackReason.STOPPED, str(error)) from error
    instances = {number: instance for number, (instance, _) in opened.items()}
    mark = min(mark for _, mark in opened.values())
    return Numbering(producer, instances, is_thin or len(platform.shards) == 1), mark


def instance_number(instances: Mapping[int, int]) -> int:
    """One number for the instances of all shards: it rises with each of them."""
    return sum(instances.values())


def slot_runs(shards: int) -> tuple[tuple[int, int], ...]:
    """The map of slots as runs of the same shard."""
    found = tuple((int(shard), len(list(run))) for shard, run in groupby(shard_of_slot(shards).tolist()))
    assert sum(length for _, length in found) == SLOTS  # noqa: S101 - the map covers every slot
    return found
