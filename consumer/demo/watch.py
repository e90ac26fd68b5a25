"""What the worker shows of itself while it runs: the last picture, and what was seen on the way.

Owns the reading of ``/budget`` and the memory of what it said. Judges nothing: a figure that is
shown or reported is the worker's own.
"""

from __future__ import annotations

import http.client
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import psutil

from consumer.core.config import FlowConfig
from consumer.core.flow import Flow
from consumer.demo.feed import Partition
from consumer.telemetry.explanations import explained
from sizing.memory import proportional_set_bytes

_ANSWER_SECONDS = 2.0
#: Memory is looked at less often: the kernel walks every page for it.
_MEMORY_EVERY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Sizing:
    """One sizing, when it was seen."""

    at_seconds: float
    reason: str
    vertex_budget: int
    message_budget: int
    binding: str
    #: what limited the work in flight when it was seen
    limited_by: str
    #: bound -> vertices
    bounds: Mapping[str, int]


@dataclass(slots=True)
class Picture:
    """What ``/budget`` said last, in the words of the view."""

    state: str = "starting"
    cause: str = "the worker opens its handler and joins the group"
    limited_by: str = "none"
    binding: str | None = None
    vertex_budget: int = 0
    message_budget: int = 0
    #: what may limit the work, as ``/budget`` lists it
    limits: Sequence[Mapping[str, Any]] = field(
        default_factory=lambda: explained(Flow(FlowConfig(processes=1)).snapshot())["limits"]
    )
    bounds: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, float] = field(default_factory=dict)
    in_flight_messages: int = 0
    in_flight_vertices: int = 0
    in_flight_bytes: int = 0
    partitions: int = 0
    paused: int = 0
    pauses: int = 0
    handled: int = 0
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    processes_ready: int = 0
    processes: int = 0

    def limit(self, name: str) -> Mapping[str, Any]:
        """Return what ``/budget`` says of one limit."""
        return next(limit for limit in self.limits if limit["name"] == name)

    @property
    def is_ready(self) -> bool:
        """Whether it has joined the group and can handle records."""
        return self.partitions > 0 and self.processes_ready > 0


class Watch:
    """Reads a worker, and remembers.

    Parameters
    ----------
    port, pid : int
        Where it answers, and its process.
    """

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self._process = psutil.Process(pid)
        self._began = time.monotonic()
        self._memory_at = 0.0
        self._sized_at: float | None = None
        self._seen_at = self._began
        self.picture = Picture()
        #: partition -> next offset that is not done
        self.done: dict[Partition, int] = {}
        self.sizings: list[Sizing] = []
        #: state -> seconds, as the worker counts them
        self.state_seconds: dict[str, float] = {}
        #: what limited the work in flight -> seconds, as seen
        self.limit_seconds: Counter[str] = Counter()
        #: partitions that were taken away while it ran
        self.evictions = 0
        #: how full the fuller limit was at most when records had been let in
        self.most_admitted_ratio = 0.0
        #: proportional set size of the worker and its processes, the highest seen
        self.peak_bytes = 0

    def begin(self) -> None:
        """Count seconds from now."""
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since ``begin``."""
        return time.monotonic() - self._began

    def look(self) -> bool:
        """Read once; return whether it answered."""
        self._look_at_memory()
        answer = self._get("/budget")
        if answer is None:
            return False
        said = orjson.loads(answer)
        self._take(said)
        return True

    def _get(self, path: str) -> bytes | None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.read() if response.status == http.HTTPStatus.OK else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def _look_at_memory(self) -> None:
        now = time.monotonic()
        if now - self._memory_at < _MEMORY_EVERY_SECONDS:
            return
        self._memory_at = now
        try:
            family = [self._process, *self._process.children(recursive=True)]
        except psutil.Error:
            return
        self.peak_bytes = max(self.peak_bytes, proportional_set_bytes(p.pid for p in family))

    def _take(self, said: Mapping[str, Any]) -> None:
        figures = {name: figure["value"] for name, figure in said["figures"].items()}
        totals = said["totals"]
        partitions = said["partitions"]
        before = self.picture
        self.picture = picture = Picture(
            state=said["state"],
            cause=said["state_cause"],
            limited_by=said["limited_by"],
            binding=said["binding"],
            vertex_budget=figures["vertex_budget"],
            message_budget=figures["message_budget"],
            limits=said["limits"],
            bounds=figures["bound_vertices"],
            # Absent while one record alone takes all the room.
            used={bound: 1.0 if r is None else r for bound, r in figures["used_ratio"].items()},
            in_flight_messages=figures["in_flight_messages"],
            in_flight_vertices=figures["in_flight_vertices"],
            in_flight_bytes=figures["in_flight_bytes"],
            partitions=len(partitions),
            paused=sum(p["paused"] for p in partitions),
            pauses=totals["pauses"],
            handled=totals["messages"]["done"],
            dead_letters=totals["dead_letters"],
            processes_ready=said["processes"]["ready"],
            processes=said["processes"]["wanted"],
        )
        self.state_seconds = {s: t for s, t in said["state_seconds"].items() if t > 0}
        now = time.monotonic()
        self.limit_seconds[picture.limited_by] += now - self._seen_at  # type: ignore[assignment]
        self._seen_at = now
        if picture.state != "draining":
            self.evictions += max(0, before.partitions - picture.partitions)
        for partition in partitions:
            if partition["committed_end"] is not None:
                place = partition["topic"], partition["partition"]
                self.done[place] = partition["committed_end"]
        self.most_admitted_ratio = figures["most_admitted_ratio"] or 0.0
        self._take_sizing(said["sizing"], picture)

    def _take_sizing(self, sizing: Mapping[str, Any] | None, picture: Picture) -> None:
        if sizing is None or sizing["at"] == self._sized_at:
            return
        self._sized_at = sizing["at"]
        self.sizings.append(
            Sizing(
                round(self.seconds, 1),
                sizing["reason"],
                sizing["vertex_budget"],
                sizing["message_budget"],
                sizing["binding"],
                picture.limited_by,
                picture.bounds,
            )
        )
