"""Generated event sequences: the core's promises hold after every step, whatever happens."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from consumer.core import commands as cmd
from consumer.core import events as ev
from consumer.core.config import FlowConfig, Ordering
from consumer.core.flow import Flow
from consumer.core.ledger.columns import Partition
from consumer.core.ledger.in_flight import PieceState
from consumer.core.limits import INITIAL_CHUNKS
from sizing.charge import Charge
from sizing.load import PAYLOAD_BYTES, RECORDS, VERTICES, zero_load
from tests.core import naive
from tests.core.harness import World
from tests.core.partition_log import PartitionLog

MEBIBYTE = 1 << 20
BASELINE_BYTES = 150 * MEBIBYTE
#: counted vertices, payload bytes of the kinds of record
KINDS = np.array(
    [[1, 179], [0, 0], [90, 2_400], [1, 900_000], [6_000, 190_000], [250_000, 8_000_000]]
)
ROUNDING = 1e-6


class CoreMachine(RuleBasedStateMachine):
    """The world does anything that it may; the core must keep its promises."""

    world: World[Flow]

    @initialize(
        processes=st.sampled_from([1, 2, 4]),
        ordering=st.sampled_from(list(Ordering)),
        outputs=st.booleans(),
        max_uncommitted=st.sampled_from([20, 100_000]),
        shutdown_grace_seconds=st.sampled_from([2.0, 30.0]),
        is_warm=st.booleans(),
    )
    def start(
        self,
        *,
        processes: int,
        ordering: Ordering,
        outputs: bool,
        max_uncommitted: int,
        shutdown_grace_seconds: float,
        is_warm: bool,
    ) -> None:
        config = FlowConfig(
            processes,
            ordering,
            outputs=outputs,
            max_uncommitted_messages=max_uncommitted,
            shutdown_grace_seconds=shutdown_grace_seconds,
            warmup_messages=20,
            warmup_seconds=0.1,
            max_attempts=3,
        )
        logs = [PartitionLog(("t", number)) for number in range(4)]
        self.config = config
        flow = Flow(config)
        self.watch_admissions(flow)
        self.world = World(flow, config, logs)
        self.sample_memory(512)
        if is_warm:
            self.world.assign(sorted(self.world.logs))
            self.pass_time(0.01)
            self.processes_get_ready()

    # -------------------------------------------------------------- the group

    def is_running(self) -> bool:
        """No revoke is under way (the client is inside its callback), and nobody stopped."""
        return not self.world.draining and self.world.stopping_since is None

    def is_open(self) -> bool:
        return not self.world.closed

    def may_rebalance(self) -> bool:
        return not self.world.draining or self.world.stopping_since is not None

    @precondition(is_running)
    @rule(data=st.data())
    def assign(self, data: st.DataObject) -> None:
        free = sorted(set(self.world.logs) - self.world.assigned)
        if free:
            self.world.assign(self.some(data, free))

    @precondition(may_rebalance)
    @rule(data=st.data(), lost=st.booleans())
    def take_away(self, data: st.DataObject, lost: bool) -> None:
        if self.world.assigned:
            partitions = self.some(data, sorted(self.world.assigned))
            if lost:
                self.world.lose(partitions)
            else:
                self.world.revoke(partitions)

    @precondition(is_running)
    @rule()
    def lose_what_is_inside_and_take_it_back(self) -> None:
        """Old chunks are still inside when the new epoch reads the same records again."""
        inside = {
            part.log.partition for chunk in self.world.chunks_inside() for part in chunk.parts
        }
        partitions = sorted(inside & self.world.assigned)
        if partitions:
            self.world.lose(partitions)
            self.world.assign(partitions)
            fetch = self.pass_time(0.01)
            logs = [self.world.logs[partition] for partition in partitions]
            logs = [log for log in self.world.fetchable() if log in logs]
            if fetch is not None and logs:
                left = max(1, fetch.max_records // len(logs))
                counts = [min(left, 20, len(log) - log.position) for log in logs]
                read = [(log, count) for log, count in zip(logs, counts, strict=True) if count]
                runs = [log.take(count) for log, count in read[: fetch.max_records]]
                if runs:
                    self.world.fetched(runs)

    # ---------------------------------------------------------------- fetching

    @rule(
        seconds=st.sampled_from([0.0, 0.001, 0.02, 0.3, 1.1, 6.0, 40.0, 200.0]),
        data=st.data(),
    )
    def tick(self, seconds: float, data: st.DataObject) -> None:
        fetch = self.pass_time(seconds)
        if fetch is not None:
            self.fetch(fetch, data)

    @rule(data=st.data())
    def busy_tick(self, data: st.DataObject) -> None:
        """A tick, and the fetch that it asks for returns records."""
        fetch = self.pass_time(0.005)
        if fetch is not None:
            self.fetch(fetch, data, least=1)

    def pass_time(self, seconds: float) -> cmd.Fetch | None:
        self.world.now += seconds
        return self.world.step(ev.Tick(self.world.now))

    def fetch(self, fetch: cmd.Fetch, data: st.DataObject, least: int = 0) -> None:
        logs = self.world.fetchable()
        if not logs or not self.is_running():
            return
        left = data.draw(st.integers(least, min(fetch.max_records, 40)), "records")
        runs = []
        while left > 0 and logs:
            log = logs.pop(data.draw(st.integers(0, len(logs) - 1), "partition"))
            count = data.draw(st.integers(1, left), "of it")
            if log.position + count > len(log):
                self.produce(log, log.position + count - len(log), data)
            runs.append(log.take(count))
            left -= count
        if runs:
            self.world.fetched(runs)

    def produce(self, log: PartitionLog, count: int, data: st.DataObject) -> None:
        random = np.random.default_rng(data.draw(st.integers(0, 50), "seed"))
        heaviest = data.draw(st.integers(1, len(KINDS)), "kinds")
        kinds = KINDS[random.integers(0, heaviest, count)]
        gaps = random.choice([1, 1, 1, 4], count)
        log.fill(
            offsets=log.end_offset + np.cumsum(gaps) - 1,
            key_hashes=random.integers(-3, 4, count) * 1_000_003,
            is_null_key=random.random(count) < data.draw(st.sampled_from([0.0, 0.3, 1.0]), "null"),
            vertices=kinds[:, 0].copy(),
            payload_bytes=kinds[:, 1].copy(),
        )

    @rule(data=st.data())
    def end_reached(self, data: st.DataObject) -> None:
        logs = self.world.fetchable()
        if logs:
            log = data.draw(st.sampled_from(logs), "partition")
            if log.position == len(log):
                log.end_offset += data.draw(st.integers(0, 1), "markers")
                self.world.end_reached(log.partition)

    # ---------------------------------------------------------------- processes

    @precondition(lambda self: any(p.state == "starting" for p in self.world.processes))
    @rule()
    def processes_get_ready(self) -> None:
        for number, process in enumerate(self.world.processes):
            if process.state == "starting":
                self.world.ready(number)

    def is_busy(self) -> bool:
        return bool(self.busy())

    def busy(self) -> list[int]:
        return [
            number
            for number, process in enumerate(self.world.processes)
            if process.chunks and process.state == "ready"
        ]

    @precondition(is_busy)
    @rule(
        data=st.data(),
        seconds_each=st.sampled_from([1e-6, 1e-3, 0.4, 20.0]),
        working_bytes=st.sampled_from([1_000, 3 * MEBIBYTE, 200 * MEBIBYTE]),
    )
    def finish(self, data: st.DataObject, seconds_each: float, working_bytes: int) -> None:
        process = data.draw(st.sampled_from(self.busy()), "process")
        count = len(self.world.processes[process].chunks[0])
        self.finish_chunk(process, seconds_each * count, working_bytes, self.trouble(data, process))

    def trouble(self, data: st.DataObject, process: int) -> dict[int, str]:
        """Draw what becomes of some records: retry, failed, skipped, with outputs."""
        count = len(self.world.processes[process].chunks[0])
        troubled = st.dictionaries(
            st.integers(0, count - 1), st.sampled_from("rrfso"), min_size=1, max_size=3
        )
        return data.draw(troubled, "trouble")

    @precondition(lambda self: self.world.stopping_since is None)
    @rule(data=st.data())
    def work_through(self, data: st.DataObject) -> None:
        """Read a lot, and let every process finish what it has, in trouble or not."""
        fetch = self.pass_time(0.005)
        if fetch is not None:
            self.fetch(fetch, data, least=min(fetch.max_records, 10))
        for process in self.busy():
            self.finish_chunk(process, 0.01, 10_000, self.trouble(data, process))
        for process in self.busy():
            self.finish_chunk(process, 0.01, 10_000, {})

    @precondition(is_busy)
    @rule(data=st.data())
    def finish_well(self, data: st.DataObject) -> None:
        self.finish_chunk(data.draw(st.sampled_from(self.busy()), "process"), 0.01, 10_000, {})

    def finish_chunk(
        self, process: int, seconds: float, working_bytes: int, troubled: dict[int, str]
    ) -> None:
        chunk = self.world.processes[process].chunks[0].chunk
        faults: dict[str, list[ev.RecordFault]] = {"f": [], "r": []}
        skipped: list[int] = []
        outputs: list[ev.Output] = []
        for index, kind in sorted(troubled.items()):
            if kind in faults:
                faults[kind].append(ev.RecordFault(index, "handler-error"))
            elif kind == "s":
                skipped.append(index)
            elif self.config.outputs:
                outputs.extend([ev.Output(index, None, b"out")] * 2)
        outcome = ev.ChunkOutcome(
            seconds=None if chunk.trace_allocations else seconds,
            cpu_seconds=seconds,
            working_bytes=working_bytes if chunk.sample_bytes else None,
            resident_bytes=60_000_000,
            exact_vertices=int(chunk.load[1]),
            failed=tuple(faults["f"]),
            retry=tuple(faults["r"]),
            skipped=tuple(skipped),
            outputs=tuple(outputs),
        )
        self.world.finish(process, outcome)

    @rule(data=st.data(), chance=st.integers(0, 2))
    def die(self, data: st.DataObject, chance: int) -> None:
        if chance:
            return
        alive = [n for n, p in enumerate(self.world.processes) if p.state != "absent"]
        if alive:
            self.world.die(data.draw(st.sampled_from(alive), "process"))

    @precondition(lambda self: any(p.state == "killed" for p in self.world.processes))
    @rule()
    def kills_arrive(self) -> None:
        for number, process in enumerate(self.world.processes):
            if process.state == "killed":
                self.world.die(number)

    # -------------------------------------------------------------- the broker

    @precondition(lambda self: self.world.deliveries)
    @rule(data=st.data(), error=st.sampled_from([None, None, "timed out", "too large"]))
    def deliver(self, data: st.DataObject, error: str | None) -> None:
        delivery = data.draw(st.sampled_from(sorted(self.world.deliveries)), "delivery")
        is_output = self.world.sent[delivery].destination is cmd.Destination.OUTPUT
        self.world.deliver(delivery, error, too_large=is_output and error == "too large")

    @precondition(lambda self: self.world.commit_in_flight is not None)
    @rule(error=st.sampled_from([None, None, "coordinator not available"]))
    def answer_commit(self, error: str | None) -> None:
        self.world.answer_commit(error)

    # ----------------------------------------------------------------- the rest

    @rule(limit_mebibytes=st.sampled_from([160, 240, 512, 4096]))
    def change_limit(self, limit_mebibytes: int) -> None:
        self.sample_memory(limit_mebibytes)
        parent_seconds = limit_mebibytes * 1e-5
        self.world.step(ev.ParentMeasured(self.world.now, 1000, parent_seconds))

    def sample_memory(self, limit_mebibytes: int) -> None:
        used = BASELINE_BYTES + self.world.held_bytes
        self.world.step(
            ev.MemorySampled(
                self.world.now,
                limit_bytes=limit_mebibytes * MEBIBYTE,
                baseline_bytes=BASELINE_BYTES,
                prefetch_bytes=8 * MEBIBYTE,
                used_bytes=used,
            )
        )

    @rule(chance=st.integers(0, 9), at_once=st.booleans())
    def stop(self, chance: int, at_once: bool) -> None:
        """Rarely, so that most sequences run on."""
        if chance == 7 and not self.world.closed:
            self.world.stop(at_once=at_once)

    @staticmethod
    def some(data: st.DataObject, partitions: list[Partition]) -> list[Partition]:
        chosen = st.lists(st.sampled_from(partitions), min_size=1, unique=True)
        return sorted(data.draw(chosen, "partitions"))

    # ----------------------------------------------------------------- promises

    def watch_admissions(self, flow: Flow) -> None:
        """Look at the charge right after each admission: dispatch follows in the same step."""
        pieces = flow.admission._pieces
        admit = pieces.admit

        def watched(*arguments: Any) -> Any:
            run = admit(*arguments)
            charge = flow.ledger.value()
            active = flow.ledger.in_flight - flow.ledger.totals[PieceState.RETRYING]
            if int(active[RECORDS]) > 1:
                available = flow.ledger.available_bytes
                used = charge.held_bytes + charge.inside_bytes
                assert used <= available + 1, f"{used:,.0f} of {available:,} bytes"
                room = available - charge.room_bytes
                assert charge.held_bytes <= room + 1, f"{charge.held_bytes:,.0f} of {room:,.0f}"
                deadline = flow.snapshot().drain_deadline_seconds
                drain = charge.drain_bound_seconds
                assert drain <= deadline + ROUNDING, (
                    f"drains in {drain:.2f} of {deadline:.2f} s: {charge}"
                )
                if flow.measuring.report is None:
                    self.check_initial_budget(charge, available, flow.ledger.chunk_seconds)
            return run

        pieces.admit = watched  # type: ignore[assignment, method-assign]

    def check_initial_budget(
        self, charge: Charge, available_bytes: int, chunk_seconds: float
    ) -> None:
        """Until there is a size: a few chunks for each process, and a tenth of the memory.

        A handler whose call costs much has longer chunks than the setting says.
        """
        chunks = INITIAL_CHUNKS * self.config.processes
        is_little_work = charge.seconds <= chunks * chunk_seconds + ROUNDING
        assert is_little_work or charge.messages <= chunks
        assert charge.held_bytes <= max(1.0, 0.1 * available_bytes) + 1

    @precondition(is_open)
    @invariant()
    def ledger_equals_the_naive_sums(self) -> None:
        counts = self.world.flow.ledger.counts()
        sums = naive.sums_by_state(self.world)
        assert counts["inside"] == sums["inside"]
        assert counts["unacknowledged"] == sums["unacknowledged"]
        pending = self.pending_sums()
        waits = [counts["waiting"], counts["retrying"], pending]
        held_by_core = naive.total(dict(enumerate(waits)))
        assert held_by_core == naive.total({n: sums[n] for n in ("waiting", "retrying")})
        snapshot = self.world.flow.snapshot()
        assert naive.total(sums) == (
            snapshot.in_flight_messages + pending[0],
            snapshot.in_flight_vertices + pending[1],
            snapshot.in_flight_bytes + pending[2],
        )

    def pending_sums(self) -> naive.Sums:
        """Return what the core has fetched and not admitted."""
        states = self.world.flow.ownership.states.values()
        loads = [run.load for state in states for run in state.pending]
        total = sum(loads, zero_load())
        return int(total[RECORDS]), int(total[VERTICES]), int(total[PAYLOAD_BYTES])

    @precondition(is_open)
    @invariant()
    def the_core_agrees_with_itself(self) -> None:
        self.world.flow.check_invariants()

    @precondition(is_open)
    @invariant()
    def pauses_are_what_the_client_has(self) -> None:
        assert set(self.world.flow.snapshot().paused) == self.world.paused

    def teardown(self) -> None:
        has_failed = sys.exc_info()[0] is not None
        if hasattr(self, "world") and not has_failed:
            self.settle()

    def settle(self) -> None:
        """Everything finishes: nothing is left, nothing stays paused."""
        world = self.world
        self.sample_memory(512)
        for _ in range(400):
            if world.closed or self.is_settled():
                break
            self.processes_get_ready()
            self.kills_arrive()
            while busy := self.busy():
                for process in busy:
                    self.finish_chunk(process, 0.01, 10_000, {})
            for delivery in sorted(world.deliveries):
                world.deliver(delivery)
            if world.commit_in_flight is not None:
                world.answer_commit()
            for log in world.fetchable():
                if log.position == len(log):
                    world.end_reached(log.partition)
            self.pass_time(0.9)
        if world.stopping_since is not None:
            assert world.closed, "stop does not end"
            return
        assert not world.unsettled(), f"never settled: {world.unsettled()}"
        assert not world.paused, f"still paused: {world.paused}"
        snapshot = world.flow.snapshot()
        assert snapshot.in_flight_messages == 0
        assert snapshot.in_flight_vertices == 0
        assert snapshot.in_flight_bytes == 0
        assert all(ratio <= ROUNDING for ratio in snapshot.used_ratio.values())
        for partition in sorted(world.assigned):
            least = self.least_committed(world.logs[partition])
            committed = world.committed.get(partition, 0)
            assert committed >= least, f"{partition}: {committed} committed of {least}"

    def is_settled(self) -> bool:
        world = self.world
        return (
            world.stopping_since is None
            and not world.unsettled()
            and not world.draining
            and not world.paused
            and not world.chunks_inside()
            and not world.deliveries
            and all(
                world.committed.get(p, 0) >= self.least_committed(world.logs[p])
                for p in world.assigned
            )
        )

    @staticmethod
    def least_committed(log: PartitionLog) -> int:
        """Return where the committed end must be when everything fetched is done."""
        if log.position == len(log):
            return log.end_offset
        return int(log.offsets[log.position - 1]) + 1 if log.position > log.first else 0


def run(**changes: Any) -> None:
    """Run the machine; a profile of its own, since each example is many steps."""
    run_state_machine_as_test(
        CoreMachine,
        settings=settings(
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            **changes,
        ),
    )


@pytest.mark.timeout(200)
def test_promises_hold_after_every_step() -> None:
    """Whatever the group, the processes and the broker do, in any order."""
    run(max_examples=200, stateful_step_count=50, derandomize=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_promises_hold_in_long_sequences() -> None:
    """The same, for many more and longer sequences."""
    run(max_examples=400, stateful_step_count=120)
