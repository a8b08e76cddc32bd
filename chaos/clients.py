"""The producers of the simulation: they send, repeat, leave gaps, return as another instance, and expect answers.

Belongs here: one producer's behaviour and the door's right answers (Q1, Q2, C8). A producer outlives every life of the
shard; it knows what it has sent, and the answers.
"""

from collections.abc import Sequence
from random import Random

from chaos.history import History, must
from chaos.life import Life
from chaos.scale import Scale
from chaos.traffic import Traffic, Write
from tidemark.coordinator.bounds import measure
from tidemark.coordinator.handles import Sending
from tidemark.coordinator.retries import same_write
from tidemark.door.decoded import Sent
from tidemark.model.deltas import Priority
from tidemark.model.shard_errors import (
    BackpressureError,
    EmptyWriteError,
    NumberReuseError,
    ProducerFencedError,
    SequenceGapError,
    ShardStoppedError,
    WriteRefusedError,
    WriteTooLargeError,
)
from tidemark.shard_state.producers import KEPT_WRITES


class Producer:
    """One producer."""

    def __init__(self, name: str, scale: Scale, random: Random, traffic: Traffic, history: History) -> None:
        self.name = name
        self._scale, self._random, self._traffic, self._history = scale, random, traffic, history
        self.writes: dict[int, Write] = {}
        self._life: Life | None = None
        self._instance = 0
        self._opened_by = 0  # the group that makes the instance certain
        self._taken = 0  # last sequence that the door has taken
        self._is_new_life = True
        self._refused_in: tuple[int, int] | None = None  # the last final refusal, and the group that logs it
        self._firm = 0  # the last one that is logged

    # Its actions.

    def step(self, life: Life, *, may_begin: bool = True) -> None:
        """Do something: mostly send the next write."""
        if not self._is_open(life):
            return
        chance = self._random.random()
        if chance < 0.62:
            self.send_next(life, may_begin=may_begin)
        elif chance < 0.74:
            self._repeat(life, [write for write in self._sent() if not self._is_settled(write)])
        elif chance < 0.82:
            self._repeat(life, [write for write in self._sent() if self._is_settled(write)])
        elif chance < 0.84:
            self._reuse(life)
        elif chance < 0.88:
            self._leave_gap(life)
        elif chance < 0.93:
            self._write_as_older(life)
        elif chance < 0.96:
            self._open(life)
        elif chance < 0.99:
            self.send_next(life, may_begin=may_begin, is_huge=True)
        else:
            self._send_nothing(life)

    def finish(self, life: Life) -> bool:
        """Take one step towards an answer to everything; true if there is nothing left to do."""
        open_ends = [write for write in self.writes.values() if not self._is_settled(write)]
        if not open_ends:
            return True
        if self._is_open(life):
            known = [write for write in open_ends if write.sequence <= self._taken and _key(write) not in life.waiting]
            if known:
                self._repeat(life, known[:1])
            else:
                self.send_next(life, may_begin=False)
        return False

    def send_next(self, life: Life, *, may_begin: bool, is_huge: bool = False) -> None:
        """Send the next write: one that has to be sent again, or a new one."""
        sequence = self._taken + 1
        if sequence not in self.writes:
            if not may_begin or len(self.writes) >= self._scale.writes:
                return
            self.writes[sequence] = self._make(sequence, is_huge=is_huge)
        write = self.writes[sequence]
        sending = self._submit(life, write, self._instance)
        if sending is None:
            return
        must(not sending.is_retry, "Q2", f"{write.name} is new, and was answered as a retry", write.name)
        what = f"{write.name} was taken while the clock was wrong by {self._history.leap_us / 1e6:g} s"
        must(not self._history.leap_us, "C15", what, write.name)
        must(sending.ticket is not None, "Q2", f"{write.name} was taken without a ticket", write.name)
        self._taken = sequence
        if sending.ticket is not None:
            life.waiting[_key(write)] = (write, sending.ticket)
        life.look()

    # Opening.

    def _is_open(self, life: Life) -> bool:
        """Whether its instance here is certain; if not, it opens one or waits."""
        if self._life is not life:
            self._is_new_life, self._refused_in = True, None
            self._open(life)
            return False
        engine = life.core.engine
        if self._refused_in is not None and engine.groups_flushed >= self._refused_in[1]:
            self._firm, self._refused_in = self._refused_in[0], None
        if self._opened_by and engine.groups_flushed < self._opened_by:
            return False
        if self._opened_by:
            newest = self._history.instances.get(self.name, 0)
            what = f"producer {self.name} was opened as instance {self._instance}, and had {newest} before"
            must(self._instance > newest, "Q2", what)
            self._history.instances[self.name] = self._instance
            self._opened_by = 0
        return True

    def _open(self, life: Life) -> None:
        if self._opened_by and self._life is life:
            return
        try:
            instance, mark = life.core.open_producer(self.name)
        except ShardStoppedError:
            self._must_be_stopped(life)
            return
        acknowledged = [write.sequence for write in self._sent() if _key(write) in self._history.acknowledged]
        what = f"producer {self.name} got mark {mark}, but write {max(acknowledged, default=0)} was acknowledged"
        must(mark >= max(acknowledged, default=0), "Q2", what)
        what = f"producer {self.name} got mark {mark}, but {self._firm} was refused for good and logged"
        must(mark >= self._firm, "Q2", what)
        must(mark <= max(self.writes, default=0), "Q2", f"producer {self.name} got mark {mark}, never sent")
        if not self._is_new_life:
            what = f"producer {self.name} got mark {mark}, but {self._taken} was taken"
            must(mark == self._taken, "Q2", what)
        self._life, self._is_new_life = life, False
        self._instance, self._taken = instance, mark
        self._opened_by = life.core.engine.groups_taken + 1
        self._history.note(f"producer {self.name} is opened as instance {instance}, mark {mark}")

    # Right answers and refusals.

    def _repeat(self, life: Life, writes: list[Write]) -> None:
        """Send again a write that the door has taken, now or in an earlier life: it gets its first epoch."""
        if not (taken := [write for write in writes if write.sequence <= self._taken]):
            return
        write = self._random.choice(taken)
        sending = self._submit(life, write, self._instance, as_objects=self._random.random() < 0.5)
        if sending is None:
            return
        must(sending.is_retry, "Q2", f"{write.name} was taken a second time", write.name)
        self._history.count("retries")
        waiting = life.waiting.get(_key(write))
        if sending.ticket is not None:
            is_same = waiting is not None and waiting[1] is sending.ticket
            must(is_same, "Q2", f"a retry of {write.name} waits for another write", write.name)
            return
        must(waiting is None, "Q2", f"a retry of {write.name} is answered before it is flushed", write.name)
        if sending.epoch is None:
            must(write.sequence <= self._taken - KEPT_WRITES, "Q2", f"a retry of {write.name} has no epoch", write.name)
            return
        self._history.note(f"a retry of {write.name} is answered with epoch {sending.epoch}")
        self._history.acknowledge(write, sending.epoch)

    def _reuse(self, life: Life) -> None:
        """Send another write under a used number: it must not be taken for the first one."""
        if not (taken := [write for write in self._sent() if write.sequence <= self._taken]):
            return
        write, other = self._random.choice(taken), self._random.choice(self._sent())
        deltas = [*other.deltas(), *self._anything()[0]]
        if deltas == write.deltas():
            return
        try:
            sending = life.core.submit(self.name, self._instance, write.sequence, deltas, measure(deltas))
            same_write(self.name, sending, deltas)
        except NumberReuseError as error:
            must(error.write is deltas, "Q2", f"another {write.name} was not given back", write.name)
            self._history.count("reused")
        except WriteRefusedError:
            must(_key(write) in self._history.refused, "Q2", f"{write.name} was refused, never having been", write.name)
        except ShardStoppedError:
            self._must_be_stopped(life)
        else:
            must(False, "Q2", f"another write was answered as a retry of {write.name}", write.name)

    def _leave_gap(self, life: Life) -> None:
        sequence = self._taken + 1 + self._random.randint(1, 3)
        try:
            life.core.submit(self.name, self._instance, sequence, *self._anything())
        except SequenceGapError as error:
            what = f"producer {self.name} was asked for {error.expected}, but {self._taken + 1} is next"
            must(error.expected == self._taken + 1, "Q2", what)
            self._history.count("gaps")
        except ShardStoppedError:
            self._must_be_stopped(life)
        except BackpressureError:
            must(False, "Q2", f"write {sequence} of {self.name} is to be sent again, but {self._taken + 1} is next")
        else:
            must(False, "Q2", f"write {sequence} of {self.name} was taken, but {self._taken + 1} is next")

    def _write_as_older(self, life: Life) -> None:
        """Let an instance that was fenced out try once more."""
        if self._instance < 2:
            return
        older = self._random.randint(1, self._instance - 1)
        try:
            life.core.submit(self.name, older, self._taken + 1, *self._anything())
        except ProducerFencedError as error:
            must(error.current == self._instance, "Q2", f"{self.name} is fenced by instance {error.current}")
            self._history.count("fenced")
        except ShardStoppedError:
            self._must_be_stopped(life)
        except BackpressureError:
            must(False, "Q2", f"instance {older} of {self.name} is to send again, but {self._instance} is newer")
        else:
            must(False, "Q2", f"instance {older} of {self.name} wrote, but instance {self._instance} is newer")

    def _send_nothing(self, life: Life) -> None:
        try:
            life.core.submit(self.name, self._instance, self._taken + 1, [], 0)
        except EmptyWriteError:
            return
        except ShardStoppedError:
            self._must_be_stopped(life)
        else:
            must(False, "C1", "an empty write was taken")

    def _submit(self, life: Life, write: Write, instance: int, *, as_objects: bool = False) -> Sending | None:
        """Send a write; None if it was not taken."""
        deltas: Sequence[Sent] = write.objects() if as_objects else write.deltas()
        history = self._history
        history.note(f"{write.name} is sent with {len(deltas)} deltas")
        try:
            sending = life.core.submit(
                self.name, instance, write.sequence, deltas, measure(deltas), Priority(write.priority)
            )
            return same_write(self.name, sending, deltas)
        except BackpressureError as error:
            must(error.write is deltas, "C8", f"{write.name} was turned away and not given back", write.name)
            history.note(f"{write.name} is turned away: {error}")
            history.count(type(error).__name__)
        except WriteTooLargeError as error:
            is_too_large = len(deltas) > self._scale.most_deltas
            must(is_too_large and error.write is deltas, "C8", f"{write.name} was refused as too large", write.name)
            history.refused.add(_key(write))
            history.note(f"{write.name} is refused for good")
            history.count("refused")
            self._taken = write.sequence
            is_behind = any(producer == self.name for producer, _ in life.waiting)
            self._refused_in = None if is_behind else (write.sequence, life.core.engine.groups_taken + 1)
        except WriteRefusedError:
            must(_key(write) in history.refused, "Q2", f"{write.name} was refused, never having been", write.name)
        except NumberReuseError:
            must(False, "Q2", f"a retry of {write.name} is taken for another write", write.name)
        except ShardStoppedError as error:
            self._must_be_stopped(life)
            must(error.write is deltas, "C3", f"{write.name} met a stopped shard and was not given back", write.name)
            history.note(f"{write.name} meets a shard that has stopped")
            life.look()
        return None

    # Its knowledge.

    def _make(self, sequence: int, *, is_huge: bool) -> Write:
        most = self._scale.most_deltas
        count = most + 1 if is_huge else self._random.randint(1, min(6, most))
        priority = self._random.choice(list(Priority)).value
        return Write(self.name, sequence, self._traffic.deltas(count, self._history.now_us), priority)

    def _anything(self) -> tuple[list[bytes], int]:
        deltas = [made.sent for made in self._traffic.deltas(1, self._history.now_us)]
        return deltas, measure(deltas)

    def _sent(self) -> list[Write]:
        return list(self.writes.values())

    def _is_settled(self, write: Write) -> bool:
        return _key(write) in self._history.acknowledged or _key(write) in self._history.refused

    def _must_be_stopped(self, life: Life) -> None:
        what = f"a shard that runs says to {self.name} that it has stopped"
        must(life.has_failed or life.is_stopping, "C4", what)


def _key(write: Write) -> tuple[str, int]:
    return write.producer, write.sequence
