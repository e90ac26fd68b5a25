"""A recording: what the core was given, in a file that can be replayed through another core.

Owns the file: gzip of one JSON object a line, a ``Header`` first, then events (as
``consumer.runtime.event_codec`` writes them), then why it ends. Owns when it is written, too. Knows
nothing of what an event means.

Rules: the thread that speaks encodes an event (its payloads are free at once) and never waits: a
thread of its own compresses and writes. What goes wrong while the worker runs ends the recording
with one warning, and nothing else. The file is bounded; a file that ends without a reason is of a
worker that was killed, or still runs.
"""

from __future__ import annotations

import gzip
import os
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from consumer.core.config import FlowConfig
from consumer.core.events import Event
from consumer.errors import ConsumerError
from consumer.runtime.event_codec import codec, event_line, event_of

FORMAT_VERSION = 1
#: Most bytes of the file: about an hour at 5,000 records a second.
MOST_BYTES = 256 << 20
#: Most bytes that wait to be written; more means that the disk does not keep up.
MOST_WAITING_BYTES = 16 << 20
#: What a killed worker has not written yet is no older than this.
FLUSH_SECONDS = 0.5
#: Longest wait for the disk at the end.
CLOSE_SECONDS = 5.0
#: What is compressed at once.
BLOCK_BYTES = 64 << 10
#: Kept free for the last line and the end of the compressed stream.
_END_BYTES = 1024
#: Quick: a level more costs twice as much and saves a tenth.
_COMPRESSION_LEVEL = 1
#: The recording that was there is kept under this name.
PREVIOUS = ".previous"
_GZIP_MAGIC = b"\x1f\x8b"


