"""Health: when a worker is to be restarted, when it works, and what is said of it."""

from __future__ import annotations

import pytest

from consumer.core.snapshot import Snapshot
from consumer.telemetry.health import Health
from tests.snapshots import SNAPSHOT, snapshot


class Driver:
    """What is asked of the driver: it took its last step at 1,000 s."""

    def __init__(self, picture: Snapshot) -> None:
        self.last_step_at = 1_000.0
        self.picture = picture

    def snapshot(self) -> Snapshot:
        """Return its picture."""
        return self.picture


def health_of(picture: Snapshot, now: float = 1_000.0, **changes: float) -> Health:
    """Return the health of a worker with a poll interval of 300 s."""
    health = Health(SNAPSHOT, max_poll_interval_seconds=300.0, clock=lambda: now, **changes)
    health.watch(Driver(picture))
    return health


def stalled(seconds: float) -> Snapshot:
    """Return the picture of a worker that has been stalled for so long."""
    return snapshot(
        state="stalled", state_cause="nothing finished", state_seconds={"stalled": seconds}
    )


def test_a_worker_without_a_driver_is_alive_and_not_ready():
    """The port is open while the handler loads: a probe must not restart it for that."""
    health = Health(SNAPSHOT, max_poll_interval_seconds=300.0)
    assert health.live() == (True, "starting")
    assert health.ready() == (False, "starting")
    assert health.snapshot() is SNAPSHOT


def test_the_picture_is_the_driver_s_from_then_on():
    """Metrics and pages show what the driver shows, at every look anew."""
    driver = Driver(snapshot(state="idle"))
    health = Health(SNAPSHOT, max_poll_interval_seconds=300.0)
    health.watch(driver)
    assert health.snapshot().state == "idle"
    driver.picture = snapshot(state="running")
    assert health.snapshot().state == "running"


@pytest.mark.parametrize(
    ("silent_seconds", "expected"),
    [
        (0.0, (True, "backpressured")),
        # half of 300 s
        (150.0, (True, "backpressured")),
        (151.0, (False, "the I/O thread has not moved for 151 s")),
    ],
)
def test_a_thread_that_does_not_move_is_to_be_restarted(silent_seconds, expected):
    """Half of the poll interval without a step: the group would take the partitions soon."""
    assert health_of(SNAPSHOT, 1_000.0 + silent_seconds).live() == expected


@pytest.mark.parametrize(
    ("changes", "seconds", "is_live"),
    [
        # 1.5 * half of 300 s
        ({}, 225.0, True),
        ({}, 226.0, False),
        # 1.5 * 20 s
        ({"handler_timeout_seconds": 20.0}, 30.0, True),
        ({"handler_timeout_seconds": 20.0}, 31.0, False),
    ],
)
def test_a_stall_that_outlasts_the_kill_is_to_be_restarted(changes, seconds, is_live):
    """What hangs is killed after the time limit; when that has not helped, a restart may."""
    reason = "stalled" if is_live else "stalled: nothing finished"
    assert health_of(stalled(seconds), **changes).live() == (is_live, reason)


@pytest.mark.parametrize("state", ["backpressured", "warming-up", "idle", "draining"])
def test_no_other_state_is_a_reason_to_restart(state):
    """A worker that is full for a day works; what it was before does not count."""
    picture = snapshot(state=state, state_seconds={state: 86_400.0, "stalled": 1_000.0})
    assert health_of(picture).live() == (True, state)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (True, "backpressured")),
        ({"state": "stalled"}, (True, "stalled")),
        ({"state": "draining"}, (False, "draining")),
        ({"joined": False}, (False, "joining the group")),
        ({"processes_ready": 0}, (False, "no handler process is open")),
    ],
)
def test_ready_is_in_the_group_with_an_open_process(changes, expected):
    """What is missing is said; being full or slow is no reason to be taken out."""
    assert health_of(snapshot(**changes)).ready() == expected
