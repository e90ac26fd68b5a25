"""Handlers of the acceptance tests: they write down what they handled, and misbehave on request.

``VBTEST_RECORDS`` names a folder. Each process appends one line a record to a file of its own:
monotonic nanoseconds, topic, partition, offset and key. A record's property ``do`` says what is
to happen to it; a property ``times`` bounds how often it asks for a retry.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import shapely

from consumer.batch import Batch, OutputRecord

SECONDS_PER_RECORD = float(os.environ.get("VBTEST_SECONDS_PER_RECORD", "0"))
SECONDS_PER_VERTEX = float(os.environ.get("VBTEST_SECONDS_PER_VERTEX", "0"))
BYTES_PER_VERTEX = int(os.environ.get("VBTEST_BYTES_PER_VERTEX", "0"))


def _is_there(path: str | None) -> bool:
    return path is not None and Path(path).exists()


def _wait_while_there(path: str | None) -> None:
    while _is_there(path):
        time.sleep(0.005)


class Recorder:
    """Takes time and memory as it is told, acts on marked records, and writes down the others."""

    def open(self) -> None:
        _wait_while_there(os.environ.get("VBTEST_OPEN_GATE"))
        if _is_there(os.environ.get("VBTEST_NO_OPEN")):
            raise ConnectionRefusedError
        self.folder = Path(os.environ["VBTEST_RECORDS"])
        path = self.folder / f"handled-{os.getpid()}"
        # Every write is one call: what a killed process has finished is there, whole.
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def handle(self, batch: Batch) -> list[OutputRecord] | None:
        _wait_while_there(os.environ.get("VBTEST_GATE"))
        if _is_there(os.environ.get("VBTEST_DOWN")):
            raise ConnectionRefusedError
        vertices = int(np.sum(shapely.get_num_coordinates(batch.geometries)))
        held = np.ones(BYTES_PER_VERTEX * vertices // 8)
        seconds = SECONDS_PER_RECORD * len(batch) + SECONDS_PER_VERTEX * vertices
        if seconds:
            time.sleep(seconds)
        done = [index for index in range(len(batch)) if self._act(batch, index)]
        self._write_down(batch, done)
        del held
        if "VERTEX_BUDGET_OUTPUT_TOPIC" not in os.environ:
            return None
        return [OutputRecord(index, batch.records[index].value) for index in done]

    def close(self) -> None:
        os.close(self.file)

    def _write_down(self, batch: Batch, done: list[int]) -> None:
        lines = []
        now = time.monotonic_ns()
        for index in done:
            record = batch.records[index]
            key = "" if record.key is None else record.key.decode()
            lines.append(f"{now} {record.topic} {record.partition} {record.offset} {key}\n")
        os.write(self.file, "".join(lines).encode())

    def _act(self, batch: Batch, index: int) -> bool:
        """Do what a record says; return whether it is done."""
        properties = batch.properties(index)
        act = properties.get("do")
        if act is None:
            return True
        record = batch.records[index]
        if act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif act == "exit":
            os._exit(9)
        elif act == "hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            while True:
                time.sleep(60)
        elif act == "raise":
            text = f"cannot handle offset {record.offset}"
            raise ValueError(text)
        elif act == "fail":
            batch.fail(index, "not-wanted", "of no use here")
            return False
        elif act == "retry" and self._attempts(record.partition, record.offset) <= int(
            properties.get("times", 1)
        ):
            batch.retry(index, "not yet")
            return False
        return True

    def _attempts(self, partition: int, offset: int) -> int:
        """Count this attempt and return how many there were, in whatever process."""
        path = self.folder / f"attempts-{partition}-{offset}"
        with path.open("ab") as file:
            file.write(b".")
            return file.tell()
