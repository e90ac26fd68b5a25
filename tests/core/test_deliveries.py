"""Deliveries: dead letters and outputs on their way to the broker, and what follows its answers."""

from __future__ import annotations

import pytest

from consumer.core.commands import Destination, Produce, Say
from consumer.core.completion.deliveries import Answer, Deliveries
from consumer.core.events import Delivered, Output, RecordFault
from consumer.core.ledger.in_flight import Piece
from tests.core.completing import TOWN, Desk, fetched

BAD = RecordFault(0, "malformed-json", "DecodeError", "cut off at byte 7")


def unacknowledged(desk: Desk, first_offset: int, count: int) -> Piece:
    """A piece of records of one key that waits for the broker."""
    desk.admit(first_offset, [5] * count)
    (piece,) = desk.enter(5).pieces
    desk.ledger.processes[0].chunks.clear()
    desk.pieces.leave(piece)
    desk.pieces.wait_for_broker(piece)
    return piece


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def deliveries(desk: Desk) -> Deliveries:
    return Deliveries(desk.pieces)


def test_a_dead_letter_is_the_record_as_it_was_with_its_reason(
    desk: Desk, deliveries: Deliveries
) -> None:
    """Key, value, headers and timestamp of the record; where it came from; the attempt it failed."""
    run = fetched(10, [5, 5], headers={1: [("source", b"gps")]})
    desk.admission.queue(desk.state, run)
    desk.admission.admit(0.0)
    (piece,) = desk.enter(5).pieces
    letter = deliveries.dead_letter(piece, 1, BAD)
    assert letter.destination is Destination.DEAD_LETTER
    assert (letter.source, letter.source_offset) == (TOWN, 11)
    assert (letter.key, letter.value) == (b"5", b"v11")
    assert (letter.headers, letter.timestamp_ms) == ([("source", b"gps")], 11_000)
    assert (letter.reason, letter.error_class) == ("malformed-json", "DecodeError")
    assert letter.error_text == "cut off at byte 7"


def test_a_record_without_key_and_headers_has_none_in_its_dead_letter(
    desk: Desk, deliveries: Deliveries
) -> None:
    """A null key stays null."""
    desk.admit(10, [None])
    (piece,) = desk.enter(-1).pieces
    letter = deliveries.dead_letter(piece, 0, BAD)
    assert (letter.key, letter.headers) == (None, [])


def test_the_attempt_that_failed_counts_unless_it_was_counted(
    desk: Desk, deliveries: Deliveries
) -> None:
    """Two attempts before and this one are three; who has counted it already says how many."""
    piece = unacknowledged(desk, 10, 1)
    desk.pieces.count_attempt(piece)
    desk.pieces.count_attempt(piece)
    assert deliveries.dead_letter(piece, 0, BAD).attempts == 3
    assert deliveries.dead_letter(piece, 0, BAD, attempts=2).attempts == 2


def test_an_output_holds_its_own_bytes_until_it_is_acknowledged(
    desk: Desk, deliveries: Deliveries
) -> None:
    """3 of key, 5 of value and 300 for its objects; a dead letter holds what its record does."""
    piece = unacknowledged(desk, 10, 2)
    output = deliveries.output(piece, 1, Output(7, b"key", b"value", [("h", b"1")]))
    assert output.destination is Destination.OUTPUT
    assert (output.key, output.value, output.headers) == (b"key", b"value", [("h", b"1")])
    assert (output.source, output.source_offset, output.timestamp_ms) == (TOWN, 11, 11_000)
    assert desk.ledger.delivery_bytes == 308
    deliveries.dead_letter(piece, 0, BAD)
    assert desk.ledger.delivery_bytes == 308
    deliveries.answered(Delivered(1.0, output.delivery_id))
    assert desk.ledger.delivery_bytes == 0


def test_an_output_without_key_and_value_holds_its_objects(
    desk: Desk, deliveries: Deliveries
) -> None:
    """A tombstone is 300 bytes."""
    piece = unacknowledged(desk, 10, 1)
    deliveries.output(piece, 0, Output(0, None, None))
    assert desk.ledger.delivery_bytes == 300


