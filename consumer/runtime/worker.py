"""The composition root: settings in, a running worker out, an exit code at the end.

Owns the order of the start (surroundings, port, cluster, first handler process, size of the pool,
core, adapters, driver) and of the end (drain, commit, leave, processes, port). Every failure of
the start is one error with what, where and what to check.

Rules: the port is open before anything is waited for, so that probes are answered from the start.
The pool is sized by what one process with the real handler takes, so that one is started first.
What is made is closed in reverse, however the start ends.
"""

from __future__ import annotations

import gc
import importlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from consumer.core.config import FlowConfig
from consumer.core.events import Event, ProcessDied, ProcessReady
from consumer.core.flow import Flow
from consumer.errors import ConfigError, ConsumerError, HandlerError
from consumer.kafka.client import KafkaClient
from consumer.kafka.gather import Figures
from consumer.kafka.producer import RecordProducer
from consumer.kafka.properties import (
    VARIABLE_PREFIX,
    client_properties,
    consumer_properties,
    max_poll_interval_seconds,
    prefetch_bound_bytes,
    producer_properties,
    session_timeout_seconds,
)
from consumer.kafka.queries import EndOffsets
from consumer.kafka.start_check import check_cluster
from consumer.kafka.topics import Topics
from consumer.payload import counting
from consumer.processes.pool import ProcessPool
from consumer.processes.slots import DEFAULT_SLOT_BYTES, SLOTS_PER_PROCESS
from consumer.runtime.driver import Adapters, Driver
from consumer.runtime.host import HostMemory
from consumer.runtime.recording import Header, Recorder
from consumer.runtime.signals import StopSignals
from consumer.runtime.watchdog import Watchdog
from consumer.settings.table import SETTINGS, Settings
from consumer.telemetry.health import Health
from consumer.telemetry.http import HttpServer
from consumer.telemetry.logs import Log, client_logger
from consumer.telemetry.metrics import MetricsRegistry
from consumer.version import worker_version
from sizing.limits import cpu_limit, memory_limit
from sizing.memory import proportional_set_bytes
from sizing.pool import pool_size


class _Share(NamedTuple):
    """A part of the memory limit, within a range."""

    ratio: float
    least_bytes: int
    most_bytes: int

    def of(self, limit_bytes: int) -> int:
        """Return the part of this limit."""
        return max(self.least_bytes, min(self.most_bytes, int(limit_bytes * self.ratio)))


#: What the client may prefetch: enough that it does not run dry between two calls.
PREFETCH = _Share(0.04, 4 << 20, 32 << 20)
#: The producer's queue: dead letters are few, and outputs are charged as long as they wait.
PRODUCER_QUEUE = _Share(0.02, 1 << 20, 32 << 20)
CLUSTER_TIMEOUT_SECONDS = 10.0
#: The handler may load a layer of polygons, or connect to a database.
OPEN_TIMEOUT_SECONDS = 120.0
#: Assumed working bytes of the largest chunk before anything is measured.
FIRST_CHUNK_BYTES = 8 << 20
#: A process that is killed at the end gets this long to close its handler.
CLOSE_SECONDS = 5.0
#: Slots are mapped by parent and child, and each one's proportional set holds half of them.
HALF_SLOTS_BYTES = SLOTS_PER_PROCESS * DEFAULT_SLOT_BYTES // 2
#: Settings that handlers read; their processes have them however they were given.
HANDLER_SETTINGS = ("join_layer", "join_property", "output_topic")

_VARIABLES = {row.name: row.variable for row in SETTINGS}
_log = Log("vertex-budget")


class StartError(ConsumerError):
    """The worker cannot start: what is wrong with its surroundings."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return self.text


def run(settings: Settings) -> int:
    """Run one worker until it is stopped.

    Returns
    -------
    int
        0 after a stop that left nothing undone.

    Raises
    ------
    ConsumerError, SizingError
        When the worker cannot start; the text says what to check.
    """
    with ExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        around = _look_around(settings)
        health = _health(settings)
        server = _serve(settings, health, stack)
        clients = _plan_clients(around, _brokers(around, settings.topics))
        pool = _make_pool(settings, around, stack)
        first = _open_first(pool, settings.handler, signals)
        if first is None:
            return 0
        rest = _measure_rest(pool)
        processes = _size_pool(settings, around, rest, clients.prefetch_bytes, server.port)
        config = settings.flow_config(processes, clients.max_poll_interval_seconds)
        wall_clock_offset = time.time() - time.monotonic()
        flow = Flow(config, wall_clock_offset=wall_clock_offset)
        watchdog = Watchdog(settings.shutdown_grace_seconds)
        driver = Driver(
            flow,
            _make_adapters(
                settings,
                clients,
                pool,
                rest,
                processes,
                record=_record(settings, config, wall_clock_offset, stack),
            ),
            _log,
            signals,
            commit_waits=_commit_may_wait(clients, flow.snapshot().drain_deadline_seconds),
            on_stop=watchdog.arm,
        )
        health.watch(driver)
        _calm_collector()
        # The core does not ask for a process that is ready.
        driver.take(first)
        driver.run()
        driver.leave()
        watchdog.disarm()
        _log.say("info", "left the group; everything in flight was settled or let go")
        return 0


# -- surroundings ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What the worker may use, found before anything is started."""

    memory_limit_bytes: int
    cores: float
    #: the user's Kafka properties, with the function for tokens
    kafka: Mapping[str, Any]


