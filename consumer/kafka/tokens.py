"""The user's function for OAUTHBEARER tokens, kept from doing harm when it fails.

Owns the guard around ``oauth_cb``. The client calls it inside others of its callbacks; one that
raises breaks those, down to the client's constructor.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from consumer.kafka.errors import ClientError, Reports, describe

#: A token that no broker takes, handed over when there is none; the client asks again soon.
NO_TOKEN = "unavailable"  # noqa: S105 - no secret
NO_TOKEN_SECONDS = 10.0


def with_guarded_token(properties: Mapping[str, Any], reports: Reports) -> dict[str, Any]:
    """Return a copy of the properties whose ``oauth_cb``, if any, never raises.

    A failure is reported, and the client is handed a token that fails at the broker and expires
    at once, so that it tries to connect, is refused, and asks for another.
    """
    config = dict(properties)
    function = config.get("oauth_cb")
    if function is None:
        return config

    def guarded(argument: str) -> Any:
        try:
            return function(argument)
        except Exception as thrown:  # noqa: BLE001 - whatever it is, the client must not see it
            reports.keep(ClientError("OAUTH_FUNCTION", f"oauth_cb failed: {describe(thrown)}"))
            return NO_TOKEN, time.time() + NO_TOKEN_SECONDS

    config["oauth_cb"] = guarded
    return config
