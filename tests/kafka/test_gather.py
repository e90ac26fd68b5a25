"""Columns out of messages: the split, the nulls, the headers and the times."""

from __future__ import annotations

from itertools import pairwise

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    Message,
)
from hypothesis import given
from hypothesis import strategies as st

from consumer.kafka.gather import gather
from tests.kafka.members import FIGURES


def message(topic="t", partition=0, offset=0, *, value=b"v", key=None, headers=None, ms=5):
    """Return a message as the client makes it."""
    kind = TIMESTAMP_NOT_AVAILABLE if ms < 0 else TIMESTAMP_CREATE_TIME
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        value=value,
        key=key,
        headers=headers,
        timestamp=(kind, max(ms, 0)),
    )


def test_records_of_one_partition_are_one_run():
    """A partition whose records come in several stretches gives one run, in offset order."""
    mixed = [
        message(partition=p, offset=o, value=b"%d-%d" % (p, o))
        for p, o in [(0, 5), (0, 6), (1, 9), (0, 8), (1, 12), (1, 13)]
    ]
    runs, errors = gather(mixed, FIGURES)
    assert errors == ()
    assert [run.partition for run in runs] == [("t", 0), ("t", 1)]
    assert [run.columns.offsets.tolist() for run in runs] == [[5, 6, 8], [9, 12, 13]]
    assert list(runs[1].columns.values) == [b"1-9", b"1-12", b"1-13"]


def test_partitions_of_different_topics_are_kept_apart():
    """The same partition number of two topics gives two runs."""
    runs, _ = gather([message("a"), message("b"), message("a", offset=1)], FIGURES)
    assert [(run.partition, len(run.columns)) for run in runs] == [(("a", 0), 2), (("b", 0), 1)]


def test_null_keys_are_told_apart_from_keys():
    """Keys are None when all are null, and a mask says which are when some are."""
    (none,), _ = gather([message(offset=0), message(offset=1)], FIGURES)
    assert none.columns.keys is None
    assert none.key_hashes is None
    assert none.null_keys is None
    (some,), _ = gather([message(offset=0, key=b"k"), message(offset=1)], FIGURES)
    assert some.columns.keys == [b"k", None]
    assert some.null_keys is not None
    assert some.null_keys.tolist() == [False, True]
    (every,), _ = gather([message(offset=0, key=b"k"), message(offset=1, key=b"k")], FIGURES)
    assert every.null_keys is None
    assert every.key_hashes is not None
    assert every.key_hashes[0] == every.key_hashes[1]


def test_headers_are_sparse_and_weighed():
    """Only records with headers have an entry, and headers count as payload."""
    (run,), _ = gather(
        [
            message(offset=0, value=None),
            message(offset=1, value=b"abc", key=b"k", headers=[("h", b"xy"), ("n", None)]),
        ],
        FIGURES,
    )
    assert run.columns.headers == {1: [("h", b"xy"), ("n", None)]}
    assert run.columns.payload_bytes.tolist() == [0, 3 + 1 + 3 + 1]
    assert list(run.columns.values) == [None, b"abc"]


def test_a_record_without_a_time_says_so():
    """Timestamps are milliseconds, -1 where the record has none."""
    (run,), _ = gather([message(offset=0, ms=1_700), message(offset=1, ms=-1)], FIGURES)
    assert run.columns.timestamps_ms.tolist() == [1_700, -1]


def test_messages_with_errors_are_handed_back():
    """An error between records is no record, and the records around it are one run."""
    end = Message(topic="t", partition=0, offset=2, error=KafkaError(KafkaError._PARTITION_EOF))
    runs, errors = gather([message(offset=0), end, message(offset=1)], FIGURES)
    assert errors == (end,)
    assert runs[0].columns.offsets.tolist() == [0, 1]
    assert gather([end], FIGURES).runs == ()


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 50)), min_size=1)
)
def test_nothing_is_dropped_and_offsets_rise(where):
    """Whatever the order of messages, each is in exactly one run whose offsets strictly rise."""
    runs, _ = gather([message(t, p, o) for t, p, o in where], FIGURES)
    out = [(*run.partition, o) for run in runs for o in run.columns.offsets.tolist()]
    assert sorted(out) == sorted(where)
    for run in runs:
        assert all(a < b for a, b in pairwise(run.columns.offsets.tolist()))
