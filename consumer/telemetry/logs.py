"""The log: one line an event, as text or JSON, with UTC times, to stderr.

Owns how a line looks, what is never in it, how often the same trouble is told, and that writing
never holds up the thread that speaks: lines go through a bounded queue, and a reader of stderr
that stalls costs lines (which are counted), not time. What is said is decided elsewhere.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TextIO

import orjson

from consumer.redaction import HIDDEN

#: A text longer than this carries data, not a message.
_MOST_TEXT = 4000
_MOST_FIELD_TEXT = 1000
#: Shorter secrets would hide half of every line, and are no secrets.
_LEAST_SECRET = 4
_MOST_KEYS = 1000
_FIELDS = "vertex_budget_fields"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


class _LineFormatter(logging.Formatter):
    """Common to both formats: the time, the text, the fields, and what is hidden."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        # Longest first: a secret may contain another.
        self._secrets = sorted((s for s in secrets if len(s) >= _LEAST_SECRET), key=len)[::-1]

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        text = record.getMessage()
        trouble = ""
        if record.exc_info:
            trouble = self.formatException(record.exc_info)
        fields: Mapping[str, object] = getattr(record, _FIELDS, {})
        return self.line(
            at.replace("+00:00", "Z"),
            record,
            _cut(self._hide(text), _MOST_TEXT),
            {self._hide(str(key)): self._plain(value) for key, value in fields.items()},
            self._hide(trouble),
        )

    def line(
        self,
        at: str,
        record: logging.LogRecord,
        text: str,
        fields: Mapping[str, object],
        trouble: str,
    ) -> str:
        """Return the line, without its end."""
        raise NotImplementedError

    def _hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def _plain(self, value: object) -> object:
        """Return a field's value fit for a line: bytes, which are payload, only by their length."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return f"<{len(value)} bytes>"
        if isinstance(value, Mapping):
            return {self._hide(str(key)): self._plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._plain(item) for item in value]
        return _cut(self._hide(str(value)), _MOST_FIELD_TEXT)


class TextFormatter(_LineFormatter):
    """``2026-01-31T12:00:00.000Z INFO the text key=value``: for people."""

    def line(
        self,
        at: str,
        record: logging.LogRecord,
        text: str,
        fields: Mapping[str, object],
        trouble: str,
    ) -> str:
        """Return the line, whatever would end it written as an escape."""
        parts = [
            at,
            f"{record.levelname:<7}",
            text,
            *(f"{k}={_word(v)}" for k, v in fields.items()),
        ]
        if trouble:
            parts.append(f"exception={_word(trouble)}")
        return " ".join(parts).replace("\r", "\\r").replace("\n", "\\n")


class JsonFormatter(_LineFormatter):
    """One JSON object a line: ``time``, ``level``, ``logger``, ``message``, then the fields."""

    def line(
        self,
        at: str,
        record: logging.LogRecord,
        text: str,
        fields: Mapping[str, object],
        trouble: str,
    ) -> str:
        """Return the line."""
        entry = {
            **fields,
            "time": at,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": text,
        }
        if trouble:
            entry["exception"] = trouble
        return _json(entry)


def _word(value: object) -> str:
    """Return a value as one word of a text line."""
    if isinstance(value, str):
        return value if value and value.isprintable() and " " not in value else _json(value)
    return str(value) if isinstance(value, int | float) else _json(value)


def _json(value: object) -> str:
    try:
        return orjson.dumps(value, default=str).decode()
    except orjson.JSONEncodeError:
        # Half a surrogate pair, or an integer over 64 bits.
        return orjson.dumps(ascii(value)).decode()


class QueueWriter(logging.Handler):
    """Formats on the thread that speaks and writes on one of its own.

    Parameters
    ----------
    stream : text file
        Where lines go.
    most_lines : int
        Lines that may wait; further ones are dropped, and counted in a line of their own.
    """

    def __init__(self, stream: TextIO, most_lines: int = 10_000) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | threading.Event | None] = queue.Queue(most_lines)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one line; never waits, never raises."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - a line that cannot be written must not end the work
            line = f"a log line of {record.name} cannot be formatted"
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def flush(self, timeout_seconds: float = 2.0) -> None:
        """Wait until the lines so far are written, but not for long."""
        if not self._thread.is_alive():
            return
        written = threading.Event()
        try:
            self._lines.put(written, timeout=timeout_seconds)
        except queue.Full:
            return
        written.wait(timeout_seconds)

    def close(self) -> None:
        """Write what waits and stop; may be called twice."""
        self.flush()
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            pass
        else:
            self._thread.join(1.0)
        logging.getLogger().removeHandler(self)
        super().close()

    def _write(self) -> None:
        while (item := self._lines.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            try:
                self._stream.write(f"{item}\n{self._notice()}")
                self._stream.flush()
            except (OSError, ValueError):
                # Nobody reads any more; there is nowhere to say so.
                continue

    def _notice(self) -> str:
        """Return a line about those that were dropped since the last one, if any were."""
        self.acquire()
        dropped, self._dropped = self._dropped, 0
        self.release()
        if not dropped:
            return ""
        text = "%d log lines were dropped: stderr was not read"
        record = logging.LogRecord(__name__, logging.WARNING, "", 0, text, (dropped,), None)
        return f"{self.format(record)}\n"


class RepeatLimiter:
    """Lets the same trouble be told once in a while, and counts what it holds back."""

    def __init__(
        self, interval_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        #: key -> (when it may be told again, how often it was held back since)
        self._keys: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def admit(self, key: str) -> int | None:
        """Return how often ``key`` was held back since it was last told; None: hold it back."""
        now = self._clock()
        with self._lock:
            next_at, held_back = self._keys.get(key, (now, 0))
            if now < next_at:
                self._keys[key] = (next_at, held_back + 1)
                return None
            self._keys.pop(key, None)
            if len(self._keys) >= _MOST_KEYS:
                # The oldest told one. Keys are few; this is for those made from what varies.
                self._keys.pop(next(iter(self._keys)))
            self._keys[key] = (now + self._interval_seconds, 0)
            return held_back


class Log:
    """Where the worker says things.

    Parameters
    ----------
    name : str
        The logger's name.
    repeat_interval_seconds : float
        A ``repeat_key`` is told at most once in this time.
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        repeat_interval_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logging.getLogger(name)
        self._repeats = RepeatLimiter(repeat_interval_seconds, clock)

    def say(
        self,
        level: str,
        text: str,
        fields: Mapping[str, object] | None = None,
        *,
        repeat_key: str | None = None,
    ) -> None:
        """Write one line.

        Parameters
        ----------
        level : str
            "debug", "info", "warning" or "error".
        text : str
            The message for people.
        fields : mapping, optional
            For machines; a value that is bytes is shown by its length alone.
        repeat_key : str, optional
            Lines of one key are told at most once in the interval; the next one says how many
            were held back (``suppressed``).
        """
        number = logging.getLevelNamesMapping()[level.upper()]
        if not self._logger.isEnabledFor(number):
            return
        said = dict(fields or {})
        if repeat_key is not None:
            held_back = self._repeats.admit(repeat_key)
            if held_back is None:
                return
            if held_back:
                said["suppressed"] = held_back
        self._logger.log(number, "%s", text, extra={_FIELDS: said})


