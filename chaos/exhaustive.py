"""One small life, cut at every disk call in every way, and with every disk call failing (C7).

Belongs here: the life, and the steps after each cut: another life without faults, and the whole checker.
"""

from collections.abc import Sequence
from random import Random

from chaos.disks import Fault, Survival
from chaos.life import Life
from chaos.scale import Scale
from chaos.watching import Cut
from chaos.world import World
from tidemark.model.settings import BatchSettings, BoundSettings, Settings

SCALE = Scale(
    Settings(
        segment_bytes=1_500,
        recent_identities=8,
        disorder_ms=1_000,
        idle_timeout_ms=5_000,
        watermark_events=2,
        watermark_ms=200,
        bounds=BoundSettings(deltas=20, bytes=200_000),
        batch=BatchSettings(min_ms=1, max_ms=50, target_writes=3, count=8),
    ),
    group_bytes=700,
    reserved_ahead=2,
    lives=1,
    steps=0,
    producers=2,
    writes=5,
)
# Another seed is another life; this one has duplicates, refused deltas and four segments.
SEED = 17


def try_out(
    survival: Survival, *, cut: Cut | None = None, plan: Sequence[Fault] = (), fate: int = 0, seed: int = SEED
) -> bool:
    """Live the life up to the cut or the fault, then once more to the end; true if the cut or fault was reached.

    Raises when a rule is broken. `fate` is the seed of the random part of what survives.
    """
    world = World(SCALE, Random(seed), interrupted=0.0)
    is_cut = world.live(lambda life: _act(world, life), plan, cut)
    has_failed = world.life is None or world.life.has_failed
    world.random = Random(fate)
    world.end(survival)
    if not is_cut and not has_failed:
        return False
    if survival is Survival.CACHE:
        # The next life may start from data that is not on the disk; once it runs, they must be.
        world.live(lambda _: None)
        world.end(Survival.NOTHING)
    world.live(world.finish)
    world.end(Survival.NOTHING)
    world.check()
    return True


def _act(world: World, life: Life) -> None:
    """Two producers, seven writes in five groups, a final refusal, a cut, three segments, batches, a clean stop."""
    first, second = world.producers

    def flush() -> None:
        for _ in range(4):
            world.tick()
            life.write()
        life.consume()

    for producer in (first, second):
        producer.step(life)
    flush()
    first.send_next(life, may_begin=True)
    second.send_next(life, may_begin=True)
    life.write()  # takes the group; later writes belong to the next
    first.send_next(life, may_begin=True)
    flush()
    flush()
    life.ask_seal()
    first.send_next(life, may_begin=True, is_huge=True)
    second.send_next(life, may_begin=True)
    life.cut_vectors(world.history.now_us)
    flush()
    life.seal()
    life.drain()
    first.send_next(life, may_begin=True)
    life.ask_batch()
    flush()
    first.send_next(life, may_begin=True)
    second.send_next(life, may_begin=True)
    flush()
    if not life.is_over:
        life.stop()
