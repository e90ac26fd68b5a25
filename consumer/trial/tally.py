"""What came of the records that were tried.

Owns the counts, the costs by size class, and the records and outputs that are shown. Pure: it is
told what happened. Its size does not grow with the number of records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from consumer.core.events import ChunkOutcome, Output, RecordFault
from consumer.core.reasons import RetryReason
from consumer.trial.records import TriedRecord

#: Records that are named; of more there are counts by reason.
MOST_NAMED = 1_000


@dataclass(frozen=True, slots=True)
class NamedRecord:
    """A record that was not done."""

    record: TriedRecord
    #: "failed" or "retry"
    outcome: str
    reason: str
    error_class: str
    text: str


@dataclass(slots=True)
class ClassCost:
    """What the records of one size class cost in the chunks that came back."""

    records: int = 0
    #: of the decoded geometries
    vertices: int = 0
    #: decode and handle
    seconds: float = 0.0
    #: summed over the chunks
    working_bytes: int = 0

    @property
    def seconds_per_record(self) -> float:
        """Mean seconds of one record."""
        return self.seconds / self.records

    @property
    def seconds_per_vertex(self) -> float | None:
        """Mean seconds of one vertex; None when there was none."""
        return self.seconds / self.vertices if self.vertices else None

    @property
    def working_bytes_per_record(self) -> float:
        """Mean working bytes of one record."""
        return self.working_bytes / self.records


@dataclass(slots=True)
class Tally:
    """Counts, costs and what is shown.

    Parameters
    ----------
    most_outputs : int
        Outputs that are kept to be shown.
    """

    most_outputs: int = 0
    done: int = 0
    #: by reason
    failed: Counter[str] = field(default_factory=Counter)
    #: by reason
    retry: Counter[str] = field(default_factory=Counter)
    named: list[NamedRecord] = field(default_factory=list)
    costs: dict[int, ClassCost] = field(default_factory=dict)
    outputs: int = 0
    #: bytes of key and value
    output_bytes: int = 0
    first_outputs: list[tuple[TriedRecord, Output]] = field(default_factory=list)
    #: bytes of key and value of every record with an outcome
    payload_bytes: int = 0

    @property
    def records(self) -> int:
        """Records with an outcome."""
        return self.done + self.failed.total() + self.retry.total()

    def seconds_per_record(self, size_class: int) -> float | None:
        """Mean seconds of one record of a class; None as long as there was none."""
        cost = self.costs.get(size_class)
        return None if cost is None else cost.seconds_per_record

    def finished(self, records: Sequence[TriedRecord], outcome: ChunkOutcome) -> list[TriedRecord]:
        """Count a chunk of one size class that came back.

        Returns
        -------
        list of TriedRecord
            Those to be tried alone, of which nothing was counted: memory ran short for all of
            them together.
        """
        retry = {fault.index: fault for fault in outcome.retry}
        failed = {f.index: f for f in outcome.failed if f.index not in retry}
        again = []
        for index, record in enumerate(records):
            if index in failed:
                self._count(record, "failed", failed[index])
            elif index not in retry:
                self.done += 1
                self.payload_bytes += record.payload_bytes
            elif len(records) > 1 and retry[index].reason == RetryReason.SUSPECT_MEMORY:
                again.append(record)
            else:
                self._count(record, "retry", retry[index])
        for output in outcome.outputs:
            if output.index not in failed and output.index not in retry:
                self._output(records[output.index], output)
        if not again:
            self._cost(records, outcome)
        return again

    def lost(self, record: TriedRecord, reason: str, text: str) -> None:
        """Count a record that cost its process, alone."""
        self._count(record, "failed", RecordFault(0, reason, "", text))

    def _count(self, record: TriedRecord, outcome: str, fault: RecordFault) -> None:
        self.payload_bytes += record.payload_bytes
        reasons = self.failed if outcome == "failed" else self.retry
        reasons[fault.reason] += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(
                NamedRecord(record, outcome, fault.reason, fault.error_class, fault.error_text)
            )

    def _output(self, record: TriedRecord, output: Output) -> None:
        self.outputs += 1
        self.output_bytes += len(output.key or b"") + len(output.value or b"")
        if len(self.first_outputs) < self.most_outputs:
            self.first_outputs.append((record, output))

    def _cost(self, records: Sequence[TriedRecord], outcome: ChunkOutcome) -> None:
        if outcome.seconds is None:
            return
        cost = self.costs.setdefault(records[0].size_class, ClassCost())
        cost.records += len(records)
        cost.vertices += outcome.exact_vertices
        cost.seconds += outcome.seconds
        cost.working_bytes += outcome.working_bytes or 0
