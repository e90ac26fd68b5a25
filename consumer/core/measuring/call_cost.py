"""What one call of the handler costs beside its records, and how large chunks have to be for it.

Owns the fixed cost of a chunk: building arrays, one statement to a database, one request. With a
backlog it is spread over thousands of records; with a trickle it is most of what is measured, and
would make every record look dear and every prediction fail.

Rules: it is the median residual of small light chunks (seconds less what their rates predict).
A chunk whose records are predicted to cost less than half of it says nothing of their rates.
A chunk should cost at least a few times as much, or its records pay for the call.
"""

from __future__ import annotations

from collections import deque
from statistics import median

#: Small chunks that are remembered.
CHUNKS_REMEMBERED = 32
#: A chunk below this share of its target is small.
SMALL_RATIO = 0.5
#: Least work of a chunk, in calls.
CHUNK_CALLS = 3.0
#: The rates that it is the residual of must not take all of a chunk's seconds away.
LEAST_NET_RATIO = 0.2


class CallCost:
    """Fixed seconds of one chunk.

    Parameters
    ----------
    chunk_seconds : float
        Wanted work of one chunk while calls cost little.
    most_chunk_seconds : float
        Work of one chunk at most, however dear a call is.
    """

    def __init__(self, chunk_seconds: float, most_chunk_seconds: float) -> None:
        self._chunk_seconds = chunk_seconds
        self._most_chunk_seconds = max(chunk_seconds, most_chunk_seconds)
        self._residuals: deque[float] = deque(maxlen=CHUNKS_REMEMBERED)
        self.seconds = 0.0

    @property
    def chunk_seconds(self) -> float:
        """Work that a chunk should have."""
        wanted = max(self._chunk_seconds, CHUNK_CALLS * self.seconds)
        return min(wanted, self._most_chunk_seconds)

    def observe(self, seconds: float, predicted_seconds: float) -> None:
        """Learn from a light chunk."""
        if predicted_seconds < SMALL_RATIO * self.chunk_seconds:
            self._residuals.append(seconds - predicted_seconds)
            self.seconds = max(0.0, median(self._residuals))

    def hides(self, predicted_seconds: float) -> bool:
        """Whether the call's own cost hides what a chunk's records cost."""
        return predicted_seconds < SMALL_RATIO * self.seconds

    def net(self, seconds: float, predicted_seconds: float) -> float:
        """Return a chunk's seconds without the call that a full chunk would not notice.

        A full chunk keeps all of them: there the call is a part of what records cost.
        """
        missing = max(0.0, 1.0 - predicted_seconds / self.chunk_seconds)
        return max(seconds - missing * self.seconds, LEAST_NET_RATIO * seconds)
