"""What travels between parent and child arrives as it was sent."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from consumer.batch import Records
from consumer.core.events import ChunkOutcome, Output, RecordFault
from consumer.processes import wire
from tests.processes.chunks import chunk, columns

optional_bytes = st.none() | st.binary(max_size=30)
headers = st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=3)


@st.composite
def parts(draw):
    values = draw(st.lists(optional_bytes, min_size=1, max_size=6))
    keys = draw(st.none() | st.lists(optional_bytes, min_size=len(values), max_size=len(values)))
    sparse = draw(st.dictionaries(st.integers(0, len(values) - 1), headers, max_size=2))
    return columns(values, keys, draw(st.integers(0, 2**40)), sparse)


@given(st.lists(parts(), min_size=1, max_size=4))
def test_chunks_arrive_whole(sent):
    """Each record has its columns, its partition and its headers, counted across the parts."""
    received = wire.unpack_chunk(memoryview(wire.pack_chunk(chunk(1, *sent))))
    records = Records(received, range(len(received.values)))

    index = 0
    for number, part in enumerate(sent):
        for at in range(len(part)):
            record = records[index]
            assert (record.topic, record.partition) == ("t", number)
            assert record.value == part.values[at]
            assert record.key == (None if part.keys is None else part.keys[at])
            assert record.headers == part.headers.get(at, [])
            assert (record.offset, record.timestamp_ms) == (
                part.offsets[at],
                part.timestamps_ms[at],
            )
            index += 1
    assert index == len(received.values)


faults = st.builds(RecordFault, st.integers(0, 99), st.text(), st.text(), st.text())
outputs = st.builds(Output, st.integers(0, 99), optional_bytes, optional_bytes, headers)
outcomes = st.builds(
    ChunkOutcome,
    seconds=st.none() | st.floats(0, 9),
    cpu_seconds=st.floats(0, 9),
    working_bytes=st.none() | st.integers(0, 2**50),
    resident_bytes=st.integers(0, 2**50),
    exact_vertices=st.integers(0, 2**50),
    growth_bytes=st.integers(0, 2**50),
    failed=st.lists(faults, max_size=3).map(tuple),
    retry=st.lists(faults, max_size=3).map(tuple),
    skipped=st.lists(st.integers(0, 99), max_size=3).map(tuple),
    outputs=st.lists(outputs, max_size=3).map(tuple),
)


@given(outcomes)
def test_outcomes_arrive_whole(outcome):
    """An outcome is the same on both sides."""
    assert wire.unpack_outcome(wire.pack_outcome(outcome)) == outcome


@given(
    st.one_of(
        st.builds(
            wire.Work,
            st.integers(0, 2**62),
            st.integers(0, 2**31),
            st.integers(-1, 1),
            st.integers(0, 2**40),
            st.booleans(),
            st.booleans(),
        ),
        st.just(wire.Finish()),
        st.builds(wire.Ready, st.integers(0, 2**50)),
        st.builds(wire.NotOpened, st.text().map(wire.cut_text)),
        st.builds(
            wire.Done,
            st.integers(0, 2**62),
            st.integers(-2, 1),
            st.integers(0, 2**40),
            st.binary(max_size=wire.INLINE_BYTES),
        ),
    )
)
def test_messages_are_short_and_arrive_whole(message):
    """A message fits into what is sent at once, whatever it says."""
    data = wire.dump_message(message)

    assert len(data) <= wire.MESSAGE_BYTES
    assert wire.load_message(data) == message


def test_long_texts_are_cut_to_fit():
    """The text of a failure is cut between characters."""
    text = wire.cut_text("ä" * 10_000 + "\ud800")

    assert len(wire.dump_message(wire.NotOpened(text))) <= wire.MESSAGE_BYTES
    assert set(text) == {"ä"}
