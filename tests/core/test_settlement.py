"""Settlement: what becomes of records after a handler process had them.

The wait before a retry is 0.5 s, doubled with each attempt, with a jitter by the offset: 0.9 at
offset 0, 0.945703125 at offset 10, 1.0302734375 at offset 11.
"""

from __future__ import annotations

import pytest

from consumer.core.commands import Destination, Produce
from consumer.core.config import FlowConfig, Ordering
from consumer.core.events import Delivered, Output, RecordFault
from consumer.core.ledger.in_flight import PieceState
from consumer.core.reasons import KillReason
from tests.core.completing import HELD, TOWN, Desk, outcome, produced


def asks(index: int) -> RecordFault:
    """A record for which the handler asks for another attempt."""
    return RecordFault(index, "retry-requested", "Retry", "the database is away")


def short(index: int) -> RecordFault:
    """A record at which memory ran out."""
    return RecordFault(index, "suspect-memory", "MemoryError", "no memory")


def bad(index: int) -> RecordFault:
    """A record that cannot be read."""
    return RecordFault(index, "malformed-json", "DecodeError", "cut off")


def text(index: int) -> Output:
    """Something that the handler returned for a record."""
    return Output(index, None, b"x")


# -- done -----------------------------------------------------------------------------------------


def test_records_that_are_not_named_are_done() -> None:
    """Three of two keys: nothing is charged any more, and the committed end is above them."""
    desk = Desk()
    desk.admit(10, [5, 7, 5], [1, 2, 3])
    assert desk.finish(desk.enter(5, 7), outcome(), now=42.0) == []
    assert desk.records() == {}
    assert desk.outcomes() == {"done": 3}
    assert desk.settlement.vertices_total == 6
    assert desk.settlement.last_finished_at == 42.0
    assert desk.state.committed_end() == 13
    assert desk.state.chains == {}


def test_the_committed_end_waits_for_the_lowest_record() -> None:
    """11 is done and 10 is not: nothing is committed above 10."""
    desk = Desk()
    desk.admit(10, [5, 7])
    desk.finish(desk.enter(7), outcome())
    assert desk.state.committed_end() == 10
    desk.finish(desk.enter(5), outcome())
    assert desk.state.committed_end() == 12


def test_a_chain_that_has_more_goes_on() -> None:
    """Its next piece may go as soon as the one before is back."""
    desk = Desk()
    desk.admit(10, [5])
    desk.admit(11, [5])
    chunk = desk.enter(5)
    assert desk.ready() == []
    desk.finish(chunk, outcome())
    assert desk.ready() == [5]
    assert desk.waiting(5) == [[11]]


def test_a_skipped_record_is_settled_and_counted_apart() -> None:
    """A tombstone is not done, but in nobody's way."""
    desk = Desk()
    desk.admit(10, [5, 7, 5])
    assert desk.finish(desk.enter(5, 7), outcome(skipped=[1])) == []
    assert desk.outcomes() == {"done": 2, "skipped": 1}
    assert desk.state.committed_end() == 13


# -- failed, and outputs --------------------------------------------------------------------------


def test_a_failed_record_waits_until_its_dead_letter_has_arrived() -> None:
    """Meanwhile it is held and nothing is committed past it; the rest of its chunk is done."""
    desk = Desk()
    desk.admit(10, [5, 5, 5, 5])
    chunk = desk.enter(5)
    commands = desk.finish(chunk, outcome(failed=[bad(1)], skipped=[3]))
    assert produced(commands) == [(11, "malformed-json")]
    (letter,) = commands
    assert isinstance(letter, Produce)
    assert (letter.error_class, letter.error_text, letter.attempts) == ("DecodeError", "cut off", 1)
    assert desk.records() == {"unacknowledged": 1}
    assert desk.outcomes() == {"done": 2, "skipped": 1}
    assert desk.state.committed_end() == 11
    desk.acknowledge(letter, now=50.0)
    assert desk.records() == {}
    assert desk.outcomes() == {"done": 2, "skipped": 1, "dead-lettered": 1}
    assert desk.settlement.dead_letters == {"malformed-json": 1}
    assert desk.settlement.vertices_total == 4
    assert desk.settlement.last_finished_at == 50.0
    assert desk.state.committed_end() == 14


