"""The handler process: receives chunks, decodes them, calls the handler, answers.

Started by ``pool`` as ``python -m consumer.processes.child``. Owns the loop and nothing else: what
it does with a chunk is ``decode``, ``attempts`` and ``measure``.

Rules: the parent decides when this process ends. It ignores SIGINT and SIGTERM (a terminal or a
container sends them to everyone at once), ends when the socket is closed or the parent dies, and
does not outlive it.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import io
import os
import signal
import socket
import sys
from dataclasses import replace
from types import FrameType

from consumer.calls import Call, RecordColumns, RecordOutcomes
from consumer.core.events import ChunkOutcome, RecordFault
from consumer.core.reasons import RetryReason
from consumer.errors import ConfigError
from consumer.payload.decode import Decoded, decode
from consumer.processes import wire
from consumer.processes.attempts import attempt
from consumer.processes.loader import Handler, describe, load_handler
from consumer.processes.measure import Meter
from consumer.processes.slots import Slot, large_memory, large_view

_PR_SET_PDEATHSIG = 1
#: Exit codes; the parent has the reason from a message.
EXIT_OPEN_FAILED = 3


def main(arguments: list[str]) -> int:
    """Run one handler process.

    Parameters
    ----------
    arguments : list of str
        Handler (``module:name``), the parent's process id, descriptor of the socket, bytes of a
        slot, and the descriptors of the slots.
    """
    spec, parent, socket_descriptor, slot_bytes, *slot_descriptors = arguments
    _die_with_parent(int(parent))
    for number in (signal.SIGINT, signal.SIGTERM):
        # A Python handler and not SIG_IGN, which a program started by the handler would inherit.
        signal.signal(number, _ignore)
        signal.siginterrupt(number, False)
    faulthandler.enable()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    channel = socket.socket(fileno=int(socket_descriptor))
    # Neither the socket nor the slots go to what the handler starts.
    channel.set_inheritable(False)
    slots = [Slot(int(descriptor), int(slot_bytes)) for descriptor in slot_descriptors]
    for slot in slots:
        os.set_inheritable(slot.descriptor, False)
    try:
        handler = load_handler(spec)
        handler.open()
    except ConfigError as error:
        return _refuse(channel, str(error))
    except BaseException as error:  # noqa: BLE001 - user code
        return _refuse(channel, f"handler {spec}: open raised {describe(error)}")
    # What was loaded by now lives as long as the process: no collection needs to walk it.
    gc.collect()
    gc.freeze()
    meter = Meter()
    channel.sendall(wire.dump_message(wire.Ready(meter.resident_bytes())))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        _serve(channel, slots, handler, meter)
    return 0


def _die_with_parent(parent: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    pass


def _refuse(channel: socket.socket, text: str) -> int:
    with contextlib.suppress(OSError):
        channel.sendall(wire.dump_message(wire.NotOpened(wire.cut_text(" ".join(text.split())))))
    return EXIT_OPEN_FAILED


def _serve(channel: socket.socket, slots: list[Slot], handler: Handler, meter: Meter) -> None:
    """Handle chunks until the parent says to finish, or is gone."""
    while True:
        data, descriptors, _flags, _address = socket.recv_fds(channel, wire.MESSAGE_BYTES, 1)
        if not data:
            return
        message = wire.load_message(data)
        if isinstance(message, wire.Finish):
            handler.close()
            return
        assert isinstance(message, wire.Work)
        outcome = _handle(message, descriptors, slots, handler, meter)
        packed = wire.pack_outcome(replace(outcome, resident_bytes=meter.settle()))
        del outcome
        _answer(channel, message, packed, slots)


def _handle(
    work: wire.Work,
    descriptors: list[int],
    slots: list[Slot],
    handler: Handler,
    meter: Meter,
) -> ChunkOutcome:
    meter.start(sample=work.sample_bytes, trace=work.trace_allocations)
    memory = (
        large_view(descriptors[0], work.length_bytes)
        if work.slot == wire.LARGE
        else slots[work.slot].view(work.length_bytes)
    )
    try:
        with memory as view:
            columns = wire.unpack_chunk(view)
        decoded = _decode(columns, meter)
    except MemoryError as error:
        return _out_of_memory(work, meter, error)
    outcomes = RecordOutcomes()
    call = _call_of(columns, decoded, outcomes)
    if len(call):
        attempt(handler, call)
    measured = meter.stop()
    faults = [
        RecordFault(index, str(fault.reason), "", fault.text)
        for index, fault in decoded.faults.items()
    ]
    return ChunkOutcome(
        seconds=measured.seconds,
        cpu_seconds=measured.cpu_seconds,
        working_bytes=measured.working_bytes,
        resident_bytes=measured.resident_bytes,
        exact_vertices=decoded.exact_vertices,
        growth_bytes=measured.growth_bytes,
        failed=(*faults, *outcomes.failed.values()),
        retry=tuple(outcomes.retry.values()),
        skipped=tuple(decoded.skipped),
        outputs=tuple(outcomes.outputs),
    )


def _decode(columns: RecordColumns, meter: Meter) -> Decoded:
    # Parsing makes many containers and no cycles: a collection in the middle finds nothing.
    enabled = gc.isenabled()
    gc.disable()
    try:
        return decode(columns.values, at_peak=meter.look)
    finally:
        if enabled:
            gc.enable()


def _call_of(columns: RecordColumns, decoded: Decoded, outcomes: RecordOutcomes) -> Call:
    records = len(columns.values)
    if not decoded.faults and not decoded.skipped:
        return Call(columns, decoded.geometries, decoded.documents, range(records), outcomes)
    left_out = decoded.faults.keys() | set(decoded.skipped)
    indices = [index for index in range(records) if index not in left_out]
    return Call(columns, decoded.geometries[indices], decoded.documents, indices, outcomes)


def _out_of_memory(work: wire.Work, meter: Meter, error: MemoryError) -> ChunkOutcome:
    measured = meter.stop()
    return ChunkOutcome(
        seconds=None,
        cpu_seconds=measured.cpu_seconds,
        working_bytes=None,
        resident_bytes=measured.resident_bytes,
        exact_vertices=0,
        growth_bytes=measured.growth_bytes,
        retry=tuple(
            RecordFault(index, str(RetryReason.SUSPECT_MEMORY), "MemoryError", str(error)[:200])
            for index in range(work.records)
        ),
    )


def _answer(channel: socket.socket, work: wire.Work, packed: bytes, slots: list[Slot]) -> None:
    """Send an outcome: in the message, in the slot of its chunk, or in memory of its own."""
    length = len(packed)
    if length <= wire.INLINE_BYTES:
        done = wire.Done(work.chunk_id, wire.INLINE, length, packed)
    elif work.slot != wire.LARGE and length <= slots[work.slot].size_bytes:
        slots[work.slot].write(packed)
        done = wire.Done(work.chunk_id, work.slot, length)
    else:
        descriptor = large_memory(packed)
        try:
            done = wire.Done(work.chunk_id, wire.LARGE, length)
            socket.send_fds(channel, [wire.dump_message(done)], [descriptor])
        finally:
            os.close(descriptor)
        return
    channel.sendall(wire.dump_message(done))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
