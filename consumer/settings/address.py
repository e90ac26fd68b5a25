"""The address that the HTTP server listens on, and how people write it."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

ADDRESS_FORMS = "':9464', '0.0.0.0:9464' or '[::1]:9464', port 0 to 65535"

_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[^\]]*)\]|(?P<plain>[^:\[\]]*)):(?P<port>[0-9]{1,5})")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


class Address(NamedTuple):
    """Where to listen. An empty host means every interface; port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address that ``text`` names.

    Raises
    ------
    ValueError
        If it is none of the forms in ``ADDRESS_FORMS``.

    Examples
    --------
    >>> parse_address(":9464")
    Address(host='', port=9464)
    >>> str(parse_address("[::1]:9464"))
    '[::1]:9464'
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        msg = f"not an address: {text!r}"
        raise ValueError(msg)
    port = int(match["port"])
    if port > 65535:
        msg = f"no such port: {port}"
        raise ValueError(msg)
    bracketed = match["bracketed"]
    if bracketed is not None:
        return Address(str(ipaddress.IPv6Address(bracketed)), port)
    plain = match["plain"]
    if plain and not _HOST_NAME.fullmatch(plain):
        msg = f"not a host name: {plain!r}"
        raise ValueError(msg)
    return Address(plain, port)
