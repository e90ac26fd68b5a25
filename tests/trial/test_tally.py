"""What a trial counts, from what handler processes say."""

from __future__ import annotations

import pytest

from consumer.core.events import ChunkOutcome, Output, RecordFault
from consumer.trial import tally as module
from consumer.trial.records import TriedRecord
from consumer.trial.tally import Tally


def records(count: int, size_class: int = 0) -> list[TriedRecord]:
    """Return records of three payload bytes each, one of them the key's."""
    return [
        TriedRecord(0, number, f"line {number + 1}", b"k", b"vv", 1, size_class)
        for number in range(count)
    ]


def outcome(**said) -> ChunkOutcome:
    known = {"seconds": 0.5, "working_bytes": 1000, "exact_vertices": 20}
    return ChunkOutcome(cpu_seconds=0.0, resident_bytes=0, **{**known, **said})


def test_records_are_counted_by_what_became_of_them():
    """What is not named is done; the rest is named with its reason and counted by it."""
    tally = Tally()
    again = tally.finished(
        records(6),
        outcome(
            failed=(RecordFault(1, "bad", "", "words"), RecordFault(4, "bad")),
            retry=(RecordFault(5, "retry-requested", "ConnectionError"),),
        ),
    )

    assert again == []
    assert (tally.done, tally.records, tally.payload_bytes) == (3, 6, 18)
    assert (tally.failed, tally.retry) == ({"bad": 2}, {"retry-requested": 1})
    assert [(n.record.place, n.outcome, n.reason, n.error_class, n.text) for n in tally.named] == [
        ("line 2", "failed", "bad", "", "words"),
        ("line 5", "failed", "bad", "", ""),
        ("line 6", "retry", "retry-requested", "ConnectionError", ""),
    ]


def test_costs_are_those_of_the_class():
    """Seconds and bytes add up over chunks: (0.5 + 0.1) s of 4 records with 30 vertices."""
    tally = Tally()
    tally.finished(records(3), outcome())
    tally.finished(records(1), outcome(seconds=0.1, working_bytes=600, exact_vertices=10))
    tally.finished(records(2, size_class=9), outcome(exact_vertices=0))

    cost = tally.costs[0]
    assert cost.seconds_per_record == pytest.approx(0.15)
    assert cost.seconds_per_vertex == pytest.approx(0.02)
    assert cost.working_bytes_per_record == 400
    assert tally.costs[9].seconds_per_vertex is None
    assert tally.seconds_per_record(0) == pytest.approx(0.15)
    assert tally.seconds_per_record(5) is None


def test_memory_that_ran_out_for_many_is_looked_for_alone():
    """Those records have no outcome yet, and the chunk no cost; alone it is an outcome."""
    tally = Tally()
    short = RecordFault(1, "suspect-memory", "MemoryError")
    again = tally.finished(records(3), outcome(retry=(short,)))

    assert [r.number for r in again] == [1]
    assert (tally.done, tally.records, tally.costs) == (2, 2, {})

    assert tally.finished(again, outcome(retry=(RecordFault(0, "suspect-memory"),))) == []
    assert tally.retry == {"suspect-memory": 1}


def test_only_outputs_of_done_records_count():
    """As they would be produced; the first few are kept."""
    tally = Tally(most_outputs=1)
    made = [Output(0, None, b"abc"), Output(1, b"k", b"no"), Output(2, b"k", None)]
    tally.finished(records(3), outcome(failed=(RecordFault(1, "bad"),), outputs=tuple(made)))

    # "abc", and a tombstone with a key of one byte.
    assert (tally.outputs, tally.output_bytes) == (2, 4)
    assert [(r.number, o.value) for r, o in tally.first_outputs] == [(0, b"abc")]


def test_what_is_named_has_a_limit(monkeypatch):
    """However many fail, memory stays; all of them are counted."""
    monkeypatch.setattr(module, "MOST_NAMED", 2)
    tally = Tally()
    for one in records(5):
        tally.lost(one, "killed-process", "signal 9 (SIGKILL)")

    assert len(tally.named) == 2
    assert tally.failed == {"killed-process": 5}
    assert tally.records == 5