def test_the_chain_goes_on_while_a_dead_letter_is_on_its_way() -> None:
    """What is dead does not hold up its key."""
    desk = Desk()
    desk.admit(10, [5])
    desk.admit(11, [5])
    desk.finish(desk.enter(5), outcome(failed=[bad(0)]))
    assert desk.ready() == [5]
    assert desk.records() == {"unacknowledged": 1, "waiting": 1}


def test_a_record_is_done_when_all_of_its_outputs_have_arrived() -> None:
    """Two of one record: after the first acknowledgement it is neither done nor committed."""
    desk = Desk()
    desk.admit(10, [5, 5])
    commands = desk.finish(desk.enter(5), outcome(outputs=[text(0), text(0)]))
    assert [c.source_offset for c in commands if isinstance(c, Produce)] == [10, 10]
    assert all(isinstance(c, Produce) and c.destination is Destination.OUTPUT for c in commands)
    assert desk.outcomes() == {"done": 1}
    desk.acknowledge(commands[1])
    assert desk.records() == {"unacknowledged": 1}
    assert desk.state.committed_end() == 10
    desk.acknowledge(commands[0])
    assert desk.outcomes() == {"done": 2}
    assert desk.state.committed_end() == 12


def test_a_record_that_failed_produces_nothing_but_its_dead_letter() -> None:
    """What the handler returned for it before it failed is not sent."""
    desk = Desk()
    desk.admit(10, [5, 5])
    commands = desk.finish(desk.enter(5), outcome(failed=[bad(0)], outputs=[text(0), text(1)]))
    assert produced(commands) == [(10, "malformed-json"), (11, "")]


def test_what_is_refused_stops_the_intake_until_it_is_sent_again() -> None:
    """The broker refuses a dead letter at 20 s: sent again half a second later."""
    desk = Desk()
    desk.admit(10, [5])
    (letter,) = desk.finish(desk.enter(5), outcome(failed=[bad(0)]), now=15.0)
    assert isinstance(letter, Produce)
    refused = Delivered(20.0, letter.delivery_id, error="not authorized")
    assert len(desk.settlement.delivered(refused)) == 1
    refusals = [desk.settlement.deliveries_refused]
    assert desk.settlement.last_finished_at == 15.0
    assert desk.settlement.wake(20.4) == []
    assert desk.settlement.wake(20.5) == [letter]
    assert [*refusals, desk.settlement.deliveries_refused] == [True, False]
    assert desk.records() == {"unacknowledged": 1}


def test_an_output_that_is_too_large_makes_its_record_dead_and_not_done() -> None:
    """Of two records with an output one is done, and one is a dead letter in the end."""
    desk = Desk()
    desk.admit(10, [5, 5])
    outputs = desk.finish(desk.enter(5), outcome(outputs=[text(0), text(1)]))
    assert isinstance(outputs[1], Produce)
    large = Delivered(20.0, outputs[1].delivery_id, error="too large", too_large=True)
    commands = desk.settlement.delivered(large)
    assert produced(commands) == [(11, "output-too-large")]
    desk.acknowledge(outputs[0], *commands)
    assert desk.outcomes() == {"done": 1, "dead-lettered": 1}
    assert desk.records() == {}


# -- tried again ----------------------------------------------------------------------------------


def test_a_retry_takes_the_later_records_of_its_key_along() -> None:
    """11 and 13 have one key, and go again in their order; 12 shares only the shard and is done."""
    desk = Desk()
    desk.admit(10, [5, 21, 5, 21])
    assert desk.finish(desk.enter(5), outcome(retry=[asks(1)])) == []
    assert desk.records() == {"retrying": 2}
    # Those that ask and those that follow are pieces of their own.
    assert desk.waiting(5) == [[11], [13]]
    assert desk.outcomes() == {"done": 2, "failed": 1}
    assert desk.state.committed_end() == 11


