"""Pausing: the set of partitions that should be paused, and the transitions to get there.

Owns the hysteresis and the desired pause state. Only transitions are sent: a pause throws away
what the client has prefetched, and a resume takes 0.3 to 0.6 s.

Rules: full means that the next record does not fit. Everything assigned is paused when the way
down to the resume threshold (half of the limit that refused) is long, by prediction or because
nothing was admitted for a second; a window shorter than that only delays fetching. The first,
small budget rests on priors, so no prediction pauses for it.
A single partition is paused for its own reason only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from consumer.core.commands import Command, Pause, Resume
from consumer.core.ledger.columns import Partition

#: Everything is resumed at this share of the limit that refused.
RESUME_RATIO = 0.5
#: A pause shorter than this costs more (refetching) than it saves.
LEAST_PAUSE_SECONDS = 1.0
#: Everything is paused when the way down is predicted to be this long: a shorter one would be
#: paused more often than ten times a minute.
PAUSE_FROM_SECONDS = 5.0
#: ... or when nothing was admitted for this long.
STUCK_SECONDS = 1.0
#: ... or when the client was not called for this long: it serves its callbacks in calls only, and
#: is evicted without them.
UNSERVED_SECONDS = 2.0


@dataclass(slots=True)
class PauseControl:
    """Desired and actual pause state."""

    #: as the client knows it, by our own commands
    paused: set[Partition] = field(default_factory=set)
    #: since when everything is meant to be paused; None when it is not
    all_since: float | None = None
    #: what refused when everything was paused
    refuser: str = ""
    full_since: float | None = None
    #: what refused last, until the way down is gone; what people see does not flicker with every
    #: record that is let in
    full_by: str = ""
    #: when the client was called last
    served_at: float | None = None
    pauses_total: int = 0
    resumes_total: int = 0
    _paused_seconds: float = 0.0
    _own_since: dict[Partition, float] = field(default_factory=dict)

    @property
    def own(self) -> set[Partition]:
        """Partitions that are paused for a reason of their own."""
        return set(self._own_since)

    @property
    def everything(self) -> bool:
        """Whether everything assigned is meant to be paused."""
        return self.all_since is not None

    def paused_seconds(self, now: float) -> float:
        """Seconds with everything paused, so far."""
        running = 0.0 if self.all_since is None else now - self.all_since
        return self._paused_seconds + running

    def when_full(
        self, refuser: str, ratio: float, drain_seconds: float, admitted_at: float, now: float
    ) -> None:
        """Note that the next record does not fit, and pause everything when it will last.

        Parameters
        ----------
        refuser : str
            The limit that refused.
        ratio : float
            How full it is.
        drain_seconds : float
            Predicted seconds to finish everything in flight.
        admitted_at : float
            When a record was admitted last.
        now : float
            Monotonic seconds.
        """
        self.full_since = max(self.full_since or now, admitted_at)
        self.full_by = refuser
        if self.everything:
            return
        way_down = drain_seconds * max(0.0, ratio - RESUME_RATIO) / max(ratio, 1e-9)
        lasts = way_down > PAUSE_FROM_SECONDS and refuser != "initial"
        unserved = self.served_at is not None and now - self.served_at >= UNSERVED_SECONDS
        if lasts or unserved or now - self.full_since >= STUCK_SECONDS:
            self.all_since = now
            self.refuser = refuser

    def when_room(self, ratio: float, work_left_seconds: float, now: float) -> None:
        """Note that nothing is refused; resume at the threshold, or before the work runs out.

        Parameters
        ----------
        ratio : float
            How full the limit is that everything was paused for.
        work_left_seconds : float
            Predicted seconds of work that waits, shared among the processes. One long chain can
            hold the ratio up when nothing else is left to do.
        now : float
            Monotonic seconds.
        """
        if ratio <= RESUME_RATIO:
            self.full_since = None
            self.full_by = ""
        if self.all_since is None or now - self.all_since < LEAST_PAUSE_SECONDS:
            return
        if ratio <= RESUME_RATIO or (work_left_seconds < LEAST_PAUSE_SECONDS and ratio < 1.0):
            self.end(now)

    def begin(self, refuser: str, now: float) -> None:
        """Pause everything now (draining)."""
        if self.all_since is None:
            self.all_since = now
        self.refuser = refuser

    def end(self, now: float) -> None:
        """Stop wanting everything paused."""
        if self.all_since is not None:
            self._paused_seconds += now - self.all_since
        self.all_since = None
        self.refuser = ""

    def reconcile(self, assigned: set[Partition], own: set[Partition], now: float) -> list[Command]:
        """Return the transitions from the actual to the desired state."""
        for partition in own:
            self._own_since.setdefault(partition, now)
        for partition in list(self._own_since):
            young = now - self._own_since[partition] < LEAST_PAUSE_SECONDS
            if partition not in own and (not young or partition not in assigned):
                del self._own_since[partition]
        desired = assigned if self.everything else assigned & set(self._own_since)
        commands: list[Command] = []
        to_pause = desired - self.paused
        to_resume = (self.paused - desired) & assigned
        if to_pause:
            self.pauses_total += 1
            commands.append(Pause(tuple(sorted(to_pause))))
        if to_resume:
            self.resumes_total += 1
            commands.append(Resume(tuple(sorted(to_resume))))
        self.paused = set(desired)
        return commands

    def assigned(self, partitions: tuple[Partition, ...], own: set[Partition]) -> list[Command]:
        """Put newly assigned partitions into the desired state, whatever the client remembers."""
        paused = {p for p in partitions if self.everything or p in own}
        running = set(partitions) - paused
        self.paused |= paused
        self.paused -= running
        commands: list[Command] = []
        if paused:
            commands.append(Pause(tuple(sorted(paused))))
        if running:
            commands.append(Resume(tuple(sorted(running))))
        return commands

    def forget(self, partitions: tuple[Partition, ...]) -> None:
        """Forget partitions that are no longer ours."""
        self.paused -= set(partitions)
        for partition in partitions:
            self._own_since.pop(partition, None)
