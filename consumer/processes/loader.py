"""The user's handler: found by name or given, opened, called, closed.

Owns the three forms (a function of one batch; a class; an object with ``handle``), each of them
plain or ``async``, and the exact words when one cannot be used. Async code of one process runs in
one event loop from ``open`` to ``close``, so that a connection opened in ``open`` stays usable.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import traceback
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import Any

from consumer.batch import Batch
from consumer.errors import ConfigError

SETTING = "VERTEX_BUDGET_HANDLER"


class Handler:
    """A handler ready to be opened."""

    __slots__ = ("_close", "_handle", "_open", "_runner")

    def __init__(
        self,
        handle: Callable[[Batch], Any],
        open_: Callable[[], Any] | None = None,
        close: Callable[[], Any] | None = None,
    ) -> None:
        self._handle = handle
        self._open = open_
        self._close = close
        self._runner: asyncio.Runner | None = None

    def open(self) -> None:
        """Call the handler's ``open``, if it has one."""
        if self._open is None:
            return
        try:
            self._finish(self._open())
        except BaseException:
            self._end_loop()
            raise

    def handle(self, batch: Batch) -> Any:
        """Call the handler, and return what it returned."""
        return self._finish(self._handle(batch))

    def close(self) -> None:
        """Call the handler's ``close``, if it has one."""
        try:
            if self._close is not None:
                self._finish(self._close())
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _finish(self, result: Any) -> Any:
        if not inspect.isawaitable(result):
            return result
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(_await(result))


async def _await(result: Awaitable[Any]) -> Any:
    return await result


def load_handler(spec: str) -> Handler:
    """Import a handler.

    Parameters
    ----------
    spec : str
        ``module:name``; the name may have dots.

    Raises
    ------
    ConfigError
        With what is wrong and where: no such module, no such name, the module's own error, not
        something that can handle a batch.
    """
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name):
        raise ConfigError(SETTING, spec, "is not of the form module:name")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        text = f"there is no module {error.name!r}"
        if error.name != module_name and not module_name.startswith(f"{error.name}."):
            text += f", which {module_name} imports; is it installed beside the worker?"
        else:
            text += "; is it installed, or on PYTHONPATH, where the worker runs?"
        raise ConfigError(SETTING, spec, text) from None
    except BaseException as error:  # noqa: BLE001 - a module may raise anything when imported
        text = f"importing {module_name} raised {describe(error)}"
        raise ConfigError(SETTING, spec, text) from None
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            close = get_close_matches(part, [item for item in dir(found) if item[:1] != "_"], 3)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            text = f"{module_name} has no {part!r}{hint}"
            raise ConfigError(SETTING, spec, text) from None
    return handler_of(found, spec)


def handler_of(found: Any, spec: str) -> Handler:
    """Return the handler that a function, a class or an object is.

    Parameters
    ----------
    found : object
        A class is made one of.
    spec : str
        What it is called in an error.

    Raises
    ------
    ConfigError
        When it cannot handle a batch.
    """
    if inspect.isclass(found):
        if not callable(getattr(found, "handle", None)):
            raise ConfigError(SETTING, spec, "is a class without a method handle(batch)")
        try:
            found = found()
        except BaseException as error:  # noqa: BLE001 - user code
            raise ConfigError(SETTING, spec, f"making one raised {describe(error)}") from None
    handle = getattr(found, "handle", None)
    if callable(handle):
        return Handler(handle, getattr(found, "open", None), getattr(found, "close", None))
    if callable(found):
        return Handler(found)
    text = f"is of type {type(found).__name__}: neither a function nor an object with handle(batch)"
    raise ConfigError(SETTING, spec, text)


def error_class_of(error: BaseException) -> str:
    """Return the qualified name of an exception's class, without ``builtins``."""
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )


def describe(error: BaseException) -> str:
    """Return class, text and place of an exception, as text that holds no frame alive."""
    frames = traceback.extract_tb(error.__traceback__)
    place = ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f" ({error.filename}:{error.lineno})"
        return f"{error_class_of(error)}: {error.msg}{place}"
    if frames:
        place = f" ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})"
    return f"{error_class_of(error)}: {error}{place}"
