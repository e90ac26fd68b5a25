"""Records out of files: NDJSON, GeoJSON text sequences and FeatureCollections, piece by piece.

Owns the reading and the choice of the key. A value is what stands in the file, digit by digit.
Memory holds one piece of the file and one record, whatever the file's size. Nothing is rewound,
so that a pipe can be read as well.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson

from consumer.errors import ConsumerError

#: What is read at once.
PIECE_BYTES = 1 << 20
#: A record that is longer than this ends the reading: no broker takes it, or it is not JSON.
MOST_RECORD_BYTES = 256 << 20

#: In place of a path: what is piped in.
STANDARD_INPUT = Path("-")
#: How much of a file is looked at to tell what it is.
_HEAD_BYTES = 64 << 10
_MARK = re.compile(rb'["{}\[\]]')
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ARRAY_FOLLOWS = re.compile(rb"\s*:\s*\[")
_STRING_END = re.compile(rb'["\\]')
_BACKSLASH = ord("\\")
#: What stands before each text of a sequence (RFC 8142).
_SEPARATOR = b"\x1e"
_WANTED = "a GeoJSON object is wanted, one a line, or a FeatureCollection"


class FileError(ConsumerError):
    """A file cannot be read as records: what and where."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(path, text)
        self.path = path
        self.text = text

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class PlacedRecord(NamedTuple):
    """A record and where it stands."""

    #: "line 12" or "text 12", from 1; "feature 12", from 0
    place: str
    key: bytes | None
    value: bytes


def name_of(path: Path) -> str:
    """Return what a file is called in what people read."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def read_records(
    path: Path, key_property: str | None = None
) -> Iterator[tuple[bytes | None, bytes]]:
    """Yield key and value of the records of a file.

    Parameters
    ----------
    path : Path
        A GeoJSON FeatureCollection (each Feature becomes a record); or a Feature or a geometry a
        line (NDJSON) or a text (GeoJSON text sequence); or ``{"key": ..., "value": {...}}`` in
        place of one.
    key_property : str, optional
        The property whose value becomes the key; by default it is the Feature's ``id``.

    Raises
    ------
    FileError
        If the file cannot be read, or something in it is not JSON; with the line, or the
        Feature's number.
    """
    for _, key, value in read_placed_records(path, key_property):
        yield key, value


def read_placed_records(
    path: Path, key_property: str | None = None, *, keep_broken: bool = False
) -> Iterator[PlacedRecord]:
    """Yield the records of a file with their places.

    Parameters
    ----------
    path : Path
        As in ``read_records``; ``-`` is standard input.
    key_property : str, optional
        As in ``read_records``.
    keep_broken : bool, optional
        Yield what is no JSON object as it stands, without a key, unless it is the first of the
        file, which then is not what it should be.

    Raises
    ------
    FileError
        As in ``read_records``.
    """
    is_piped = path == STANDARD_INPUT
    name = name_of(path)
    is_first = True
    try:
        with nullcontext(sys.stdin.buffer) if is_piped else path.open("rb") as file:
            for place, text in _pieces(file, name):
                try:
                    yield PlacedRecord(place, *_record(text, key_property, name, place))
                except FileError:
                    if is_first or not keep_broken:
                        raise
                    yield PlacedRecord(place, None, text)
                is_first = False
    except OSError as error:
        raise FileError(name, f"cannot be read: {error.strerror}") from None


def _pieces(file: BinaryIO, path: str) -> Iterator[tuple[str, bytes]]:
    """Tell what the file is, and yield its records with where they stand."""
    head = file.read(_HEAD_BYTES)
    if head.lstrip().startswith(_SEPARATOR):
        yield from _sequence(_resumed(head, file), path)
        return
    line, newline, rest = head.partition(b"\n")
    if newline and rest.strip() and _is_json(line):
        yield from _lines(_resumed(head, file), path)
        return
    begin = _features_begin(head)
    if begin is not None:
        yield from _Features(_resumed(head[begin:], file), path)
    elif _is_json(line) or len(head) == _HEAD_BYTES or not _is_json(head):
        yield from _lines(_resumed(head, file), path)
    else:
        # One object over several lines.
        yield "the file", head


class _Resumed(io.RawIOBase):
    """A file from a part of it on that was read to see what it is."""

    def __init__(self, part: bytes, file: BinaryIO) -> None:
        self._part = part
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        room = len(buffer)
        if self._part:
            piece, self._part = self._part[:room], self._part[room:]
        else:
            piece = self._file.read(room)
        buffer[: len(piece)] = piece
        return len(piece)


def _resumed(part: bytes, file: BinaryIO) -> BinaryIO:
    return io.BufferedReader(_Resumed(part, file), PIECE_BYTES)


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def _features_begin(head: bytes) -> int | None:
    """Return where the array ``features`` of the outermost object begins; None: there is none."""
    depth, at = 0, 0
    while (mark := _MARK.search(head, at)) is not None:
        at = mark.end()
        character = mark.group()
        if character == b'"':
            string = _STRING.match(head, mark.start())
            if string is None:
                return None
            at = string.end()
            array = _ARRAY_FOLLOWS.match(head, at)
            if depth == 1 and array is not None and string.group() == b'"features"':
                return array.end()
        else:
            depth += 1 if character in b"{[" else -1
    return None


def _record(
    text: bytes, key_property: str | None, path: str, where: str
) -> tuple[bytes | None, bytes]:
    try:
        document = orjson.loads(text)
    except ValueError as error:
        raise FileError(path, f"{where} is not JSON: {error}; {_WANTED}") from None
    if not isinstance(document, dict):
        raise FileError(path, f"{where} is {_kind(document)}; {_WANTED}")
    if document.keys() == {"key", "value"}:
        return _key(document["key"]), orjson.dumps(document["value"])
    if key_property is None:
        return _key(document.get("id")), text
    properties = document.get("properties")
    if not isinstance(properties, dict) or key_property not in properties:
        has = sorted(properties) if isinstance(properties, dict) else []
        raise FileError(path, f"{where} has no property {key_property!r}; it has {has}")
    return _key(properties[key_property]), text


def _kind(document: object) -> str:
    names = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(document), "a number")


def _key(value: object) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


def _lines(file: BinaryIO, path: str) -> Iterator[tuple[str, bytes]]:
    number = 0
    while line := file.readline(MOST_RECORD_BYTES + 1):
        number += 1
        if len(line) > MOST_RECORD_BYTES:
            limit = f"{MOST_RECORD_BYTES >> 20} MiB"
            raise FileError(path, f"line {number} is longer than {limit}: not one record a line")
        text = line.strip()
        if text:
            yield f"line {number}", text


def _sequence(file: BinaryIO, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield what stands between separators; a text may have several lines."""
    number, rest, is_over = 0, b"", False
    while not is_over:
        piece = file.read(PIECE_BYTES)
        is_over = not piece
        *texts, rest = (rest + (piece or _SEPARATOR)).split(_SEPARATOR)
        for text in filter(None, map(bytes.strip, texts)):
            number += 1
            yield f"text {number}", text
        if len(rest) > MOST_RECORD_BYTES:
            limit = f"{MOST_RECORD_BYTES >> 20} MiB"
            raise FileError(path, f"text {number + 1} is longer than {limit}")


