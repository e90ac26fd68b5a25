"""Records out of files: NDJSON and GeoJSON FeatureCollections, read piece by piece.

Owns the reading and the choice of the key. A value is sent as it stands in the file, digit by
digit. Memory holds one piece of the file and one record, whatever the file's size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import orjson

from consumer.errors import ConsumerError

#: What is read at once.
PIECE_BYTES = 1 << 20
#: A record that is longer than this ends the reading: no broker takes it, or it is not JSON.
MOST_RECORD_BYTES = 256 << 20

#: How much of a file is looked at to tell what it is.
_HEAD_BYTES = 64 << 10
_MARK = re.compile(rb'["{}\[\]]')
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ARRAY_FOLLOWS = re.compile(rb"\s*:\s*\[")
_STRING_END = re.compile(rb'["\\]')
_BACKSLASH = ord("\\")


class FileError(ConsumerError):
    """A file cannot be replayed: what and where."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(path, text)
        self.path = path
        self.text = text

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def read_records(
    path: Path, key_property: str | None = None
) -> Iterator[tuple[bytes | None, bytes]]:
    """Yield the records of a file.

    Parameters
    ----------
    path : Path
        A GeoJSON FeatureCollection (each Feature becomes a record), or NDJSON: a Feature or a
        geometry a line, or a line ``{"key": ..., "value": {...}}``.
    key_property : str, optional
        The property whose value becomes the key; by default it is the Feature's ``id``.

    Raises
    ------
    FileError
        If the file cannot be read, or something in it is not JSON; with the line, or the
        Feature's number.
    """
    try:
        with path.open("rb") as file:
            for where, text in _pieces(file, str(path)):
                yield _record(text, key_property, str(path), where)
    except OSError as error:
        raise FileError(str(path), f"cannot be read: {error.strerror}") from None


def _pieces(file: BinaryIO, path: str) -> Iterator[tuple[str, bytes]]:
    """Tell what the file is, and yield its records with where they stand."""
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    line, newline, rest = head.partition(b"\n")
    if newline and rest.strip() and _is_json(line):
        yield from _lines(file, path)
        return
    begin = _features_begin(head)
    if begin is not None:
        file.seek(begin)
        yield from _Features(file, path)
    elif _is_json(line) or len(head) == _HEAD_BYTES or not _is_json(head):
        yield from _lines(file, path)
    else:
        # One object over several lines.
        yield "the file", head


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
        raise FileError(path, f"{where} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise FileError(path, f"{where} is {_kind(document)}; a GeoJSON object is wanted")
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
