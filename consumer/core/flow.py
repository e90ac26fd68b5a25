"""The worker's decisions: ``Flow.step(event) -> commands``.

Owns the order of things: which part of the core hears of an event, and what follows from it.
The parts own their rules: ``admission`` (the door), ``dispatch`` (chunks), ``settle`` (ends),
``ownership`` (epochs and offsets), ``supervision`` (processes), ``fetching``, ``pausing``
(hysteresis), ``measuring`` (sizings), ``ledger`` (sums), ``limits`` (what refuses), ``status``
(states in words).

Rules: events in, commands out, and a snapshot for whoever wants to look; nothing outside the core
reads or sets anything else. No clock, no threads, no Kafka, no files, no randomness; ``now``
comes with the event. Commands are carried out in order. Only ``Tick`` is answered with ``Fetch``,
at most one, last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from consumer.core import invariants
from consumer.core.admission.admission import Admission
from consumer.core.admission.fetching import FetchPlan
from consumer.core.admission.pausing import PauseControl
from consumer.core.commands import (
    Close,
    Command,
    Commit,
    Publish,
    Release,
    Say,
    Wait,
)
from consumer.core.completion.ownership import Ownership
from consumer.core.completion.settlement import Settlement
from consumer.core.config import FlowConfig, Mode
from consumer.core.dispatch import Dispatcher
from consumer.core.events import (
    Assigned,
    ChunkFinished,
    ClientLost,
    Committed,
    Delivered,
    EndReached,
    Event,
    Fetched,
    Joined,
    Lost,
    MemorySampled,
    ParentMeasured,
    ProcessDied,
    ProcessReady,
    Revoked,
    StopRequested,
    Tick,
)
from consumer.core.ledger.columns import Partition
from consumer.core.ledger.in_flight import PieceState
from consumer.core.ledger.ledger import Ledger
from consumer.core.limits import LIMITS, NONE, Kind, Limits, Standing, Verdict
from consumer.core.measuring.schedule import Measuring
from consumer.core.picture import take_picture
from consumer.core.snapshot import Snapshot
from consumer.core.status import Facts, Status
from consumer.core.supervision import Supervision
from sizing.bounds import drain_deadline, memory_available_bytes
from sizing.charge import Charge
from sizing.load import RECORDS

#: Shards of a partition's keys: at least four chains for each process keep it busy.
LEAST_SHARDS = 16
SHARDS_PER_PROCESS = 4


class Flow:
    """The core.

    Parameters
    ----------
    config : FlowConfig
        Settings.
    wall_clock_offset : float
        Wall clock minus monotonic clock, in seconds: dates the sizings.
    """

    def __init__(
        self, config: FlowConfig, *, wall_clock_offset: float = 0.0, limits: Limits = LIMITS
    ) -> None:
        self._config = config
        self._wall_clock_offset = wall_clock_offset
        self._limits = limits
        deadline, source = drain_deadline(
            config.max_poll_interval_seconds,
            config.shutdown_grace_seconds,
            config.deadline_headroom_ratio,
        )
        self._standing = Standing(config, deadline, source)
        self.ledger = Ledger(config.processes, config.chunk_seconds)
        self.measuring = Measuring(self.ledger, limits, self._standing, config)
        self.shards = max(LEAST_SHARDS, SHARDS_PER_PROCESS * config.processes)
        self.admission = Admission(
            self.ledger,
            limits,
            self._standing,
            ordering=config.ordering,
            shard_count=self.shards,
            max_uncommitted_messages=config.max_uncommitted_messages,
        )
        self._dispatcher = Dispatcher(
            self.ledger, config.chunk_bytes, self.measuring.learning.wants_sample
        )
        self._settlement = Settlement(self.ledger, self._dispatcher, config)
        self.ownership = Ownership(self.ledger, self.admission, self._dispatcher, self._settlement)
        self._supervision = Supervision(
            self.ledger.processes,
            config.handler_timeout_seconds or config.max_poll_interval_seconds / 2.0,
        )
        self._fetching = FetchPlan(self.ledger, self.admission, config)
        self._pauses = PauseControl()
        self._status = Status()
        #: the fullest that a bound's limit was when records had been admitted and sent off; one
        #: that is alone may be over it
        self._most_admitted_ratio = 0.0
        self._memory_known = False
        self._commit_in_flight = False
        self._committed_at = -np.inf
        self._joined = False
        self._waits_for_instance_id = False
        self._stopping = False
        self._closed = False
        self._fetched_at: float | None = None
        self._wait_seconds = 0.0
        self._handlers: dict[type, Callable[[Any], list[Command]]] = {
            Assigned: self._assigned,
            Revoked: self._revoked,
            Lost: self._lost,
            Joined: self._has_joined,
            ClientLost: self._client_lost,
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
        self._status.pass_time(event.now)
        if self._status.is_due(event.now) or self._stopping:
            return self._status.look(self._facts(event.now), self._limited_by()) + commands
        return commands

    # -- partitions --------------------------------------------------------------------------

    def _assigned(self, event: Assigned) -> list[Command]:
        for partition in event.partitions:
            self.ownership.assign(partition)
        return self._pauses.assigned(event.partitions, set(self.admission.held_back))

    def _revoked(self, event: Revoked) -> list[Command]:
        self.ownership.begin_drain(
            event.partitions, event.now + self._standing.drain_deadline_seconds
        )
        return self._advance(event.now)

    def _lost(self, event: Lost) -> list[Command]:
        self._lose(event.partitions)
        return self._advance(event.now)

    def _lose(self, partitions: tuple[Partition, ...]) -> None:
        for partition in partitions:
            self.ownership.fence(partition)
        self._pauses.forget(partitions)

    def _has_joined(self, _: Joined) -> list[Command]:
        self._joined = True
        self._waits_for_instance_id = False
        return []

    def _client_lost(self, event: ClientLost) -> list[Command]:
        self._joined = False
        self._waits_for_instance_id = event.waits_for_instance_id
        self._commit_in_flight = False
        self._lose(tuple(self.ownership.states))
        return self._advance(event.now)

    def _finish_drains(self, now: float) -> list[Command]:
        commands: list[Command] = []
        for drain in list(self.ownership.drains):
            if not (self.ownership.drained(drain) or now >= drain.deadline_at):
                continue
            self.ownership.drains.remove(drain)
            stopping = self._stopping and not self.ownership.drains
            if stopping:
                commands.extend(self._supervision.kill_busy())
            ends = self.ownership.ends(drain.partitions)
            if ends:
                commands.append(Commit(ends, wait=True, last=stopping))
            for partition in drain.partitions:
                self.ownership.fence(partition)
            self._pauses.forget(drain.partitions)
            if stopping:
                commands.append(Close())
            elif drain.partitions:
                commands.append(Release(drain.partitions))
            self._closed = self._closed or stopping
        return commands

    # -- records -----------------------------------------------------------------------------

    def _fetched(self, event: Fetched) -> list[Command]:
        for fetched in event.runs:
            state = self.ownership.states.get(fetched.partition)
            if state is None or state.revoking or not len(fetched.columns):
                continue
            self._fetched_at = event.now
            self._fetching.note(fetched, event.now)
            self.admission.queue(state, fetched)
        return self._advance(event.now)

    def _end_reached(self, event: EndReached) -> list[Command]:
        state = self.ownership.states.get(event.partition)
        if state is not None and not state.revoking:
            state.position = max(state.position or 0, event.next_offset)
        return []

    def _chunk_finished(self, event: ChunkFinished) -> list[Command]:
        chunk = self._supervision.finished(
            event.process, event.chunk_id, event.outcome.resident_bytes, event.now
        )
        if chunk is None:
            return []
        self.measuring.finished(chunk, event.outcome)
        commands = self._settlement.finish(chunk, event.outcome, event.now)
        self.ownership.freed(chunk.pieces)
        # Results come one by one; the tick after the last of them admits for all.
        commands.extend(self._dispatcher.dispatch(event.now))
        if self.ownership.drains:
            commands.extend(self._finish_drains(event.now))
        return commands

    def _delivered(self, event: Delivered) -> list[Command]:
        commands = self._settlement.delivered(event)
        if self.ownership.drains:
            commands.extend(self._finish_drains(event.now))
        return commands

    # -- processes ---------------------------------------------------------------------------

    def _process_ready(self, event: ProcessReady) -> list[Command]:
        self._supervision.ready(event.process, event.baseline_bytes)
        return self._advance(event.now)

    def _process_died(self, event: ProcessDied) -> list[Command]:
        death = self._supervision.died(event.process, event.cause, event.now)
        commands = self._settlement.abandon(death.chunks, death.killed_for, event.cause)
        for chunk in death.chunks:
            self.ownership.freed(chunk.pieces)
        if not self._closed:
            commands.append(death.words)
        return commands + self._advance(event.now)

    # -- limits ------------------------------------------------------------------------------

    def _memory_sampled(self, event: MemorySampled) -> list[Command]:
        available = memory_available_bytes(
            event.limit_bytes,
            event.baseline_bytes,
            event.prefetch_bytes,
            self._config.memory_headroom_ratio,
        )
        self._memory_known = True
        self._standing.memory_available_bytes = available
        self.ledger.use_available_bytes(available)
        return []

    def _parent_measured(self, event: ParentMeasured) -> list[Command]:
        self.measuring.learning.parent_measured(event.messages, event.seconds)
        return []

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
        if (
            self._commit_in_flight
            or now - self._committed_at < self._config.commit_interval_seconds
        ):
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
            self._pauses.begin("draining", event.now)
            self.ownership.begin_drain(
                partitions, event.now + self._standing.drain_deadline_seconds
            )
        if event.at_once:
            for drain in self.ownership.drains:
                drain.deadline_at = event.now
        return commands + self._advance(event.now)

    # -- the next step -----------------------------------------------------------------------

    def _advance(self, now: float) -> list[Command]:
        """Admit, dispatch and settle what can be, after anything that may have made room."""
        self.measuring.learning.refresh_model()
        if not self.admission.refused_by:
            self._admit(now)
        commands: list[Command] = list(self._dispatcher.dispatch(now))
        commands.extend(self._finish_drains(now))
        return commands

    def _admit(self, now: float) -> bool:
        """Admit what fits; return whether anything was admitted."""
        if self._settlement.deliveries_refused or self._stopping:
            return False
        admitted = self.admission.admit(now)
        for run in admitted:
            self.measuring.admitted(run, now, now + self._wall_clock_offset)
            for chain in {id(p.chain): p.chain for p in run.unfinished}.values():
                self._dispatcher.make_ready(chain)
        return bool(admitted)

    def _tick(self, event: Tick) -> list[Command]:
        now = event.now
        commands: list[Command] = []
        if not self._closed:
            commands.extend(self._supervision.starts_due(now))
        commands.extend(self._settlement.wake(now))
        commands.extend(self._supervision.kill_hung(now))
        commands.extend(self._size(now))
        self.measuring.learning.refresh_model()
        admitted = self._admit(now)
        commands.extend(self._dispatcher.dispatch(now))
        commands.extend(self._finish_drains(now))
        charge = self.ledger.value()
        verdict = self._limits.judge(charge, self._standing)
        if admitted and not self._holds_one_alone():
            fullest = max(verdict.ratio(bound.name) for bound in self._limits.bounds)
            self._most_admitted_ratio = max(self._most_admitted_ratio, fullest)
        self._reconsider_pause(verdict, charge, now)
        commands.extend(self._pauses.reconcile(set(self.ownership.states), self._held_back(), now))
        commands.extend(self._commit_due(now))
        commands.extend(self._fetch(verdict, charge, now))
        return commands

    def _held_back(self) -> set[Partition]:
        """Return the partitions that are paused for a reason of their own."""
        states = self.ownership.states
        # What a partition has fetched and not admitted goes first: resumed before, it would be
        # paused again at once.
        waiting = {p for p in self._pauses.own if p in states and states[p].pending}
        return waiting | set(self.admission.held_back)

    def _fetch(self, verdict: Verdict, charge: Charge, now: float) -> list[Command]:
        """Return how long to wait for results, where that changes, and the next call for records."""
        commands: list[Command] = []
        if self._closed:
            return commands
        everything_paused = self._pauses.everything
        fetch = self._fetching.next(
            verdict,
            charge,
            self.measuring.report,
            serve_only=self._stopping or everything_paused,
        )
        has_room = fetch is not None and not everything_paused
        wait_seconds = self._fetching.result_wait_seconds(has_room=has_room)
        if wait_seconds != self._wait_seconds:
            self._wait_seconds = wait_seconds
            commands.append(Wait(wait_seconds))
        if fetch is not None:
            self._pauses.served_at = now
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
        reason = self.measuring.due(now, biased=bool(self.admission.held_back))
        if reason is None:
            return []
        return [Publish(self.measuring.publish(reason, now, now + self._wall_clock_offset))]

    def _reconsider_pause(self, verdict: Verdict, charge: Charge, now: float) -> None:
        if self._stopping:
            return
        refuser, ratio = self._fetching.fullest(verdict)
        if self._settlement.deliveries_refused:
            self._pauses.begin("delivery", now)
        elif refuser:
            self._pauses.when_full(
                refuser, ratio, charge.predicted_drain_seconds, self.admission.admitted_at, now
            )
        if not self.admission.refused_by and not self._settlement.deliveries_refused:
            left = self.ledger.model.seconds(self.ledger.waiting) / charge.effective_processes
            self._pauses.when_room(verdict.ratio(self._pauses.refuser or refuser), left, now)

    # -- what people see ---------------------------------------------------------------------

    def _refuser(self) -> str:
        """Return what keeps the next record out, or did until the way down is gone."""
        pauses = self._pauses
        return pauses.refuser or self.admission.refused_by or pauses.full_by

    def _facts(self, now: float) -> Facts:
        ledger, refuser = self.ledger, self._refuser()
        return Facts(
            now=now,
            held=int(ledger.in_flight[RECORDS]),
            waiting=int(ledger.waiting[RECORDS]),
            retrying=int(ledger.totals[PieceState.RETRYING][RECORDS]),
            empty=ledger.empty and not ledger.pending_bytes,
            processes=tuple(ledger.processes),
            fetched_at=self._fetched_at,
            finished_at=self._settlement.last_finished_at,
            stopping=self._stopping,
            waits_for_instance_id=self._waits_for_instance_id,
            measured=self._standing.sized or self._config.fixed_vertices is not None,
            refused_by=self._limits[refuser] if refuser else None,
        )

    def _limited_by(self) -> str:
        """Return what limits the work in flight now: the name of a limit, or "none"."""
        if self._config.mode is Mode.SHADOW and not self.admission.refused_by:
            return NONE
        refuser = self._refuser()
        if refuser:
            measured = self._limits[refuser].kind is Kind.BOUND
            return "ramp" if measured and self.measuring.ramp_holds else refuser
        processes = self.ledger.processes
        idle = any(process.ready and not process.chunks for process in processes)
        busy = any(process.chunks for process in processes)
        waiting = int(self.ledger.waiting[RECORDS]) and not self._dispatcher.ready_chains
        if self.admission.held_back or (idle and busy and waiting):
            return "ordering"
        return NONE

    def snapshot(self) -> Snapshot:
        """Return one frozen picture of the worker."""
        return take_picture(
            ledger=self.ledger,
            limits=self._limits,
            standing=self._standing,
            measuring=self.measuring,
            most_admitted_ratio=self._most_admitted_ratio,
            joined=self._joined,
            ownership=self.ownership,
            pauses=self._pauses,
            settlement=self._settlement,
            status=self._status,
        )

    def check_invariants(self) -> None:
        """Raise ``AssertionError`` where the sums do not agree with what is held."""
        invariants.check(self.ledger, self.ownership)
