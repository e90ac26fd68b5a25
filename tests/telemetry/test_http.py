"""The HTTP port, over real sockets: what each path answers, and what no request can do."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from consumer.errors import ConsumerError
from consumer.settings.address import Address
from consumer.telemetry import http
from consumer.telemetry.explanations import FIGURES
from consumer.telemetry.http import MAX_HEAD_BYTES, MAX_THREADS, HttpServer, ListenError
from consumer.telemetry.metrics import MetricsRegistry
from tests.snapshots import SNAPSHOT, snapshot

DEADLINE_SECONDS = 20


class Worker:
    """What the server reads, to be changed by a test."""

    def __init__(self) -> None:
        self.snapshot = SNAPSHOT
        self.live: tuple[bool, str] = (True, "the last step is 0.1 s old")
        self.ready: tuple[bool, str] = (True, "joined, 3 of 4 processes ready")
        #: called before each snapshot is handed out
        self.before: Callable[[], Any] = lambda: None

    def read(self):
        """Return the snapshot, as the driver's replaced object would be read."""
        self.before()
        return self.snapshot


@pytest.fixture
def worker() -> Worker:
    """A worker that is well."""
    return Worker()


@pytest.fixture
def server(worker: Worker) -> Iterator[HttpServer]:
    """A server on a free port of this host."""
    server = HttpServer(
        Address("127.0.0.1", 0),
        MetricsRegistry(worker.read),
        worker.read,
        lambda: worker.live,
        lambda: worker.ready,
    )
    server.start()
    yield server
    server.close()


def get(server: HttpServer, path: str, **options: Any) -> requests.Response:
    """Get one path."""
    options.setdefault("timeout", DEADLINE_SECONDS)
    return requests.get(f"http://127.0.0.1:{server.port}{path}", **options)


def raw(server: HttpServer, request: bytes) -> bytes:
    """Send bytes, return all that comes back."""
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_SECONDS) as connection:
        connection.sendall(request)
        received = b""
        while part := connection.recv(65536):
            received += part
    return received


def test_metrics_are_served_in_the_format_that_is_asked_for(server):
    """Plain text by default, OpenMetrics for a scraper that prefers it."""
    plain = get(server, "/metrics")
    assert plain.status_code == 200
    assert plain.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(plain.text)}
    assert "vertex_budget_bound_vertices" in names
    accept = {"Accept": "application/openmetrics-text; version=1.0.0; charset=utf-8"}
    strict = get(server, "/metrics", headers=accept)
    assert strict.headers["Content-Type"].startswith("application/openmetrics-text")
    assert strict.text.endswith("# EOF\n")


@pytest.mark.parametrize(("path", "name"), [("/healthz", "live"), ("/readyz", "ready")])
def test_health_is_a_status_and_a_reason(server, worker, path, name):
    """200 or 503, with the reason in words; one question does not answer the other."""
    good = get(server, path)
    assert (good.status_code, good.json()[name]) == (200, True)
    setattr(worker, name, (False, "stalled: nothing finished for 140 s"))
    bad = get(server, path)
    assert bad.status_code == 503
    assert bad.json() == {name: False, "reason": "stalled: nothing finished for 140 s"}
    other = "/readyz" if path == "/healthz" else "/healthz"
    assert get(server, other).status_code == 200


def test_budget_has_every_number_with_its_unit_and_formula(server):
    """Anyone can redo the arithmetic: value, unit, formula in words, and the sample's window."""
    answer = get(server, "/budget")
    assert answer.headers["Content-Type"] == "application/json"
    said = answer.json()
    assert set(said["figures"]) == {figure.name for figure in FIGURES}
    for figure in said["figures"].values():
        assert figure["value"] is not None
        assert figure["unit"]
        assert figure["formula"]
    assert said["figures"]["vertex_budget"]["value"] == 2_000_000
    assert said["figures"]["bound_vertices"]["value"] == {
        "memory": 9_000_000,
        "deadline": 2_100_000,
    }
    assert said["figures"]["lag_messages"]["value"] == 341
    assert (said["binding"], said["limited_by"]) == ("deadline", "deadline")
    sample = said["sizing"]["sample"]
    assert sample["windows"][0] == {
        "topic": "parcels",
        "partition": 0,
        "first_offset": 10,
        "last_offset": 1009,
    }
    assert sample["classes"][0]["observations"] == 12
    assert said["partitions"][1] == {
        "topic": "parcels",
        "partition": 1,
        "paused": True,
        "committed_end": 1005,
        "lag_messages": 41,
    }


def test_a_worker_without_a_size_is_shown_as_such(server, worker):
    """Before the first sizing nothing fails and nothing is made up."""
    worker.snapshot = snapshot(
        sizing=None, state="idle", binding="", bound_vertices={}, lag_messages={}, paused=()
    )
    said = get(server, "/budget").json()
    assert (said["sizing"], said["binding"]) == (None, None)
    assert "none yet" in get(server, "/").text
    assert get(server, "/metrics").status_code == 200


def test_the_page_shows_state_and_budget_and_links_to_the_rest(server, worker):
    """A person sees what the worker does; text from outside is escaped; nothing is loaded."""
    worker.snapshot = snapshot(state_cause="<b>one record</b>")
    page = get(server, "/?x=1")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "2,000,000 vertices / 4,000 messages" in page.text
    assert "&lt;b&gt;one record" in page.text
    for path in ("/metrics", "/healthz", "/readyz", "/budget"):
        assert f'href="{path}"' in page.text
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]