def test_a_piece_is_settled_by_its_last_acknowledgement(desk: Desk, deliveries: Deliveries) -> None:
    """Three things were produced for three records: one dead letter, and two that are done."""
    piece = unacknowledged(desk, 10, 3)
    letter = deliveries.dead_letter(piece, 0, BAD)
    outputs = [deliveries.output(piece, n, Output(n, None, b"x")) for n in (1, 2)]
    assert len({letter.delivery_id, *(output.delivery_id for output in outputs)}) == 3
    first = deliveries.answered(Delivered(1.0, outputs[0].delivery_id))
    assert (first.settled, first.final, first.dead_lettered, first.done) == (None, True, False, 0)
    second = deliveries.answered(Delivered(1.1, letter.delivery_id))
    assert (second.settled, second.dead_lettered) == (None, True)
    assert deliveries.dead_letters == {"malformed-json": 1}
    last = deliveries.answered(Delivered(1.2, outputs[1].delivery_id))
    assert (last.settled, last.dead_lettered, last.done) == (piece, False, 2)
    assert last.commands == []


def test_an_answer_to_nothing_changes_nothing(desk: Desk, deliveries: Deliveries) -> None:
    """A number that was never given, or was answered before, says nothing."""
    piece = unacknowledged(desk, 10, 1)
    letter = deliveries.dead_letter(piece, 0, BAD)
    assert deliveries.answered(Delivered(1.0, letter.delivery_id)).settled is piece
    for delivery_id in (letter.delivery_id, 99):
        answer = deliveries.answered(Delivered(2.0, delivery_id))
        assert (answer.commands, answer.settled, answer.final) == ([], None, False)
    assert deliveries.dead_letters == {"malformed-json": 1}


# -- refused --------------------------------------------------------------------------------------


def refuse(
    deliveries: Deliveries, command: Produce, now: float, *, too_large: bool = False
) -> Answer:
    return deliveries.answered(
        Delivered(now, command.delivery_id, "town.dlq: not authorized", too_large)
    )


def test_what_the_broker_refuses_is_sent_again_with_growing_pauses(
    desk: Desk, deliveries: Deliveries
) -> None:
    """After 0.5 s, 1, 2, 4, 8, 16 and then 30 s each time; nothing is dropped, whatever happens."""
    piece = unacknowledged(desk, 10, 1)
    letter = deliveries.dead_letter(piece, 0, BAD)
    now = 100.0
    for delay in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        answer = refuse(deliveries, letter, now)
        words = "town.dlq: not authorized: refused, and sent again later"
        assert answer.commands == [Say("warning", words)]
        assert (answer.settled, answer.final, answer.dead_lettered) == (None, False, False)
        assert deliveries.refused
        assert deliveries.due(now + delay - 0.01) == []
        now += delay
        assert deliveries.due(now) == [letter]
        assert not deliveries.refused
    assert deliveries.dead_letters == {}
    assert deliveries.answered(Delivered(now, letter.delivery_id)).settled is piece


def test_a_dead_letter_that_is_too_large_is_sent_again_like_any_other(
    desk: Desk, deliveries: Deliveries
) -> None:
    """There is no other place for it: people have to make room for it."""
    letter = deliveries.dead_letter(unacknowledged(desk, 10, 1), 0, BAD)
    assert not refuse(deliveries, letter, 1.0, too_large=True).final
    assert deliveries.due(1.5) == [letter]


def test_several_that_are_refused_go_again_each_at_its_time(
    desk: Desk, deliveries: Deliveries
) -> None:
    """The one that was refused first goes first, though it was produced later."""
    piece = unacknowledged(desk, 10, 2)
    first, second = (deliveries.dead_letter(piece, n, BAD) for n in (0, 1))
    refuse(deliveries, second, 1.0)
    refuse(deliveries, first, 1.2)
    assert deliveries.due(1.6) == [second]
    assert deliveries.refused
    assert deliveries.due(1.7) == [first]


