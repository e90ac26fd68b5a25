"""Exit code 0 when the worker in this container answers a path with 200: Docker's HEALTHCHECK.

Asks where ``VERTEX_BUDGET_HTTP_ADDRESS`` says. Talks over a plain socket: this runs every few
seconds inside the worker's own memory limit, and an HTTP client would double its size.
"""

from __future__ import annotations

import os
import socket
import sys

DEFAULT_ADDRESS = ":9464"
TIMEOUT_SECONDS = 3.0


def main() -> int:
    """Ask for the path given as argument, ``/healthz`` by default."""
    path = sys.argv[1] if len(sys.argv) > 1 else "/healthz"
    address = os.environ.get("VERTEX_BUDGET_HTTP_ADDRESS") or DEFAULT_ADDRESS
    host, _, port = address.strip().rpartition(":")
    host = host.strip("[]")
    if host in {"", "0.0.0.0"}:  # noqa: S104 - every interface: the loopback one answers too
        host = "127.0.0.1"
    elif host == "::":
        host = "::1"
    request = f"GET {path} HTTP/1.0\r\n\r\n"
    try:
        with socket.create_connection((host, int(port)), TIMEOUT_SECONDS) as connection:
            connection.sendall(request.encode())
            answer = b""
            while received := connection.recv(4096):
                answer += received
    except (OSError, ValueError) as error:
        sys.stdout.write(f"{address}: {error}\n")
        return 1
    head, _, body = answer.partition(b"\r\n\r\n")
    # Docker keeps what a check writes: `docker inspect` then says why.
    sys.stdout.write(body.decode(errors="replace") + "\n")
    return 0 if head.split()[1:2] == [b"200"] else 1


if __name__ == "__main__":
    sys.exit(main())
