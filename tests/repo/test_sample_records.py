"""The generated traffic is what it says: the other tests rely on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
import shapely

from tests import sample_records


def geometries(records: list[sample_records.Record]) -> np.ndarray:
    """Decode the geometry of each record."""
    texts = [orjson.dumps(orjson.loads(value)["geometry"]) for _, value in records]
    return shapely.from_geojson(texts)


@pytest.mark.parametrize(
    "make",
    [
        sample_records.pings,
        sample_records.lines,
        sample_records.parcels,
        sample_records.heavy,
        sample_records.generated_mix,
    ],
)
def test_same_seed_gives_the_same_valid_records(make):
    """A seed decides every byte; every geometry is valid and where the map has land."""
    records = make(40, 7)

    assert records == make(40, 7)
    assert records != make(40, 8)
    assert shapely.is_valid(geometries(records)).all()


def test_pings_are_small_and_share_keys():
    """A ping is a point of about 180 bytes; vehicles send many."""
    records = sample_records.pings(2_000)

    assert {g.geom_type for g in geometries(records)} == {"Point"}
    assert 150 < np.median([len(value) for _, value in records]) < 220
    assert len({key for key, _ in records}) <= sample_records.VEHICLES


def test_coastline_has_exactly_the_vertices_asked_for():
    """The size of a heavy record is chosen, not found."""
    (geometry,) = geometries([sample_records.coastline(5_001)])

    assert shapely.get_num_coordinates(geometry) == 5_001


def test_some_parcels_have_holes():
    """Holes occur, so that whoever counts vertices counts theirs."""
    holes = shapely.get_num_interior_rings(geometries(sample_records.parcels(100)))

    assert 10 < holes.sum() < 60


def test_corpus_folder_can_be_read_as_a_stream(corpus: Path):
    """Real or generated, the corpus has the same files in the same form."""
    stream = sample_records.read_stream(corpus / "derived" / "mixed_stream.ndjson")
    pings = (corpus / "derived" / "pings.ndjson").read_bytes().splitlines()

    assert len(stream) > 1_000
    assert orjson.loads(stream[0][1])["type"] == "Feature"
    assert orjson.loads(pings[0])["geometry"]["type"] == "Point"
    assert len(sample_records.mixed(3_000)) == 3_000
