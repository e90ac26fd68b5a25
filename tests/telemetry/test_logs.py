"""The log: one line an event, nothing in it that must not be, and nobody waits for it."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from consumer.telemetry.logs import (
    Log,
    QueueWriter,
    RepeatLimiter,
    client_logger,
    configure_logging,
)


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """The root logger as it was, afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def written(log_format: str, *says: tuple[Any, ...], **options: Any) -> list[str]:
    """Return the lines that these calls of ``Log.say`` write."""
    stream = io.StringIO()
    writer = configure_logging(log_format, stream=stream, **options)
    log = Log("consumer.test")
    for level, text, fields in says:
        log.say(level, text, fields)
    writer.close()
    return stream.getvalue().splitlines()


def test_a_text_line_has_time_level_text_and_fields():
    """UTC to the millisecond; words stay bare, everything else is quoted."""
    (line,) = written(
        "text", ("info", "sized: budget 2,100,000", {"binding": "deadline", "why": "a b", "n": 3})
    )
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    sized: budget 2,100,000 (.*)"
    match = re.fullmatch(pattern, line)
    assert match is not None
    assert match[1] == 'binding=deadline why="a b" n=3'


def test_a_json_line_is_one_object():
    """Fields stand beside the message; its own names win over fields of the same name."""
    (line,) = written("json", ("warning", "state", {"state": "idle", "level": 9, "list": (1, 2)}))
    entry = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("time"))
    assert entry == {
        "level": "warning",
        "logger": "consumer.test",
        "message": "state",
        "state": "idle",
        "list": [1, 2],
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_event_is_one_line(log_format):
    """Line ends in a text or in a field, and tracebacks, stay inside the line."""
    stream = io.StringIO()
    writer = configure_logging(log_format, stream=stream)
    Log("a").say("error", "one\ntwo\r\nthree", {"text": "x\ny", "odd": "\ud800"})
    try:
        raise ValueError("first\nsecond")  # noqa: EM101 - the text is what is tested
    except ValueError:
        logging.getLogger("b").exception("failed")
    writer.close()
    lines = stream.getvalue().split("\n")
    assert len(lines) == 3
    assert lines[2] == ""
    assert "ValueError: first" in lines[1]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_neither_payloads_nor_secrets_are_written(log_format):
    """Bytes are shown by their length; secrets are replaced wherever they turn up."""
    stream = io.StringIO()
    writer = configure_logging(log_format, secrets=["hunter2", "hunter2-longer"], stream=stream)
    Log("a").say(
        "error",
        "refused hunter2-longer",
        {
            "value": b"ring of points",
            "deep": {"k": ["hunter2", bytearray(b"ring of points")]},
            "long": "x" * 9999,
        },
    )
    try:
        raise ValueError("password hunter2")  # noqa: EM101 - the text is what is tested
    except ValueError:
        logging.getLogger("b").exception("login")
    writer.close()
    text = stream.getvalue()
    assert "hunter2" not in text
    assert "longer" not in text
    assert "ring of" not in text
    assert "<14 bytes>" in text
    assert "(hidden)" in text
    assert "(9999 characters)" in text
    assert len(text) < 4000


def test_less_severe_lines_are_left_out():
    """The level holds for every logger, ours and others'."""
    assert written("text", ("info", "no", None), level=logging.WARNING) == []
    lines = written("text", ("debug", "yes", None), level=logging.DEBUG)
    assert [line.split()[1:] for line in lines] == [["DEBUG", "yes"]]


def test_the_same_trouble_is_told_once_in_a_while():
    """The next line of a key says how many were held back; other keys are not concerned."""
    now = [0.0]
    stream = io.StringIO()
    writer = configure_logging("json", stream=stream)
    log = Log("a", repeat_interval_seconds=30, clock=lambda: now[0])
    for second in (0, 1, 29, 30, 31, 60.5):
        now[0] = second
        log.say("error", f"broker is down at {second}", repeat_key="broker")
        if second == 1:
            log.say("error", "another thing", repeat_key="other")
    writer.close()
    entries = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(entry["message"], entry.get("suppressed")) for entry in entries] == [
        ("broker is down at 0", None),
        ("another thing", None),
        ("broker is down at 30", 2),
        ("broker is down at 60.5", 1),
    ]


def test_the_limiter_keeps_a_bounded_number_of_keys():
    """Keys made from what varies cannot fill the memory."""
    limiter = RepeatLimiter(1e9, clock=lambda: 0.0)
    for number in range(5000):
        assert limiter.admit(str(number)) == 0
    assert limiter.admit("4999") is None
    assert limiter.admit("0") == 0
    assert len(limiter._keys) <= 1000


class StuckStream(io.StringIO):
    """A stderr that nobody reads, until ``go_on`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def write(self, text: str) -> int:
        """Block like a full pipe."""
        self.reached.set()
        self.go_on.wait(20)
        return super().write(text)


def test_a_reader_that_stalls_costs_lines_and_not_time():
    """What does not fit is dropped and counted; the thread that speaks never waits."""
    stream = StuckStream()
    writer = QueueWriter(stream, most_lines=10)
    logger = logging.getLogger("a")
    logger.propagate = False
    logger.addHandler(writer)
    logger.error("first")
    assert stream.reached.wait(20)
    for number in range(25):
        logger.error("line %d", number)
    stream.go_on.set()
    writer.flush()
    logger.error("last")
    writer.close()
    logger.removeHandler(writer)
    logger.propagate = True
    lines = stream.getvalue().splitlines()
    notice = "15 log lines were dropped: stderr was not read"
    assert lines.count(notice) == 1
    lines.remove(notice)
    assert lines == ["first", *(f"line {number}" for number in range(10)), "last"]


def test_a_closed_stream_ends_nothing():
    """Whoever read stderr is gone: speaking and closing still work."""
    stream = io.StringIO()
    writer = configure_logging("text", stream=stream)
    stream.close()
    Log("a").say("error", "nobody reads this")
    writer.close()
    writer.close()


def test_a_field_that_cannot_be_shown_costs_only_its_line():
    """A text that fails while it is made must not reach the thread that does the work."""

    class Broken:
        def __str__(self) -> str:
            raise RuntimeError

    lines = written("text", ("info", "a", {"x": Broken()}), ("info", "b", None))
    assert lines[0] == "a log line of consumer.test cannot be formatted"
    assert lines[1].endswith(" b")


def test_a_kafka_client_tells_the_same_trouble_once_in_a_while():
    """Each kind of its lines, whatever the text, until the interval has passed."""
    now = [0.0]
    stream = io.StringIO()
    writer = configure_logging("text", stream=stream)
    logger = client_logger("consumer.test.client", 30.0, lambda: now[0])
    for attempt in range(5):
        logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "c#1", f"refused, attempt {attempt}")
    logger.log(logging.WARNING, "%s [%s] %s", "SESSTMOUT", "c#1", "timed out")
    now[0] = 31.0
    logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "c#1", "refused again")
    writer.close()
    lines = stream.getvalue().splitlines()
    assert [line.split("] ")[1] for line in lines] == [
        "refused, attempt 0",
        "timed out",
        "refused again",
    ]
