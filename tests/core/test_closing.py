"""The end of a worker: what a stop waits for, and that nothing is asked of anybody afterwards."""

from __future__ import annotations

import numpy as np

from consumer.core import commands as cmd
from consumer.core import events as ev
from consumer.core.config import FlowConfig
from consumer.core.flow import Flow
from consumer.core.ledger.columns import Columns, FetchedRun

MiB = 1 << 20
TOWN = ("town", 0)


def one_record() -> FetchedRun:
    one = np.ones(1, dtype=np.int64)
    return FetchedRun(TOWN, Columns([b"{}"], None, 7 * one, 0 * one, one, 2 * one), None)


def test_nothing_follows_close_but_words() -> None:
    """The tick that closes, and every one after it, neither fetches nor waits for results."""
    flow = Flow(FlowConfig(1, shutdown_grace_seconds=2.0))
    flow.step(ev.MemorySampled(0.0, 512 * MiB, 100 * MiB, 16 * MiB, 100 * MiB))
    flow.step(ev.ProcessReady(0.0, 0, 40 * MiB))
    flow.step(ev.Assigned(0.0, (TOWN,)))
    flow.step(ev.Tick(0.1))
    flow.step(ev.Fetched(0.1, (one_record(),)))
    assert cmd.Wait(0.005) in flow.step(ev.Tick(0.15))
    flow.step(ev.StopRequested(0.2))
    # The drain may take one second; the record is inside for longer.
    said = flow.step(ev.Tick(1.3))
    kinds = [type(c) for c in said if not isinstance(c, cmd.Say)]
    assert kinds == [cmd.KillProcess, cmd.Commit, cmd.Close]
    assert [c for c in flow.step(ev.Tick(1.4)) if not isinstance(c, cmd.Say)] == []
