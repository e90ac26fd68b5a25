"""Generated records: decided by a seed, valid, and of the sizes that were asked for."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import orjson
import pytest
import shapely
from hypothesis import given, settings

from consumer.traffic import shapes
from consumer.traffic.mix import mix_of
from consumer.traffic.stream import Plan, Traffic, blocks

KINDS: list[Callable[..., list[shapes.Record]]] = [
    shapes.pings,
    shapes.lines,
    shapes.parcels,
    shapes.coastlines,
]


def geometries(records: list[shapes.Record]) -> np.ndarray:
    return shapely.from_geojson([orjson.dumps(orjson.loads(v)["geometry"]) for _, v in records])


@pytest.mark.parametrize("make", KINDS)
@given(seed=st.integers(0, 2**32), first=st.integers(0, 10**9))
@settings(max_examples=10)
def test_a_seed_decides_every_byte_and_everything_is_valid(make, seed, first):
    """The same generator state gives the same records; no geometry is invalid or far away."""
    records = make(np.random.default_rng(seed), 8, first=first)

    assert records == make(np.random.default_rng(seed), 8, first=first)
    found = geometries(records)
    assert shapely.is_valid(found).all()
    assert not shapely.is_empty(found).any()
    west, south, east, north = shapely.total_bounds(found)
    assert shapes.TOWN.west - 1 < west <= east < shapes.TOWN.east + 1
    assert shapes.TOWN.south - 1 < south <= north < shapes.TOWN.north + 1


@given(vertices=st.integers(4, 30_000), seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_a_coastline_has_exactly_the_vertices_asked_for(vertices, seed):
    """Whatever the size, the ring is closed, valid, and as long as was said."""
    (coast,) = geometries([shapes.coastline(np.random.default_rng(seed), vertices)])

    assert shapely.get_num_coordinates(coast) == vertices
    assert shapely.is_valid(coast)


def test_a_giant_is_valid_and_too_large_for_a_default_broker():
    """200,000 vertices take more than a megabyte, and a client's default cannot hold them."""
    record = Traffic(5).giant()

    (coast,) = geometries([record])
    assert shapely.get_num_coordinates(coast) == 200_000
    assert shapely.is_valid(coast)
    assert 4_000_000 < len(record[1]) < 5_500_000


def test_ordinary_coastlines_fit_into_a_default_broker():
    """A broker that nobody has configured takes records of a million bytes."""
    records = shapes.coastlines(np.random.default_rng(1), 20, least=19_990, most=20_000)

    assert max(len(value) for _, value in records) < 900_000


def test_coastlines_stay_in_their_range_and_small_ones_are_common():
    """Every doubling of the size is as likely as the next."""
    records = shapes.coastlines(np.random.default_rng(1), 200, least=100, most=10_000)
    counts = shapely.get_num_coordinates(geometries(records))

    assert counts.min() >= 100
    assert counts.max() <= 10_000
    assert 600 < np.median(counts) < 1_700


def test_a_vehicle_moves_on_from_ping_to_ping():
    """Positions of one vehicle are near each other in time and differ."""
    records = shapes.pings(np.random.default_rng(1), 3_000, vehicles=3)
    key = records[0][0]
    own = np.array([orjson.loads(v)["geometry"]["coordinates"] for k, v in records if k == key])
    steps = np.linalg.norm(np.diff(own, axis=0), axis=1)

    assert len(own) > 800
    assert 0 < np.median(steps) < 0.01
    assert np.linalg.norm(np.ptp(own, axis=0)) > 0.05


def test_a_third_of_the_parcels_have_a_courtyard():
    """Holes occur, inside their outline."""
    parcels = geometries(shapes.parcels(np.random.default_rng(1), 300))

    assert 70 < shapely.get_num_interior_rings(parcels).sum() < 130


def test_no_records_are_no_error():
    """A tick in which nothing is due asks for none."""
    rng = np.random.default_rng(1)
    assert [make(rng, 0) for make in KINDS] == [[], [], [], []]


def test_shares_of_the_mix_are_kept():
    """Kinds come as often as their shares say, mixed."""
    traffic = Traffic(1)
    traffic.take(4_000, mix_of({"pings": 3, "polygons": 1}))

    assert traffic.made.total() == 4_000
    assert 850 < traffic.made["polygons"] < 1_150
    assert set(traffic.made) == {"pings", "polygons"}


def plan_of(**more):
    return Plan(mix_of({"pings": 0.9, "lines": 0.1}), **more)


def test_blocks_are_due_at_the_rate_and_end_with_the_seconds():
    """A rate of 1,000 for two seconds is 2,000 records, evenly spread."""
    made = list(blocks(Traffic(1), plan_of(rate=1_000.0, seconds=2.0)))

    assert sum(len(block.records) for block in made) == 2_000
    due = [block.due_seconds for block in made]
    assert due == sorted(due)
    assert due[0] == 0.0
    assert np.allclose(np.diff(due), 0.05)


def test_the_count_ends_a_stream_exactly():
    """As fast as possible, and not one record too many."""
    made = list(blocks(Traffic(1), plan_of(count=1_234)))

    assert sum(len(block.records) for block in made) == 1_234


def test_records_do_not_depend_on_how_fast_they_are_taken():
    """The stream is the same whenever it is read: nothing in it is a clock's."""
    plan = plan_of(rate=777.0, count=1_000)

    assert list(blocks(Traffic(3), plan)) == list(blocks(Traffic(3), plan))
    assert list(blocks(Traffic(3), plan)) != list(blocks(Traffic(4), plan))


def test_giants_are_spread_over_the_run():
    """Each stands in its own part of the run, in place of another record."""
    made = list(blocks(Traffic(1), plan_of(count=1_000, giants=2)))

    sizes = [len(value) for block in made for _, value in block.records]
    assert [i for i, size in enumerate(sizes) if size > 4_000_000] == [250, 750]
    assert len(sizes) == 1_000


def test_giants_without_an_end_are_refused():
    """Nobody knows where to put them."""
    with pytest.raises(ValueError, match="known number"):
        plan_of(giants=1)
