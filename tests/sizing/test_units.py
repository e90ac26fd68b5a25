"""Bytes and seconds as people write them, and the errors of ``sizing``."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizing import errors
from sizing.units import about_bytes, format_bytes, format_seconds, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "expected_bytes"),
    [
        ("0", 0),
        ("1024", 1024),
        ("512MiB", 512 * 1024**2),
        (" 512 Mi ", 512 * 1024**2),
        ("2GB", 2 * 1000**3),
        ("2G", 2 * 1000**3),
        ("1g", 1024**3),
        ("512mb", 512 * 1024**2),
        ("64k", 64 * 1024),
        ("64kB", 64_000),
        ("1.5GiB", 1_610_612_736),
        ("1e3", 1000),
        ("1T", 1000**4),
        ("0.0001kB", 0),
    ],
)
def test_bytes_keep_the_meaning_of_the_tool_they_come_from(text: str, expected_bytes: int) -> None:
    """Binary for KiB, Ki and Docker's lower case; decimal for SI and Kubernetes' upper case."""
    assert parse_bytes(text) == expected_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "MiB",
        "512XB",
        "-1",
        "1,5GB",
        "1_000",
        "inf",
        "nan",
        "٣MB",
        "1 2",
        "1e999",
        "9" * 99,
    ],
)
def test_other_texts_are_no_bytes(text: str) -> None:
    """The error names the text and how to write it."""
    with pytest.raises(errors.UnitError, match="write for example 512MiB") as caught:
        parse_bytes(text)
    assert caught.value.text == text
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("text", "expected_seconds"),
    [
        ("30", 30.0),
        ("0.25", 0.25),
        ("30s", 30.0),
        ("5m", 300.0),
        ("5min", 300.0),
        ("500ms", 0.5),
        ("20us", 0.00002),
        ("1m30s", 90.0),
        ("1h 30m", 5400.0),
        ("2d", 172_800.0),
        ("1.5 s", 1.5),
    ],
)
def test_seconds(text: str, expected_seconds: float) -> None:
    """A plain number is seconds; parts are added up."""
    assert parse_seconds(text) == expected_seconds


@pytest.mark.parametrize(
    "text", ["", "s", "5x", "-1s", "1m-5s", "inf", "nan", "1M", "5m30", "1" * 99]
)
def test_other_texts_are_no_seconds(text: str) -> None:
    """The error names the text and how to write it."""
    with pytest.raises(errors.UnitError, match="write for example 30s"):
        parse_seconds(text)


@given(st.integers(0, 1 << 62))
def test_bytes_are_read_back_as_written(amount_bytes: int) -> None:
    """Formatting is exact."""
    assert parse_bytes(format_bytes(amount_bytes)) == amount_bytes


@given(st.floats(0, 1e12) | st.integers(0, 10**9).map(float))
def test_seconds_are_read_back_as_written(seconds: float) -> None:
    """Formatting is exact, down to numbers so small that their exponent has three digits."""
    if 0 < seconds < 1e-98:
        return
    assert parse_seconds(format_seconds(seconds)) == seconds


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_what_is_no_length_of_time_is_not_written(seconds: float) -> None:
    """Negative and endless lengths are refused."""
    with pytest.raises(ValueError, match="length of time"):
        format_seconds(seconds)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (-3 << 30, "-3 GiB"), (5 << 40, "5 TiB")],
)
def test_bytes_for_people(amount: int, expected: str) -> None:
    """One decimal, and none when it is 0."""
    assert about_bytes(amount) == expected


SAMPLES = [
    errors.UnitError(text="512XB", quantity="bytes", hint="write 512MiB"),
    errors.UnitError("512XB", "bytes", "write 512MiB"),
    errors.HostProbeError(wanted="memory limit", path="/proc/meminfo"),
    errors.PoolDoesNotFitError(
        limit_bytes=256 << 20,
        headroom_ratio=0.8,
        parent_bytes=1,
        prefetch_bytes=2,
        least_in_flight_bytes=3,
        footprint_bytes=4,
        least_limit_bytes=300 << 20,
    ),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_errors_survive_pickling(error: errors.SizingError, protocol: int) -> None:
    """Type, values, text and notes come out of the other end."""
    error.add_note("while reading the settings")
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_every_error_is_sampled() -> None:
    """A class added to the tree must be added above."""
    classes = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.SizingError)
    }
    assert classes - {errors.SizingError} == {type(error) for error in SAMPLES}


@pytest.mark.parametrize(
    ("unit", "expected_bytes"),
    [
        ("", 1),
        ("B", 1),
        ("b", 1),
        ("Ki", 1024),
        ("kib", 1024),
        ("kb", 1024),
        ("K", 1000),
        ("KB", 1000),
        ("kB", 1000),
        ("MiB", 1024**2),
        ("mib", 1024**2),
        ("m", 1024**2),
        ("M", 1000**2),
        ("MB", 1000**2),
        ("Gi", 1024**3),
        ("gb", 1024**3),
        ("G", 1000**3),
        ("TiB", 1024**4),
        ("t", 1024**4),
        ("TB", 1000**4),
    ],
)
def test_every_unit_of_bytes(unit: str, expected_bytes: int) -> None:
    """Seven of each unit."""
    assert parse_bytes(f"7{unit}") == 7 * expected_bytes


@pytest.mark.parametrize("unit", ["mB", "kiB", "KIB", "X", "XB", "ib", "iB", "P", "bytes"])
def test_mixtures_are_no_units(unit: str) -> None:
    """But for kB, which is SI, small and large letters do not mix."""
    with pytest.raises(errors.UnitError):
        parse_bytes(f"7{unit}")


def test_a_text_of_64_characters_is_read_and_no_longer_one() -> None:
    """The limit is on what is not worth parsing."""
    assert parse_bytes("7".zfill(64)) == 7
    assert parse_seconds("7".zfill(64)) == 7.0
    for parse in (parse_bytes, parse_seconds):
        with pytest.raises(errors.UnitError):
            parse("7".zfill(65))


def test_the_error_says_what_was_read_and_what_it_should_be() -> None:
    """Text, quantity and a way to write it."""
    with pytest.raises(errors.UnitError) as caught:
        parse_bytes("5 feet")
    assert (caught.value.text, caught.value.quantity) == ("5 feet", "bytes")
    with pytest.raises(errors.UnitError) as caught:
        parse_seconds("5 feet")
    assert (caught.value.text, caught.value.quantity) == ("5 feet", "seconds")


@pytest.mark.parametrize(
    ("amount", "exact", "about"),
    [
        (0, "0B", "0 B"),
        (1 << 10, "1KiB", "1 KiB"),
        (1 << 20, "1MiB", "1 MiB"),
        (3 << 30, "3GiB", "3 GiB"),
        (5 << 40, "5TiB", "5 TiB"),
    ],
)
def test_each_binary_unit_is_written(amount: int, exact: str, about: str) -> None:
    """Exactly with no blank, as settings have it, and for people with one."""
    assert format_bytes(amount) == exact
    assert about_bytes(amount) == about


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.999, "999ms"),
        (1.0, "1s"),
        (5_400.0, "1h30m"),
        (3_661.0, "1h1m1s"),
        (2.0**53, "9007199254740992.0s"),
    ],
)
def test_seconds_are_written_in_the_units_that_people_use(seconds: float, text: str) -> None:
    """Milliseconds under a second, hours, minutes and seconds above; no fraction is lost."""
    assert format_seconds(seconds) == text


def test_the_refusal_of_a_container_has_every_figure() -> None:
    """256 MiB * 0.8 = 204.8 MiB may be planned for."""
    mib = 1 << 20
    refused = errors.PoolDoesNotFitError(
        256 * mib, 0.8, 80 * mib, 1 * mib, 51 * mib // 2, 140 * mib, 316 * mib
    )
    assert str(refused) == (
        "not even one handler process fits: of the memory limit of 256.0 MiB, 204.8 MiB may be"
        " planned for, but the parent takes 80.0 MiB, the prefetch 1.0 MiB, the least in flight"
        " 25.5 MiB and one process 140.0 MiB; give the container at least 316.0 MiB, or check what"
        " the handler loads when it opens"
    )
