"""The end of the story in words that a stranger understands.

Owns the sentences; counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from consumer.demo.account import Account
from consumer.demo.view import Scene
from consumer.demo.watch import Watch


def summary(
    console: Console,
    scene: Scene,
    watch: Watch,
    account: Account,
    *,
    worker_code: int,
    interrupted: bool,
) -> None:
    """Print what happened, and whether every record is accounted for."""
    for text in _sentences(scene, watch, account, worker_code, interrupted):
        # A log keeps its lines; a terminal wraps between words.
        console.print(text, soft_wrap=not console.is_terminal)


def _sentences(
    scene: Scene, watch: Watch, account: Account, worker_code: int, interrupted: bool
) -> Iterator[str]:
    if interrupted:
        yield "interrupted; what had been produced was finished first"
    broker = "a real Kafka" if scene.real_kafka else "the embedded broker"
    yield (
        f"[bold]{account.produced:,} records[/bold] went through {broker} and the worker"
        f" in {watch.seconds:.0f} s."
    )
    handled = f"{account.handled:,} were handled"
    if account.dead_lettered:
        reasons = ", ".join(f"{n} {r}" for r, n in sorted(account.dead_letter_reasons.items()))
        handled += f", {account.dead_lettered:,} went to the dead-letter topic ({reasons})"
    lost = "none was lost" if not account.lost else f"[red]{account.lost:,} were lost[/red]"
    twice = f"{account.duplicates:,} were handled twice" if account.duplicates else "none twice"
    yield f"  {handled}; {lost}, {twice}."
    if account.unfinished:
        yield f"  [red]{account.unfinished:,} were not handled in time[/red]: they wait in Kafka."
    if account.uncommitted > account.unfinished:
        yield f"  [red]{account.uncommitted:,} are not committed[/red]: they would be read again."
    yield from _bound_sentences(watch)
    full = watch.state_seconds.get("backpressured", 0.0)
    yield (
        f"  Fetching was paused {watch.picture.pauses:,} times; for {full:.0f} s the worker was"
        " full and let Kafka keep what was to come."
    )
    peak = watch.peak_bytes / scene.memory_limit_bytes
    evictions = f"{watch.evictions} times it lost a partition" if watch.evictions else ""
    yield (
        f"  At its peak it used {watch.peak_bytes >> 20} of {scene.memory_limit_bytes >> 20} MiB"
        f" ({peak:.0%}), and {evictions or 'it lost no partition'}."
    )
    stopped = "left its group in order" if worker_code == 0 else f"ended with {worker_code}"
    yield f"  Told to stop, it {stopped}."


def _bound_sentences(watch: Watch) -> Iterator[str]:
    if not watch.sizings:
        yield "  There was too little traffic for a sizing."
        return
    least = min(watch.sizings, key=lambda s: s.vertex_budget)
    most = max(watch.sizings, key=lambda s: s.vertex_budget)
    yield (
        f"  It sized itself {len(watch.sizings)} times: between {least.vertex_budget:,} vertices in"
        f" flight (the {least.binding} bound) and {most.vertex_budget:,} (the {most.binding} bound)."
    )
    binding = dict.fromkeys(s.binding for s in watch.sizings)
    limits = [watch.picture.limit(name) for name in binding]
    if len(limits) > 1:
        yield f"  {'Both' if len(limits) == 2 else 'Several'} bounds had their turn. To let more in:"
        for limit in limits:
            yield f"    where {limit['when_binding']}: {limit['what_to_do']}"
    else:
        (limit,) = limits
        yield f"  All the time {limit['when_binding']}. To let more in: {limit['what_to_do']}."