class RecordingError(ConsumerError):
    """A recording cannot be written, or a file cannot be read as one."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(path, text)
        self.path = path
        self.text = text

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True)
class Header:
    """What a replay must know before the first event."""

    worker_version: str
    config: FlowConfig
    #: wall clock minus monotonic clock, in seconds
    wall_clock_offset_seconds: float
    #: monotonic seconds
    started_at: float
    recording: int = FORMAT_VERSION


class Recorder:
    """Writes a recording. Call it with each event, then ``close`` it.

    Parameters
    ----------
    path : Path
        The file. One that is there is kept as ``<path>.previous``: a worker that was started
        again must not write over what made it die.
    header : Header
        The first line.
    say : callable
        Told (level, text) when the recording ends before ``close``.
    most_bytes : int
        Most bytes of the file.

    Raises
    ------
    RecordingError
        When the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        header: Header,
        say: Callable[[str, str], None],
        *,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._path = path
        self._say = say
        self._most_bytes = most_bytes
        self._lines: deque[bytes] = deque()
        self._given_bytes = 0
        self._taken_bytes = 0
        #: why nothing more is recorded
        self._ended = ""
        self._is_full = False
        self._closing = threading.Event()
        try:
            if path.is_file():
                path.replace(path.with_name(path.name + PREVIOUS))
            # Made anew or not at all: nothing is written into a device.
            self._raw: BinaryIO = path.open("xb")
            self._file = gzip.GzipFile(
                fileobj=self._raw, mode="wb", compresslevel=_COMPRESSION_LEVEL, mtime=0
            )
            self._write_block(orjson.dumps(codec(Header).plain(header)) + b"\n")
        except OSError as error:
            text = (
                f"no recording can be written ({error.strerror or error}); check that"
                " VERTEX_BUDGET_RECORD names a file, in a folder that is there, can be written to"
                " and has room"
            )
            raise RecordingError(str(path), text) from None
        self._thread = threading.Thread(target=self._write, name="recording", daemon=True)
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Record one event; never waits, never raises."""
        if self._ended:
            return
        try:
            line = event_line(event)
        except (TypeError, ValueError) as error:
            self._end(f"{type(event).__name__} cannot be written: {error}")
            return
        self._lines.append(line)
        self._given_bytes += len(line)
        if self._given_bytes - self._taken_bytes > MOST_WAITING_BYTES:
            self._end(f"{MOST_WAITING_BYTES:,} bytes wait to be written: the disk is too slow")

    def close(self) -> None:
        """Write what waits, say that the worker has stopped, and close the file."""
        self._ended = self._ended or "the worker stopped"
        self._closing.set()
        self._thread.join(CLOSE_SECONDS)

    def _end(self, why: str) -> None:
        self._ended = why
        self._closing.set()
        self._say("warning", f"the recording {self._path} ends here: {why}")

    # -- on the thread that writes -------------------------------------------------------------

    def _write(self) -> None:
        try:
            with self._raw, self._file:
                closing = False
                while not (closing or self._is_full):
                    closing = self._closing.wait(FLUSH_SECONDS)
                    self._drain()
                self._file.write(orjson.dumps({"end": self._ended}) + b"\n")
        except OSError as error:
            self._end(error.strerror or str(error))

    def _drain(self) -> None:
        """Write what waits, up to the bound."""
        while self._lines and not self._is_full:
            block = bytearray()
            while self._lines and len(block) < BLOCK_BYTES:
                block += self._lines.popleft()
            self._taken_bytes += len(block)
            if self._raw.tell() + len(block) + _END_BYTES > self._most_bytes:
                self._is_full = True
                self._end(f"it has reached its bound of {self._most_bytes:,} bytes")
            else:
                self._write_block(block)

    def _write_block(self, block: bytes | bytearray) -> None:
        self._file.write(block)
        self._file.flush()


class Recording:
    """Reads a recording: ``header``, then the events by iterating, then how it ended.

    Parameters
    ----------
    path : str or Path
        The file, compressed as it was written or not.

    Raises
    ------
    RecordingError
        When it is no recording of this version; while iterating, when a line cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._lines = self._read_lines()
        #: how it ends, in words; known when the last event was read
        self.ended = ""
        first = self._parsed(next(self._lines, b""), 1)
        if "recording" not in first:
            raise RecordingError(self._path, "not a recording: its first line is none of ours")
        if first["recording"] != FORMAT_VERSION:
            text = (
                f"a recording of format {first['recording']}; this version reads {FORMAT_VERSION}"
            )
            raise RecordingError(self._path, text)
        self.header: Header = self._built(codec(Header).read, first, 1)

    def __iter__(self) -> Iterator[Event]:
        for number, line in enumerate(self._lines, start=2):
            plain = self._parsed(line, number)
            if "end" in plain:
                self.ended = str(plain["end"])
                return
            yield self._built(event_of, plain, number)
        self.ended = "cut off: the worker was killed, or still runs"

    def _read_lines(self) -> Iterator[bytes]:
        """Yield the whole lines; what comes after the last one was cut off."""
        try:
            with Path(self._path).open("rb") as raw:
                compressed = raw.peek(2).startswith(_GZIP_MAGIC)
                file: Any = gzip.GzipFile(fileobj=raw) if compressed else raw
                for line in file:
                    if line.endswith(b"\n"):
                        yield line
        except EOFError:
            return
        except zlib.error:
            raise RecordingError(self._path, "damaged: it cannot be decompressed") from None
        except OSError as error:
            raise RecordingError(self._path, error.strerror or str(error)) from None

    def _parsed(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            plain = orjson.loads(line)
        except orjson.JSONDecodeError:
            plain = None
        if not isinstance(plain, dict):
            text = "not a recording" if number == 1 else f"line {number} is damaged"
            raise RecordingError(self._path, text)
        return plain

    def _built(
        self, build: Callable[[dict[str, Any]], Any], plain: dict[str, Any], number: int
    ) -> Any:
        try:
            return build(plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            text = f"line {number} is none that this version writes ({error})"
            raise RecordingError(self._path, text) from None
