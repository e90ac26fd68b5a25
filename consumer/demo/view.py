"""What a person sees while it runs: a live view in a terminal, or lines.

Owns the pictures. Shows the worker's own figures, and the producer's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from consumer.core.limits import Kind
from consumer.core.reasons import SizingReason
from consumer.demo.feed import Feed
from consumer.demo.watch import Picture, Sizing, Watch

_INTRODUCTION = (
    "The worker measures what a vertex costs here, in bytes and in seconds, and takes from Kafka"
    " only what memory can hold and what can be finished in time. The smaller bound is its budget."
)
_BAR_CELLS = 20
_PARTS = " ▏▎▍▌▋▊▉█"
#: Sizings that the view has room for.
_SIZINGS_SHOWN = 5
_LINE_EVERY_SECONDS = 2.0
_WIDTH = 96

_STATE_COLOURS = {"running": "green", "backpressured": "yellow", "stalled": "red"}
_STEPS = {
    "starting": "starting the worker",
    "draining": "no more traffic; what waits is worked off",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """What stays the same during a run."""

    url: str
    memory_limit_bytes: int
    real_kafka: bool


class View(Protocol):
    """Shows one look at the worker after another."""

    def show(self, step: str, watch: Watch, feed: Feed) -> None:
        """Show the worker as it was just seen."""


class Plain:
    """Lines, for a log or a pipe: one every two seconds, and one for each sizing."""

    def __init__(self, console: Console, scene: Scene) -> None:
        self._console = console
        self._scene = scene
        self._next = 0.0
        self._sizings = 0
        self._said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def show(self, step: str, watch: Watch, feed: Feed) -> None:
        """Print what is new."""
        title = _title(step, feed)
        if title != self._said:
            self._said = title
            self._print(f"--- {title}")
            self._next = 0.0
        for sizing in watch.sizings[self._sizings :]:
            self._print(f"{sizing.at_seconds:5.1f} s  sized: {_sizing_words(sizing)}")
        self._sizings = len(watch.sizings)
        if step == "starting" or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LINE_EVERY_SECONDS
        picture = watch.picture
        used = ", ".join(f"{bound} {ratio:.0%} used" for bound, ratio in picture.used.items())
        self._print(
            f"{watch.seconds:5.1f} s  {picture.state}: {picture.cause}; {used};"
            f" {feed.records:,} produced, {picture.handled:,} handled,"
            f" {sum(picture.dead_letters.values())} dead letters"
        )

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)


class Live:
    """One view that is drawn again and again."""

    def __init__(self, console: Console, scene: Scene) -> None:
        self._scene = scene
        self._live = RichLive(console=console, refresh_per_second=10)
        self._console = console

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, step: str, watch: Watch, feed: Feed) -> None:
        """Draw."""
        width = min(_WIDTH, self._console.width)
        self._live.update(drawn(self._scene, step, watch, feed, width))


def drawn(scene: Scene, step: str, watch: Watch, feed: Feed, width: int) -> RenderableType:
    """Return the whole view, so many columns wide."""
    picture = watch.picture
    clock = "" if step == "starting" else f"  {watch.seconds:.0f} s"
    return Panel(
        Group(
            Text(_INTRODUCTION, "dim"),
            Text(),
            Text.assemble(("now  ", "dim"), (_title(step, feed), "bold")),
            Text(),
            _bounds(picture, _BAR_CELLS if width >= _WIDTH else _BAR_CELLS // 2),
            Text(),
            _now(picture, feed),
            Text(),
            _sizings(watch.sizings),
        ),
        title=f"[bold]vertex-budget demo[/bold]{clock}",
        subtitle=f"metrics {scene.url}/metrics   page {scene.url}/",
        box=box.ROUNDED,
        width=width,
        padding=(0, 1),
    )


def _title(step: str, feed: Feed) -> str:
    if step in _STEPS:
        return _STEPS[step]
    phase = feed.phase
    return f"{phase.name}: {phase.words}"


def _bounds(picture: Picture, bar_cells: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("may be in flight", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column("vertices", justify="right", no_wrap=True)
    table.add_column("of it in use", no_wrap=True)
    table.add_column(no_wrap=True)
    for limit in picture.limits:
        if limit["kind"] != Kind.BOUND:
            continue
        name, words = limit["name"], limit["limit"] or ""
        binds = picture.binding == name
        bound = picture.bounds.get(name, 0)
        style = "bold" if binds else ""
        table.add_row(
            Text(f"{name} bound", style),
            Text(words, style),
            Text(f"{bound:,}" if bound else "unmeasured", style),
            _bar(picture.used.get(name, 0.0), bar_cells),
            Text("◀ binds" if binds else "", "bold cyan"),
        )
    sized = picture.vertex_budget > 0
    table.add_row(
        Text("budget", "bold"),
        Text("the smallest" if sized else "small at first"),
        Text(f"{picture.vertex_budget:,}" if sized else "", "bold cyan"),
        Text(f"≈ {picture.message_budget:,} records" if sized else ""),
        Text(),
    )
    return table


def _bar(ratio: float, most_cells: int) -> Text:
    cells = min(1.0, ratio) * most_cells
    full = int(cells)
    part = _PARTS[int((cells - full) * 8)] if full < most_cells else ""
    colour = "green" if ratio < 0.7 else "yellow" if ratio <= 1.0 else "red"
    text = Text()
    text.append(("█" * full + part).ljust(most_cells), f"{colour} on grey23")
    text.append(f" {ratio:4.0%}")
    return text


def _now(picture: Picture, feed: Feed) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    colour = _STATE_COLOURS.get(picture.state, "cyan")
    table.add_row("worker", Text.assemble((picture.state, f"bold {colour}"), f": {picture.cause}"))
    table.add_row(
        "in flight",
        f"records {picture.in_flight_messages:,}, vertices {picture.in_flight_vertices:,},"
        f" {picture.in_flight_bytes / 1e6:.1f} MB",
    )
    paused = f"{picture.paused} of {picture.partitions} partitions"
    times = f"; paused {picture.pauses:,} times so far" if picture.pauses else ""
    table.add_row("paused", f"{paused}{times}")
    produced = feed.records
    dead = sum(picture.dead_letters.values())
    waiting = max(0, produced - picture.handled - dead - picture.in_flight_messages)
    full = "  (the broker is full: the producer waits)" if feed.waits_for_room else ""
    table.add_row(
        "records",
        f"{produced:,} produced, {picture.handled:,} handled, {waiting:,} wait in Kafka{full}",
    )
    reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(picture.dead_letters.items()))
    table.add_row("dead letters", f"{dead} ({reasons})" if dead else "none")
    return table


def _sizings(sizings: Iterable[Sizing]) -> RenderableType:
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    table.add_column("sized at", justify="right", no_wrap=True)
    table.add_column("budget", justify="right", no_wrap=True)
    table.add_column("binds", no_wrap=True)
    table.add_column("why it measured anew", no_wrap=True)
    rows = list(sizings)[-_SIZINGS_SHOWN:]
    for sizing in rows:
        table.add_row(
            f"{sizing.at_seconds:.1f} s",
            f"{sizing.vertex_budget:,}",
            sizing.binding,
            SizingReason.of(sizing.reason).headline,
        )
    for _ in range(_SIZINGS_SHOWN - len(rows)):
        table.add_row("", "", "", "")
    return table


def _sizing_words(sizing: Sizing) -> str:
    bounds = ", ".join(f"{name} {vertices:,}" for name, vertices in sizing.bounds.items())
    return (
        f"{SizingReason.of(sizing.reason).headline}; budget {sizing.vertex_budget:,} vertices,"
        f" the {sizing.binding} bound binds ({bounds})"
    )
