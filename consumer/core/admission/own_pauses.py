"""Why one partition alone is paused: a chain, a retry or a record that holds too much.

Owns the three reasons and their words. Sets ``PartitionState.own_pauses`` and nothing else.
"""

from __future__ import annotations

import numpy as np

from consumer.core.ledger.in_flight import Chain, PartitionState
from consumer.core.ledger.ledger import Ledger
from consumer.core.reasons import PauseReason

#: Share of the deadline that one chain may fill while others wait, and where it may go on.
CHAIN_SHARE = 0.5
CHAIN_RESUME_SHARE = 0.25
#: ... or less, so that a partition is paused for so long (at most ten times a minute), but not so
#: little that the chain's process runs dry while fetching begins again.
CHAIN_PAUSE_SECONDS = 6.5
CHAIN_LEAST_SECONDS = 1.0
#: A chain that waits for a retry may hold this share of the memory and this many records
#: before its partition is paused.
RETRYING_SHARE = 0.1
RETRYING_RECORDS = 10_000


def find_own_reasons(
    state: PartitionState,
    ledger: Ledger,
    deadline_seconds: float | None,
    max_uncommitted_messages: int,
) -> None:
    """Bring a partition's own reasons up to date.

    Parameters
    ----------
    state : PartitionState
        The partition.
    ledger : Ledger
        Everything in flight.
    deadline_seconds : float or None
        The drain deadline; None when it is not enforced.
    max_uncommitted_messages : int
        Most records finished above the committed end.
    """
    name = f"{state.partition[0]}[{state.partition[1]}]"
    longest = 0.0
    retrying = False
    for chain in state.chains.values():
        if chain.retry_at is not None:
            retrying = retrying or _holds_too_much(chain, ledger)
        elif chain.ordered:
            longest = max(longest, float(ledger.chains.seconds[chain.row]))
    _set(
        state,
        PauseReason.RETRY,
        f"a chain of {name} waits for a retry and holds all that such a chain may"
        if retrying
        else "",
    )
    limit = np.inf if deadline_seconds is None else deadline_seconds
    most = CHAIN_SHARE * limit
    if PauseReason.ORDERING in state.own_pauses:
        lower = max(most - CHAIN_PAUSE_SECONDS, CHAIN_LEAST_SECONDS)
        most = min(CHAIN_RESUME_SHARE * limit, lower)
    _set(
        state,
        PauseReason.ORDERING,
        f"one chain of {name} holds {longest:.1f} s of work; half of what may be in flight"
        f" ({limit:.1f} s) is the most for one chain"
        if longest > most
        else "",
    )
    _set(state, PauseReason.UNCOMMITTED, _find_uncommitted(state, name, max_uncommitted_messages))


def _set(state: PartitionState, reason: PauseReason, words: str) -> None:
    if words:
        state.own_pauses[reason] = words
    else:
        state.own_pauses.pop(reason, None)


def _find_uncommitted(state: PartitionState, name: str, most: int) -> str:
    paused = PauseReason.UNCOMMITTED in state.own_pauses
    if state.settled_above <= most // 2 or (not paused and state.settled_above < most):
        return ""
    blocking = state.blocking_piece()
    assert blocking is not None, "records are settled above none that is unfinished"
    return (
        f"{state.settled_above:,} records of {name} are finished above offset"
        f" {blocking.first_offset}, which is not"
    )


def _holds_too_much(chain: Chain, ledger: Ledger) -> bool:
    records = sum(len(piece) for piece in chain.pieces)
    if records > RETRYING_RECORDS:
        return True
    held = sum(ledger.model.held_bytes(piece.load) for piece in chain.pieces)
    return held > RETRYING_SHARE * ledger.available_bytes