def test_what_follows_a_retry_has_not_failed() -> None:
    """Its attempts stay what they were: it does not inherit those of the record before it."""
    desk = Desk()
    desk.admit(10, [5, 5, 5])
    desk.finish(desk.enter(5), outcome(retry=[asks(0), asks(2)]))
    pieces = desk.state.chains[5].pieces
    assert [(len(piece), piece.attempts) for piece in pieces] == [(1, 1), (1, 0), (1, 1)]
    assert desk.outcomes()["failed"] == 2
    assert not any(piece.alone for piece in pieces)


def test_neighbours_that_all_ask_go_again_together() -> None:
    """A database that is away fails the whole chunk, which stays one piece."""
    desk = Desk()
    desk.admit(10, [5, 5, 5])
    desk.finish(desk.enter(5), outcome(retry=[asks(0), asks(1), asks(2)]))
    assert desk.waiting(5) == [[10, 11, 12]]
    assert desk.outcomes()["failed"] == 3


def test_a_retry_reaches_across_the_pieces_of_a_chunk_and_not_across_chains() -> None:
    """The key's records of the next run follow; another chain of the chunk is done."""
    desk = Desk()
    desk.admit(10, [5, 7])
    desk.admit(12, [5, 21])
    desk.finish(desk.enter(5, 7, 5), outcome(retry=[asks(0)]))
    # 10 asks and 12 follows; 13 is another key's, and 11 another chain's.
    assert desk.waiting(5) == [[10], [12]]
    assert desk.outcomes() == {"done": 2, "failed": 1}
    assert list(desk.state.chains) == [5]


@pytest.mark.parametrize("keys", [[5, 7, 5], [None, None, None]])
def test_in_order_of_partitions_all_later_records_follow(keys: list[int | None]) -> None:
    """Whatever their keys are, and if they have none."""
    desk = Desk(FlowConfig(2, ordering=Ordering.PARTITION))
    desk.admit(10, keys)
    desk.finish(desk.enter(0), outcome(retry=[asks(1)]))
    assert desk.waiting(0) == [[11], [12]]
    assert desk.outcomes() == {"done": 1, "failed": 1}


def test_without_order_nothing_follows_and_nothing_waits_with_a_retry() -> None:
    """The record gets a chain of its own, and what is fetched next goes at once."""
    desk = Desk(FlowConfig(2, ordering=Ordering.UNORDERED))
    desk.admit(10, [5, 5, 5])
    desk.admit(13, [5])
    desk.finish(desk.enter(-1), outcome(retry=[asks(0), asks(2)]))
    assert desk.ready() == [-1]
    assert desk.waiting(-1) == [[13]]
    assert desk.waiting(-2) == [[10, 12]]
    assert desk.outcomes() == {"done": 1, "failed": 2}


def test_null_keys_have_no_order() -> None:
    """Two records without a key, of which one is tried again: the other is done."""
    desk = Desk()
    desk.admit(10, [None, 5, None])
    desk.finish(desk.enter(-1, 5), outcome(retry=[asks(0)]))
    assert desk.outcomes() == {"done": 2, "failed": 1}
    assert desk.waiting(-2) == [[10]]


def test_what_goes_again_is_neither_failed_nor_skipped_nor_produced() -> None:
    """All of that is decided by the attempt that comes: now each follows the first."""
    desk = Desk()
    desk.admit(10, [5, 5, 5, 5])
    named = outcome(retry=[asks(0)], failed=[bad(1)], skipped=[2], outputs=[text(3)])
    assert desk.finish(desk.enter(5), named) == []
    assert desk.records() == {"retrying": 4}
    assert desk.outcomes() == {"failed": 1}


def test_one_chunk_may_hold_every_outcome() -> None:
    """Records of six keys in one piece: each takes its own way."""
    desk = Desk()
    desk.admit(10, [5, 21, 37, 53, 69, 85])
    named = outcome(retry=[asks(1)], failed=[bad(2)], skipped=[3], outputs=[text(4)])
    commands = desk.finish(desk.enter(5), named)
    assert produced(commands) == [(12, "malformed-json"), (14, "")]
    assert desk.records() == {"retrying": 1, "unacknowledged": 2}
    assert desk.outcomes() == {"done": 2, "skipped": 1, "failed": 1}


