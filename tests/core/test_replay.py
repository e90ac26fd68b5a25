"""A recorded list of events is the incident: another core says the very same to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from consumer.core import commands as cmd
from consumer.core import events as ev
from consumer.core.config import FlowConfig
from consumer.core.flow import Flow
from consumer.runtime.event_codec import codec, event_line, event_of
from consumer.runtime.recording import Header, Recorder, Recording
from tests.core.scenarios import SCENARIOS
from tests.core.simulator import Simulation
from tests.core.test_stateful import CoreMachine

#: what a dead letter carries of the record itself, for which a recording has stand-ins
PAYLOAD = ("key", "value", "headers")


def told(commands: list[cmd.Command]) -> bytes:
    """Return commands as text: everything about them but payloads."""
    plain = []
    for command in commands:
        kind: type = type(command)
        fields: Any = codec(kind).plain(command)
        if isinstance(command, cmd.Produce):
            fields = {name: value for name, value in fields.items() if name not in PAYLOAD}
        plain.append([kind.__name__, fields])
    return orjson.dumps(plain, option=orjson.OPT_SERIALIZE_NUMPY)


class ReplayedMachine(CoreMachine):
    """The machine of the generated sequences, whose every sequence is replayed at its end."""

    def watch_admissions(self, flow: Flow) -> None:
        super().watch_admissions(flow)
        self.recorded: list[tuple[bytes, bytes]] = []
        step = flow.step

        def recorded(event: ev.Event) -> list[cmd.Command]:
            line = event_line(event)
            commands = step(event)
            self.recorded.append((line, told(commands)))
            return commands

        flow.step = recorded  # type: ignore[method-assign]

    def teardown(self) -> None:
        super().teardown()
        if not hasattr(self, "recorded"):
            return
        flow = Flow(self.config)
        for number, (line, commands) in enumerate(self.recorded):
            again = told(flow.step(event_of(orjson.loads(line))))
            assert again == commands, f"event {number}: {line!r}"
        flow.check_invariants()


@pytest.mark.timeout(200)
def test_generated_sequences_are_replayed_command_for_command() -> None:
    """Whatever the group, the processes and the broker do: the same events, the same commands."""
    run_state_machine_as_test(
        ReplayedMachine,
        settings=settings(
            deadline=None,
            suppress_health_check=list(HealthCheck),
            max_examples=60,
            stateful_step_count=50,
            derandomize=True,
        ),
    )


@pytest.mark.parametrize("name", ["mix", "bytes-hidden"])
def test_simulated_traffic_is_replayed_from_its_file(name: str, tmp_path) -> None:
    """Sizings, chunks, commits and pauses of some seconds come out of the file again."""
    setup = replace(SCENARIOS[name](), seconds=12.0)
    answers: list[bytes] = []
    header = Header("1", setup.config, 0.0, 0.0)
    recorder = Recorder(tmp_path / "recording.gz", header, print)

    class RecordedFlow(Flow):
        def step(self, event: ev.Event) -> list[cmd.Command]:
            recorder(event)
            commands = super().step(event)
            answers.append(told(commands))
            return commands

    def make_core(config: FlowConfig) -> Flow:
        return RecordedFlow(config)

    simulation = Simulation(setup, make_core)
    simulation.run()
    recorder.close()
    assert simulation.world.published
    recording = Recording(tmp_path / "recording.gz")
    flow = Flow(recording.header.config)
    again = [told(flow.step(event)) for event in recording]
    assert again == answers
    assert recording.ended == "the worker stopped"
    assert flow.snapshot() == simulation.world.flow.snapshot()
