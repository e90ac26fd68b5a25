"""One call of the handler, and what follows when it raises.

Owns the reading of what a handler returns and raises: outputs, a request to try again, memory
that ran out, or a fault of one record that has to be found. Knows nothing of sockets or memory.

Rules: halves are handled in order, so that the order of a key is kept. A record that raises alone
is failed. Outputs of a call that raised are dropped, except those of records settled as done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from consumer.batch import Batch, OutputRecord, Retry
from consumer.calls import Call
from consumer.core.reasons import Reason, RetryReason
from consumer.errors import HandlerContractError
from consumer.payload.coordinates import is_out_of_memory
from consumer.processes.loader import Handler, describe, error_class_of

#: What says "not now" without naming a record.
_NOT_NOW = (Retry, ConnectionError, TimeoutError)


def attempt(handler: Handler, call: Call) -> None:
    """Give records to the handler until each of them is settled.

    Parameters
    ----------
    handler : Handler
        Open.
    call : Call
        At least one record. Whatever is said of one is in the call's outcomes afterwards.
    """
    pending = [call]
    while pending:
        current = pending.pop()
        rest = _attempt_once(handler, current)
        if rest:
            # The first half goes on top: it is handled next.
            half = (len(rest) + 1) // 2
            halves = [rest[:half], rest[half:]]
            pending += [current.part(part) for part in reversed(halves) if part]


def _attempt_once(handler: Handler, call: Call) -> list[int]:
    """Call the handler once; return what has to be handled again, by index in the call."""
    try:
        returned = handler.handle(Batch(call))
        # A generator runs here.
        take_returned(call, returned)
    except BaseException as error:  # noqa: BLE001 - user code: even SystemExit is a record's fault
        call.accept_done()
        return _settle_raised(call, error)
    call.accept()
    return []


def take_returned(call: Call, returned: object) -> None:
    """Add what the handler returned: None, or outputs.

    Raises
    ------
    HandlerContractError
        When it is something else.
    """
    if returned is None:
        return
    if isinstance(returned, (str, bytes, Mapping)) or not isinstance(returned, Iterable):
        msg = (
            f"handle returned {type(returned).__name__};"
            " expected None or an iterable of outputs: OutputRecord or (index, value)"
        )
        raise HandlerContractError(msg)
    output = call.output
    for item in returned:
        if isinstance(item, OutputRecord):
            output(item.index, item.value, item.key, item.headers)
        elif isinstance(item, tuple) and len(item) == 2:
            output(*item)
        else:
            msg = (
                f"handle returned an output of type {type(item).__name__};"
                " expected OutputRecord or (index, value)"
            )
            raise HandlerContractError(msg)


def _settle_raised(call: Call, error: BaseException) -> list[int]:
    name = error_class_of(error)
    if isinstance(error, _NOT_NOW):
        call.fault_unsettled(RetryReason.REQUESTED, name, str(error), retry=True)
    elif is_out_of_memory(error):
        call.fault_unsettled(RetryReason.SUSPECT_MEMORY, name, str(error), retry=True)
    elif len(call) == 1 or isinstance(error, HandlerContractError):
        # A handler that breaks its contract does so with every record.
        call.fault_unsettled(Reason.HANDLER_ERROR, name, describe(error), retry=False)
    else:
        return call.unsettled()
    return []