def test_a_retry_waits_and_then_goes_again() -> None:
    """The first wait is half a second with its jitter: 0.5 * 0.9 at offset 0, and to the moment."""
    desk = Desk()
    desk.admit(0, [5])
    desk.finish(desk.enter(5), outcome(retry=[asks(0)]), now=10.0)
    assert desk.settlement.wake(10.449) == []
    assert desk.ready() == []
    desk.settlement.wake(10.45)
    assert desk.ready() == [5]
    assert desk.records() == {"waiting": 1}


def test_waits_grow_with_the_attempts_up_to_their_limit() -> None:
    """0.5, 1, 2, 4 and then 5 s at most, each * 0.945703125 for offset 10."""
    config = FlowConfig(2, max_attempts=9, retry_backoff_limit_seconds=5.0)
    desk = Desk(config)
    desk.admit(10, [5])
    for wait in (0.5, 1.0, 2.0, 4.0, 5.0, 5.0):
        desk.finish(desk.enter(5), outcome(retry=[asks(0)]), now=100.0)
        assert desk.state.chains[5].retry_at == 100.0 + 0.945703125 * wait
        desk.settlement.wake(200.0)


def test_jitter_is_the_offsets_and_stays_within_a_tenth() -> None:
    """A replay waits as long; of a thousand offsets none waits less than 0.9 or more than 1.1."""
    desk = Desk()
    waits = [desk.settlement._backoff(2, offset) for offset in range(1_024)]
    assert waits[11] == 1.0302734375
    assert waits == [desk.settlement._backoff(2, offset) for offset in range(1_024)]
    assert (min(waits), max(waits)) == (0.9, 0.9 + 0.2 * 1023 / 1024)


def test_a_waiting_chain_keeps_its_bytes_and_gives_up_its_seconds() -> None:
    """What came behind waits with it; another chain's work goes on."""
    desk = Desk()
    desk.admit(10, [5, 7])
    desk.admit(12, [5])
    desk.finish(desk.enter(5), outcome(retry=[asks(0)]))
    charge = desk.ledger.value()
    assert charge.held_bytes == 3 * HELD
    assert charge.seconds == 0.001
    assert desk.records() == {"retrying": 2, "waiting": 1}
    assert desk.waiting(5) == [[10], [12]]
    assert desk.ready() == []


def test_a_chain_waits_for_the_latest_of_its_retries() -> None:
    """Two keys of one chain ask: the wait of offset 11 is the longer one."""
    desk = Desk()
    desk.admit(10, [5])
    desk.admit(11, [21])
    desk.finish(desk.enter(5, 5), outcome(retry=[asks(0), asks(1)]), now=10.0)
    desk.settlement.wake(10.0 + 0.5 * 0.945703125)
    assert desk.ready() == []
    desk.settlement.wake(10.0 + 0.5 * 1.0302734375)
    assert desk.ready() == [5]
    assert desk.waiting(5) == [[10], [11]]


def test_a_time_that_is_no_longer_the_chains_wakes_nothing() -> None:
    """Offset 12 asks for less than 11 before it: its own time passes, and the chain still waits."""
    desk = Desk()
    desk.admit(11, [5])
    desk.admit(12, [21])
    # Offset 12: 12 * 2,654,435,761 mod 1,024 = 76; 0.9 + 0.2 * 76 / 1,024 = 0.91484375.
    desk.finish(desk.enter(5, 5), outcome(retry=[asks(0), asks(1)]), now=10.0)
    desk.settlement.wake(10.0 + 0.5 * 0.91484375)
    assert desk.records() == {"retrying": 2}
    desk.settlement.wake(10.0 + 0.5 * 1.0302734375)
    assert desk.records() == {"waiting": 2}


# -- tried too often ------------------------------------------------------------------------------


