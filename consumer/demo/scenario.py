"""The story: a night of pings, a busy hour of parcels and coastlines, a burst, and night again.

Owns the phases and what goes wrong in them. Pure: which records, on which topic, when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from consumer.demo.handler import CRASH_MARK
from consumer.traffic.mix import Mix, mix_of
from consumer.traffic.shapes import Record
from consumer.traffic.stream import Traffic

VEHICLES = "vehicles"
LAND = "land"
TOPICS = (VEHICLES, LAND)
DEAD_LETTERS = "demo.dlq"

#: A record every so often is enough: the worker sees them in batches anyway.
TICK_SECONDS = 0.2
#: Most bytes of a topic's partition that wait, of what the broker can hold: a backlog of land is
#: work for many seconds, one of pings for one.
ROOM_RATIO = {VEHICLES: 1.0, LAND: 0.8}
#: Least and most vertices of a coastline, but for giants.
COAST_VERTICES = (500, 6_000)


@dataclass(frozen=True, slots=True)
class Phase:
    """Some seconds of traffic of one kind."""

    name: str
    #: what a person should look for
    words: str
    #: of the whole time
    share: float
    #: records a second by topic
    rates: dict[str, float]
    #: of the topic LAND
    land: Mix | None = None
    #: pings that come at once when it begins
    burst: int = 0
    #: records that go wrong, half-way: which, and what it is
    poison: tuple[tuple[str, str], ...] = ()
    #: coastlines of 200,000 vertices, spread over it
    giants: int = 0


_CUT_SHORT = (b"4007", b'{"type":"Feature","properties":{"vehicle_id":"4007"},"geometry":{"ty')
_CRASHES = (
    b"parcel-13",
    b'{"type":"Feature","properties":{%b},"geometry":{"type":"Polygon",'
    b'"coordinates":[[[-3,53.4],[-3,53.5],[-2.9,53.4],[-3,53.4]]]}}' % CRASH_MARK,
)
_POISON = {"malformed": (VEHICLES, _CUT_SHORT), "crash": (LAND, _CRASHES)}

_BUSY = mix_of({"lines": 0.35, "polygons": 0.45, "coastlines": 0.2})
_NIGHT_RATE = 8_000.0


def phases(*, giants: bool) -> tuple[Phase, ...]:
    """Return the phases; with giants, the busy hour has coastlines no other record comes near."""
    return (
        Phase(
            "night",
            "buses and lorries report where they are: many small records",
            0.28,
            {VEHICLES: _NIGHT_RATE},
            poison=(("malformed", "a ping that was cut short"),),
        ),
        Phase(
            "busy hour",
            "parcels and coastlines from the land registry: few records, many vertices",
            0.38,
            {VEHICLES: _NIGHT_RATE / 4, LAND: 800.0},
            land=_BUSY,
            poison=(("crash", "a parcel that kills the process that handles it"),),
            giants=3 if giants else 0,
        ),
        Phase(
            "evening",
            "only pings again; what waits from the busy hour is worked off",
            0.2,
            {VEHICLES: _NIGHT_RATE},
        ),
        Phase(
            "burst",
            "buses come back into coverage and send all that they have kept",
            0.14,
            {VEHICLES: _NIGHT_RATE},
            burst=75_000,
        ),
    )


#: What goes wrong in a phase does so after this share of it.
_POISON_SHARE = 0.4


def extras_of(phase: Phase, traffic: Traffic) -> list[tuple[float, str, Record]]:
    """Return what comes beside the usual: share of the phase at which it is due, topic, record."""
    extras = [(_POISON_SHARE, *_POISON[kind]) for kind, _ in phase.poison]
    giants = [((n + 0.5) / phase.giants, LAND, traffic.giant()) for n in range(phase.giants)]
    return sorted(extras + giants)


@dataclass(frozen=True, slots=True)
class Due:
    """Records for one topic, due at a second of the phase."""

    at_seconds: float
    topic: str
    records: list[Record]


def records_of(phase: Phase, seconds: float, traffic: Traffic) -> Iterator[Due]:
    """Yield the records of a phase of so many seconds, in the order of time."""
    pings = mix_of({"pings": 1.0})
    for _ in range(phase.burst // 500):
        yield Due(0.0, VEHICLES, traffic.take(500, pings))
    ticks = max(1, round(seconds / TICK_SECONDS))
    owed = dict.fromkeys(phase.rates, 0.0)
    for tick in range(ticks):
        at = tick * TICK_SECONDS
        for topic, rate in phase.rates.items():
            owed[topic] += rate * TICK_SECONDS
            n = int(owed[topic])
            owed[topic] -= n
            mix = phase.land if topic == LAND and phase.land is not None else pings
            yield Due(at, topic, traffic.take(n, mix))
