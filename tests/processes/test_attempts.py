"""What follows when a handler raises: without processes, on the handler's own interpreter."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from consumer.batch import Batch, OutputRecord, RecordColumns, Settlement
from consumer.errors import HandlerContractError
from consumer.processes.attempts import attempt
from consumer.processes.loader import Handler
from tests.processes import sample_handlers


def batch_of(records: int, first: int = 0) -> Batch:
    """Return a batch of records without geometry, whose offsets start at ``first``."""
    columns = RecordColumns(
        [b"v"] * records,
        [b"k%d" % index for index in range(records)],
        {},
        np.arange(first, first + records),
        np.zeros(records, dtype=np.int64),
        [("t", 0)],
        [0],
    )
    return Batch(
        columns,
        np.full(records, None, dtype=np.object_),
        [{"properties": {"n": index}} for index in range(records)],
        range(records),
        Settlement(),
    )


@given(st.sets(st.integers(0, 40)), st.integers(1, 41))
def test_exactly_the_raising_records_fail(bad, records):
    """Whatever records raise, they fail and every other is handled to the end, in order."""
    finished: list[int] = []

    def handle(batch):
        offsets = [record.offset for record in batch.records]
        if bad & set(offsets):
            raise ValueError
        finished.extend(offsets)
        return [(index, str(offset)) for index, offset in enumerate(offsets)]

    batch = batch_of(records)
    attempt(Handler(handle), batch)
    settlement = batch._settlement

    expected = bad & set(range(records))
    assert set(settlement.failed) == expected
    assert finished == [offset for offset in range(records) if offset not in bad]
    assert [output.index for output in settlement.outputs] == finished
    assert [output.value for output in settlement.outputs] == [b"%d" % n for n in finished]


def test_settled_records_are_not_handled_again():
    """fail, retry and done hold although the handler raises; other outputs are dropped."""
    batch = batch_of(4)
    attempt(Handler(sample_handlers.settles_then_raises), batch)
    settlement = batch._settlement

    assert list(settlement.failed) == [1]
    assert list(settlement.retry) == [2]
    assert sorted(output.index for output in settlement.outputs) == [0, 3]


def test_a_wrong_return_is_not_narrowed_down():
    """A handler that returns no outputs breaks its contract with every record, once."""
    calls = []

    def handle(batch):
        calls.append(len(batch))
        return 7

    batch = batch_of(8)
    attempt(Handler(handle), batch)

    assert calls == [8]
    assert set(batch._settlement.failed) == set(range(8))
    assert "handle returned int" in batch._settlement.failed[0].error_text


def test_a_batch_refuses_what_it_cannot_use():
    """Wrong indices and payloads are told to the handler where it uses them."""
    batch = batch_of(2)

    for call in (
        lambda: batch.fail(2, "x"),
        lambda: batch.retry(-1),
        lambda: batch.output(0, 7),  # type: ignore[arg-type]
        lambda: batch.take_returned([3]),
        lambda: batch.take_returned("text"),
    ):
        with pytest.raises(HandlerContractError):
            call()


def test_outputs_in_every_form():
    """A key is the record's own unless one is given; text becomes UTF-8; headers are kept."""
    batch = batch_of(3)
    batch.output(2, None)
    batch.take_returned(
        [(0, "ä"), OutputRecord(1, bytearray(b"x"), key="other", headers=[("h", b"1")])]
    )
    batch.accept()

    first, second, third = batch._settlement.outputs
    assert (first.index, first.key, first.value) == (2, b"k2", None)
    assert (second.key, second.value) == (b"k0", "ä".encode())
    assert (third.key, third.value, third.headers) == (b"other", b"x", [("h", b"1")])


def test_records_and_properties_by_index():
    """A part of a batch keeps its own indices for everything."""
    part = batch_of(10, first=100).part([3, 7])

    assert len(part) == len(part.records) == len(part.geometries) == 2
    assert [record.offset for record in part.records] == [103, 107]
    assert [record.offset for record in part.records[1:]] == [107]
    assert part.records.key(1) == b"k7"
    assert part.properties(1) == {"n": 7}
    part.fail(1, "x")
    assert list(part._settlement.failed) == [7]
    assert part.unsettled() == [0]
