"""Why one record cannot be decoded, as a value that decoders return instead of raising."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """Why one record could not be decoded."""

    #: a code, mostly of ``Reason``
    reason: str
    #: in words, without any part of the payload's data
    text: str
