"""The demonstration's handler: useful work, and a line for every record that is done.

Checks every geometry and generalises lines and areas for the zoom levels of a map. A record that
is marked so kills the process that handles it, as a bug in native code would.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import shapely

from consumer.batch import Batch

#: Folder of the lines; a file for each process.
FOLDER_VARIABLE = "DEMO_HANDLED_FOLDER"
#: What a record holds that kills its process.
CRASH_MARK = b'"demo":"crash"'
#: Half a pixel of a map at zoom levels 6, 6.5, 7, ... 16, in degrees.
ZOOM_DEGREES = tuple(180.0 / 256.0 / 2.0 ** (step / 2) for step in range(12, 33))


class Generalise:
    """Validity of everything, and lines and areas simplified for 21 zoom levels."""

    def open(self) -> None:
        """Open this process's file of what is done."""
        path = Path(os.environ[FOLDER_VARIABLE]) / f"handled-{os.getpid()}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def handle(self, batch: Batch) -> None:
        """Handle one batch, and write down that it is done."""
        lines = []
        for record in batch.records:
            if CRASH_MARK in (record.value or b""):
                os.kill(os.getpid(), signal.SIGKILL)
            lines.append(f"{record.topic} {record.partition} {record.offset}\n")
        geometries = batch.geometries
        with np.errstate(all="ignore"):
            shapely.is_valid(geometries)
            extended = geometries[shapely.get_dimensions(geometries) > 0]
            for degrees in ZOOM_DEGREES if len(extended) else ():
                shapely.simplify(extended, degrees)
        # One call: what a process that dies has written is whole.
        os.write(self._file, "".join(lines).encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