def test_a_record_that_asks_once_too_often_is_a_dead_letter() -> None:
    """Three attempts are allowed; the third that asks for another is the last."""
    desk = Desk(FlowConfig(2, max_attempts=3))
    desk.admit(10, [5])
    for now in (10.0, 20.0):
        assert desk.finish(desk.enter(5), outcome(retry=[asks(0)]), now=now) == []
        desk.settlement.wake(now + 9.0)
    (letter,) = desk.finish(desk.enter(5), outcome(retry=[asks(0)]), now=30.0)
    assert produced([letter]) == [(10, "retries-exhausted")]
    assert isinstance(letter, Produce)
    assert (letter.attempts, letter.error_class) == (3, "Retry")
    assert letter.error_text == "the database is away"
    assert desk.records() == {"unacknowledged": 1}
    assert desk.outcomes() == {"failed": 3}
    desk.acknowledge(letter)
    assert desk.outcomes() == {"failed": 3, "dead-lettered": 1}
    assert desk.state.committed_end() == 11


def test_what_followed_goes_on_when_a_record_is_given_up() -> None:
    """The follower never failed: it is tried again after the last wait of the one before it."""
    desk = Desk(FlowConfig(2, max_attempts=1))
    desk.admit(10, [5, 5])
    commands = desk.finish(desk.enter(5), outcome(retry=[asks(0)]))
    assert produced(commands) == [(10, "retries-exhausted")]
    assert desk.records() == {"unacknowledged": 1, "retrying": 1}
    assert desk.waiting(5) == [[11]]


def test_a_record_without_words_is_given_up_with_the_reason_of_its_retry() -> None:
    """Something has to be in the header."""
    desk = Desk(FlowConfig(2, max_attempts=1))
    desk.admit(10, [5])
    (letter,) = desk.finish(desk.enter(5), outcome(retry=[RecordFault(0, "retry-requested")]))
    assert isinstance(letter, Produce)
    assert letter.error_text == "retry-requested"


def test_records_that_are_given_up_together_are_a_dead_letter_each() -> None:
    """In their order; the piece is settled with the last of them."""
    desk = Desk(FlowConfig(2, max_attempts=1))
    desk.admit(10, [5, 5])
    commands = desk.finish(desk.enter(5), outcome(retry=[asks(0), asks(1)]))
    assert produced(commands) == [(10, "retries-exhausted"), (11, "retries-exhausted")]
    desk.acknowledge(commands[0])
    assert desk.state.committed_end() == 10
    desk.acknowledge(commands[1])
    assert desk.state.committed_end() == 12


def test_dead_letters_of_a_chunk_are_in_the_order_of_its_records() -> None:
    """Chains of a chunk are settled backwards, and told forwards."""
    desk = Desk(FlowConfig(2, max_attempts=1))
    desk.admit(10, [5, 21, 7])
    commands = desk.finish(desk.enter(5, 7), outcome(retry=[asks(0), asks(2)], failed=[bad(1)]))
    assert [offset for offset, _ in produced(commands)] == [10, 11, 12]


def test_memory_that_ran_out_is_tried_alone_with_more_of_it() -> None:
    """One of the records of the chunk was too much, and nobody knows which."""
    desk = Desk()
    desk.admit(10, [5, 5])
    desk.finish(desk.enter(5), outcome(retry=[short(0), short(1)]))
    (piece,) = desk.state.chains[5].pieces
    assert (piece.alone, piece.short_of_memory, piece.attempts) == (True, True, 1)


def test_memory_that_runs_out_alone_too_is_out_of_memory_at_the_third_attempt() -> None:
    """Two attempts alone after the one in company, though ten were allowed for a retry."""
    desk = Desk(FlowConfig(2, max_attempts=10))
    desk.admit(10, [5])
    for now in (10.0, 20.0):
        assert desk.finish(desk.enter(5), outcome(retry=[short(0)]), now=now) == []
        desk.settlement.wake(now + 9.0)
    (letter,) = desk.finish(desk.enter(5), outcome(retry=[short(0)]), now=30.0)
    assert produced([letter]) == [(10, "out-of-memory")]
    assert isinstance(letter, Produce)
    assert letter.attempts == 3


def test_memory_is_tried_no_more_often_than_anything_else() -> None:
    """One attempt is allowed: the first without memory is the last."""
    desk = Desk(FlowConfig(2, max_attempts=1))
    desk.admit(10, [5])
    commands = desk.finish(desk.enter(5), outcome(retry=[short(0)]))
    assert produced(commands) == [(10, "out-of-memory")]


