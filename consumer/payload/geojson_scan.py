"""GeoJSON texts of many records to geometries: geometry and Feature.

Owns the reading of documents and of collections; coordinates are ``consumer.payload.coordinates``'
business. What a document holds beside its geometry is kept as parsed, so that properties cost
nothing more.

Rules: one pass at about a microsecond a record, with the odd ones put aside and looked at
afterwards. Nothing is repaired, and nothing in a payload raises past ``Scan``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson
import shapely

from consumer.core.reasons import Reason
from consumer.payload import coordinates
from consumer.payload.coordinates import Geometries, json_name
from consumer.payload.faults import Fault

#: Collections inside collections. GEOS recurses into them on the C stack and dies of an
#: overflow without an exception; real data has one level, rarely two.
COLLECTION_DEPTH_LIMIT = 32
_ID_TYPES = frozenset({str, int, float, type(None)})
_REFUSALS = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class Scan:
    """One pass over the values of a chunk.

    A *place* is where a geometry goes: one for each record, and after those one for each member
    of a collection.
    """

    __slots__ = ("_groups", "_levels", "_root_of", "documents", "faults", "odd", "places")

    def __init__(self, records: int) -> None:
        self.places = records
        #: the parsed document without its geometry or coordinates; None where there is none
        self.documents: list[Any] = [None] * records
        self.faults: dict[int, Fault] = {}
        #: index -> parsed document (None: not JSON) of records that are no plain GeoJSON
        self.odd: dict[int, Any] = {}
        #: geometry type -> (places, coordinates)
        self._groups: dict[str, tuple[list[int], list[Any]]] = {
            kind: ([], []) for kind in coordinates.BUILDERS
        }
        #: for each depth: places of collections, and the places of their members
        self._levels: list[tuple[list[int], list[range]]] = []
        #: place of a member -> index of its record
        self._root_of: dict[int, int] = {}

    def read(self, values: Sequence[bytes], indices: Sequence[int]) -> None:
        """Parse values and sort their geometries by type; ``odd`` gets what is left over."""
        loads, documents, groups, id_types = orjson.loads, self.documents, self._groups, _ID_TYPES
        for index, value in zip(indices, values, strict=True):
            try:
                document = loads(value)
                kind = document["type"]
                geometry = document
                if kind == "Feature":
                    properties = document.get("properties")
                    if properties is not None and type(properties) is not dict:
                        raise TypeError
                    if type(document.get("id")) not in id_types:
                        raise TypeError
                    geometry = document.pop("geometry")
                    kind = geometry["type"]
                places, arrays = groups[kind]
                arrays.append(geometry.pop("coordinates"))
                places.append(index)
                documents[index] = document
            except _REFUSALS:
                self._read_odd(index, value)

    def _read_odd(self, index: int, value: bytes) -> None:
        """Read one record that is a collection, has no geometry, or is not GeoJSON."""
        try:
            document = orjson.loads(value)
        except ValueError as error:
            if coordinates.is_out_of_memory(error):
                raise MemoryError(str(error)) from None
            self.odd[index] = None
            text = str(error).partition(": line ")[0]
            too_deep = "depth limit" in text or "recursion" in text.lower()
            self.faults[index] = Fault(
                Reason.TOO_DEEP if too_deep else Reason.MALFORMED_JSON, text[:200]
            )
            return
        fault = self._sort(index, document)
        if fault is None:
            self.documents[index] = document
        else:
            self.odd[index] = document
            self.faults[index] = fault

    def _sort(self, index: int, document: Any) -> Fault | None:
        """Put one document where it belongs, or say what is wrong with it."""
        if type(document) is not dict:
            return Fault(Reason.NOT_GEOJSON, f"{json_name(document)}, not an object")
        if "type" not in document:
            return Fault(Reason.NOT_GEOJSON, "no member 'type'")
        if document["type"] != "Feature":
            fault = self._sort_geometry(index, index, document, 0)
            if fault is None:
                for member in ("coordinates", "geometries"):
                    document.pop(member, None)
            return fault
        if type(document.get("properties")) not in (dict, type(None)):
            return Fault(Reason.NOT_GEOJSON, "'properties' is neither an object nor null")
        if type(document.get("id")) not in _ID_TYPES:
            return Fault(Reason.NOT_GEOJSON, "'id' is neither a string nor a number")
        if "geometry" not in document:
            return Fault(Reason.NOT_GEOJSON, "a Feature without member 'geometry'")
        geometry = document.pop("geometry")
        # A Feature without a location is valid: its geometry is None.
        return None if geometry is None else self._sort_geometry(index, index, geometry, 0)

    def _sort_geometry(self, root: int, place: int, geometry: Any, depth: int) -> Fault | None:
        if type(geometry) is not dict:
            return Fault(Reason.NOT_GEOJSON, "a geometry that is no object")
        kind = geometry.get("type")
        if type(kind) is not str:
            return Fault(Reason.NOT_GEOJSON, "a geometry without a type")
        if kind in self._groups:
            if "coordinates" not in geometry:
                return Fault(Reason.BAD_COORDINATES, f"{kind}: no member 'coordinates'")
            places, arrays = self._groups[kind]
            places.append(place)
            arrays.append(geometry["coordinates"])
            return None
        if kind != "GeometryCollection":
            return Fault(Reason.UNSUPPORTED_TYPE, f"geometry type {kind[:40]!r}")
        if depth >= COLLECTION_DEPTH_LIMIT:
            return Fault(Reason.TOO_DEEP, f"collections deeper than {COLLECTION_DEPTH_LIMIT}")
        members = geometry.get("geometries")
        if type(members) is not list:
            return Fault(Reason.NOT_GEOJSON, "'geometries' of a collection is no array")
        own = range(self.places, self.places + len(members))
        self.places += len(members)
        if depth == len(self._levels):
            self._levels.append(([], []))
        collections, member_places = self._levels[depth]
        collections.append(place)
        member_places.append(own)
        if depth == 0:
            self._root_of[place] = root
        for member_place, member in zip(own, members, strict=True):
            self._root_of[member_place] = root
            fault = self._sort_geometry(root, member_place, member, depth + 1)
            if fault is not None:
                return fault
        return None

    def build(self, at_peak: Callable[[], None] | None = None) -> Geometries:
        """Build everything that was read; ``faults`` gets what cannot be built.

        Parameters
        ----------
        at_peak : callable, optional
            Called after each type of geometry, before its parsed numbers are let go.

        Returns
        -------
        ndarray of object, shape (records,)
            None where a record has no geometry or a fault.
        """
        records = len(self.documents)
        built: Geometries = np.full(self.places, None, dtype=np.object_)
        for kind, (places, arrays) in self._groups.items():
            if not places:
                continue
            geometries, faults = coordinates.build(kind, arrays)
            built[places] = geometries
            for at, fault in faults.items():
                self.faults.setdefault(self._root_of.get(places[at], places[at]), fault)
            if at_peak is not None:
                at_peak()
            # The parsed numbers weigh several times what was built from them.
            arrays.clear()
        for collections, member_places in reversed(self._levels):
            self._collect(built, collections, member_places)
        faulty = [index for index in self.faults if index < records]
        built[faulty] = None
        return built[:records]

    def _collect(
        self, built: Geometries, collections: list[int], member_places: list[range]
    ) -> None:
        sound = [
            at for at, place in enumerate(collections) if self._root_of[place] not in self.faults
        ]
        filled = [at for at in sound if len(member_places[at])]
        for at in sound:
            built[collections[at]] = shapely.GeometryCollection()
        if filled:
            counts = [len(member_places[at]) for at in filled]
            flat = list(chain.from_iterable(member_places[at] for at in filled))
            built[[collections[at] for at in filled]] = shapely.geometrycollections(
                built[flat], indices=np.repeat(np.arange(len(filled)), counts)
            )
