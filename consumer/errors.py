"""Errors: whose fault it is, the values with their units, and what to check.

Owns the tree below ``ConsumerError``. Every error carries its fields in ``args`` and builds its
text from them, so it survives pickling both ways. A failure that is kept anywhere is kept as
text, never as a live exception with its frames.
"""

from __future__ import annotations


class ConsumerError(Exception):
    """The worker cannot go on."""


class ConfigError(ConsumerError):
    """A setting has a value that is not allowed."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(name, value, allowed)
        self.name = name
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}: {self.allowed}"


class PayloadError(ConsumerError):
    """The record's own content cannot be read."""

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(reason, text)
        self.reason = reason
        self.text = text

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}" if self.text else self.reason


class HandlerError(ConsumerError):
    """The user's handler failed."""

    def __init__(self, handler: str, text: str) -> None:
        super().__init__(handler, text)
        self.handler = handler
        self.text = text

    def __str__(self) -> str:
        return f"handler {self.handler}: {self.text}"


class HandlerOpenError(HandlerError):
    """The handler could not be imported or opened in any process."""


class HandlerContractError(ConsumerError):
    """The handler used its batch, or returned something, in a way that is not allowed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ProcessError(ConsumerError):
    """A handler process was asked for something that its state does not allow (our bug)."""

    def __init__(self, process: int, text: str) -> None:
        super().__init__(process, text)
        self.process = process
        self.text = text

    def __str__(self) -> str:
        return f"handler process {self.process}: {self.text}"