# -- processes that died --------------------------------------------------------------------------


def test_what_killed_a_process_in_company_is_tried_alone() -> None:
    """Any of the three may have done it: none is given up, each has one attempt behind it."""
    desk = Desk()
    desk.admit(10, [5, 7, 5])
    assert desk.die(desk.enter(5, 7)) == []
    assert desk.records() == {"waiting": 3}
    pieces = [desk.state.chains[shard].pieces[0] for shard in (5, 7)]
    assert [(piece.alone, piece.attempts) for piece in pieces] == [(True, 1), (True, 1)]
    assert not any(piece.short_of_memory for piece in pieces)
    assert desk.ready() == [5, 7]
    assert desk.state.committed_end() == 10


def test_the_chunk_that_had_not_begun_is_above_suspicion() -> None:
    """It goes again as it was, behind the records of its chain that were before it."""
    desk = Desk()
    desk.admit(10, [5])
    desk.admit(11, [5])
    first, second = desk.enter(5), desk.enter(5)
    desk.die(first, second)
    assert desk.waiting(5) == [[10], [11]]
    alone = [(piece.alone, piece.attempts) for piece in desk.state.chains[5].pieces]
    assert alone == [(True, 1), (False, 0)]


def test_pieces_of_one_chunk_go_back_in_their_order() -> None:
    """The last is put back first."""
    desk = Desk()
    for offset in (10, 11, 12):
        desk.admit(offset, [5])
    desk.die(desk.enter(5, 5))
    assert desk.waiting(5) == [[10], [11], [12]]


def test_a_record_that_kills_its_process_again_alone_is_a_dead_letter() -> None:
    """Twice is enough; the header says what the process died of."""
    desk = Desk()
    desk.admit(10, [5])
    desk.admit(11, [5])
    assert desk.die(desk.enter(5), cause="signal 11") == []
    (letter,) = desk.die(desk.enter(5), cause="signal 9")
    assert isinstance(letter, Produce)
    assert produced([letter]) == [(10, "killed-process")]
    assert (letter.attempts, letter.error_class, letter.error_text) == (2, "", "signal 9")
    assert desk.outcomes() == {"failed": 1}
    assert desk.records() == {"unacknowledged": 1, "waiting": 1}
    assert desk.ready() == [5]
    desk.acknowledge(letter)
    assert desk.settlement.dead_letters == {"killed-process": 1}


def test_two_deaths_in_company_prove_nothing() -> None:
    """The record was tried alone, but this chunk held another beside it."""
    desk = Desk()
    desk.admit(10, [5])
    desk.die(desk.enter(5))
    desk.admit(11, [7])
    assert desk.die(desk.enter(5, 7)) == []
    assert desk.records() == {"waiting": 2}


def test_two_records_of_one_piece_are_company_too() -> None:
    """A piece of two that died is cut by dispatch; until then neither is guilty."""
    desk = Desk()
    desk.admit(10, [5, 5])
    desk.die(desk.enter(5))
    assert desk.die(desk.enter(5)) == []
    assert desk.waiting(5) == [[10, 11]]


def test_attempts_that_were_asked_for_are_no_deaths() -> None:
    """Four retries, and then the first death: the record is tried alone, not buried."""
    desk = Desk()
    desk.admit(10, [5])
    for now in (10.0, 50.0, 90.0, 130.0):
        desk.finish(desk.enter(5), outcome(retry=[asks(0)]), now=now)
        desk.settlement.wake(now + 39.0)
    assert desk.die(desk.enter(5)) == []
    assert desk.state.chains[5].pieces[0].alone


def test_a_record_that_ran_out_of_time_alone_is_a_dead_letter_at_once() -> None:
    """Its process was killed after the time limit: once is enough."""
    desk = Desk()
    desk.admit(10, [5])
    cause = "signal 9"
    (letter,) = desk.die(desk.enter(5), why=KillReason.TIMED_OUT, cause=cause)
    assert isinstance(letter, Produce)
    assert produced([letter]) == [(10, "timed-out")]
    assert (letter.attempts, letter.error_text) == (1, "signal 9")