def test_an_output_that_no_topic_takes_makes_its_record_a_dead_letter(
    desk: Desk, deliveries: Deliveries
) -> None:
    """Its bytes are free; the input record goes to the dead letters with what the broker said."""
    piece = unacknowledged(desk, 10, 2)
    kept = deliveries.output(piece, 0, Output(0, None, b"x"))
    large = deliveries.output(piece, 1, Output(1, None, b"x" * 100))
    answer = refuse(deliveries, large, 1.0, too_large=True)
    assert (answer.settled, answer.final, answer.dead_lettered) == (None, True, False)
    (letter,) = answer.commands
    assert isinstance(letter, Produce)
    assert letter.destination is Destination.DEAD_LETTER
    assert (letter.source_offset, letter.value) == (11, b"v11")
    assert (letter.reason, letter.error_text) == ("output-too-large", "town.dlq: not authorized")
    assert desk.ledger.delivery_bytes == 301
    assert not deliveries.refused
    assert deliveries.answered(Delivered(2.0, kept.delivery_id)).settled is None
    last = deliveries.answered(Delivered(2.0, letter.delivery_id))
    assert (last.settled, last.dead_lettered, last.done) == (piece, True, 1)


def test_a_record_is_one_dead_letter_however_many_of_its_outputs_are_too_large(
    desk: Desk, deliveries: Deliveries
) -> None:
    """Both are refused, before and after the dead letter has arrived: it is produced once."""
    piece = unacknowledged(desk, 10, 1)
    outputs = [deliveries.output(piece, 0, Output(0, None, b"x" * 100)) for _ in range(3)]
    (letter,) = refuse(deliveries, outputs[0], 1.0, too_large=True).commands
    assert isinstance(letter, Produce)
    assert refuse(deliveries, outputs[1], 1.0, too_large=True).commands == []
    assert deliveries.answered(Delivered(1.1, letter.delivery_id)).settled is None
    last = refuse(deliveries, outputs[2], 1.2, too_large=True)
    assert (last.commands, last.settled, last.done) == ([], piece, 0)
    assert deliveries.dead_letters == {"output-too-large": 1}


# -- partitions that are gone ---------------------------------------------------------------------


def test_what_waits_to_be_sent_again_is_dropped_with_its_partition(
    desk: Desk, deliveries: Deliveries
) -> None:
    """Whoever owns it now reads the record again; other partitions' go on waiting."""
    gone = unacknowledged(desk, 10, 1)
    roads = desk.ownership.assign(("roads", 0))
    desk.admit(90, [5], partition=("roads", 0))
    (stays,) = desk.enter(5, state=roads).pieces
    dropped = deliveries.output(gone, 0, Output(0, None, b"x"))
    kept = [deliveries.output(stays, 0, Output(0, None, b"x")) for _ in range(2)]
    for number, command in enumerate((kept[1], dropped, kept[0])):
        refuse(deliveries, command, 1.0 + number)
    deliveries.forget(desk.state)
    assert desk.ledger.delivery_bytes == 2 * 301
    assert gone.deliveries_pending == 0
    assert deliveries.due(9.0) == [kept[1], kept[0]]
    assert not deliveries.answered(Delivered(9.0, dropped.delivery_id)).final


def test_an_answer_for_a_fenced_record_frees_its_bytes_and_no_more(
    desk: Desk, deliveries: Deliveries
) -> None:
    """It is on its way when the partition goes. Refused, it is not sent again: it is not ours."""
    piece = unacknowledged(desk, 10, 2)
    sent = [deliveries.output(piece, n, Output(n, None, b"x")) for n in (0, 1)]
    deliveries.dead_letter(piece, 0, BAD)
    desk.ownership.fence(TOWN)
    deliveries.forget(desk.state)
    for command, too_large in zip(sent, (False, True), strict=True):
        answer = refuse(deliveries, command, 5.0, too_large=too_large)
        assert (answer.commands, answer.settled, answer.final) == ([], None, True)
    assert desk.ledger.delivery_bytes == 0
    assert not deliveries.refused
    assert desk.records() == {}