class _RepeatFilter(logging.Filter):
    """Lets each kind of line of the Kafka client through once in a while.

    The client says (facility, client's name, text); while a broker is away it says the same
    several times a second, with another number in each text, and a client that is made again has
    another name.
    """

    def __init__(self, repeats: RepeatLimiter) -> None:
        super().__init__()
        self._repeats = repeats

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether this line is told."""
        arguments = record.args if isinstance(record.args, tuple) else ()
        return self._repeats.admit(str(arguments[0]) if arguments else record.msg) is not None


def client_logger(
    name: str,
    repeat_interval_seconds: float = 30.0,
    clock: Callable[[], float] = time.monotonic,
) -> logging.Logger:
    """Return a logger for a Kafka client, which by itself would write to stderr unasked.

    Parameters
    ----------
    name : str
        The logger's name, one for each client.
    repeat_interval_seconds : float
        Each kind of line is told at most once in this time.
    clock : callable
        Monotonic seconds.
    """
    logger = logging.getLogger(name)
    for former in logger.filters[:]:
        logger.removeFilter(former)
    logger.addFilter(_RepeatFilter(RepeatLimiter(repeat_interval_seconds, clock)))
    return logger


def configure_logging(
    log_format: str,
    level: int = logging.INFO,
    *,
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
) -> QueueWriter:
    """Send every logger's lines to ``stream`` (stderr), and nowhere else.

    Parameters
    ----------
    log_format : str
        "text" or "json".
    level : int
        As the ``logging`` module counts.
    secrets : iterable of str
        Texts that are replaced wherever they turn up in a line.
    stream : text file, optional
        Other than stderr.

    Returns
    -------
    QueueWriter
        To be closed at the end.
    """
    writer = QueueWriter(stream or sys.stderr)
    formatter = JsonFormatter if log_format == "json" else TextFormatter
    writer.setFormatter(formatter(secrets))
    root = logging.getLogger()
    for former in root.handlers[:]:
        root.removeHandler(former)
    root.addHandler(writer)
    root.setLevel(level)
    return writer
