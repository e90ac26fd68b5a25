"""Invariants: where the core's sums must agree with what is held, record by record.

Owns the check that tests and replays make after a step. Slow on purpose, and changes nothing.
"""

from __future__ import annotations

import numpy as np

from consumer.core.completion.ownership import Ownership
from consumer.core.ledger.in_flight import Piece
from consumer.core.ledger.ledger import Ledger


def check(ledger: Ledger, ownership: Ownership) -> None:
    """Raise ``AssertionError`` where the sums do not agree with the pieces that are held."""
    totals = np.zeros_like(ledger.totals)
    pieces: set[Piece] = set()
    for state in ownership.states.values():
        for run in state.runs:
            pieces |= run.unfinished.keys()
    for process in ledger.processes:
        for chunk in process.chunks:
            pieces |= set(chunk.pieces)
    for piece in pieces:
        totals[piece.state] += piece.load
    assert np.array_equal(totals, ledger.totals), "the ledger differs from what is held"
    pending = sum(
        int(ledger.model.held_bytes(run.load))
        for state in ownership.states.values()
        for run in state.pending
    )
    assert pending == ledger.pending_bytes, "pending bytes differ from what is fetched"
