"""The page at ``/``: what the worker does now, in one plain HTML document without outside assets."""

from __future__ import annotations

import html

from consumer.core.snapshot import Snapshot
from consumer.version import worker_version


def page(snapshot: Snapshot, paths: tuple[str, ...]) -> str:
    """Return the page that a person reads: state, budget, what binds, and where the rest is."""

    def row(name: str, value: str) -> str:
        return f"<tr><th scope=row>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"

    bounds = ", ".join(f"{name} {value:,}" for name, value in snapshot.bound_vertices.items())
    limits = {row.name: row for row in snapshot.limits}
    binding, limiting = limits.get(snapshot.binding), limits.get(snapshot.limited_by)
    rows = "".join(
        (
            row("State", f"{snapshot.state}: {snapshot.state_cause}"),
            row(
                "Budget",
                f"{snapshot.budget_vertices:,} vertices / {snapshot.budget_messages:,} messages",
            ),
            row("Bounds (vertices)", bounds or "not measured yet"),
            row("Binding bound", f"{binding.binds}: {binding.advice}" if binding else "none yet"),
            row("Limited by", limiting.meaning if limiting else "nothing"),
            row(
                "In flight",
                f"{snapshot.in_flight_vertices:,} vertices / {snapshot.in_flight_messages:,}"
                f" messages / {snapshot.in_flight_bytes:,} bytes",
            ),
            row("Partitions", f"{len(snapshot.assigned)} assigned, {len(snapshot.paused)} paused"),
            row("Last sizing", snapshot.sizing.line() if snapshot.sizing else "none yet"),
        )
    )
    links = " ".join(f'<a href="{path}">{path}</a>' for path in paths)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>Vertex Budget</title><style>body{font:1rem/1.5 system-ui,sans-serif;margin:1rem;"
        "max-width:50rem}th{text-align:left;vertical-align:top;padding-right:1rem}"
        "a{margin-right:1rem}</style>"
        f"<h1>Vertex Budget</h1><table>{rows}</table><p>{links}</p>"
        f"<p>Version {html.escape(worker_version())}</p></html>"
    )
