"""The driver: one thread, one clock, and the adapters around the core.

Owns the loop: results of the handler processes, records of the client and the passing of time
become events; the core's commands are carried out in order. It decides nothing about records.

Rules: this thread owns the Kafka client, and never waits on a process, a commit or the log for
longer than a small fraction of the poll interval. Signals are numbers that it looks at. While
partitions are given back the processes are pumped inside the client's callback, without a call
for records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from consumer.core.commands import (
    Close,
    Command,
    Commit,
    Fetch,
    KillProcess,
    Pause,
    Produce,
    Publish,
    Release,
    Resume,
    Say,
    StartProcess,
    Submit,
    Wait,
)
from consumer.core.events import (
    Assigned,
    ChunkFinished,
    ClientLost,
    Committed,
    Event,
    Fetched,
    Joined,
    MemorySampled,
    ParentMeasured,
    ProcessReady,
    Revoked,
    StopRequested,
    Tick,
)
from consumer.core.flow import Flow
from consumer.core.ledger.columns import Partition
from consumer.core.snapshot import Snapshot
from consumer.kafka.client import KafkaClient
from consumer.kafka.errors import ClientFatalError
from consumer.kafka.last_commit import commit_last
from consumer.kafka.producer import RecordProducer
from consumer.kafka.queries import EndOffsets
from consumer.processes.pool import ProcessPool
from consumer.runtime.host import HostMemory
from consumer.runtime.signals import StopSignals
from consumer.telemetry.lag import Lag, lag_seconds
from consumer.telemetry.logs import Log

#: Longest wait for a result while partitions are given back.
GIVING_BACK_WAIT_SECONDS = 0.005
#: Memory, the parent's cost and the lag are looked at this often.
HOUSEKEEPING_SECONDS = 1.0
#: The picture for metrics and HTTP is renewed this often.
SNAPSHOT_SECONDS = 0.25
#: The parent's cost of a record is learnt from at least this many.
LEAST_MESSAGES_MEASURED = 1000
#: A dead client is made again after this; the broker may hold its old instance for 43 s.
REBUILD_SECONDS = 2.0
#: Drained partitions are given back even if the core says nothing for this long over its time.
RELEASE_MARGIN_SECONDS = 2.0


@dataclass(slots=True)
class Adapters:
    """Everything outside the core."""

    pool: ProcessPool
    producer: RecordProducer
    end_offsets: EndOffsets
    host: HostMemory
    make_client: Callable[[Callable[[Event], None]], KafkaClient]
    #: told every event before the core is
    record: Callable[[Event], None] | None = None


class Driver:
    """Runs one worker until it is told to stop.

    Parameters
    ----------
    flow : Flow
        The core.
    adapters : Adapters
        Client, processes, producer, host.
    log : Log
        Where the worker speaks.
    signals : StopSignals
        Entered by the caller.
    commit_waits : bool
        Whether the commit of a revoke may wait for its answer.
    on_stop : callable
        Told at each stop signal how many seconds the drain may take from now: what follows it
        (the last commit, leaving) can wait for a broker that is away.
    """

    def __init__(
        self,
        flow: Flow,
        adapters: Adapters,
        log: Log,
        signals: StopSignals,
        *,
        commit_waits: bool,
        on_stop: Callable[[float], None],
    ) -> None:
        self._flow = flow
        self._pool = adapters.pool
        self._producer = adapters.producer
        self._end_offsets = adapters.end_offsets
        self._host = adapters.host
        self._make_client = adapters.make_client
        self._record = adapters.record
        self._log = log
        self._signals = signals
        self._signals_seen = 0
        self._commit_waits = commit_waits
        self._on_stop = on_stop
        self._client: KafkaClient | None = None
        self._joined = False
        self._rebuild_at = 0.0
        self._released: set[Partition] = set()
        #: inside the callback of a revoke, where the client must not be called for records
        self._giving_back = False
        #: what the last commit commits, while it waits
        self._leaving_with: Mapping[Partition, int] = {}
        self._fetch: Fetch | None = None
        #: process -> the chunk for which its memory limit is raised
        self._raised: dict[int, int] = {}
        self._wait_seconds = 0.0
        self._closed = False
        self._last_housekeeping_at = 0.0
        self._last_snapshot_at = 0.0
        #: of turns that had records, results or deliveries, since the last look
        self._cpu_seconds = 0.0
        self._messages_measured = 0
        self._lag = Lag()
        self._pool_peak_ratio = 0.0
        self._snapshot = flow.snapshot()
        self._carry_out = self._table()
        self.last_step_at = time.monotonic()

    # -- for other threads ---------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the last picture; a whole one, from any thread."""
        return self._snapshot

    # -- the loop ------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Give one event to the core and carry out what follows."""
        if isinstance(event, ProcessReady):
            self._raised.pop(event.process, None)
            self._confine(event.process)
        elif isinstance(event, ChunkFinished) and (
            self._raised.get(event.process) == event.chunk_id
        ):
            del self._raised[event.process]
            self._confine(event.process)
        if self._record is not None:
            self._record(event)
        self._do(self._flow.step(event))

    def run(self) -> None:
        """Work until the core says that everything is settled."""
        self._housekeep(time.monotonic())
        while not self._closed:
            self._turn()

    def _turn(self) -> None:
        now = time.monotonic()
        cpu_seconds = time.thread_time()
        messages = self._messages_measured
        self.last_step_at = now
        self._look_at_signals(now)
        worked = self._pump(self._wait_seconds)
        now = time.monotonic()
        self.take(Tick(now))
        self._poll_client(now)
        if worked or self._messages_measured > messages:
            # Turns that only wait are no cost of records.
            self._cpu_seconds += time.thread_time() - cpu_seconds
        if now - self._last_housekeeping_at >= HOUSEKEEPING_SECONDS:
            self._housekeep(now)
        if now - self._last_snapshot_at >= SNAPSHOT_SECONDS:
            self._renew_snapshot(now)

    def _pump(self, wait_seconds: float) -> bool:
        """Take in results of processes and deliveries; return whether there were any."""
        events: list[Event] = [*self._pool.poll(wait_seconds), *self._producer.poll()]
        for event in events:
            self.take(event)
        return bool(events)

    def _confine(self, process: int, *, raised: bool = False) -> None:
        pid = self._pool.pid(process)
        if pid is not None:
            self._host.confine(pid, raised=raised)

    def _look_at_signals(self, now: float) -> None:
        count = self._signals.count
        if count == self._signals_seen:
            return
        self._signals_seen = count
        at_once = count > 1
        how = "leaving at once" if at_once else "draining; a second signal leaves at once"
        self._log.say("info", f"{self._signals.last}: {how}")
        self._on_stop(0.0 if at_once else self._snapshot.drain_deadline_seconds)
        self.take(StopRequested(now, at_once=at_once))

    # -- the client ----------------------------------------------------------------------------

    def _poll_client(self, now: float) -> None:
        if self._closed:
            return
        if self._client is None:
            if now < self._rebuild_at:
                self._pump(min(0.1, self._rebuild_at - now))
                return
            self._client = self._make_client(self._on_callback)
            self._client.subscribe()
        fetch, self._fetch = self._fetch, None
        if fetch is None:
            return
        try:
            events = self._client.consume(fetch.max_records, fetch.wait_seconds)
        except ClientFatalError as error:
            self._rebuild(error, now)
            return
        if self._client.joined and not self._joined:
            self._joined = True
            self.take(Joined(now))
        for trouble in self._client.take_errors():
            self._log.say("warning", f"Kafka: {trouble.text}", repeat_key=trouble.code)
        for event in events:
            if isinstance(event, Fetched):
                self._messages_measured += sum(len(run.columns) for run in event.runs)
            self.take(event)

    def _rebuild(self, error: ClientFatalError, now: float) -> None:
        """Make a new client after a fatal error; what the old one had is read again."""
        text = f"the Kafka client gave up ({error.text}); it is made again"
        self._log.say("warning", text, repeat_key=text)
        client, self._client = self._client, None
        self._joined = False
        self.take(ClientLost(now, waits_for_instance_id=error.waits_for_instance_id))
        if client is not None:
            client.close()
        self._rebuild_at = now + REBUILD_SECONDS

    def _on_callback(self, event: Event) -> None:
        """Take an assignment or its end, inside the client's callback."""
        if not isinstance(event, Revoked):
            self.take(event)
            if isinstance(event, Assigned):
                names = ", ".join(f"{t}[{p}]" for t, p in event.partitions)
                self._log.say("info", f"assigned: {names}")
            return
        drained = {p: self._leaving_with[p] for p in event.partitions if p in self._leaving_with}
        if drained and self._client is not None:
            self._client.commit(drained, wait=True)
        self._giving_back = True
        self._released.clear()
        self.take(event)
        until = event.now + self._snapshot.drain_deadline_seconds + RELEASE_MARGIN_SECONDS
        while not self._closed and not set(event.partitions) <= self._released:
            now = time.monotonic()
            self.last_step_at = now
            if now > until:
                break
            self._look_at_signals(now)
            self._pump(GIVING_BACK_WAIT_SECONDS)
            self.take(Tick(time.monotonic()))
        self._giving_back = False
        self._fetch = None

    # -- commands ------------------------------------------------------------------------------

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            self._carry_out[type(command)](command)

    def _table(self) -> dict[type, Callable[[Any], object]]:
        return {
            Submit: self._submit,
            Fetch: self._note_fetch,
            Wait: self._note_wait,
            Pause: self._switch,
            Resume: self._switch,
            Commit: self._commit,
            Produce: self._producer.send,
            StartProcess: lambda c: self._pool.start(c.process),
            KillProcess: self._kill_process,
            Release: lambda c: self._released.update(c.partitions),
            Close: self._close,
            Publish: self._publish,
            Say: self._say,
        }

    def _say(self, command: Say) -> None:
        # A state is told at every change of it; trouble that repeats itself is not.
        repeat_key = None if command.level == "info" else command.text
        self._log.say(command.level, command.text, command.fields, repeat_key=repeat_key)

    def _submit(self, command: Submit) -> None:
        if command.chunk.raise_memory_limit:
            self._raised[command.process] = command.chunk.chunk_id
            self._confine(command.process, raised=True)
        self._pool.submit(command.process, command.chunk)

    def _note_fetch(self, command: Fetch) -> None:
        self._fetch = command

    def _note_wait(self, command: Wait) -> None:
        self._wait_seconds = command.seconds

    def _kill_process(self, command: KillProcess) -> None:
        self._log.say("warning", f"killing handler process {command.process}: {command.why}")
        self._pool.kill(command.process)

    def _close(self, _: Close) -> None:
        self._closed = True

    def _publish(self, command: Publish) -> None:
        fields = {"pool_peak_ratio": round(self._pool_peak_ratio, 3)}
        self._log.say("info", command.report.line(), fields)
        for note in command.report.notes:
            self._log.say("info", f"sizing: {note}", repeat_key=note)
        self._renew_snapshot(time.monotonic())
        # Each sizing begins a measuring period of its own.
        self._pool_peak_ratio = 0.0

    def _switch(self, command: Pause | Resume) -> None:
        if self._client is None:
            return
        if isinstance(command, Pause):
            self._client.pause(command.partitions)
        else:
            self._client.resume(command.partitions)

    def _commit(self, command: Commit) -> None:
        if self._client is None:
            self.take(Committed(time.monotonic(), command.offsets, "no client"))
            return
        if command.last and not self._giving_back:
            self._leaving_with = command.offsets
            answer = commit_last(self._client, command.offsets)
            self._leaving_with = {}
        else:
            wait = command.wait and self._commit_waits
            answer = self._client.commit(command.offsets, wait=wait)
        if answer is not None:
            self.take(answer)

    # -- the outside ---------------------------------------------------------------------------

    def _housekeep(self, now: float) -> None:
        self._last_housekeeping_at = now
        picture = self._flow.snapshot()
        reading = self._host.sample(picture.held_bytes)
        used_ratio = reading.used_bytes / max(1, reading.limit_bytes)
        self._pool_peak_ratio = max(self._pool_peak_ratio, used_ratio)
        self.take(
            MemorySampled(
                now,
                reading.limit_bytes,
                reading.baseline_bytes,
                reading.prefetch_bytes,
                reading.used_bytes,
            )
        )
        if self._messages_measured >= LEAST_MESSAGES_MEASURED:
            self.take(ParentMeasured(now, self._messages_measured, self._cpu_seconds))
        self._cpu_seconds = 0.0
        self._messages_measured = 0
        for trouble in self._producer.take_errors():
            self._log.say("warning", f"Kafka: {trouble.text}", repeat_key=trouble.code)
        self._end_offsets.ask(picture.assigned)
        self._lag.note(self._end_offsets.take())

    def _renew_snapshot(self, now: float) -> None:
        self._last_snapshot_at = now
        picture = self._flow.snapshot()
        lag = self._lag.messages(picture)
        self._snapshot = replace(
            picture,
            lag_messages=lag,
            lag_seconds=lag_seconds(picture, sum(lag.values())),
            pool_peak_ratio=self._pool_peak_ratio or self._snapshot.pool_peak_ratio,
        )

    # -- the end -------------------------------------------------------------------------------

    def leave(self) -> None:
        """Leave the group. Can block while a broker is away: have a watchdog."""
        if self._client is not None:
            self._client.close()
            self._client = None
