"""The world around the core, in virtual time: client, processes, broker; and what they forbid.

Owns the outside state that the core's commands change, and fails at once when a command breaks
its contract: a third chunk in a process, a chain inside twice, a record handled twice or out of
order, an offset committed past an unfinished record, a pause that is no transition. Decides
nothing: whoever drives it says what happens next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from consumer.core import commands as cmd
from consumer.core import events as ev
from consumer.core.config import FlowConfig, Ordering
from consumer.core.ledger.columns import Columns, FetchedRun, Partition
from consumer.core.snapshot import Snapshot
from sizing.load import PAYLOAD_BYTES, RECORDS, VERTICES
from tests.core.held import ChunkInside, Held, PartInside
from tests.core.partition_log import (
    AWAITING_ACK,
    FINISHED,
    INSIDE,
    RETRYING,
    SETTLED_FOR_ORDER,
    WAITING,
    PartitionLog,
)

#: what a held record costs beside its payload, as the world has it
HELD_OVERHEAD_BYTES = 100


class Core(Protocol):
    """The part of ``Flow`` that a driver uses."""

    def step(self, event: ev.Event) -> list[cmd.Command]:
        """Say what happened, hear what to do."""

    def snapshot(self) -> Snapshot:
        """Return the picture that metrics show."""

    def check_invariants(self) -> None:
        """Raise when the core contradicts itself."""


C = TypeVar("C", bound=Core)


@dataclass(eq=False)
class FakeProcess:
    """One handler process."""

    #: "absent", "starting", "ready", "killed"
    state: str = "absent"
    #: at most two; the first one runs
    chunks: deque[ChunkInside] = field(default_factory=deque)


class World(Held, Generic[C]):
    """Client, processes and broker around one core."""

    def __init__(self, flow: C, config: FlowConfig, logs: Sequence[PartitionLog]) -> None:
        super().__init__(config, logs)
        self.flow = flow
        self.now = 0.0
        #: partition -> when it was revoked; still assigned until it is released
        self.draining: dict[Partition, float] = {}
        self.paused: set[Partition] = set()
        #: committed on the broker, and the first index that a new owner would read
        self.committed: dict[Partition, int] = {}
        self.processes = [FakeProcess() for _ in range(config.processes)]
        self.commit_in_flight: cmd.Commit | None = None
        #: delivery -> (record, epoch)
        self.deliveries: dict[int, tuple[Partition, int, int]] = {}
        self.sent: dict[int, cmd.Produce] = {}
        #: refused by the broker, to be sent again
        self.refused: set[int] = set()
        self.stopping_since: float | None = None
        self.leaves_at_once = False
        self.closed = False
        self.pauses: list[tuple[float, int]] = []
        self.resumed_at: dict[Partition, float] = {}
        self.dead_letters: list[cmd.Produce] = []
        #: (record, epoch) of them
        self.dead: set[tuple[Partition, int, int]] = set()
        self.published: list[tuple[float, cmd.Publish]] = []
        self.said: list[cmd.Say] = []
        self.newly_inside: list[ChunkInside] = []
        #: the last events and what each was answered with, for whoever looks into a failure
        self.story: deque[tuple[ev.Event, list[cmd.Command]]] = deque(maxlen=200)
        #: called when a step was carried out
        self.after_step: Callable[[ev.Event], None] | None = None

    # ------------------------------------------------------------------ events

    def step(self, event: ev.Event) -> cmd.Fetch | None:
        """Give the core one event and carry out what it asks; a fetch is left to the caller."""
        if self.closed:
            return None  # whoever drove it has left
        answer = self.flow.step(event)
        self.story.append((event, answer))
        fetch = None
        for position, command in enumerate(answer):
            if isinstance(command, cmd.Fetch):
                assert isinstance(event, ev.Tick), "a fetch that answers no tick"
                assert position == len(answer) - 1, "a fetch that is not the last command"
                assert command.max_records >= 1, "a fetch of nothing"
                fetch = command
            else:
                self._carry_out(command, event)
        if self.after_step is not None:
            self.after_step(event)
        return fetch

    def assign(self, partitions: Sequence[Partition]) -> None:
        """Give the member partitions, from what is committed."""
        for partition in partitions:
            assert partition not in self.assigned
            log = self.logs[partition]
            log.begin(int(np.searchsorted(log.offsets, self.committed.get(partition, 0))))
            self.epochs[partition] += 1
            self.assigned.add(partition)
            self.paused.discard(partition)
        self.step(ev.Assigned(self.now, tuple(partitions)))

    def revoke(self, partitions: Sequence[Partition]) -> None:
        """Ask for partitions back."""
        for partition in partitions:
            self.draining[partition] = self.now
            self.let_go(self.logs[partition])
        self.step(ev.Revoked(self.now, tuple(partitions)))

    def lose(self, partitions: Sequence[Partition]) -> None:
        """Take partitions away at once."""
        for partition in partitions:
            self._unassign(partition)
        self.step(ev.Lost(self.now, tuple(partitions)))

    def fetchable(self) -> list[PartitionLog]:
        """Return the partitions that a fetch may return records of."""
        return [
            self.logs[p]
            for p in sorted(self.assigned)
            if p not in self.paused and p not in self.draining
        ]

    def fetched(self, runs: Sequence[FetchedRun]) -> None:
        """Give the core what a fetch returned (taken from the logs by the caller)."""
        for run in runs:
            self.held_records += len(run.columns)
            self.held_bytes += int(run.columns.payload_bytes.sum())
        self.step(ev.Fetched(self.now, tuple(runs)))

    def end_reached(self, partition: Partition) -> None:
        """Tell the core the client's position."""
        offset = self.logs[partition].position_offset()
        self.step(ev.EndReached(self.now, partition, offset))

    def ready(self, process: int, baseline_bytes: int = 50_000_000) -> None:
        """Say that a process has opened its handler."""
        assert self.processes[process].state == "starting"
        self.processes[process].state = "ready"
        self.step(ev.ProcessReady(self.now, process, baseline_bytes))

    def die(self, process: int, cause: str = "signal 9 (SIGKILL)") -> None:
        """End a process; what it held is not done."""
        dead = self.processes[process]
        for position, inside in enumerate(dead.chunks):
            for part in inside.parts:
                if self.is_current(part):
                    part.log.state[part.indices] = WAITING
                    records = [(part.log.partition, i, part.epoch) for i in part.indices.tolist()]
                    if position == 0:
                        self.attempts.update(records)
                    if position == 0 and len(inside) == 1:
                        self.killed_alone.add(records[0])
        dead.chunks.clear()
        dead.state = "absent"
        self.step(ev.ProcessDied(self.now, process, cause))

    def finish(self, process: int, outcome: ev.ChunkOutcome) -> None:
        """Say that a process finished the chunk that it runs."""
        inside = self.processes[process].chunks.popleft()
        again = self.goes_again(inside, outcome) if outcome.retry else set()
        if not outcome.retry and not outcome.failed and not outcome.outputs:
            for part in inside.parts:
                if self.is_current(part):
                    self.finish_records(part.log, part.indices)
        else:
            self.apply_each(inside, outcome, again)
        self.step(ev.ChunkFinished(self.now, process, inside.chunk.chunk_id, outcome))

    def deliver(
        self, delivery_id: int, error: str | None = None, *, too_large: bool = False
    ) -> None:
        """Answer one produced record. One that is too large is not sent again as it is."""
        partition, index, epoch = self.deliveries.pop(delivery_id)
        record = (partition, index, epoch)
        # A record is one dead letter, however many of its outputs are too large.
        if error is None or (too_large and record in self.dead):
            self.acks_needed[record] -= 1
            if self.acks_needed[record] == 0:
                del self.acks_needed[record]
                self.acknowledged(partition, index, epoch)
        elif self.is_epoch(partition, epoch) and not too_large:
            self.refused.add(delivery_id)
        self.step(ev.Delivered(self.now, delivery_id, error, too_large=too_large))

    def answer_commit(self, error: str | None = None) -> None:
        """Answer the commit in flight."""
        commit = self.commit_in_flight
        assert commit is not None
        self.commit_in_flight = None
        if error is None:
            self._apply_commit(commit)
        self.step(ev.Committed(self.now, dict(commit.offsets), error))

    def stop(self, *, at_once: bool = False) -> None:
        """Ask the core to drain and close."""
        if self.stopping_since is None:
            self.stopping_since = self.now
            for partition in sorted(self.assigned):
                self.draining.setdefault(partition, self.now)
                self.let_go(self.logs[partition])
        self.leaves_at_once |= at_once
        self.step(ev.StopRequested(self.now, at_once))

    # ---------------------------------------------------------------- questions

    def chunks_inside(self) -> list[ChunkInside]:
        """Return every chunk in a process."""
        return [inside for process in self.processes for inside in process.chunks]

    def unsettled(self) -> dict[Partition, int]:
        """Return how many fetched records of each assigned partition are not finished."""
        counts = {p: int(self.logs[p].is_unsettled().sum()) for p in sorted(self.assigned)}
        return {partition: count for partition, count in counts.items() if count}

    # ----------------------------------------------------------------- commands

    def _carry_out(self, command: cmd.Command, event: ev.Event) -> None:
        assert not self.closed or isinstance(command, cmd.Say), f"{command!r} after Close"
        match command:
            case cmd.Submit():
                self._submit(command)
            case cmd.Pause():
                self._pause(command)
            case cmd.Resume():
                self._resume(command, event)
            case cmd.Commit():
                self._commit(command)
            case cmd.Produce():
                self._produce(command)
            case cmd.StartProcess(process):
                self._change_process(process, "absent", "starting")
            case cmd.KillProcess(process):
                self._change_process(process, "ready", "killed")
            case cmd.Release():
                self._release(command)
            case cmd.Close():
                self._close()
            case cmd.Publish():
                self.published.append((self.now, command))
            case cmd.Say():
                self.said.append(command)

    def _pause(self, command: cmd.Pause) -> None:
        assert command.partitions, "a pause of nothing"
        for partition in command.partitions:
            assert partition in self.assigned, f"pause of unassigned {partition}"
            assert partition not in self.paused, f"pause of paused {partition}"
            self.paused.add(partition)
        self.pauses.append((self.now, len(command.partitions)))

    def _resume(self, command: cmd.Resume, event: ev.Event) -> None:
        assert command.partitions, "a resume of nothing"
        for partition in command.partitions:
            assert partition in self.assigned, f"resume of unassigned {partition}"
            is_new = isinstance(event, ev.Assigned) and partition in event.partitions
            assert partition in self.paused or is_new, f"resume of running {partition}"
            self.paused.discard(partition)
            self.resumed_at[partition] = self.now

    def _change_process(self, process: int, before: str, after: str) -> None:
        state = self.processes[process].state
        assert state == before, f"process {process} is {state}, not {before}"
        self.processes[process].state = after

    def _submit(self, command: cmd.Submit) -> None:
        process = self.processes[command.process]
        assert process.state == "ready", f"submit to a process that is {process.state}"
        assert len(process.chunks) < 2, "submit to a process that has two chunks"
        chunk = command.chunk
        assert chunk.parts, "an empty chunk"
        others = self.chunks_inside()
        assert all(chunk.chunk_id != o.chunk.chunk_id for o in others), "a chunk number twice"
        by_log: dict[Partition, list[tuple[int, int, Columns]]] = {}
        position = 0
        for number, part in enumerate(chunk.parts):
            assert len(part.columns), "an empty part"
            assert part.partition in self.assigned, f"submit of unassigned {part.partition}"
            by_log.setdefault(part.partition, []).append((number, position, part.columns))
            position += len(part.columns)
        parts = []
        chains: dict[Partition, int] = {}
        for partition, columns_at in by_log.items():
            log = self.logs[partition]
            found = log.indices([columns for _, _, columns in columns_at])
            state = log.state[found]
            assert ((state == WAITING) | (state == RETRYING)).all(), (
                f"a record of {partition} is handled twice: states {set(state.tolist())}"
            )
            positions = np.concatenate([np.arange(at, at + len(c)) for _, at, c in columns_at])
            log.chunk_part[found] = np.repeat(
                [number for number, _, _ in columns_at], [len(c) for _, _, c in columns_at]
            )
            log.state[found] = INSIDE
            log.chunk_id[found] = chunk.chunk_id
            log.chunk_position[found] = positions
            self._check_order(log, found, chunk.chunk_id)
            chains[partition] = self.chain_bits(log, found)
            parts.append(PartInside(log, found, positions, self.epochs[partition]))
        self._check_counts(chunk, parts)
        for other in others:
            for partition, bits in chains.items():
                shared = bits & other.chains.get(partition, 0)
                assert not shared, f"a chain of {partition} is inside twice"
        inside = ChunkInside(chunk, command.process, parts, chains, self.now)
        process.chunks.append(inside)
        self.newly_inside.append(inside)

    def _check_counts(self, chunk: cmd.Chunk, parts: list[PartInside]) -> None:
        load = chunk.load
        assert int(load[RECORDS]) == sum(len(p.indices) for p in parts)
        assert int(load[VERTICES]) == sum(int(p.log.vertices[p.indices].sum()) for p in parts)
        sizes = sum(int(p.log.payload_bytes[p.indices].sum()) for p in parts)
        assert int(load[PAYLOAD_BYTES]) == sizes

    def _check_order(self, log: PartitionLog, found: NDArray[np.int64], chunk_id: int) -> None:
        """Whoever comes before in the chain is settled, or earlier in the same chunk."""
        if self.config.ordering is Ordering.UNORDERED:
            return
        before = log.previous[found] if self.config.ordering is Ordering.KEY else found - 1
        matters = before >= log.first
        before, here = before[matters], found[matters]
        is_settled = log.state[before] >= SETTLED_FOR_ORDER
        is_earlier = (
            (log.state[before] == INSIDE)
            & (log.chunk_id[before] == chunk_id)
            & (log.chunk_position[before] < log.chunk_position[here])
        )
        assert (is_settled | is_earlier).all(), f"out of order in {log.partition}"

    def _commit(self, commit: cmd.Commit) -> None:
        assert commit.wait or self.commit_in_flight is None, "a second commit in flight"
        assert commit.offsets, "a commit of nothing"
        for partition, offset in commit.offsets.items():
            assert partition in self.assigned, f"commit of unassigned {partition}"
            log = self.logs[partition]
            index = int(np.searchsorted(log.offsets, offset))
            assert offset <= log.position_offset(), f"commit of {partition} past the position"
            assert index >= log.committed_index, f"commit of {partition} goes back"
            between = log.state[log.committed_index : index]
            assert (between == FINISHED).all(), f"commit of {partition} past an unfinished record"
            log.committed_index = index
        if commit.wait:
            # The one in flight is waited for first; its answer is heard of later.
            if self.commit_in_flight is not None:
                self._apply_commit(self.commit_in_flight)
            self._apply_commit(commit)
        else:
            self.commit_in_flight = commit

    def _apply_commit(self, commit: cmd.Commit) -> None:
        for partition, offset in commit.offsets.items():
            # Whoever owns a partition now does not go back behind what it has committed.
            self.committed[partition] = max(offset, self.committed.get(partition, 0))

    def _produce(self, command: cmd.Produce) -> None:
        is_again = command.delivery_id in self.refused
        self.refused.discard(command.delivery_id)
        assert is_again or command.delivery_id not in self.sent, "a delivery twice"
        partition = command.source
        assert partition in self.assigned, f"produce for unassigned {partition}"
        log = self.logs[partition]
        index = int(np.searchsorted(log.offsets, command.source_offset))
        record = (partition, index, self.epochs[partition])
        if command.destination is cmd.Destination.DEAD_LETTER and not is_again:
            assert record not in self.dead, "a second dead letter of one record"
            self.dead.add(record)
            self.dead_letters.append(command)
            self._check_dead_letter(command, log, index)
            if log.state[index] != AWAITING_ACK:
                self.await_acks(log, index, 1, given_up=True)
        assert log.state[index] == AWAITING_ACK, "produce for a record that is not done"
        outstanding = sum(1 for other in self.deliveries.values() if other == record)
        assert outstanding < self.acks_needed[record], "one produced record too many"
        self.deliveries[command.delivery_id] = record
        self.sent[command.delivery_id] = command

    def _check_dead_letter(self, command: cmd.Produce, log: PartitionLog, index: int) -> None:
        """A record is given up because of what happened to it, never on a guess."""
        record = (log.partition, index, self.epochs[log.partition])
        if command.reason == "retries-exhausted":
            assert log.state[index] == RETRYING, "given up without having asked for a retry"
            most = self.config.max_attempts
            assert self.attempts[record] >= most, f"given up after {self.attempts[record]} attempts"
        elif command.reason in ("killed-process", "timed-out"):
            assert record in self.killed_alone, "given up for a death that it did not die alone"
        else:
            assert log.state[index] == AWAITING_ACK, f"dead-lettered on a guess: {command.reason}"

    def _release(self, command: cmd.Release) -> None:
        for partition in command.partitions:
            self._check_release(partition)
            self._unassign(partition)

    def _check_release(self, partition: Partition) -> None:
        assert partition in self.draining, f"release of {partition}, which nobody revoked"
        log = self.logs[partition]
        is_late = self.now >= self.draining[partition] + self._drain_deadline_seconds() - 1e-6
        is_late |= self.leaves_at_once
        if not is_late:
            states = set(log.state[log.first : log.position].tolist())
            assert INSIDE not in states, f"release of {partition} with records inside"
            assert AWAITING_ACK not in states, f"release of {partition}, unacknowledged"

    def _close(self) -> None:
        self.closed = True
        for partition in sorted(self.assigned):
            self._unassign(partition)

    def _drain_deadline_seconds(self) -> float:
        config = self.config
        shorter = min(config.max_poll_interval_seconds, config.shutdown_grace_seconds)
        return config.deadline_headroom_ratio * shorter

    def _unassign(self, partition: Partition) -> None:
        self.drop_partition(partition)
        self.draining.pop(partition, None)
        self.paused.discard(partition)
