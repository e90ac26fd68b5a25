"""One call of the handler, and what follows when it raises.

Owns the reading of exceptions: a request to try again, memory that ran out, or a fault of one
record that has to be found. Knows nothing of sockets or memory.

Rules: halves are handled in order, so that the order of a key is kept. A record that raises alone
is failed. Outputs of a call that raised are dropped, except those of records settled as done.
"""

from __future__ import annotations

from consumer.batch import Batch, Retry
from consumer.coordinates import is_out_of_memory
from consumer.core.reasons import Reason, RetryReason
from consumer.errors import HandlerContractError
from consumer.processes.loader import Handler, describe, error_class_of

#: What says "not now" without naming a record.
_NOT_NOW = (Retry, ConnectionError, TimeoutError)


def attempt(handler: Handler, batch: Batch) -> None:
    """Give a batch to the handler until each of its records is settled.

    Parameters
    ----------
    handler : Handler
        Open.
    batch : Batch
        At least one record. Every outcome is written to its settlement.
    """
    pending = [batch]
    while pending:
        current = pending.pop()
        rest = _attempt_once(handler, current)
        if rest:
            # The first half goes on top: it is handled next.
            half = (len(rest) + 1) // 2
            halves = [rest[:half], rest[half:]]
            pending += [current.part(part) for part in reversed(halves) if part]


def _attempt_once(handler: Handler, batch: Batch) -> list[int]:
    """Call the handler once; return what has to be handled again, by index in the batch."""
    try:
        returned = handler.handle(batch)
        # A generator runs here.
        batch.take_returned(returned)
    except BaseException as error:  # noqa: BLE001 - user code: even SystemExit is a record's fault
        batch.accept_done()
        return _settle_raised(batch, error)
    batch.accept()
    return []


def _settle_raised(batch: Batch, error: BaseException) -> list[int]:
    name = error_class_of(error)
    if isinstance(error, _NOT_NOW):
        reason = RetryReason.REQUESTED
        batch.fault_unsettled(reason, name, str(error), retry=True)
    elif is_out_of_memory(error):
        batch.fault_unsettled(RetryReason.SUSPECT_MEMORY, name, str(error), retry=True)
    elif len(batch) == 1 or isinstance(error, HandlerContractError):
        # A handler that breaks its contract does so with every record.
        batch.fault_unsettled(Reason.HANDLER_ERROR, name, describe(error), retry=False)
    else:
        return batch.unsettled()
    return []