def _look_around(settings: Settings) -> _Surroundings:
    return _Surroundings(
        settings.memory_limit or memory_limit().limit_bytes,
        cpu_limit().cores,
        _kafka_properties(settings),
    )


def _kafka_properties(settings: Settings) -> dict[str, Any]:
    """Return the user's properties, with the function for OAUTHBEARER tokens if one is named."""
    properties: dict[str, Any] = dict(settings.kafka)
    if settings.oauth_cb is None:
        return properties
    module, _, attribute = settings.oauth_cb.partition(":")
    try:
        properties["oauth_cb"] = attrgetter(attribute)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        allowed = f"module:name of a function that returns a token ({error})"
        raise ConfigError(_VARIABLES["oauth_cb"], settings.oauth_cb, allowed) from None
    return properties


def _brokers(around: _Surroundings, topics: Sequence[str]) -> int:
    """Return how many brokers there are, once the topics are known to be there."""
    common = client_properties(around.kafka)
    cluster = check_cluster(common, topics, CLUSTER_TIMEOUT_SECONDS)
    if cluster.problems:
        raise StartError("; ".join(cluster.problems))
    return cluster.brokers


# -- what is asked from outside --------------------------------------------------------------------


def _health(settings: Settings) -> Health:
    return Health(
        Flow(settings.flow_config(1)).snapshot(),
        max_poll_interval_seconds=settings.max_poll_interval_seconds,
        handler_timeout_seconds=settings.handler_timeout_seconds,
    )


def _serve(settings: Settings, health: Health, stack: ExitStack) -> HttpServer:
    registry = MetricsRegistry(health.snapshot)
    server = HttpServer(settings.http_address, registry, health.snapshot, health.live, health.ready)
    server.start()
    stack.callback(server.close)
    return server


# -- Kafka's clients -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Clients:
    """The properties of each Kafka client, and what each may hold of records."""

    common: Mapping[str, Any]
    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]
    #: fetched by the client and not asked for
    prefetch_bytes: int
    #: handed to the producer's client and not acknowledged
    producer_queue_bytes: int

    @property
    def max_poll_interval_seconds(self) -> float:
        return max_poll_interval_seconds(self.consumer)


def _plan_clients(around: _Surroundings, brokers: int) -> _Clients:
    limit = around.memory_limit_bytes
    wanted = PREFETCH.of(limit)
    consumer = consumer_properties(around.kafka, prefetch_bytes=wanted, brokers=brokers)
    return _Clients(
        common=client_properties(around.kafka),
        consumer=consumer,
        producer=producer_properties(around.kafka),
        # Fetches have a least size, and the user may have set one: what came of it.
        prefetch_bytes=prefetch_bound_bytes(consumer, brokers=brokers),
        producer_queue_bytes=PRODUCER_QUEUE.of(limit),
    )


def _commit_may_wait(clients: _Clients, drain_deadline_seconds: float) -> bool:
    """Whether the commit of a revoke may wait for its answer, after the drain, and not evict."""
    longest = session_timeout_seconds(clients.consumer) + drain_deadline_seconds
    return longest < clients.max_poll_interval_seconds


# -- the pool and its size -------------------------------------------------------------------------


def _make_pool(settings: Settings, around: _Surroundings, stack: ExitStack) -> ProcessPool:
    most = settings.processes or max(1, int(around.cores))
    pool = ProcessPool(settings.handler, most, environment=_environment(settings))
    stack.callback(pool.close, CLOSE_SECONDS)
    return pool


