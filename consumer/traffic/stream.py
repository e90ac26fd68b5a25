"""An endless stream of generated records, each block with the second at which it is due.

Owns the order of kinds and the timetable. The same seed and the same arguments give the same
records, however fast they are taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from consumer.traffic.mix import Day, Mix
from consumer.traffic.shapes import (
    GIANT,
    LARGEST_BY_DEFAULT,
    TOWN,
    VEHICLES,
    Box,
    Record,
    coastline,
    coastlines,
    lines,
    parcels,
    pings,
)

#: Records of a block when they are wanted as fast as possible.
LARGEST_BLOCK = 500
#: Bytes that a block should not exceed by much: it is made as a whole before it is sent.
BLOCK_BYTES = 8 * 1024 * 1024
LEAST_BLOCK = 8
#: A block is due at once; at a given rate it spans about this long.
_BLOCK_SECONDS = 0.05
#: A sum of many blocks' seconds that is this close to the end has reached it.
_ROUNDING_SECONDS = 1e-6


class Traffic:
    """Generated records, as many as are asked for.

    Parameters
    ----------
    seed : int
        Decides everything.
    vehicles : int, optional
        Vehicles that send pings.
    coast_vertices : (int, int), optional
        Least and most vertices of a coastline.
    within : Box, optional
        Where everything lies.
    """

    def __init__(
        self,
        seed: int,
        *,
        vehicles: int = VEHICLES,
        coast_vertices: tuple[int, int] = (1_000, LARGEST_BY_DEFAULT),
        within: Box = TOWN,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        #: records made so far, by kind
        self.made: Counter[str] = Counter()
        least, most = coast_vertices
        least = min(least, most)
        rng = self._rng
        self._make: dict[str, Callable[[int, int], list[Record]]] = {
            "pings": lambda n, first: pings(rng, n, first=first, vehicles=vehicles, within=within),
            "lines": lambda n, first: lines(rng, n, first=first, within=within),
            "polygons": lambda n, first: parcels(rng, n, first=first, within=within),
            "coastlines": lambda n, first: coastlines(
                rng, n, first=first, least=least, most=most, within=within
            ),
        }

    def take(self, n: int, mix: Mix) -> list[Record]:
        """Return the next ``n`` records, of kinds drawn by their shares."""
        kinds = list(mix.shares)
        chosen = self._rng.choice(len(kinds), size=n, p=list(mix.shares.values()))
        counts = np.bincount(chosen, minlength=len(kinds)).tolist()
        made = [iter(self._of_kind(kind, count)) for kind, count in zip(kinds, counts, strict=True)]
        return [next(made[kind]) for kind in chosen.tolist()]

    def giant(self, vertices: int = GIANT) -> Record:
        """Return one coastline of exactly so many vertices."""
        self.made["giants"] += 1
        return coastline(self._rng, vertices, number=self.made["giants"])

    def _of_kind(self, kind: str, n: int) -> list[Record]:
        first = self.made[kind]
        self.made[kind] += n
        return self._make[kind](n, first) if n else []


@dataclass(frozen=True, slots=True)
class Block:
    """Records that are due together."""

    #: seconds after the start
    due_seconds: float
    records: list[Record]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to generate: how much of what, when, and until when."""

    mix: Mix
    #: records a second, the mean of a day; None: as fast as they are taken
    rate: float | None = None
    #: whichever of the two comes first ends it; None: never
    count: int | None = None
    seconds: float | None = None
    day: Day | None = None
    #: coastlines of ``GIANT`` vertices, spread evenly; needs an end
    giants: int = 0
    #: which record is a giant instead of what it would be
    giant_every: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        if self.giants:
            expected = self.expected_records
            if expected is None:
                message = "giants are spread over a known number of records"
                raise ValueError(message)
            object.__setattr__(self, "giant_every", max(1.0, expected / self.giants))

    @property
    def expected_records(self) -> int | None:
        """Records that this makes, about: None when nothing says."""
        ends = [] if self.count is None else [self.count]
        if self.seconds is not None and self.rate is not None:
            ends.append(int(self.seconds * self.rate))
        return min(ends, default=None)


def blocks(traffic: Traffic, plan: Plan) -> Iterator[Block]:
    """Yield blocks of records in the order of the time at which they are due."""
    at, made, giants, largest = 0.0, 0, 0, LARGEST_BLOCK
    while (plan.count is None or made < plan.count) and (
        plan.seconds is None or plan.rate is None or at < plan.seconds - _ROUNDING_SECONDS
    ):
        day = plan.day
        mix = plan.mix if day is None else day.mix(plan.mix, at)
        size = largest
        if plan.rate is not None:
            rate = plan.rate * (1.0 if day is None else day.rate_factor(at))
            size = max(1, min(largest, round(rate * _BLOCK_SECONDS)))
        if plan.count is not None:
            size = min(size, plan.count - made)
        records = traffic.take(size, mix)
        while giants < plan.giants and (giants + 0.5) * plan.giant_every < made + size:
            giants += 1
            records[int((giants - 0.5) * plan.giant_every) - made] = traffic.giant()
        # Heavy mixes go in smaller blocks; what was made says how heavy this one is.
        mean_bytes = sum(len(value) for _, value in records) / max(1, size)
        largest = max(LEAST_BLOCK, min(LARGEST_BLOCK, int(BLOCK_BYTES / max(1.0, mean_bytes))))
        yield Block(at, records)
        made += size
        if plan.rate is not None:
            at += size / rate
