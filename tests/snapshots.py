"""A snapshot made by hand, with a different number in every field."""

from __future__ import annotations

import dataclasses
from typing import Any

from consumer.core.limits import LIMITS
from consumer.core.snapshot import Snapshot
from sizing.report import BoundFigure, ClassFigure, Sample, SampleWindow, SizingReport

SIZING = SizingReport(
    reason="warm-up",
    at=100.0,
    vertex_budget=2_100_000,
    message_budget=4200,
    bounds=(
        BoundFigure("memory", 9_000_000, 18_000, "memory binds"),
        BoundFigure("deadline", 2_100_000, 4200, "the deadline binds"),
    ),
    binding="deadline",
    bytes_per_vertex=140.5,
    bytes_per_message=3100.0,
    seconds_per_vertex=1.25e-6,
    seconds_per_message=2e-5,
    vertices_per_second=800_000.0,
    parent_seconds_per_message=3e-6,
    memory_available_bytes=1_500_000_000,
    drain_deadline_seconds=15.0,
    deadline_source="shutdown-grace",
    processes=4,
    effective_processes=3.5,
    largest_chain_ratio=0.125,
    all_decoded_bound_vertices=8_000_000,
    sample=Sample(
        messages=2000,
        vertices=1_000_000,
        payload_bytes=25_000_000,
        exact_ratio=0.96,
        handler_seconds=2.5,
        cpu_ratio=0.99,
        first_at=1_700_000_000.0,
        last_at=1_700_000_030.0,
        windows=(SampleWindow("parcels", 0, 10, 1009), SampleWindow("parcels", 1, 5, 1004)),
        classes=(ClassFigure(1, 1500, 1500, 2e-6, 0.1, 150.0, 12.0),),
    ),
    notes=("memory: measured on 12 chunks",),
)

SNAPSHOT = Snapshot(
    at=1234.5,
    state="backpressured",
    state_cause="3 of 4 processes are inside one record of 184,923 vertices",
    state_seconds={"warming-up": 3.0, "backpressured": 7.5},
    limits=LIMITS,
    limits_shown={"memory": "1430 MiB are free", "deadline": "done in 15.0 s"},
    limited_by="deadline",
    sizing=SIZING,
    budget_vertices=2_000_000,
    budget_messages=4000,
    bound_vertices={"memory": 9_000_000, "deadline": 2_100_000},
    bound_messages={"memory": 18_000, "deadline": 4200},
    binding="deadline",
    in_flight_messages=3900,
    in_flight_vertices=1_950_000,
    in_flight_bytes=48_000_000,
    held_bytes=48_780_000.0,
    used_ratio={"memory": 0.25, "deadline": 0.875},
    charged_vertices={"memory": 2_250_000.0, "deadline": 1_837_500.0},
    memory_available_bytes=1_500_000_000,
    drain_deadline_seconds=15.0,
    deadline_source="shutdown-grace",
    drain_bound_seconds=13.125,
    predicted_drain_seconds=11.5,
    assigned=(("parcels", 0), ("parcels", 1)),
    paused=(("parcels", 1),),
    pauses_total=6,
    resumes_total=5,
    paused_seconds_total=42.25,
    messages_total={"done": 120_000, "dead-lettered": 2, "failed": 9},
    vertices_total=61_000_000,
    dead_letters_total={"malformed-json": 2},
    sizings_total={"warm-up": 1, "interval": 3},
    last_sizing_at=1_700_000_100.0,
    committed_end={("parcels", 0): 1010, ("parcels", 1): 1005},
    processes_ready=3,
    processes=4,
    mode="enforce",
    # Partition 7 went to another member: its lag is no longer ours to tell.
    lag_messages={("parcels", 0): 300, ("parcels", 1): 41, ("parcels", 7): 999},
    lag_seconds=1.5,
    pool_peak_ratio=0.62,
    joined=True,
)


def snapshot(**changes: Any) -> Snapshot:
    """Return ``SNAPSHOT`` with other values in some fields."""
    return dataclasses.replace(SNAPSHOT, **changes)
