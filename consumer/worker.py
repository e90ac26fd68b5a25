"""The composition root: settings in, a running worker out, an exit code at the end.

Owns the order of the start (limits, cluster, port, first handler process, pool, client) and of
the end (drain, commit, leave, processes, port). Every failure of the start is one error with
what, where and what to check.
"""

from __future__ import annotations

import gc
import importlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from operator import attrgetter
from typing import Any

from consumer import counting
from consumer.core.events import Event, ProcessDied, ProcessReady
from consumer.core.flow import Flow
from consumer.core.snapshot import Snapshot
from consumer.driver import Adapters, Driver
from consumer.errors import ConfigError, ConsumerError, HandlerError
from consumer.host import HostMemory
from consumer.http import HttpServer
from consumer.kafka.client import KafkaClient
from consumer.kafka.gather import Figures
from consumer.kafka.properties import (
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
from consumer.logs import Log, client_logger
from consumer.metrics import MetricsRegistry
from consumer.processes.pool import ProcessPool
from consumer.processes.slots import DEFAULT_SLOT_BYTES, SLOTS_PER_PROCESS
from consumer.producer import RecordProducer
from consumer.settings_table import Settings
from consumer.signals import StopSignals
from consumer.version import worker_version
from consumer.watchdog import Watchdog
from sizing.limits import cpu_limit, memory_limit
from sizing.memory import proportional_set_bytes
from sizing.pool import pool_size

CLUSTER_TIMEOUT_SECONDS = 10.0
#: The handler may load a layer of polygons, or connect to a database.
OPEN_TIMEOUT_SECONDS = 120.0
#: Share of the limit that the client may prefetch, and its range.
PREFETCH_RATIO = 0.04
PREFETCH_RANGE_BYTES = (4 << 20, 32 << 20)
#: Share of the limit for the producer's queue, and its range.
PRODUCER_RATIO = 0.02
PRODUCER_RANGE_BYTES = (1 << 20, 32 << 20)
#: Assumed working bytes of the largest chunk before anything is measured.
FIRST_CHUNK_BYTES = 8 << 20
#: A process that is killed at the end gets this long to close its handler.
CLOSE_SECONDS = 5.0

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
        return _run(settings, signals, stack)


def _run(settings: Settings, signals: StopSignals, stack: ExitStack) -> int:
    limit = settings.memory_limit or memory_limit().limit_bytes
    cores = cpu_limit().cores
    given = _kafka_properties(settings)
    common = client_properties(given)
    board = _Board(settings)
    server = HttpServer(
        settings.http_address,
        MetricsRegistry(board.snapshot),
        board.snapshot,
        board.live,
        board.ready,
    )
    server.start()
    stack.callback(server.close)
    cluster = check_cluster(common, settings.topics, CLUSTER_TIMEOUT_SECONDS)
    if cluster.problems:
        raise StartError("; ".join(cluster.problems))

    prefetch = _between(int(limit * PREFETCH_RATIO), PREFETCH_RANGE_BYTES)
    properties = consumer_properties(given, prefetch_bytes=prefetch, brokers=cluster.brokers)
    prefetch = prefetch_bound_bytes(properties, brokers=cluster.brokers)
    most = settings.processes or max(1, int(cores))
    pool = ProcessPool(settings.handler, most, environment=_environment(settings))
    stack.callback(pool.close, CLOSE_SECONDS)
    first = _open_first(pool, settings.handler, signals)
    if first is None:
        return 0
    # Slots are mapped by both sides, and each side's proportional set holds half of them.
    half_slots = SLOTS_PER_PROCESS * DEFAULT_SLOT_BYTES // 2
    footprint = proportional_set_bytes(pool.pids) + half_slots
    parent = proportional_set_bytes([os.getpid()]) - half_slots
    size = pool_size(
        max(cores, float(settings.processes or 1)),
        limit,
        parent,
        prefetch,
        footprint,
        FIRST_CHUNK_BYTES,
        settings.memory_headroom,
    )
    processes = settings.processes or size.processes
    _log.say(
        "info",
        f"{processes} handler processes of {footprint >> 20} MiB in {limit >> 20} MiB"
        f" ({cores:g} cores, memory for {size.by_memory}); metrics on port {server.port}",
    )

    flow = Flow(
        settings.flow_config(processes, max_poll_interval_seconds(properties)),
        wall_clock_offset=time.time() - time.monotonic(),
    )
    producer_queue = _between(int(limit * PRODUCER_RATIO), PRODUCER_RANGE_BYTES)
    figures = Figures(counting.counted_vertices, counting.key_hashes)

    def make_client(on_event: Callable[[Event], None]) -> KafkaClient:
        return KafkaClient(
            properties,
            settings.topics,
            on_event,
            clock=time.monotonic,
            figures=figures,
            logger=client_logger("vertex-budget.consumer"),
        )

    watchdog = Watchdog(settings.shutdown_grace_seconds)
    driver = Driver(
        flow,
        Adapters(
            pool=pool,
            producer=RecordProducer(
                producer_properties(given),
                Topics(common, clock=time.monotonic),
                clock=time.monotonic,
                queue_bytes=producer_queue,
                worker_version=worker_version(),
                dead_letter_topic_name=settings.dlq_topic,
                output_topic=settings.output_topic,
                logger=client_logger("vertex-budget.producer"),
            ),
            end_offsets=EndOffsets(common),
            host=HostMemory(
                settings.memory_limit,
                lambda: pool.pids,
                parent_at_rest_bytes=parent,
                parent_slots_bytes=processes * half_slots,
                processes_at_rest_bytes=processes * footprint,
                prefetch_bytes=prefetch,
            ),
            make_client=make_client,
        ),
        _log,
        signals,
        commit_waits=(
            session_timeout_seconds(properties) + flow.snapshot().drain_deadline_seconds
            < max_poll_interval_seconds(properties)
        ),
        on_stop=watchdog.arm,
    )
    board.driver = driver
    _calm_collector()
    # The core does not ask for a process that is ready.
    driver.take(first)
    driver.run()
    driver.leave()
    watchdog.disarm()
    _log.say("info", "left the group; everything in flight was settled or let go")
    return 0


def _calm_collector() -> None:
    """Keep the cyclic collector off the records: they are in columns and in no cycle.

    A fetch of 5,000 messages would set off a dozen collections, and the old ones walk everything.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


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


def _between(value: int, limits: tuple[int, int]) -> int:
    return max(limits[0], min(limits[1], value))


def _environment(settings: Settings) -> Mapping[str, str]:
    """Return the environment of the handler processes: ours, and what handlers read."""
    environment = {
        name: value
        for name, value in os.environ.items()
        # Credentials of the broker are none of the handler's business.
        if not name.startswith("KAFKA_")
    }
    for name, value in (
        ("VERTEX_BUDGET_JOIN_LAYER", settings.join_layer),
        ("VERTEX_BUDGET_JOIN_PROPERTY", settings.join_property),
        ("VERTEX_BUDGET_OUTPUT_TOPIC", settings.output_topic),
    ):
        if value is not None:
            environment[name] = str(value)
    return environment


def _kafka_properties(settings: Settings) -> dict[str, Any]:
    """Return the user's properties, with the function for OAUTHBEARER tokens if one is named."""
    properties: dict[str, Any] = dict(settings.kafka)
    if settings.oauth_cb is None:
        return properties
    module, _, attribute = settings.oauth_cb.partition(":")
    try:
        properties["oauth_cb"] = attrgetter(attribute)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        name = "VERTEX_BUDGET_OAUTH_CB"
        allowed = f"module:name of a function that returns a token ({error})"
        raise ConfigError(name, settings.oauth_cb, allowed) from None
    return properties


class _Board:
    """What other threads may ask of the worker, also before the driver exists."""

    def __init__(self, settings: Settings) -> None:
        self.driver: Driver | None = None
        self._settings = settings
        poll = max_poll_interval_seconds(settings.kafka)
        self._most_silent_seconds = poll / 2.0
        self._most_stalled_seconds = 1.5 * (settings.handler_timeout_seconds or poll / 2.0)
        self._empty = Flow(settings.flow_config(1)).snapshot()

    def snapshot(self) -> Snapshot:
        """Return the last picture."""
        return self._empty if self.driver is None else self.driver.snapshot()

    def live(self) -> tuple[bool, str]:
        """Return whether the worker need not be restarted, and why."""
        if self.driver is None:
            return True, "starting"
        silent = time.monotonic() - self.driver.last_step_at
        if silent > self._most_silent_seconds:
            return False, f"the I/O thread has not moved for {silent:.0f} s"
        picture = self.driver.snapshot()
        if (
            picture.state == "stalled"
            and picture.state_seconds["stalled"] > self._most_stalled_seconds
        ):
            return False, f"stalled: {picture.state_cause}"
        return True, picture.state

    def ready(self) -> tuple[bool, str]:
        """Return whether the worker does its work, and why not."""
        if self.driver is None:
            return False, "starting"
        picture = self.driver.snapshot()
        if picture.state == "draining":
            return False, "draining"
        if not picture.joined:
            return False, "joining the group"
        if not picture.processes_ready:
            return False, "no handler process is open"
        return True, picture.state