class _Features:
    """The objects of an array that begins where the file stands, one after another."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file = file
        self._path = path
        #: what has been read and not yielded
        self._text = b""
        #: what has been looked at
        self._at = 0
        self._number = 0

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        begin, depth = 0, 0
        while True:
            mark = self._next(_MARK)
            character = self._text[mark : mark + 1]
            if character == b'"':
                self._pass_string()
                continue
            if character in b"{[":
                begin = mark if depth == 0 else begin
                depth += 1
                continue
            depth -= 1
            if depth < 0:
                return
            if depth == 0:
                yield f"feature {self._number}", self._text[begin : self._at]
                self._number += 1
                # Forgotten in large pieces: moving the rest up costs its length.
                if self._at > PIECE_BYTES // 2:
                    self._text, self._at = self._text[self._at :], 0

    def _next(self, wanted: re.Pattern[bytes]) -> int:
        """Return where the next of the wanted characters stands, and go past it."""
        while (mark := wanted.search(self._text, self._at)) is None:
            self._at = len(self._text)
            self._read()
        self._at = mark.end()
        return mark.start()

    def _pass_string(self) -> None:
        while True:
            # Looked for first: that may read on.
            mark = self._next(_STRING_END)
            if self._text[mark] != _BACKSLASH:
                return
            # What it escapes may be in the next piece.
            while self._at >= len(self._text):
                self._read()
            self._at += 1

    def _read(self) -> None:
        piece = self._file.read(PIECE_BYTES)
        if not piece:
            text = f"it ends inside its array of features, after {self._number}"
            raise FileError(self._path, text)
        self._text += piece
        if len(self._text) > MOST_RECORD_BYTES:
            limit = f"{MOST_RECORD_BYTES >> 20} MiB"
            raise FileError(self._path, f"feature {self._number} is longer than {limit}")