def _environment(settings: Settings) -> Mapping[str, str]:
    """Return the environment of the handler processes: ours, and what handlers read."""
    # Credentials of the broker are none of the handler's business.
    ours = {n: value for n, value in os.environ.items() if not n.startswith(VARIABLE_PREFIX)}
    told = {_VARIABLES[name]: getattr(settings, name) for name in HANDLER_SETTINGS}
    return ours | {variable: value for variable, value in told.items() if value is not None}


def _open_first(pool: ProcessPool, handler: str, signals: StopSignals) -> ProcessReady | None:
    """Start one process with the real handler and wait until it is open; None: told to stop."""
    pool.start(0)
    until = time.monotonic() + OPEN_TIMEOUT_SECONDS
    while time.monotonic() < until:
        for event in pool.poll(0.1):
            if isinstance(event, ProcessReady):
                return event
            if isinstance(event, ProcessDied):
                raise HandlerError(handler, f"its process ended while opening it: {event.cause}")
        if signals.count:
            return None
    raise HandlerError(handler, f"not open after {OPEN_TIMEOUT_SECONDS:.0f} s")


@dataclass(frozen=True, slots=True)
class _Rest:
    """Memory at rest: with a handler open, before any record is read."""

    #: the parent, without its side of the slots
    parent_bytes: int
    #: one handler process, with both sides of its slots
    process_bytes: int


def _measure_rest(pool: ProcessPool) -> _Rest:
    """Measure the parent, and the one process that runs."""
    return _Rest(
        parent_bytes=proportional_set_bytes([os.getpid()]) - HALF_SLOTS_BYTES,
        process_bytes=proportional_set_bytes(pool.pids) + HALF_SLOTS_BYTES,
    )


def _size_pool(
    settings: Settings, around: _Surroundings, rest: _Rest, prefetch_bytes: int, port: int
) -> int:
    """Return the number of processes, as set or as fits, and say what it rests on."""
    size = pool_size(
        max(around.cores, float(settings.processes or 1)),
        around.memory_limit_bytes,
        rest.parent_bytes,
        prefetch_bytes,
        rest.process_bytes,
        FIRST_CHUNK_BYTES,
        settings.memory_headroom,
    )
    processes = settings.processes or size.processes
    _log.say(
        "info",
        f"{processes} handler processes of {rest.process_bytes >> 20} MiB"
        f" in {around.memory_limit_bytes >> 20} MiB"
        f" ({around.cores:g} cores, memory for {size.by_memory}); metrics on port {port}",
    )
    return processes


# -- the core, and what it is connected to ---------------------------------------------------------


def _record(
    settings: Settings, config: FlowConfig, wall_clock_offset: float, stack: ExitStack
) -> Recorder | None:
    """Return what every event is written to, if that is wanted."""
    if settings.record is None:
        return None
    header = Header(worker_version(), config, wall_clock_offset, time.monotonic())
    recorder = Recorder(Path(settings.record), header, _log.say)
    stack.callback(recorder.close)
    return recorder


def _make_adapters(
    settings: Settings,
    clients: _Clients,
    pool: ProcessPool,
    rest: _Rest,
    processes: int,
    *,
    record: Callable[[Event], None] | None,
) -> Adapters:
    figures = Figures(counting.counted_vertices, counting.key_hashes)

    def make_client(on_event: Callable[[Event], None]) -> KafkaClient:
        return KafkaClient(
            clients.consumer,
            settings.topics,
            on_event,
            clock=time.monotonic,
            figures=figures,
            logger=client_logger("vertex-budget.consumer"),
        )

    producer = RecordProducer(
        clients.producer,
        Topics(clients.common, clock=time.monotonic),
        clock=time.monotonic,
        queue_bytes=clients.producer_queue_bytes,
        worker_version=worker_version(),
        dead_letter_topic_name=settings.dlq_topic,
        output_topic=settings.output_topic,
        logger=client_logger("vertex-budget.producer"),
    )
    host = HostMemory(
        settings.memory_limit,
        lambda: pool.pids,
        parent_at_rest_bytes=rest.parent_bytes,
        parent_slots_bytes=processes * HALF_SLOTS_BYTES,
        processes_at_rest_bytes=processes * rest.process_bytes,
        prefetch_bytes=clients.prefetch_bytes,
    )
    return Adapters(
        pool=pool,
        producer=producer,
        end_offsets=EndOffsets(clients.common),
        host=host,
        make_client=make_client,
        record=record,
    )


def _calm_collector() -> None:
    """Keep the cyclic collector off the records: they are in columns and in no cycle.

    A fetch of 5,000 messages would set off a dozen collections, and the old ones walk everything.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