def test_an_unknown_path_is_told_the_known_ones(server):
    """404 in JSON. Paths are looked up, never opened as files."""
    for path in ("/nope", "/metrics/", "/../etc/passwd"):
        answer = raw(server, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 404 ")
        assert "/budget" in json.loads(body)["paths"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_only_reading_is_allowed(server, method):
    """405 in JSON with what is allowed, also when a body follows."""
    answer = requests.request(
        method,
        f"http://127.0.0.1:{server.port}/budget",
        data=b"x" * 5000,
        timeout=DEADLINE_SECONDS,
    )
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET, HEAD"
    assert answer.json()["error"] == "Method Not Allowed"


def test_head_is_get_without_the_body(server):
    """The length is that of the body that is left out."""
    answer = raw(server, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body == b""
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    assert length == len(get(server, "/healthz").content)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /" + b"x" * (2 * MAX_HEAD_BYTES), b"431"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * (2 * MAX_HEAD_BYTES), b"431"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"431"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\n\n", b"400"),
    ],
)
def test_a_bad_request_is_refused_and_the_server_lives_on(server, request_bytes, status):
    """Too long, too many headers, no HTTP at all: an answer, and the next request is served."""
    try:
        assert raw(server, request_bytes).split(b" ")[1] == status
    except ConnectionResetError:
        # What was sent beyond the refusal may reset the connection before it is read.
        assert len(request_bytes) > MAX_HEAD_BYTES
    assert get(server, "/healthz").status_code == 200


def test_a_reader_that_never_finishes_its_request_is_let_go(server, monkeypatch):
    """Bytes that drip in do not extend the time that a request may take."""
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.3)
    answer = raw(server, b"GET / HTTP/1.1\r\nX: y")
    assert answer.startswith(b"HTTP/1.1 408 ")
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_SECONDS) as connection:
        connection.settimeout(0.02)
        received = b""
        while not received:
            connection.sendall(b"x")
            try:
                received = connection.recv(65536)
            except TimeoutError:
                continue
    assert received.startswith(b"HTTP/1.1 408 ")


def test_requests_beyond_the_limit_are_refused_at_once(server, worker):
    """Threads are bounded: slow readers cost a 503, not memory; then the server serves again."""
    inside = threading.Semaphore(0)
    go_on = threading.Event()

    def wait() -> None:
        inside.release()
        go_on.wait(DEADLINE_SECONDS)

    worker.before = wait
    answers: list[int] = []
    readers = [
        threading.Thread(target=lambda: answers.append(get(server, "/budget").status_code))
        for _ in range(MAX_THREADS)
    ]
    for reader in readers:
        reader.start()
    for _ in readers:
        assert inside.acquire(timeout=DEADLINE_SECONDS)
    assert raw(server, b"").startswith(b"HTTP/1.1 503 ")
    go_on.set()
    for reader in readers:
        reader.join(DEADLINE_SECONDS)
    assert answers == [200] * MAX_THREADS
    worker.before = lambda: None
    assert get(server, "/budget").status_code == 200


def test_it_answers_while_the_main_thread_is_busy(server):
    """Health does not wait for the thread that does the work."""
    answers: list[int] = []
    reader = threading.Thread(target=lambda: answers.append(get(server, "/healthz").status_code))
    reader.start()
    count = 0
    while reader.is_alive():
        # The thread that owns the work never lets go of it by itself.
        count += 1
    assert answers == [200]


def test_a_failure_while_answering_is_a_500_without_its_text(server, worker):
    """Whatever the reason was, it is for the log; the server serves the next request."""

    def fail() -> None:
        message = "hunter2"
        raise RuntimeError(message)

    worker.before = fail
    for path in ("/budget", "/metrics", "/"):
        answer = get(server, path)
        assert answer.status_code == 500
        assert answer.json()["error"] == "Internal Server Error"
        assert "hunter2" not in answer.text
    worker.before = lambda: None
    assert get(server, "/budget").status_code == 200


def new_server(address: Address, worker: Worker) -> HttpServer:
    """Return a server that is not started."""
    registry = MetricsRegistry(worker.read)
    return HttpServer(address, registry, worker.read, lambda: worker.live, lambda: worker.ready)


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_port_in_use_is_one_exact_message(server, worker, host):
    """Address, reason and what to do; it pickles; closing a server that never began is fine."""
    second = new_server(Address(host, server.port), worker)
    with pytest.raises(ListenError) as caught:
        second.start()
    assert isinstance(caught.value, ConsumerError)
    assert str(caught.value) == (
        f"cannot listen on {host}:{server.port}: address already in use;"
        " set VERTEX_BUDGET_HTTP_ADDRESS to a free address (':0' takes any free port)"
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    second.close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_host_is_one_message(worker, host):
    """An address that is not here, a name that is none: the same kind of error."""
    with pytest.raises(ListenError, match=f"cannot listen on {host}:0: "):
        new_server(Address(host, 0), worker).start()


def test_no_host_means_every_interface(worker):
    """``:0`` is reached by the IPv4 address of this host, and by IPv6 where there is one."""
    server = new_server(Address("", 0), worker)
    server.start()
    try:
        assert get(server, "/healthz").status_code == 200
        if socket.has_dualstack_ipv6():
            try:
                probe = socket.create_connection(("::1", server.port), DEADLINE_SECONDS)
            except OSError as error:
                pytest.skip(f"this host has no IPv6 address: {error}")
            probe.close()
    finally:
        server.close()


def test_a_closed_port_is_free_again(worker):
    """Closing gives the port back at once, and may be done twice."""
    first = new_server(Address("127.0.0.1", 0), worker)
    first.start()
    port = first.port
    get(first, "/healthz")
    first.close()
    first.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS)
    second = new_server(Address("127.0.0.1", port), worker)
    second.start()
    assert get(second, "/healthz").status_code == 200
    second.close()
