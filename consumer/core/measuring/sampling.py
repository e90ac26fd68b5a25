"""Sampling: which admitted records a sizing speaks of.

Owns the windows of traffic: what has been admitted since the last sizing, and its recent part,
which covers at least a second and some hundred records. Learns nothing from them.
"""

from __future__ import annotations

from consumer.core.ledger.in_flight import Run
from consumer.core.measuring.window import Window
from sizing.model import CostModel

#: The recent mix covers at least this long and this many records.
RECENT_SECONDS = 1.0
RECENT_RECORDS = 500


class Sampling:
    """Windows of admitted records, in the order of time."""

    def __init__(self) -> None:
        self._older = Window()
        #: the recent part in two halves: when the newer is large enough, the older half is let go
        self._recent = (Window(), Window())
        #: of the last sizing
        self.sized = Window()

    def admitted(self, run: Run, model: CostModel, now: float, now_wall: float) -> None:
        """Add a run that was just admitted."""
        newer = self._recent[1]
        if not newer.messages:
            newer.started_at = now
        newer.add(run, model, now_wall)
        if now - newer.started_at >= RECENT_SECONDS and newer.messages >= RECENT_RECORDS:
            self._older.add_window(self._recent[0])
            self._recent = (newer, Window())

    def recent(self) -> Window:
        """Return the recent part."""
        return _joined(self._recent)

    def whole(self) -> Window:
        """Return everything since the last sizing."""
        return _joined((self._older, *self._recent))

    def to_size(self, *, only_recent: bool) -> Window:
        """Return what a sizing is of: where nothing came, everything, or the last sizing's own."""
        for window in (self.recent() if only_recent else self.whole(), self.whole()):
            if window.messages:
                return window
        return self.sized

    def begin(self, *, keep_newest: bool) -> None:
        """Begin anew after a sizing; of one that was of the recent part, its newer half counts on."""
        self._older = Window()
        self._recent = (Window(), self._recent[1] if keep_newest else Window())


def _joined(windows: tuple[Window, ...]) -> Window:
    joined = Window()
    for window in windows:
        joined.add_window(window)
    return joined
