"""The HTTP port: metrics, health and the budget, answered by threads of its own.

Owns the server and what each path answers. Reads only what it is given: a registry, a snapshot and
two questions. It shares no lock with the thread that owns the Kafka client, so it answers while
the worker is busy, and a slow or hostile reader costs one of a few threads for a few seconds.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any, Protocol

import orjson

from consumer.core.snapshot import Snapshot
from consumer.errors import ConsumerError
from consumer.settings.address import Address
from consumer.telemetry.explanations import explained
from consumer.telemetry.health import Answer
from consumer.telemetry.page import page

_log = logging.getLogger(__name__)

#: Requests answered at once: a scraper, two probes and some people, with room.
MAX_THREADS = 16
#: Bytes of request line and headers together.
MAX_HEAD_BYTES = 16 * 1024
#: From the first byte to the last of the head, so that dripping bytes do not keep a thread.
HEAD_SECONDS = 5.0
WRITE_SECONDS = 10.0
#: A refused body is read this far, or the refusal would be lost in a reset connection.
_DRAIN_BYTES = 64 * 1024
_DRAIN_SECONDS = 0.2

JSON = "application/json"
HTML = "text/html; charset=utf-8"
PATHS = ("/", "/budget", "/healthz", "/metrics", "/readyz")
#: The protocol or the address family is missing here.
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Exposable(Protocol):
    """A registry of metrics that can be scraped."""

    def expose(self, accept: str) -> tuple[str, bytes]:
        """Return content type and body in the format that ``accept`` asks for."""


class ListenError(ConsumerError):
    """The HTTP port cannot be opened: taken, not allowed, or not an address of this host."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(address, why)
        self.address = address
        self.why = why

    def __str__(self) -> str:
        return (
            f"cannot listen on {self.address}: {self.why};"
            " set VERTEX_BUDGET_HTTP_ADDRESS to a free address (':0' takes any free port)"
        )


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Not ``HTTPServer``, which asks the resolver for the host's name when it binds."""

    allow_reuse_address = True
    daemon_threads = True
    # Closing does not wait for readers.
    block_on_close = False
    request_queue_size = 64

    def __init__(self, listening: socket.socket, service: HttpServer) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.service = service
        self._free = threading.BoundedSemaphore(MAX_THREADS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            request.settimeout(0)
            with contextlib.suppress(OSError):
                request.send(_BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Say little: a reader that goes away is no news, and its request may carry anything."""
        _log.debug("a request was not answered", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request and closes the connection."""

    protocol_version = "HTTP/1.1"
    # Of a request whose version cannot be read; an answer to HTTP/0.9 would have no status.
    default_request_version = "HTTP/1.0"
    server: _Server
    connection: socket.socket

    def handle(self) -> None:
        head, status = self._read_head()
        self.close_connection = True
        # What an answer needs of a request, when there is none that can be parsed.
        self.command, self.requestline, self.request_version = "GET", "", "HTTP/1.1"
        if status is not None:
            self.send_error(status)
            return
        if not head:
            return
        self.rfile = BytesIO(head)
        self.raw_requestline = self.rfile.readline()
        if not self.parse_request():
            return
        self.close_connection = True
        if self.command not in {"GET", "HEAD"}:
            self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)
            self._drain()
            return
        self._answer(*self._respond(self.path.partition("?")[0]))

    def _read_head(self) -> tuple[bytes, HTTPStatus | None]:
        deadline = time.monotonic() + HEAD_SECONDS
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            if len(head) > MAX_HEAD_BYTES:
                return b"", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            remaining_seconds = deadline - time.monotonic()
            if remaining_seconds <= 0:
                return b"", HTTPStatus.REQUEST_TIMEOUT
            self.connection.settimeout(remaining_seconds)
            try:
                received = self.connection.recv(4096)
            except TimeoutError:
                return b"", HTTPStatus.REQUEST_TIMEOUT
            if not received:
                return b"", None
            head += received
        return head, None

    def _respond(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        if path not in PATHS:
            return self._error(HTTPStatus.NOT_FOUND)
        try:
            return self.server.service.respond(path, self.headers.get("Accept", ""))
        except Exception:  # noqa: BLE001 - whatever fails, the reader gets an answer
            _log.exception("cannot answer %s", path)
            return self._error(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _error(self, status: HTTPStatus) -> tuple[HTTPStatus, str, bytes]:
        return status, JSON, orjson.dumps({"error": status.phrase, "paths": PATHS})

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.connection.settimeout(WRITE_SECONDS)
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if content_type == HTML:
            policy = "default-src 'none'; style-src 'unsafe-inline'"
            self.send_header("Content-Security-Policy", policy)
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - what the base class found is about the reader's own request
        self._answer(*self._error(HTTPStatus(code)))

    def version_string(self) -> str:
        return "vertex-budget"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write nothing: a line for each scrape and probe would bury the others."""

    def _drain(self) -> None:
        self.connection.settimeout(_DRAIN_SECONDS)
        left = _DRAIN_BYTES
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (received := self.connection.recv(4096)):
                left -= len(received)


class HttpServer:
    """Serves one worker's metrics, health and budget.

    Parameters
    ----------
    address : Address
        Where to listen; port 0 takes any free one (see ``port``).
    registry : Exposable
        What ``/metrics`` shows.
    snapshot : callable
        Returns the worker's last picture; called by several threads, so it must only read.
    live, ready : callable
        Whether to restart the worker, whether it works; each with the reason in words.
    """

    def __init__(
        self,
        address: Address,
        registry: Exposable,
        snapshot: Callable[[], Snapshot],
        live: Callable[[], Answer],
        ready: Callable[[], Answer],
    ) -> None:
        self._address = address
        self._registry = registry
        self._snapshot = snapshot
        self._live = live
        self._ready = ready
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen and answer from now on.

        Raises
        ------
        ListenError
            If the address cannot be listened on.
        """
        self._server = _Server(_listen(self._address), self)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="http",
            daemon=True,
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on, once started."""
        if self._server is None:
            return self._address.port
        return int(self._server.socket.getsockname()[1])

    def close(self) -> None:
        """Listen no longer. Answers under way are not waited for. May be called twice."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()

    def respond(self, path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        """Return status, content type and body of one of ``PATHS``."""
        if path == "/metrics":
            return HTTPStatus.OK, *self._registry.expose(accept)
        if path == "/healthz":
            return _health("live", self._live())
        if path == "/readyz":
            return _health("ready", self._ready())
        if path == "/budget":
            options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
            return HTTPStatus.OK, JSON, orjson.dumps(explained(self._snapshot()), option=options)
        return HTTPStatus.OK, HTML, page(self._snapshot(), PATHS[1:]).encode()


def _health(name: str, answer: Answer) -> tuple[HTTPStatus, str, bytes]:
    good, reason = answer
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return status, JSON, orjson.dumps({name: good, "reason": reason})


def _listen(address: Address) -> socket.socket:
    host, port = address
    try:
        if not host and socket.has_dualstack_ipv6():
            try:
                return socket.create_server(
                    ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64
                )
            except OSError as error:
                # Containers may have the protocol and no address of it.
                if error.errno not in _NO_SUCH_ADDRESS:
                    raise
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=64)
    except OSError as error:
        # create_server adds the address to the system's text; the resolver has a text of its own.
        if isinstance(error, socket.gaierror) or error.errno is None:
            why = error.strerror or str(error)
        else:
            why = os.strerror(error.errno)
        raise ListenError(str(address), why[:1].lower() + why[1:]) from None
