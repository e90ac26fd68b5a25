"""Raw record values to geometries, with a reason for each that cannot be read.

Owns the entry point and the table of formats. GeoJSON geometry and Feature are read by
``consumer.geojson``; a format with a decoder in ``DECODERS`` is read by that, and every other is
named in the fault.

Rules: bad input never raises; it becomes a ``Fault`` of its record alone. Only MemoryError gets
out. A null value is a tombstone and is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import shapely

from consumer.coordinates import Geometries
from consumer.geojson import Scan
from consumer.reasons import Fault, Reason

_WHITESPACE = b" \t\r\n"
#: the byte order, 0 or 1, and enough of the rest to be no word
_BASE64_WKB = re.compile(rb"A[A-Za-f][A-Za-z0-9+/_-]{10}")
_WKT_WORDS = (
    b"POINT",
    b"LINESTRING",
    b"LINEARRING",
    b"POLYGON",
    b"MULTI",
    b"GEOMETRYCOLLECTION",
    b"SRID=",
)
_COMPRESSED_STARTS = (
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"\x04\x22\x4d\x18",
    b"\xff\x06\x00\x00sNaPpY",
)


class Format(StrEnum):
    """What a value that is not a GeoJSON geometry or Feature may be."""

    FEATURE_COLLECTION = "FeatureCollection"
    CHANGE_EVENT = "change event"
    WKB = "WKB"
    WKB_HEX = "WKB as hex"
    WKB_BASE64 = "WKB as base64"
    WKT = "WKT"
    COMPRESSED = "compressed"
    FRAMED_JSON = "JSON behind a schema registry's frame"


#: (raw values, their parsed documents or None) -> one geometry, None or Fault for each
Decoder: TypeAlias = Callable[[Sequence[bytes], Sequence[Any]], Sequence[Any]]
#: Formats that have a decoder. A format that is not here is dead-lettered by its name.
DECODERS: Mapping[Format, Decoder] = {}


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
    decoders: Mapping[Format, Decoder] = DECODERS,
    *,
    at_peak: Callable[[], None] | None = None,
) -> Decoded:
    """Decode the values of one chunk.

    Parameters
    ----------
    values : sequence of bytes or None
        Raw record values; None is a tombstone.
    decoders : mapping, optional
        Decoders of formats other than GeoJSON.
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
    scan = Scan(len(values))
    skipped: list[int] = []
    if None in values:
        skipped = [index for index, value in enumerate(values) if value is None]
        present = [index for index, value in enumerate(values) if value is not None]
        scan.read([value for value in values if value is not None], present)
    else:
        scan.read(values, range(len(values)))  # type: ignore[arg-type]
    geometries = scan.build(at_peak)
    if scan.odd:
        _decode_odd(values, scan, geometries, decoders)
    return Decoded(
        geometries,
        scan.documents,
        scan.faults,
        skipped,
        int(np.sum(shapely.get_num_coordinates(geometries))),
    )


def _decode_odd(
    values: Sequence[bytes | None],
    scan: Scan,
    geometries: Geometries,
    decoders: Mapping[Format, Decoder],
) -> None:
    """Give the values that are no plain GeoJSON to the decoder of their format."""
    of_format: dict[Format, list[int]] = {}
    for index, document in scan.odd.items():
        found = format_of(values[index] or b"", document)
        if found is not None:
            of_format.setdefault(found, []).append(index)
    for found, indices in of_format.items():
        decoder = decoders.get(found)
        if decoder is None:
            for index in indices:
                scan.faults[index] = Fault(Reason.UNSUPPORTED_FORMAT, f"{found} is not decoded")
            continue
        results = decoder(
            [values[index] or b"" for index in indices], [scan.odd[index] for index in indices]
        )
        for index, result in zip(indices, results, strict=True):
            if isinstance(result, Fault):
                scan.faults[index] = result
            else:
                del scan.faults[index]
                geometries[index] = result
                scan.documents[index] = {}


def format_of(value: bytes, document: Any) -> Format | None:
    """Return the format of a value that is no plain GeoJSON; None when it is none that we know.

    Parameters
    ----------
    value : bytes
        The raw value.
    document : object
        The value parsed as JSON; None when it is not JSON.

    Examples
    --------
    >>> format_of(b"0101000000000000000000F03F0000000000000040", None)
    <Format.WKB_HEX: 'WKB as hex'>
    >>> format_of(b"<html>", None) is None
    True
    """
    if type(document) is dict:
        if document.get("type") == "FeatureCollection":
            return Format.FEATURE_COLLECTION
        body = document.get("payload") if "schema" in document else document
        is_change = type(body) is dict and "op" in body and ("after" in body or "before" in body)
        return Format.CHANGE_EVENT if is_change else None
    start = value[:64].lstrip(_WHITESPACE)
    if value.startswith(_COMPRESSED_STARTS):
        return Format.COMPRESSED
    if value[:1] == b"\x00" and value[5:6] == b"{":
        return Format.FRAMED_JSON
    if value[:1] in (b"\x00", b"\x01"):
        return Format.WKB
    if start.upper().startswith(_WKT_WORDS):
        return Format.WKT
    if start[:2] in (b"00", b"01"):
        return Format.WKB_HEX
    return Format.WKB_BASE64 if _BASE64_WKB.match(start) else None
