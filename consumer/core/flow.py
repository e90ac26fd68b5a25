"""The worker's decisions: ``Flow.step(event) -> commands``.

Owns the order of things: which part of the core hears of an event, and what follows from it.
The parts own their rules: ``admission`` (the door), ``dispatch`` (chunks), ``settle`` (ends),
``ownership`` (epochs and offsets), ``fetching``, ``pausing`` (hysteresis), ``measuring`` (sizings), ``ledger``
(sums), ``status`` (states in words).

Rules: no clock, no threads, no Kafka, no files, no randomness; ``now`` comes with the event.
Commands are carried out in order. Only ``Tick`` is answered with ``Fetch``, at most one, last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from consumer.core.admission import Admission, Gate, Verdict
from consumer.core.columns import Partition
from consumer.core.commands import (
    Close,
    Command,
    Commit,
    KillProcess,
    Publish,
    Release,
    Say,
    StartProcess,
)
from consumer.core.config import FlowConfig, Mode
from consumer.core.dispatch import Dispatcher
from consumer.core.events import (
    Assigned,
    ChunkFinished,
    Committed,
    Delivered,
    EndReached,
    Event,
    Fetched,
    Lost,
    MemorySampled,
    ParentMeasured,
    ProcessDied,
    ProcessReady,
    Revoked,
    StopRequested,
    Tick,
)
from consumer.core.fetching import FetchPlan
from consumer.core.ledger import Charge, Ledger
from consumer.core.measuring import Limits, Measuring
from consumer.core.ownership import Ownership
from consumer.core.pausing import PauseControl
from consumer.core.settle import REASON_TIMED_OUT, Settlement
from consumer.core.snapshot import BOUNDS, Snapshot
from consumer.core.status import Status
from consumer.core.work import PieceState
from sizing.bounds import drain_deadline, memory_available_bytes
from sizing.load import RECORDS

#: Until there is a size: chunks of work in flight for each process, and share of the memory.
INITIAL_CHUNKS = 4
INITIAL_MEMORY_RATIO = 0.1
#: Shards of a partition's keys: at least four chains for each process keep it busy.
LEAST_SHARDS = 16
SHARDS_PER_PROCESS = 4
#: A limit that moved by this much is a new sizing.
LIMIT_STEP_RATIO = 0.1
#: A process that dies again and again is started again after this, doubled each time.
RESTART_BACKOFF_SECONDS = 0.5
RESTART_BACKOFF_LIMIT_SECONDS = 30.0


class Flow:
    """The core.

    Parameters
    ----------
    config : FlowConfig
        Settings.
    wall_clock_offset : float
        Wall clock minus monotonic clock, in seconds: dates the sizings.
    """

    def __init__(self, config: FlowConfig, *, wall_clock_offset: float = 0.0) -> None:
        self.config = config
        self._wall_clock_offset = wall_clock_offset
        self.ledger = Ledger(config.processes, config.chunk_seconds)
        self.measuring = Measuring(self.ledger, config)
        self.shards = max(LEAST_SHARDS, SHARDS_PER_PROCESS * config.processes)
        self.admission = Admission(
            self.ledger, config.ordering, self.shards, config.max_uncommitted_messages
        )
        self.dispatcher = Dispatcher(self.ledger, config.chunk_bytes, self.measuring.wants_sample)
        self.settlement = Settlement(self.ledger, self.admission, self.dispatcher, config)
        self.ownership = Ownership(self.ledger, self.admission, self.dispatcher, self.settlement)
        self.fetching = FetchPlan(self.ledger, self.admission, config)
        self.pauses = PauseControl()
        #: the fullest that a bound's limit was when records had been admitted and sent off; one
        #: that is alone may be over it
        self.most_admitted_ratio = 0.0
        deadline, source = drain_deadline(
            config.max_poll_interval_seconds,
            config.shutdown_grace_seconds,
            config.deadline_headroom_ratio,
        )
        self.limits = Limits(deadline, source, 0)
        self._sized_for_bytes = 0
        self._handler_timeout_seconds = (
            config.handler_timeout_seconds or config.max_poll_interval_seconds / 2.0
        )
        self._memory_known = False
        self._commit_in_flight = False
        self._committed_at = -np.inf
        self._stopping = False
        self._closed = False
        self._last_fetched_at: float | None = None
        self.status = Status(self)
        self._handlers: dict[type, Callable[[Any], list[Command]]] = {
            Assigned: self._assigned,
            Revoked: self._revoked,
            Lost: self._lost,
            Fetched: self._fetched,
            EndReached: self._end_reached,
            ProcessReady: self._process_ready,
            ProcessDied: self._process_died,
            ChunkFinished: self._chunk_finished,
            Delivered: self._delivered,
            Committed: self._committed,
            MemorySampled: self._memory_sampled,
            ParentMeasured: self._parent_measured,
            Tick: self._tick,
            StopRequested: self._stop_requested,
        }

    def step(self, event: Event) -> list[Command]:
        """Take in what happened; return what to do, in order."""
        commands = self._handlers[type(event)](event)
        self.status.observe(event.now)
        return self.status.say() + commands

    # -- partitions --------------------------------------------------------------------------

    def _assigned(self, event: Assigned) -> list[Command]:
        for partition in event.partitions:
            self.ownership.assign(partition)
        return self.pauses.assigned(event.partitions, set(self.admission.held_back))

    def _revoked(self, event: Revoked) -> list[Command]:
        self.ownership.begin_drain(event.partitions, event.now + self.limits.drain_deadline_seconds)
        return self._advance(event.now)

    def _lost(self, event: Lost) -> list[Command]:
        for partition in event.partitions:
            self.ownership.lose(partition)
        self.pauses.forget(event.partitions)
        return self._advance(event.now)

    def _finish_drains(self, now: float) -> list[Command]:
        commands: list[Command] = []
        for drain in list(self.ownership.drains):
            if not (self.ownership.drained(drain) or now >= drain.deadline_at):
                continue
            self.ownership.drains.remove(drain)
            stopping = self._stopping and not self.ownership.drains
            if stopping:
                commands.extend(self._kill_rest())
            ends = self.ownership.ends(drain.partitions)
            if ends:
                commands.append(Commit(ends, wait=True))
            for partition in drain.partitions:
                self.ownership.fence(partition)
            self.pauses.forget(drain.partitions)
            if stopping:
                commands.append(Close())
            elif drain.partitions:
                commands.append(Release(drain.partitions))
            self._closed = self._closed or stopping
        return commands

    def _kill_rest(self) -> list[Command]:
        commands: list[Command] = []
        for process in self.ledger.processes:
            if process.chunks and not process.killing:
                process.killing = "stop"
                commands.append(KillProcess(process.number, "the drain deadline is over"))
        return commands

    # -- records -----------------------------------------------------------------------------

    def _fetched(self, event: Fetched) -> list[Command]:
        for fetched in event.runs:
            state = self.ownership.states.get(fetched.partition)
            if state is None or state.revoking or not len(fetched.columns):
                continue
            self._last_fetched_at = event.now
            self.fetching.note(fetched, event.now)
            self.admission.queue(state, fetched)
        return self._advance(event.now)

    def _end_reached(self, event: EndReached) -> list[Command]:
        state = self.ownership.states.get(event.partition)
        if state is not None and not state.revoking:
            state.position = max(state.position or 0, event.next_offset)
        return []

    def _chunk_finished(self, event: ChunkFinished) -> list[Command]:
        process = self.ledger.processes[event.process]
        if not process.chunks or process.chunks[0].chunk_id != event.chunk_id:
            return []
        chunk = process.chunks.pop(0)
        if process.chunks:
            process.chunks[0].started_at = event.now
        process.deaths_in_row = 0
        process.resident_bytes = event.outcome.resident_bytes
        self.measuring.finished(chunk, event.outcome)
        commands = self.settlement.finish(chunk, event.outcome, event.now)
        self.ownership.freed(chunk.pieces)
        # Results come one by one; the tick after the last of them admits for all.
        commands.extend(self.dispatcher.dispatch(event.now))
        if self.ownership.drains:
            commands.extend(self._finish_drains(event.now))
        return commands

    def _delivered(self, event: Delivered) -> list[Command]:
        commands = self.settlement.delivered(event)
        if self.ownership.drains:
            commands.extend(self._finish_drains(event.now))
        return commands

    # -- processes ---------------------------------------------------------------------------

    def _process_ready(self, event: ProcessReady) -> list[Command]:
        process = self.ledger.processes[event.process]
        process.ready = True
        process.killing = ""
        process.start_at = None
        process.baseline_bytes = process.resident_bytes = event.baseline_bytes
        return self._advance(event.now)

    def _process_died(self, event: ProcessDied) -> list[Command]:
        process = self.ledger.processes[event.process]
        chunks, why = process.chunks, process.killing
        process.chunks = []
        process.ready = False
        process.resident_bytes = process.baseline_bytes
        commands = self.settlement.abandon(chunks, why, event.cause)
        for chunk in chunks:
            self.ownership.freed(chunk.pieces)
        process.killing = ""
        if not self._closed:
            process.deaths_in_row += 1
            delay = 0.0
            if process.deaths_in_row > 1 and not chunks:
                delay = min(
                    RESTART_BACKOFF_SECONDS * 2.0 ** (process.deaths_in_row - 2),
                    RESTART_BACKOFF_LIMIT_SECONDS,
                )
            process.start_at = event.now + delay
            held = sum(int(chunk.load[RECORDS]) for chunk in chunks)
            again = f" holding {held:,} records; they are tried again" if held else ""
            commands.append(
                Say(
                    "warning",
                    f"handler process {event.process} died ({why or event.cause}){again}",
                )
            )
        return commands + self._advance(event.now)

    def _start_processes(self, now: float) -> list[Command]:
        commands: list[Command] = []
        for process in self.ledger.processes:
            if process.start_at is not None and process.start_at <= now and not self._closed:
                process.start_at = None
                commands.append(StartProcess(process.number))
        return commands

    def _kill_hung(self, now: float) -> list[Command]:
        commands: list[Command] = []
        for process in self.ledger.processes:
            if not process.chunks or process.killing:
                continue
            age = now - process.chunks[0].started_at
            if age > self._handler_timeout_seconds:
                process.killing = REASON_TIMED_OUT
                commands.append(
                    KillProcess(process.number, f"a chunk has been inside it for {age:.1f} s")
                )
        return commands

    # -- limits ------------------------------------------------------------------------------

    def _memory_sampled(self, event: MemorySampled) -> list[Command]:
        available = memory_available_bytes(
            event.limit_bytes,
            event.baseline_bytes,
            event.prefetch_bytes,
            self.config.memory_headroom_ratio,
        )
        self._memory_known = True
        self.limits.memory_available_bytes = available
        self.ledger.available_bytes = available
        return []

    def _parent_measured(self, event: ParentMeasured) -> list[Command]:
        self.measuring.parent_measured(event.messages, event.seconds)
        return []

    def gate(self) -> Gate:
        """Return the limits in force at the door."""
        config = self.config
        if config.fixed_vertices is not None:
            return Gate(None, config.fixed_vertices, "fixed")
        enforced = config.mode is Mode.ENFORCE
        deadline = self.limits.drain_deadline_seconds if enforced else None
        if not self.measuring.sized:
            return Gate(
                deadline,
                config.cap_vertices,
                "cap",
                INITIAL_CHUNKS * self.ledger.chunk_seconds * config.processes,
                INITIAL_CHUNKS * config.processes,
                max(1.0, INITIAL_MEMORY_RATIO * self.limits.memory_available_bytes),
            )
        return Gate(deadline, config.cap_vertices, "cap")

    # -- commits -----------------------------------------------------------------------------

    def _committed(self, event: Committed) -> list[Command]:
        self._commit_in_flight = False
        if event.error is not None:
            return [Say("warning", f"a commit failed: {event.error}; it is tried again")]
        for partition, offset in event.offsets.items():
            state = self.ownership.states.get(partition)
            if state is not None:
                state.committed = offset
        return []

    def _commit_due(self, now: float) -> list[Command]:
        if self._commit_in_flight or now - self._committed_at < self.config.commit_interval_seconds:
            return []
        ends = self.ownership.ends()
        if not ends:
            return []
        self._commit_in_flight = True
        self._committed_at = now
        return [Commit(ends)]

    # -- stop --------------------------------------------------------------------------------

    def _stop_requested(self, event: StopRequested) -> list[Command]:
        partitions = tuple(self.ownership.states)
        commands: list[Command] = []
        if self._closed:
            return commands
        if not self._stopping:
            self._stopping = True
            self.pauses.begin("draining", event.now)
            self.ownership.begin_drain(partitions, event.now + self.limits.drain_deadline_seconds)
        if event.at_once:
            for drain in self.ownership.drains:
                drain.deadline_at = event.now
        return commands + self._advance(event.now)

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stopping

    @property
    def last_fetched_at(self) -> float | None:
        """Monotonic time of the last fetched record."""
        return self._last_fetched_at

    # -- the next step -----------------------------------------------------------------------

    def _advance(self, now: float) -> list[Command]:
        """Admit, dispatch and settle what can be, after anything that may have made room."""
        self.measuring.refresh_model()
        if not self.admission.refused_by:
            self._admit(now)
        commands: list[Command] = list(self.dispatcher.dispatch(now))
        commands.extend(self._finish_drains(now))
        return commands

    def _admit(self, now: float) -> bool:
        """Admit what fits; return whether anything was admitted."""
        if self.settlement.deliveries_refused or self._stopping:
            return False
        admitted = self.admission.admit(self.gate(), now)
        for run in admitted:
            self.measuring.admitted(run, now, now + self._wall_clock_offset)
            for chain in {id(p.chain): p.chain for p in run.unfinished}.values():
                self.dispatcher.make_ready(chain)
        return bool(admitted)

    def _tick(self, event: Tick) -> list[Command]:
        now = event.now
        states = self.ownership.states
        commands = self._start_processes(now)
        commands.extend(self.settlement.wake(now))
        commands.extend(self._kill_hung(now))
        commands.extend(self._size(now))
        self.measuring.refresh_model()
        admitted = self._admit(now)
        commands.extend(self.dispatcher.dispatch(now))
        commands.extend(self._finish_drains(now))
        charge = self.ledger.value()
        verdict = self.admission.judge(self.gate(), charge=charge)
        if admitted and not self._holds_one_alone():
            fullest = max(verdict.ratio(bound) for bound in BOUNDS)
            self.most_admitted_ratio = max(self.most_admitted_ratio, fullest)
        self._reconsider_pause(verdict, charge, now)
        own = set(self.admission.held_back)
        # What a partition has fetched and not admitted goes first: resumed before, it would be
        # paused again at once.
        own |= {p for p in self.pauses.own if p in states and states[p].pending}
        commands.extend(self.pauses.reconcile(set(states), own, now))
        commands.extend(self._commit_due(now))
        fetch = self.fetching.next(
            verdict,
            charge,
            self.measuring.report,
            serve_only=self._stopping or self.pauses.everything,
        )
        if fetch is not None and not self._closed:
            self.pauses.served_at = now
            commands.append(fetch)
        return commands

    def _holds_one_alone(self) -> bool:
        """Whether one record is all that is held, but for what waits for a retry."""
        held = self.ledger.in_flight[RECORDS] - self.ledger.totals[PieceState.RETRYING][RECORDS]
        return int(held) <= 1

    def _size(self, now: float) -> list[Command]:
        """Publish a sizing when one is due."""
        if not self._memory_known:
            return []
        biased = bool(self.admission.held_back)
        reason = self.measuring.due(self.limits, now, biased=biased)
        available = self.limits.memory_available_bytes
        if not reason and self.measuring.sized:
            moved = abs(available / max(1, self._sized_for_bytes) - 1.0) > LIMIT_STEP_RATIO
            reason = "memory-limit" if moved else ""
        if not reason:
            return []
        self._sized_for_bytes = available
        wall = now + self._wall_clock_offset
        return [Publish(self.measuring.publish(reason, self.limits, now, wall))]

    def _reconsider_pause(self, verdict: Verdict, charge: Charge, now: float) -> None:
        if self._stopping:
            return
        refuser, ratio = self.fetching.fullest(verdict)
        if self.settlement.deliveries_refused:
            self.pauses.begin("delivery", now)
        elif refuser:
            self.pauses.when_full(
                refuser, ratio, charge.predicted_drain_seconds, self.admission.admitted_at, now
            )
        if not self.admission.refused_by and not self.settlement.deliveries_refused:
            left = self.ledger.model.seconds(self.ledger.waiting) / charge.effective_processes
            self.pauses.when_room(verdict.ratio(self.pauses.refuser or refuser), left, now)

    # -- for the driver, metrics and tests -----------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return one frozen picture of the worker."""
        return self.status.snapshot()

    def check_invariants(self) -> None:
        """Raise ``AssertionError`` where the sums do not agree with what is held."""
        self.status.check()

    def partitions(self) -> tuple[Partition, ...]:
        """Return the assigned partitions."""
        return tuple(self.ownership.states)
