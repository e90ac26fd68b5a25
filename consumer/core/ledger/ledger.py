"""The ledger: integer counts of everything in flight, and its value in both inequalities.

Owns the sums by state, the chain table, the heaviest records that wait and what the processes
hold. It charges and releases; it decides nothing, changes no piece, and its own fields are set by
its methods alone. A release subtracts exactly the row that was charged, so every sum is exactly
zero when all is settled, and a new cost model values everything held anew.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from consumer.core.ledger.counts import heaviest_costs, heaviest_units
from consumer.core.ledger.in_flight import Piece, PieceState
from consumer.core.reasons import KillReason
from sizing.charge import Charge, effective_processes, room_for_work_bytes
from sizing.classes import CLASS_COUNT
from sizing.load import LOAD_WIDTH, PAYLOAD_BYTES, RECORDS, VERTICES, Load
from sizing.model import CostModel, prior_model

_STATES = 4


class ChainTable:
    """Loads of the ordered chains, in rows, so that the longest is one vector operation."""

    def __init__(self) -> None:
        self.loads = np.zeros((64, LOAD_WIDTH), dtype=np.int64)
        self.seconds = np.zeros(64)
        self._free = list(range(63, -1, -1))

    def open(self) -> int:
        """Return a free row."""
        if not self._free:
            size = len(self.loads)
            self.loads = np.concatenate([self.loads, np.zeros_like(self.loads)])
            self.seconds = np.concatenate([self.seconds, np.zeros_like(self.seconds)])
            self._free = list(range(2 * size - 1, size - 1, -1))
        return self._free.pop()

    def close(self, row: int) -> None:
        """Give a row back; its sums must be zero."""
        self.loads[row] = 0
        self.seconds[row] = 0.0
        self._free.append(row)

    def add(self, pieces: list[Piece]) -> None:
        """Add valued pieces of ordered chains, each chain at most once."""
        if len(pieces) == 1:
            row = pieces[0].chain.row
            self.loads[row] += pieces[0].load
            self.seconds[row] += pieces[0].seconds
        elif pieces:
            rows = [piece.chain.row for piece in pieces]
            self.loads[rows] += np.array([piece.load for piece in pieces])
            self.seconds[rows] += [piece.seconds for piece in pieces]

    def remove(self, pieces: list[Piece]) -> None:
        """Take valued pieces from their ordered chains; a chain may come more than once."""
        if len(pieces) == 1:
            row = pieces[0].chain.row
            self.loads[row] -= pieces[0].load
            self.seconds[row] -= pieces[0].seconds
        elif pieces:
            rows = [piece.chain.row for piece in pieces]
            np.subtract.at(self.loads, rows, np.array([piece.load for piece in pieces]))
            np.subtract.at(self.seconds, rows, [piece.seconds for piece in pieces])

    def revalue(self, model: CostModel) -> None:
        """Value every chain with a new model."""
        self.seconds = model.seconds_of_rows(self.loads)

    def longest_seconds(self) -> float:
        """Seconds of the longest chain."""
        return float(self.seconds.max())


class HeaviestWaiting:
    """Largest size of each heavy class among what waits.

    The heaps hold tokens, not pieces, so that a payload is freed when its piece is settled.
    """

    def __init__(self) -> None:
        self._heaps: list[list[tuple[int, int, list[bool]]]] = [[] for _ in range(CLASS_COUNT)]
        self._sizes_allowed = [64] * CLASS_COUNT
        self._tokens: dict[Piece, list[bool]] = {}
        self._counter = 0

    def add(self, piece: Piece) -> None:
        """Register a waiting piece that has heavy records."""
        token = self._tokens[piece] = [True]
        for size_class, units in piece.heavy_units.items():
            self._counter += 1
            heap = self._heaps[size_class]
            heapq.heappush(heap, (-units, self._counter, token))
            if len(heap) > self._sizes_allowed[size_class]:
                alive = [entry for entry in heap if entry[2][0]]
                heapq.heapify(alive)
                self._heaps[size_class] = alive
                self._sizes_allowed[size_class] = 64 + 2 * len(alive)

    def remove(self, piece: Piece) -> None:
        """Forget a piece that was registered and waits no longer."""
        self._tokens.pop(piece)[0] = False

    def units(self, size_class: int) -> int:
        """Largest size of a heavy class; 0 for none."""
        heap = self._heaps[size_class]
        while heap and not heap[0][2][0]:
            heapq.heappop(heap)
        return -heap[0][0] if heap else 0

    def heaviest(self, waiting: Load, model: CostModel) -> tuple[float, float]:
        """Working bytes and seconds of the heaviest record that waits."""
        return heaviest_costs(heaviest_units(waiting, self.units), model)


@dataclass(slots=True, eq=False)
class InsideChunk:
    """A chunk in a handler process."""

    chunk_id: int
    pieces: list[Piece]
    load: Load
    predicted_seconds: float
    predicted_bytes: float
    submitted_at: float
    #: when the process began it (the one before it ended)
    started_at: float
    heavy: bool
    #: predicted when it was submitted, for the ratios of observed to predicted
    sample_bytes: bool = False


@dataclass(slots=True, eq=False)
class ProcessState:
    """One handler process as the core sees it."""

    number: int
    ready: bool = False
    chunks: list[InsideChunk] = field(default_factory=list)
    baseline_bytes: int = 0
    resident_bytes: int = 0
    #: why it is being killed; None when it is not
    killing: KillReason | None = None
    deaths_in_row: int = 0
    start_at: float | None = 0.0

    @property
    def keeps_bytes(self) -> float:
        """What the process keeps over its baseline, whether it works or not."""
        return float(max(0, self.resident_bytes - self.baseline_bytes))

    def inside_bytes(self) -> float:
        """Charge of the process: the larger of what it keeps and of its larger chunk."""
        return max(self.keeps_bytes, max((c.predicted_bytes for c in self.chunks), default=0.0))


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """Records that would be admitted, as a charge beside what is in flight."""

    load: Load
    #: bytes that admitting them takes from what is fetched and not admitted
    pending_bytes: int
    #: of the heaviest of them
    heaviest_bytes: float
    heaviest_seconds: float
    #: longest chain with them
    longest_chain_seconds: float


class Ledger:
    """Sums of everything in flight.

    Parameters
    ----------
    processes : int
        Handler processes.
    chunk_seconds : float
        Predicted work of one chunk.
    """

    def __init__(self, processes: int, chunk_seconds: float) -> None:
        self.totals = np.zeros((_STATES, LOAD_WIDTH), dtype=np.int64)
        self.chains = ChainTable()
        self.heaviest_waiting = HeaviestWaiting()
        self.processes = [ProcessState(number) for number in range(processes)]
        self.model = prior_model()
        self.available_bytes = 0
        #: raw bytes fetched and not admitted
        self.pending_bytes = 0
        #: outputs and dead letters beside their input, not acknowledged
        self.delivery_bytes = 0
        #: predicted work of one chunk of light records
        self.chunk_seconds = chunk_seconds

    # -- charging ---------------------------------------------------------------------------

    def charge(self, piece: Piece) -> None:
        """Count a piece in its state; waiting and inside pieces count for their chain."""
        self.totals[piece.state] += piece.load
        if piece.chain.ordered and piece.state <= PieceState.INSIDE:
            piece.value(self.model)
            self.chains.add([piece])
        if piece.state is PieceState.WAITING and piece.heavy_units:
            self.heaviest_waiting.add(piece)

    def charge_waiting(self, pieces: list[Piece], load: Load) -> None:
        """Count the waiting pieces of one run, whose sum is ``load``; each is of another chain."""
        self.totals[PieceState.WAITING] += load
        for piece in pieces:
            piece.value(self.model)
            if piece.heavy_units:
                self.heaviest_waiting.add(piece)
        self.chains.add([piece for piece in pieces if piece.chain.ordered])

    def release(self, piece: Piece) -> None:
        """Take a piece out of the sums of the state that it is charged in."""
        self.totals[piece.state] -= piece.load
        if piece.chain.ordered and piece.state <= PieceState.INSIDE:
            piece.value(self.model)
            self.chains.remove([piece])
        if piece.state is PieceState.WAITING and piece.heavy_units:
            self.heaviest_waiting.remove(piece)

    def release_inside(self, pieces: list[Piece], load: Load) -> None:
        """Take all pieces of a chunk, whose sum is ``load``, out of the sums."""
        self.totals[PieceState.INSIDE] -= load
        for piece in pieces:
            piece.value(self.model)
        self.chains.remove([piece for piece in pieces if piece.chain.ordered])

    def enter_process(self, pieces: list[Piece], load: Load) -> None:
        """Move the sums of a chunk's pieces, together ``load``, from waiting to inside."""
        self.totals[PieceState.WAITING] -= load
        self.totals[PieceState.INSIDE] += load
        for piece in pieces:
            if piece.heavy_units:
                self.heaviest_waiting.remove(piece)

    def pending_cost(self, load: Load) -> int:
        """Held bytes of records that are fetched and not admitted."""
        return int(self.model.held_bytes(load))

    def hold_pending(self, load: Load) -> None:
        """Count the held bytes of records that are fetched and not admitted."""
        self.pending_bytes += self.pending_cost(load)

    def release_pending(self, load: Load) -> None:
        """Take records that were counted so, and are admitted or let go, out again."""
        self.pending_bytes -= self.pending_cost(load)

    def hold_delivery(self, held_bytes: int) -> None:
        """Count an output or dead letter beside its input."""
        self.delivery_bytes += held_bytes

    def release_delivery(self, held_bytes: int) -> None:
        """Take one that is acknowledged or let go out again."""
        self.delivery_bytes -= held_bytes

    # -- what holds from now on -----------------------------------------------------------------

    def use_model(self, model: CostModel) -> None:
        """Value everything with new rates."""
        self.model = model
        self.chains.revalue(model)
        for process in self.processes:
            for chunk in process.chunks:
                chunk.predicted_bytes = model.working_bytes(chunk.load)

    def use_available_bytes(self, available_bytes: int) -> None:
        """Measure everything against another memory."""
        self.available_bytes = available_bytes

    def use_chunk_seconds(self, chunk_seconds: float) -> None:
        """Make chunks of light records so long."""
        self.chunk_seconds = chunk_seconds

    # -- sums -------------------------------------------------------------------------------

    @property
    def in_flight(self) -> Load:
        """Counts of everything charged and not released."""
        total: Load = self.totals.sum(axis=0)
        return total

    @property
    def waiting(self) -> Load:
        """Counts of what waits for a process."""
        row: Load = self.totals[PieceState.WAITING]
        return row

    @property
    def inside(self) -> Load:
        """Counts of what is in handler processes."""
        row: Load = self.totals[PieceState.INSIDE]
        return row

    @property
    def empty(self) -> bool:
        """Whether nothing at all is in flight."""
        return not self.totals[:, RECORDS].any()

    @property
    def idle_processes(self) -> bool:
        """Whether nothing is inside any process."""
        return not any(process.chunks for process in self.processes)

    def inside_bytes(self) -> float:
        """Charge of all processes."""
        return sum(process.inside_bytes() for process in self.processes)

    def held_bytes(self) -> float:
        """Raw bytes of all in flight, of what is fetched and of what is not acknowledged."""
        return self.model.held_bytes(self.in_flight) + self.pending_bytes + self.delivery_bytes

    def value(self, candidate: Candidate | None = None) -> Charge:
        """Value what is in flight, with records that would be admitted beside it if given."""
        model, processes = self.model, len(self.processes)
        working, held = self.waiting + self.inside, self.in_flight
        held_bytes = float(self.pending_bytes + self.delivery_bytes)
        heaviest_bytes, heaviest_seconds = self.heaviest_waiting.heaviest(self.waiting, model)
        if candidate is None:
            longest = self.chains.longest_seconds()
        else:
            working, held = working + candidate.load, held + candidate.load
            held_bytes -= candidate.pending_bytes
            heaviest_bytes = max(heaviest_bytes, candidate.heaviest_bytes)
            heaviest_seconds = max(heaviest_seconds, candidate.heaviest_seconds)
            longest = candidate.longest_chain_seconds
        available = self.available_bytes
        inside_bytes = self.inside_bytes()
        room = room_for_work_bytes(inside_bytes, heaviest_bytes, processes, available)
        return Charge(
            held=held,
            working=working,
            held_bytes=held_bytes + model.held_bytes(held),
            inside_bytes=inside_bytes,
            room_bytes=room,
            seconds=model.seconds(working),
            longest_chain_seconds=max(longest, heaviest_seconds),
            effective_processes=effective_processes(
                # With no memory known yet, the room alone says what may work at once.
                min(room, available) or room,
                model.mean_working_bytes(working),
                processes,
            ),
            parent_seconds_per_message=model.parent_seconds_per_message,
            chunk_seconds=self.chunk_seconds,
        )

    def counts(self) -> dict[str, tuple[int, int, int]]:
        """Return records, vertices and payload bytes by state, for checks and people."""
        return {
            state.name.lower(): (
                int(self.totals[state][RECORDS]),
                int(self.totals[state][VERTICES]),
                int(self.totals[state][PAYLOAD_BYTES]),
            )
            for state in list(PieceState)[:_STATES]
        }
