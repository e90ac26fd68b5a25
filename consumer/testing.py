"""For tests of handlers: a batch made by hand, and what a handler does with it.

Owns the making of payloads, the reading of the arguments, and the summary. They are decoded, and
the handler is called, by what a handler process uses for both; no process is started.

>>> from shapely import Point
>>> def tag(batch):
...     for index, geometry in enumerate(batch.geometries):
...         if geometry is None:
...             batch.fail(index, "no-location")
...         else:
...             yield index, f"at {geometry.x:g}, {geometry.y:g}"
>>> handled = batch_of(Point(1, 2), None).handled_by(tag)
>>> handled.done, handled.failed
([0], {1: 'no-location'})
>>> handled.outputs
[OutputRecord(index=0, value=b'at 1, 2', key=None, headers=())]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import shapely

from consumer.batch import Batch, OutputRecord
from consumer.calls import Call, RecordColumns, RecordOutcomes
from consumer.core.reasons import Reason
from consumer.errors import PayloadError
from consumer.payload.decode import decode
from consumer.processes.attempts import attempt
from consumer.processes.loader import handler_of

__all__ = ["Handled", "MadeBatch", "batch_of"]

#: No JSON begins with the byte order of WKB.
_WKB_STARTS = (b"\x00", b"\x01")


@dataclass(frozen=True, slots=True)
class Handled:
    """What became of each record, by index in the batch, as the worker would take it."""

    #: finished, in order
    done: list[int]
    #: to the dead-letter topic: the reason's code of each
    failed: dict[int, str]
    #: to be tried again: the reason's code of each ("retry-requested", "suspect-memory")
    retry: dict[int, str]
    #: the words beside the code, of each that failed or is to be tried again
    texts: dict[int, str]
    #: for the output topic, in the order in which they were made; of records that are done
    outputs: list[OutputRecord]


class MadeBatch(Batch):
    """A batch for a test. It can be handled as often as is wanted."""

    __slots__ = ()

    def handled_by(self, handler: object) -> Handled:
        """Let a handler handle this batch as a handler process does, and tell what it did.

        What is not settled when it raises is given to it again, in halves.

        Parameters
        ----------
        handler : function, class or object
            What ``VERTEX_BUDGET_HANDLER`` would name. A class is made one of; ``open`` is called
            before, ``close`` afterwards. Any of them may be ``async``: an event loop is run for
            them, so there must be none already.

        Raises
        ------
        ConfigError
            When it is no handler.
        """
        ready = handler_of(handler, getattr(handler, "__qualname__", type(handler).__qualname__))
        made, outcomes = self._call, RecordOutcomes()
        ready.open()
        try:
            indices = range(len(self))
            attempt(ready, Call(made.columns, made.geometries, made.documents, indices, outcomes))
        finally:
            ready.close()
        unfinished = {**outcomes.failed, **outcomes.retry}
        return Handled(
            done=[index for index in indices if index not in unfinished],
            failed={index: fault.reason for index, fault in outcomes.failed.items()},
            retry={index: fault.reason for index, fault in outcomes.retry.items()},
            texts={index: fault.error_text for index, fault in unfinished.items()},
            outputs=[
                OutputRecord(output.index, output.value, output.key, tuple(output.headers))
                for output in outcomes.outputs
                if output.index not in unfinished
            ],
        )


def batch_of(
    *payloads: Mapping[str, Any] | str | bytes | shapely.Geometry | None,
    keys: Sequence[str | bytes | None] | None = None,
    properties: Sequence[Mapping[str, Any] | None] | None = None,
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None,
    topic: str = "test",
    partition: int = 0,
    offsets: Sequence[int] | None = None,
    timestamps_ms: Sequence[int] | None = None,
) -> MadeBatch:
    """Make a batch for a test of a handler.

    Parameters
    ----------
    *payloads : dict, str, bytes, shapely geometry or None
        GeoJSON, as text or parsed; WKB; a geometry; None for a Feature without a location. What is
        no GeoJSON is written as GeoJSON first, which has neither M ordinates nor an SRID.
    keys, properties, headers, offsets, timestamps_ms : sequence, optional
        One of each record. By default: no keys, the properties that the GeoJSON has, no headers,
        offsets from 0 on, no timestamps (-1). With properties a geometry becomes a Feature; those
        that a Feature has are replaced.
    topic : str, optional
    partition : int, optional

    Raises
    ------
    PayloadError
        When a payload cannot be decoded: with the reason that its dead letter would carry.
    ValueError
        When there is no payload, or not one of something for each.

    Examples
    --------
    >>> batch = batch_of('{"type":"Point","coordinates":[1,2]}', keys=["bus"], offsets=[70])
    >>> batch.records[0].key, batch.records[0].offset, batch.geometries[0]
    (b'bus', 70, <POINT (1 2)>)
    >>> batch_of('{"type":"Point"}')
    Traceback (most recent call last):
        ...
    consumer.errors.PayloadError: bad-coordinates: payload 0: Point: no member 'coordinates'; ...
    """
    count = len(payloads)
    if not count:
        msg = "a handler gets at least one record: give a payload"
        raise ValueError(msg)
    _check_lengths(
        count,
        keys=keys,
        properties=properties,
        headers=headers,
        offsets=offsets,
        timestamps_ms=timestamps_ms,
    )
    values = [_value_of(payload, index) for index, payload in enumerate(payloads)]
    if properties is not None:
        pairs = zip(values, properties, strict=True)
        values = [_with_properties(value, given) for value, given in pairs]
    decoded = decode(values)
    for index, fault in sorted(decoded.faults.items()):
        raise _refusal(index, str(fault.reason), fault.text)
    columns = RecordColumns(
        values,
        None if keys is None else [k.encode() if isinstance(k, str) else k for k in keys],
        {} if headers is None else dict(enumerate(map(list, headers))),
        np.array(range(count) if offsets is None else offsets, dtype=np.int64),
        np.array([-1] * count if timestamps_ms is None else timestamps_ms, dtype=np.int64),
        [(topic, partition)],
        [0],
    )
    return MadeBatch(
        Call(columns, decoded.geometries, decoded.documents, range(count), RecordOutcomes())
    )


def _check_lengths(count: int, **given: Sized | None) -> None:
    for name, items in given.items():
        if items is not None and len(items) != count:
            msg = f"{len(items)} {name} for {count} payloads: give one of each, or none"
            raise ValueError(msg)


def _value_of(payload: Any, index: int) -> bytes:
    """Return a payload as a record's value."""
    if payload is None:
        return b'{"type":"Feature","geometry":null,"properties":null}'
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, Mapping):
        return orjson.dumps(dict(payload))
    if isinstance(payload, bytes) and not payload.startswith(_WKB_STARTS):
        return payload
    if isinstance(payload, bytes):
        try:
            payload = shapely.from_wkb(payload)
        except shapely.errors.ShapelyError as error:
            text = f"WKB that cannot be read: {str(error).strip()}"
            raise _refusal(index, str(Reason.UNSUPPORTED_FORMAT), text) from None
    if isinstance(payload, shapely.Geometry):
        text = shapely.to_geojson(payload)
        return str(text).encode()
    msg = (
        f"payload {index} is of type {type(payload).__name__}; GeoJSON (dict, str, bytes),"
        " WKB (bytes), a shapely geometry or None is wanted"
    )
    raise TypeError(msg)


def _with_properties(value: bytes, properties: Mapping[str, Any] | None) -> bytes:
    if properties is None:
        return value
    try:
        document = orjson.loads(value)
    except ValueError:
        # For the decoder to tell.
        return value
    if not isinstance(document, dict):
        return value
    if document.get("type") != "Feature":
        document = {"type": "Feature", "geometry": document}
    return orjson.dumps({**document, "properties": dict(properties)})


def _refusal(index: int, reason: str, text: str) -> PayloadError:
    return PayloadError(
        reason,
        f"payload {index}: {text}; the worker sends such a record to the dead-letter topic, and no"
        " handler sees it",
    )
