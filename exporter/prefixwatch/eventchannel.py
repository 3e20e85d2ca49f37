"""One engine's published events, in order: sequence gaps, refills, restarts, what cannot be read.

Knows nothing of sockets: messages come in, what it learns goes into the engine's tally.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from prefixwatch.eventdecoder import Batch, EventDecoder, MalformedError
from prefixwatch.figures.events import EventTally

BEHIND_SECONDS = 5.0
"""Events that were on their way for this much longer than the fastest ones: the reader falls behind."""

_SEQUENCE_BYTES = 8
_log = logging.getLogger(__name__)

Refill = Callable[[int, int], Iterable[tuple[int, bytes]]]
"""Return what a publisher still has of the batches first..end-1, as (sequence number, payload), ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatus:
    """What is known of one endpoint. Batches are one scheduler step each.

    `engine`: the rank that publishes there. `missed`: batches lost for good, `refilled`: got back.
    `lag`: seconds that the newest batch was on its way longer than the fastest one, None before
    any came. `is_from_start`: all events since the engine's start were seen.
    """

    endpoint: str
    engine: str
    is_connected: bool
    batches: int
    missed: int
    refilled: int
    restarts: int
    lag: float | None
    errors: Mapping[str, int]
    is_from_start: bool


class Channel:
    """Take one publisher's messages in order. `lock` is held while the tally changes.

    `engine` names the rank that is expected there; what the batches say counts. `clock` gives unix
    seconds.
    """

    def __init__(
        self,
        endpoint: str,
        engine: str,
        tally: EventTally,
        *,
        lock: AbstractContextManager[object],
        clock: Callable[[], float],
        refill: Refill | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.engine = engine
        self.tally = tally
        self.is_connected = False
        self.is_ready = False
        self._lock, self._clock, self._refill = lock, clock, refill
        self._decoder = EventDecoder()
        self._next: int | None = None
        self._batches = self._missed = self._refilled = self._restarts = 0
        self._errors: Counter[str] = Counter()
        self._told: set[str] = set()
        self._lag: float | None = None
        self._fastest = float("inf")
        self._began = clock()
        self._is_from_start = False

    def status(self) -> ChannelStatus:
        """Return what is known now."""
        return ChannelStatus(
            endpoint=self.endpoint, engine=self.engine, is_connected=self.is_connected, batches=self._batches,
            missed=self._missed, refilled=self._refilled, restarts=self._restarts, lag=self._lag,
            errors=dict(self._errors), is_from_start=self._is_from_start,
        )  # fmt: skip

    def receive(self, frames: Sequence[bytes]) -> None:
        """Take one message: topic, sequence number, payload. What is wrong with it is counted and told once."""
        if len(frames) != 3 or len(frames[1]) != _SEQUENCE_BYTES:
            self.fail("malformed_message", "a message is not topic, sequence number and payload")
            return
        number = int.from_bytes(frames[1])
        self._catch_up(number)
        self._next = number + 1
        batch = self._take(frames[2])
        if batch is not None:
            self._measure_lag(batch)
        self.is_ready = True

    def fail(self, reason: str, message: str) -> None:
        """Count an error; tell of it once, until `recover` names its reason."""
        self._errors[reason] += 1
        if reason not in self._told:
            self._told.add(reason)
            _log.warning("cache events: %s", message, extra=self._where | {"reason": reason})

    def recover(self, *reasons: str) -> None:
        """Let errors of these reasons be told again when they come back."""
        self._told.difference_update(reasons)

    @property
    def _where(self) -> dict[str, object]:
        return {"endpoint": self.endpoint, "engine": self.engine}

    def _catch_up(self, number: int) -> None:
        """Bring the tally up to a batch's sequence number."""
        if self._next is None:
            # What was published before this watch began is taken for the state: it is not this watch's to count.
            self._is_from_start = self._take_missing(0, number, counts_from=self._began) == 0
            if not self._is_from_start:
                with self._lock:
                    self.tally.joined_late()
        elif number < self._next:
            self._restarts += 1
            self._is_from_start = True
            _log.info("cache events: the engine's sequence began anew: it restarted", extra=self._where)
            with self._lock:
                self.tally.restarted()
            self._count_missing(0, number)
        elif number > self._next:
            self._count_missing(self._next, number)

    def _count_missing(self, first: int, end: int) -> None:
        missing = self._take_missing(first, end)
        self._missed += missing
        self._refilled += end - first - missing
        if missing:
            self.fail("gap", f"{missing} batches were lost before number {end}; a replay endpoint would give them back")
        else:
            self.recover("gap")

    def _take_missing(self, first: int, end: int, *, counts_from: float = 0.0) -> int:
        """Take the batches first..end-1 as far as they can be had; return how many cannot.

        `counts_from`: older ones (unix seconds) change the state and count nothing.
        """
        expected, taken = first, 0
        for number, payload in self._refill(first, end) if self._refill and end > first else ():
            if expected <= number < end:
                if number > expected:
                    self._doubt()
                self._take(payload, counts_from=counts_from)
                expected, taken = number + 1, taken + 1
        if expected < end:
            self._doubt()
        return end - first - taken

    def _doubt(self) -> None:
        with self._lock:
            self.tally.lost()

    def _take(self, payload: bytes, *, counts_from: float = 0.0) -> Batch | None:
        """Decode one batch and put it into the tally."""
        try:
            batch = self._decoder.decode(payload)
        except MalformedError as error:
            self.fail("malformed_message", str(error))
            self._doubt()
            return None
        if batch.malformed:
            self._errors["malformed_event"] += batch.malformed - 1
            self.fail("malformed_event", "an event of a known type has an unknown shape")
        if batch.rank is not None:
            self.engine = str(batch.rank)
        with self._lock:
            for event in batch.events:
                self.tally.observe(event)
            if batch.time < counts_from:
                self.tally.discard()
        self._batches += 1
        return batch

    def _measure_lag(self, batch: Batch) -> None:
        """Compare a batch's time on its way with the fastest: the two clocks need not agree."""
        taken = self._clock() - batch.time
        self._fastest = min(self._fastest, taken)
        self._lag = taken - self._fastest
        if self._lag > BEHIND_SECONDS:
            if "behind" not in self._told:
                self.fail("behind", f"this reader falls behind: events come {self._lag:.0f} s late")
        elif self._lag < BEHIND_SECONDS / 2:
            self.recover("behind")
