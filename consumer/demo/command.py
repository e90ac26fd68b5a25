"""``vertex-budget demo``: broker, worker, traffic, view, and the account at the end.

Owns the order of things and the exit code. The main thread looks at the worker and shows it; one
more thread produces.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import orjson
from rich.console import Console

from consumer.demo.account import Account, settle
from consumer.demo.broker import DemoError, EmbeddedBroker, RealBroker
from consumer.demo.feed import Feed
from consumer.demo.scenario import DEAD_LETTERS, TOPICS, phases
from consumer.demo.summary import summary
from consumer.demo.view import Live, Plain, Scene, View
from consumer.demo.watch import Sizing, Watch
from consumer.demo.worker import GROUP, DemoWorker
from consumer.runtime.signals import StopSignals

#: How often the worker is looked at: often enough for the broker's room and for the eye.
_LOOK_SECONDS = 0.2
_START_SECONDS = 60.0
#: What was produced must be handled this long after the last record.
_DRAIN_SECONDS = 120.0


def run(*, seconds: float, as_json: bool, plain: bool, real_kafka: bool, seed: int) -> int:
    """Run the demonstration.

    Returns
    -------
    int
        0 when every record produced was handled or dead-lettered, else 1.

    Raises
    ------
    ConsumerError
        When the broker or the worker does not start, or ends.
    """
    console = Console(stderr=as_json, highlight=False)
    live = console.is_terminal and not plain
    folder = Path(tempfile.mkdtemp(prefix="vertex-budget-demo-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        signals = stack.enter_context(StopSignals())
        if real_kafka:
            console.print("starting a real Kafka (the first time, its jars are fetched) ...")
        broker: RealBroker | EmbeddedBroker = RealBroker() if real_kafka else EmbeddedBroker()
        stack.enter_context(broker)
        place = broker.place([*TOPICS, DEAD_LETTERS])
        worker = stack.enter_context(DemoWorker(place, folder, real_kafka=real_kafka))
        story = phases(giants=real_kafka)
        feed = Feed(place, story, seconds, seed)
        scene = Scene(worker.url, worker.memory_limit_bytes, real_kafka=real_kafka)
        watch = Watch(worker.port, worker.pid)
        view: Live | Plain = Live(console, scene) if live else Plain(console, scene)
        stack.enter_context(view)
        stage = _Stage(signals, worker, feed, watch, view)
        stage.wait_until_ready()
        watch.begin()
        feed.start()
        stage.produce()
        stage.drain()
        code = worker.stop()
        account = settle(feed.produced, folder, place.bootstrap_servers, GROUP)
        log_tail = worker.log_tail()
    if feed.failure:
        raise DemoError(feed.failure)
    interrupted = signals.count > 0
    summary(console, scene, watch, account, worker_code=code, interrupted=interrupted)
    good = account.is_complete and code == 0
    if not good:
        console.print(f"the worker ended with exit code {code}; its log ends with:\n{log_tail}")
    if as_json:
        print(orjson.dumps(_report(watch, account, worker.url)).decode())  # noqa: T201 - the result
    return 0 if good else 1


class _Stage:
    """The steps of a run, each looking at the worker until something is so."""

    def __init__(
        self, signals: StopSignals, worker: DemoWorker, feed: Feed, watch: Watch, view: View
    ) -> None:
        self._signals = signals
        self._worker = worker
        self._feed = feed
        self._watch = watch
        self._view = view

    def _look(self, step: str) -> bool:
        began = time.monotonic()
        self._worker.check()
        answered = self._watch.look()
        self._feed.done = dict(self._watch.done)
        self._view.show(step, self._watch, self._feed)
        time.sleep(max(0.0, _LOOK_SECONDS - (time.monotonic() - began)))
        return answered

    def wait_until_ready(self) -> None:
        """Look until the worker has joined its group."""
        until = time.monotonic() + _START_SECONDS
        while not (self._look("starting") and self._watch.picture.is_ready):
            if time.monotonic() > until:
                tail = self._worker.log_tail()
                msg = f"the worker is not ready after {_START_SECONDS:g} s; its log:\n{tail}"
                raise DemoError(msg)
            if self._signals.count:
                return

    def produce(self) -> None:
        """Look while records are produced."""
        while not self._feed.finished:
            self._look("traffic")
            if self._signals.count or self._feed.failure:
                self._feed.halt()

    def drain(self) -> None:
        """Look until everything that was produced is done."""
        until = time.monotonic() + _DRAIN_SECONDS
        signals = self._signals.count
        while not self._is_done() and time.monotonic() < until:
            self._look("draining")
            # A second Ctrl-C does not wait for what is left.
            if self._signals.count > max(1, signals) or self._feed.failure:
                return

    def _is_done(self) -> bool:
        done = self._watch.done
        return all(done.get(place, 0) >= n for place, n in self._feed.produced.items())


def _sizing(sizing: Sizing) -> dict[str, object]:
    data = asdict(sizing)
    bounds = data.pop("bounds")
    return data | {f"{name}_bound_vertices": vertices for name, vertices in bounds.items()}


def _report(watch: Watch, account: Account, url: str) -> dict[str, object]:
    return {
        "produced": account.produced,
        "handled": account.handled,
        "dead_lettered": account.dead_lettered,
        "dead_letter_reasons": dict(account.dead_letter_reasons),
        "lost": account.lost,
        "unfinished": account.unfinished,
        "duplicates": account.duplicates,
        "uncommitted": account.uncommitted,
        "evictions": watch.evictions,
        "max_charge_over_budget": round(watch.most_admitted_ratio - 1.0, 4) + 0.0,
        "sizings": [_sizing(sizing) for sizing in watch.sizings],
        "states": {state: round(t, 2) for state, t in watch.state_seconds.items()},
        "limited_by": {cause: round(t, 2) for cause, t in watch.limit_seconds.items()},
        "pauses": watch.picture.pauses,
        "peak_bytes": watch.peak_bytes,
        "metrics_url": f"{url}/metrics",
        "seconds": round(watch.seconds, 1),
    }
