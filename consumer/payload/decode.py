"""Raw record values to geometries, with a reason for each that cannot be read.

Owns the way of a value: every one is tried as GeoJSON geometry or Feature
(``consumer.payload.geojson_scan``), and what is neither goes to the decoder of its format in the table
(``consumer.payload.formats``), or is dead-lettered by its format's name.

Rules: bad input never raises; it becomes a ``Fault`` of its record alone. A decoder that breaks
its contract costs the record that made it do so, and no other. Only MemoryError gets out. A null
value is a tombstone and is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
import shapely

from consumer.core.reasons import Reason
from consumer.payload.coordinates import Geometries, is_out_of_memory
from consumer.payload.faults import Fault
from consumer.payload.formats import FORMATS, Decoder, FormatRow, rows_by_first_byte
from consumer.payload.geojson_scan import Scan
from consumer.payload.raw_values import first_byte

_P = ParamSpec("_P")
_T = TypeVar("_T")
#: of one value: a geometry, None or Fault
_Result: TypeAlias = Any


@dataclass(slots=True, eq=False)
class Decoded:
    """What came of the values of one chunk, by index."""

    #: shape (n,); None for a Feature without a location, a fault or a tombstone
    geometries: Geometries
    #: the parsed GeoJSON document without its geometry; None where there is none
    documents: list[Any]
    faults: dict[int, Fault]
    #: tombstones
    skipped: list[int]
    #: vertices of all geometries
    exact_vertices: int


def decode(
    values: Sequence[bytes | None],
    formats: tuple[FormatRow, ...] = FORMATS,
    *,
    at_peak: Callable[[], None] | None = None,
) -> Decoded:
    """Decode the values of one chunk.

    Parameters
    ----------
    values : sequence of bytes or None
        Raw record values; None is a tombstone.
    formats : tuple of FormatRow, optional
        The formats that a value may have beside GeoJSON.
    at_peak : callable, optional
        Called where the parsed numbers and the geometries built from them are both held.

    Returns
    -------
    Decoded

    Raises
    ------
    MemoryError
        When memory ran out.

    Examples
    --------
    >>> decoded = decode([b'{"type":"Point","coordinates":[1,2]}', None, b"POINT(1 2)"])
    >>> decoded.geometries[0], decoded.skipped, decoded.exact_vertices
    (<POINT (1 2)>, [1], 1)
    >>> decoded.faults[2].text
    'WKT is not decoded'
    """
    skipped = []
    if None in values:
        skipped = [index for index, value in enumerate(values) if value is None]
    read = _shielded("GeoJSON", _read_geojson, values, skipped, at_peak)
    if isinstance(read, Fault):
        read = _read_geojson_singly(values)
    if read.odd:
        _decode_odd(values, read, formats)
    return Decoded(
        read.geometries,
        read.documents,
        read.faults,
        skipped,
        int(np.sum(shapely.get_num_coordinates(read.geometries))),
    )


def format_of(
    value: bytes, document: Any, formats: tuple[FormatRow, ...] = FORMATS
) -> FormatRow | None:
    """Return the format of a value that is no plain GeoJSON; None when it is none that we know.

    Parameters
    ----------
    value : bytes
        The raw value.
    document : object
        The value parsed as JSON; None when it is not JSON.
    formats : tuple of FormatRow, optional
        The formats that it may be.

    Examples
    --------
    >>> format_of(b"0101000000000000000000F03F0000000000000040", None).name
    'WKB as hex'
    >>> format_of(b"<html>", None) is None
    True
    """
    first = first_byte(value)
    for row in rows_by_first_byte(formats).get(first, ()) if first is not None else ():
        if row.recognise is not None and row.recognise(value, document):
            return row
    return None


# -- GeoJSON -----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Read:
    """What came of values as GeoJSON, by index; see ``Decoded`` and ``Scan``."""

    geometries: Geometries
    documents: list[Any]
    faults: dict[int, Fault]
    odd: dict[int, Any]


def _read_geojson(
    values: Sequence[bytes | None],
    skipped: Sequence[int] = (),
    at_peak: Callable[[], None] | None = None,
) -> _Read:
    scan = Scan(len(values))
    if skipped:
        present = sorted(set(range(len(values))) - set(skipped))
        scan.read([values[index] or b"" for index in present], present)
    else:
        scan.read(values, range(len(values)))  # type: ignore[arg-type]
    geometries = scan.build(at_peak)
    return _Read(geometries, scan.documents, scan.faults, scan.odd)


def _read_geojson_singly(values: Sequence[bytes | None]) -> _Read:
    """Read each value for itself, since reading them together raised."""
    records = len(values)
    together = _Read(np.full(records, None, dtype=np.object_), [None] * records, {}, {})
    for index, value in enumerate(values):
        if value is None:
            continue
        read = _shielded("GeoJSON", _read_geojson, [value])
        if isinstance(read, Fault):
            together.faults[index] = read
            continue
        together.geometries[index] = read.geometries[0]
        together.documents[index] = read.documents[0]
        if read.faults:
            together.faults[index] = read.faults[0]
        if read.odd:
            together.odd[index] = read.odd[0]
    return together


# -- the formats of the table ------------------------------------------------------------------


def _decode_odd(
    values: Sequence[bytes | None], read: _Read, formats: tuple[FormatRow, ...]
) -> None:
    """Give the values that are no plain GeoJSON to the decoder of their format."""
    of_format: dict[FormatRow, list[int]] = {}
    for index, document in read.odd.items():
        row = _shielded("recognition", format_of, values[index] or b"", document, formats)
        if isinstance(row, Fault):
            read.faults[index] = row
        elif row is not None:
            of_format.setdefault(row, []).append(index)
    for row, indices in of_format.items():
        results = _results(
            row, [values[index] or b"" for index in indices], [read.odd[index] for index in indices]
        )
        for index, result in zip(indices, results, strict=True):
            if isinstance(result, Fault):
                read.faults[index] = result
            else:
                del read.faults[index]
                read.geometries[index] = result
                read.documents[index] = {}


def _results(row: FormatRow, values: list[bytes], documents: list[Any]) -> list[_Result]:
    """Return one result for each value of one format."""
    if row.decode is None:
        return [Fault(Reason.UNSUPPORTED_FORMAT, f"{row.name} is not decoded")] * len(values)
    results = _shielded(row.name, _checked_results, row.decode, values, documents)
    if not isinstance(results, Fault):
        return results
    if len(values) == 1:
        return [results]
    # Parsed anew: the attempt that raised may have changed the documents.
    return [
        result
        for value in values
        for result in _results(row, [value], [_read_geojson([value]).odd[0]])
    ]


def _checked_results(decode: Decoder, values: list[bytes], documents: list[Any]) -> list[_Result]:
    results = list(decode(values, documents))
    if len(results) != len(values):
        msg = f"{len(results)} results for {len(values)} values"
        raise _ContractError(msg)
    for result in results:
        if not (result is None or isinstance(result, (shapely.Geometry, Fault))):
            msg = f"a result is {type(result).__name__}"
            raise _ContractError(msg)
    return results


# -- our own faults ----------------------------------------------------------------------------


class _ContractError(Exception):
    """A decoder gave what it must not; in words without any part of the payload."""


def _shielded(
    name: str, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T | Fault:
    """Return what a function returns; when it raises, the fault of whoever it was called for."""
    try:
        return function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - a fault of ours must not cost what it is not about
        if is_out_of_memory(error):
            raise MemoryError(str(error)) from None
        return Fault(Reason.DECODER_ERROR, f"{name}: {_own_words(error)}")


def _own_words(error: Exception) -> str:
    """Return what was raised and where; its text may quote the payload."""
    if isinstance(error, _ContractError):
        return str(error)
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = (
        f" in {PurePath(at.tb_frame.f_code.co_filename).name}, line {at.tb_lineno}" if at else ""
    )
    return type(error).__name__ + where
