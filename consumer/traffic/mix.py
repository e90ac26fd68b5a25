"""Shares of the kinds of records, and how a day changes them.

Owns the names of the kinds, what ``--mix`` may say, and the rhythm of a day: the rate and the
share of everything that is not a ping, by the hour. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from consumer.errors import ConfigError

KINDS = ("pings", "lines", "polygons", "coastlines")
MIX_FORMS = f"kind=share,..., each share 0 or more and one above; kinds: {', '.join(KINDS)}"
#: The other name of a kind.
_ALSO = {"parcels": "polygons"}

#: The hour of the day at which most happens; least does half a day from it.
BUSY_HOUR = 14.0
_HOURS = 24.0


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of records by kind; they sum to 1."""

    #: by kind, in the order of ``KINDS``; a kind that is left out has none
    shares: Mapping[str, float]

    def __str__(self) -> str:
        return ",".join(f"{kind}={share:.3g}" for kind, share in self.shares.items())


DEFAULT_MIX_TEXT = "pings=.9,lines=.05,polygons=.04,coastlines=.01"


def mix_of(shares: Mapping[str, float]) -> Mix:
    """Return a mix whose shares sum to 1."""
    total = sum(shares.values())
    return Mix({kind: shares[kind] / total for kind in KINDS if shares.get(kind)})


def parse_mix(text: str) -> Mix:
    """Return the mix that a text such as ``pings=.9,coastlines=.1`` names.

    Raises
    ------
    ConfigError
        If it names no kind, an unknown one, one twice, or shares that are none.

    Examples
    --------
    >>> str(parse_mix("pings=3,coastlines=1"))
    'pings=0.75,coastlines=0.25'
    """
    shares: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        kind = _ALSO.get(name, name)
        if not equals or kind not in KINDS or kind in shares:
            raise _refused(text, _wrong(part, kind, shares))
        try:
            share = float(number)
        except ValueError:
            share = math.nan
        if not 0.0 <= share < math.inf:
            raise _refused(text, f"{number!r} is no share")
        shares[kind] = share
    if not sum(shares.values()):
        raise _refused(text, "no kind has a share")
    return mix_of(shares)


def _refused(text: str, wrong: str) -> ConfigError:
    return ConfigError("--mix", text, f"{wrong}; allowed: {MIX_FORMS}")


def _wrong(part: str, kind: str, shares: Mapping[str, float]) -> str:
    if kind in shares:
        return f"{kind} is there twice"
    return f"{part!r} is not kind=share" if "=" not in part else f"{kind!r} is no kind"


@dataclass(frozen=True, slots=True)
class Day:
    """A day that passes in ``seconds``, from midnight on, again and again."""

    seconds: float

    def hour(self, at_seconds: float) -> float:
        """Return the hour of the day."""
        return _HOURS * (at_seconds / self.seconds % 1.0)

    def rate_factor(self, at_seconds: float) -> float:
        """Return the rate over the day's mean: 0.4 in the quiet hour, 1.6 in the busy one."""
        return 1.0 + 0.6 * self._height(at_seconds)

    def mix(self, mix: Mix, at_seconds: float) -> Mix:
        """Return the mix of this hour: by night nearly everything is a ping.

        What is no ping has a tenth of its share in the quiet hour and three times that share
        in the busy one.
        """
        factor = math.exp(
            (math.log(3.0) - math.log(0.1)) * (self._height(at_seconds) + 1.0) / 2.0 + math.log(0.1)
        )
        return mix_of(
            {k: share * (1.0 if k == "pings" else factor) for k, share in mix.shares.items()}
        )

    def _height(self, at_seconds: float) -> float:
        """Return -1 in the quiet hour, 1 in the busy one."""
        turn = (self.hour(at_seconds) - BUSY_HOUR) / _HOURS
        return math.cos(2.0 * math.pi * turn)
