"""What follows when a handler raises: without processes, on the handler's own interpreter."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from consumer import batch as batch_module
from consumer.batch import Batch, OutputRecord
from consumer.calls import Call, RecordColumns, RecordOutcomes
from consumer.errors import HandlerContractError
from consumer.processes.attempts import attempt, take_returned
from consumer.processes.loader import Handler
from tests.processes import sample_handlers


def call_of(records: int, first: int = 0) -> Call:
    """Return a call for records without geometry, whose offsets start at ``first``."""
    columns = RecordColumns(
        [b"v"] * records,
        [b"k%d" % index for index in range(records)],
        {},
        np.arange(first, first + records),
        np.zeros(records, dtype=np.int64),
        [("t", 0)],
        [0],
    )
    return Call(
        columns,
        np.full(records, None, dtype=np.object_),
        [{"properties": {"n": index}} for index in range(records)],
        range(records),
        RecordOutcomes(),
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

    call = call_of(records)
    attempt(Handler(handle), call)
    outcomes = call.outcomes

    expected = bad & set(range(records))
    assert set(outcomes.failed) == expected
    assert finished == [offset for offset in range(records) if offset not in bad]
    assert [output.index for output in outcomes.outputs] == finished
    assert [output.value for output in outcomes.outputs] == [b"%d" % n for n in finished]


def test_settled_records_are_not_handled_again():
    """fail, retry and done hold although the handler raises; other outputs are dropped."""
    call = call_of(4)
    attempt(Handler(sample_handlers.settles_then_raises), call)
    outcomes = call.outcomes

    assert list(outcomes.failed) == [1]
    assert list(outcomes.retry) == [2]
    assert sorted(output.index for output in outcomes.outputs) == [0, 3]


def test_a_wrong_return_is_not_narrowed_down():
    """A handler that returns no outputs breaks its contract with every record, once."""
    calls = []

    def handle(batch):
        calls.append(len(batch))
        return 7

    call = call_of(8)
    attempt(Handler(handle), call)

    assert calls == [8]
    assert set(call.outcomes.failed) == set(range(8))
    assert "handle returned int" in call.outcomes.failed[0].error_text


def test_a_batch_refuses_what_it_cannot_use():
    """Wrong indices and payloads are told to the handler where it uses them."""
    call = call_of(2)
    batch = Batch(call)

    for wrong in (
        lambda: batch.fail(2, "x"),
        lambda: batch.retry(-1),
        lambda: batch.output(0, 7),  # type: ignore[arg-type]
        lambda: take_returned(call, [3]),
        lambda: take_returned(call, "text"),
    ):
        with pytest.raises(HandlerContractError):
            wrong()


def test_outputs_in_every_form():
    """A key is the record's own unless one is given; text becomes UTF-8; headers are kept."""
    call = call_of(3)
    Batch(call).output(2, None)
    take_returned(
        call, [(0, "ä"), OutputRecord(1, bytearray(b"x"), key="other", headers=[("h", b"1")])]
    )
    call.accept()

    first, second, third = call.outcomes.outputs
    assert (first.index, first.key, first.value) == (2, b"k2", None)
    assert (second.key, second.value) == (b"k0", "ä".encode())
    assert (third.key, third.value, third.headers) == (b"other", b"x", [("h", b"1")])


def test_records_and_properties_by_index():
    """A part of a batch keeps its own indices for everything."""
    call = call_of(10, first=100).part([3, 7])
    part = Batch(call)

    assert len(part) == len(part.records) == len(part.geometries) == 2
    assert [record.offset for record in part.records] == [103, 107]
    assert [record.offset for record in part.records[1:]] == [107]
    assert part.records.key(1) == b"k7"
    assert part.properties(1) == {"n": 7}
    part.fail(1, "x")
    assert list(call.outcomes.failed) == [7]
    assert call.unsettled() == [0]


def test_the_later_of_fail_and_retry_holds():
    """A record is either dead-lettered or tried again, as was said last."""
    call = call_of(2)
    batch = Batch(call)
    batch.fail(0, "bad")
    batch.retry(0, "no, later")
    batch.retry(1)
    batch.fail(1, "No such place", "17")

    assert {i: fault.error_text for i, fault in call.outcomes.retry.items()} == {0: "no, later"}
    assert {i: (f.reason, f.error_text) for i, f in call.outcomes.failed.items()} == {
        1: ("handler-refused", "No such place: 17")
    }


def test_what_handler_authors_import_is_said():
    """The names for authors are few, and none of them is for the code that calls a handler."""
    assert batch_module.__all__ == [
        "Batch",
        "OutputRecord",
        "Payload",
        "Record",
        "Records",
        "Retry",
    ]
    public = {name for name in vars(Batch) if not name.startswith("_")}
    assert public == {
        *("geometries", "records", "properties", "document"),
        *("fail", "retry", "done", "output"),
    }