def test_records_that_ran_out_of_time_together_are_tried_alone() -> None:
    """It may have been the first of them, or all of them."""
    desk = Desk()
    desk.admit(10, [5, 5])
    assert desk.die(desk.enter(5), why=KillReason.TIMED_OUT) == []
    (piece,) = desk.state.chains[5].pieces
    assert (piece.alone, piece.attempts) == (True, 1)


def test_a_process_that_a_stop_killed_says_nothing_of_its_records() -> None:
    """They worked as they should, and time was over: no attempt is counted."""
    desk = Desk()
    desk.admit(10, [5])
    desk.die(desk.enter(5))
    assert desk.die(desk.enter(5), why=KillReason.STOP) == []
    (piece,) = desk.state.chains[5].pieces
    assert piece.attempts == 1


def test_each_dead_letter_of_a_death_is_told() -> None:
    """The second of two chunks is no suspect, though its record would have been guilty."""
    desk = Desk()
    desk.admit(10, [5, 7])
    desk.die(desk.enter(5))
    desk.die(desk.enter(7))
    first, second = desk.enter(5), desk.enter(7)
    assert produced(desk.die(first, second)) == [(10, "killed-process")]
    assert desk.records() == {"unacknowledged": 1, "waiting": 1}


# -- partitions that are gone ---------------------------------------------------------------------


def test_a_result_of_a_fenced_epoch_frees_what_it_held_and_no_more() -> None:
    """It produces nothing, is not tried again, and moves no offset: another member reads it."""
    desk = Desk()
    desk.admit(10, [5, 5, 5, 5])
    chunk = desk.enter(5)
    old = desk.state
    desk.ownership.fence(TOWN)
    assert desk.records() == {"inside": 4}
    named = outcome(retry=[asks(1)], failed=[bad(0)], skipped=[2], outputs=[text(3)])
    assert desk.finish(chunk, named) == []
    assert desk.records() == {}
    assert desk.settlement.vertices_total == 0
    assert old.highest_finished == -1
    assert desk.settlement.wake(1e9) == []


def test_a_plain_result_of_a_fenced_epoch_moves_no_offset_either() -> None:
    """Its vertices do not count, since somebody else's do."""
    desk = Desk()
    desk.admit(10, [5])
    chunk = desk.enter(5)
    desk.ownership.fence(TOWN)
    assert desk.finish(chunk, outcome()) == []
    assert (desk.records(), desk.settlement.vertices_total) == ({}, 0)
    assert desk.state.highest_finished == -1


def test_a_process_that_dies_with_a_fenced_chunk_frees_it() -> None:
    """Nobody is guilty of anything in a partition that is not ours."""
    desk = Desk()
    desk.admit(10, [5])
    desk.die(desk.enter(5))
    chunk = desk.enter(5)
    desk.ownership.fence(TOWN)
    assert desk.die(chunk) == []
    assert desk.records() == {}


def test_letting_a_partition_go_forgets_its_retries_and_its_deliveries() -> None:
    """No chain wakes and nothing refused is sent again: the next owner begins anew."""
    desk = Desk()
    desk.admit(10, [5, 7])
    (letter,) = desk.finish(desk.enter(5, 7), outcome(retry=[asks(0)], failed=[bad(1)]))
    assert isinstance(letter, Produce)
    desk.settlement.delivered(Delivered(20.0, letter.delivery_id, error="not authorized"))
    chain = desk.state.chains[5]
    desk.ownership.fence(TOWN)
    assert desk.records() == {}
    assert desk.settlement.wake(1e9) == []
    assert not desk.settlement.deliveries_refused
    assert (chain.retry_at, list(chain.pieces)) == (None, [])
    assert desk.ready() == []


def test_what_is_unacknowledged_is_no_chains_any_more() -> None:
    """A chain of which all is on its way to the broker is closed, and its row is free."""
    desk = Desk()
    desk.admit(10, [5])
    chunk = desk.enter(5)
    desk.finish(chunk, outcome(failed=[bad(0)]))
    assert desk.state.chains == {}
    (piece,) = desk.state.runs[0].unfinished
    assert piece.state is PieceState.UNACKNOWLEDGED
