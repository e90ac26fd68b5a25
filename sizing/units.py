"""Bytes and seconds as people write them: the only place where units are spelled.

Owns parsing (settings, labels) and formatting (messages). Inside the code bytes are integers and
seconds are floats, and each name carries its unit.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

from sizing.errors import UnitError

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
TIB: Final = 1 << 40

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?"
_AMOUNT = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)", re.ASCII)
_DURATION_PART = re.compile(rf"\s*({_NUMBER})\s*([a-z]+)", re.ASCII)

#: No amount of a real machine has more characters; longer texts are not worth parsing.
_LONGEST_TEXT: Final = 64


def _byte_units() -> dict[str, int]:
    units = {"": 1, "B": 1, "b": 1}
    for power, letter in enumerate("KMGT", start=1):
        small = letter.lower()
        binary, decimal = 1024**power, 1000**power
        units |= {f"{letter}iB": binary, f"{letter}i": binary, f"{small}ib": binary}
        units |= {small: binary, f"{small}b": binary}
        units |= {letter: decimal, f"{letter}B": decimal}
    # The one SI prefix with a small letter. "k" alone stays Docker's.
    units["kB"] = 1000
    return units


_BYTE_UNITS: Final = _byte_units()
_SECOND_UNITS: Final = {
    "us": Fraction(1, 1_000_000),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_BYTES_HINT: Final = "write for example 512MiB, 2GB or a plain number of bytes"
_SECONDS_HINT: Final = "write for example 30s, 500ms, 1m30s or a plain number of seconds"


def parse_bytes(text: str) -> int:
    """Read an amount of bytes.

    Each tool's own spelling keeps its meaning: ``512Mi`` and ``512M`` as in Kubernetes (binary
    and decimal), ``2GB`` as in SI (decimal), ``512m``, ``512mb`` as in Docker (all lower case:
    binary), ``512MiB`` anywhere.

    Parameters
    ----------
    text : str
        Number, >= 0, with or without a unit. Fractions of a byte are cut off.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    UnitError
        If the text is anything else.

    Notes
    -----
    Units: text to bytes.

    Source
    ------
    IEC 80000-13 (KiB), SI (kB); Kubernetes resource quantities; Docker's ``--memory``.

    Examples
    --------
    >>> parse_bytes("512MiB"), parse_bytes("512m"), parse_bytes("2GB"), parse_bytes("1.5Gi")
    (536870912, 536870912, 2000000000, 1610612736)
    """
    stripped = text.strip()
    match = _AMOUNT.fullmatch(stripped) if len(stripped) <= _LONGEST_TEXT else None
    unit = _BYTE_UNITS.get(match[2]) if match else None
    if match is None or unit is None:
        raise UnitError(text, "bytes", _BYTES_HINT)
    return int(Fraction(match[1]) * unit)


def format_bytes(amount_bytes: int) -> str:
    """Write an amount of bytes exactly, in the largest binary unit that divides it.

    Parameters
    ----------
    amount_bytes : int
        Bytes, >= 0.

    Returns
    -------
    str
        A text that ``parse_bytes`` reads back as the same number.

    Notes
    -----
    Units: bytes to text.

    Source
    ------
    IEC 80000-13.

    Examples
    --------
    >>> format_bytes(536_870_912), format_bytes(1_610_612_736), format_bytes(1000)
    ('512MiB', '1536MiB', '1000B')
    """
    for unit_bytes, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if amount_bytes and amount_bytes % unit_bytes == 0:
            return f"{amount_bytes // unit_bytes}{name}"
    return f"{amount_bytes}B"


def about_bytes(amount_bytes: float) -> str:
    """Write an amount of bytes for people, in three figures or so.

    Parameters
    ----------
    amount_bytes : float
        Bytes; may be negative (what is missing).

    Returns
    -------
    str

    Notes
    -----
    Units: bytes to text. Not exact; see ``format_bytes``.

    Source
    ------
    IEC 80000-13.

    Examples
    --------
    >>> about_bytes(536_870_912), about_bytes(123_456_789), about_bytes(900)
    ('512 MiB', '117.7 MiB', '900 B')
    """
    for unit_bytes, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(amount_bytes) >= unit_bytes:
            return f"{amount_bytes / unit_bytes:.1f}".removesuffix(".0") + f" {name}"
    return f"{amount_bytes:.0f} B"


def parse_seconds(text: str) -> float:
    """Read a length of time.

    Parameters
    ----------
    text : str
        A plain number of seconds, or numbers with units (us, ms, s, m or min, h, d), added up.

    Returns
    -------
    float
        Seconds, >= 0.

    Raises
    ------
    UnitError
        If the text is anything else.

    Notes
    -----
    Units: text to seconds.

    Source
    ------
    The spelling of Kubernetes' and Go's durations.

    Examples
    --------
    >>> parse_seconds("30s"), parse_seconds("5m"), parse_seconds("1m30s"), parse_seconds("0.25")
    (30.0, 300.0, 90.0, 0.25)
    """
    stripped = text.strip()
    error = UnitError(text, "seconds", _SECONDS_HINT)
    if not stripped or len(stripped) > _LONGEST_TEXT:
        raise error
    if re.fullmatch(_NUMBER, stripped):
        return float(stripped)
    total = Fraction(0)
    at = 0
    while at < len(stripped):
        match = _DURATION_PART.match(stripped, at)
        if match is None or match[2] not in _SECOND_UNITS:
            raise error
        total += Fraction(match[1]) * _SECOND_UNITS[match[2]]
        at = match.end()
    return float(total)


def format_seconds(seconds: float) -> str:
    """Write a length of time so that ``parse_seconds`` reads the same number back.

    Parameters
    ----------
    seconds : float
        Seconds, >= 0 and finite.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If the number is negative or not finite.

    Notes
    -----
    Units: seconds to text.

    Source
    ------
    The spelling of Kubernetes' and Go's durations.

    Examples
    --------
    >>> format_seconds(30.0), format_seconds(90.0), format_seconds(0.25), format_seconds(1.5)
    ('30s', '1m30s', '250ms', '1.5s')
    """
    if not math.isfinite(seconds) or seconds < 0:
        msg = f"a length of time must be finite and not negative, not {seconds!r} seconds"
        raise ValueError(msg)
    if 0 < seconds < 1 and float(f"{seconds * 1000:.0f}") / 1000 == seconds:
        return f"{seconds * 1000:.0f}ms"
    if seconds != int(seconds) or seconds >= 1 << 53:
        return f"{seconds!r}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"
