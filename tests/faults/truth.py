"""What a stand-in engine really did, kept beside what an exporter could see of it."""

import re
from collections import deque
from dataclasses import dataclass

from prefixwatch.demo.standin import StandIn

_COUNTERS = {
    "queried": rb"vllm:prefix_cache_queries_total",
    "hit": rb"vllm:prefix_cache_hits_total",
    "computed": rb'vllm:prompt_tokens_by_source_total(?=.*source="local_compute")',
    "generated": rb"vllm:generation_tokens_total",
}
_PATTERNS = {name: re.compile(rb"(?m)^" + text + rb"\S* (\S+)$") for name, text in _COUNTERS.items()}
Counts = dict[str, float]


def counts_of(page: bytes) -> Counts:
    """Return those of the counters that stand on a page."""
    return {name: float(found[1]) for name, pattern in _PATTERNS.items() if (found := pattern.search(page))}


@dataclass(frozen=True, slots=True)
class Finished:
    """All requests that had finished at one moment, summed up."""

    requests: int = 0
    hit_ratio: float = 0.0
    cold: int = 0
    mostly_cached: int = 0
    full: int = 0

    def since(self, other: "Finished") -> dict[str, float] | None:
        """Return the shares among those that finished in between, None where none did."""
        count = self.requests - other.requests
        if not count:
            return None
        names = ("hit_ratio", "cold", "mostly_cached", "full")
        return {name: (getattr(self, name) - getattr(other, name)) / count for name in names}


class Truth:
    """One stand-in's requests, and its counters as far as the polls that were accepted let an exporter see them."""

    def __init__(self, standin: StandIn) -> None:
        self._standin = standin
        self._finished = Finished()
        self._requests: dict[float, Finished] = {}
        self._seen: dict[float, Counts] = {}
        self._times: deque[float] = deque()
        self._process: object = None
        self._accepted = float("inf")
        self._last: Counts = {}
        self._sums: Counts = dict.fromkeys((*_COUNTERS, "restarts"), 0.0)

    def note(self, time: float, *, keep: float) -> None:
        """Note what has finished by now; forget what is older than `keep` seconds."""
        block = self._standin.scenario.config(self._standin.release).block_size
        so_far = self._finished
        for one in self._standin.requests:
            so_far = Finished(
                requests=so_far.requests + 1,
                hit_ratio=so_far.hit_ratio + one.cached / one.prompt,
                cold=so_far.cold + (one.cached == 0),
                mostly_cached=so_far.mostly_cached + (2 * one.cached >= one.prompt),
                full=so_far.full + (one.cached > 0 and one.prompt - one.cached <= block),
            )
        self._standin.requests.clear()
        self._standin.evictions.clear()
        self._finished = self._requests[time] = so_far
        self._times.append(time)
        while self._times[0] < time - keep:
            oldest = self._times.popleft()
            del self._requests[oldest]
            self._seen.pop(oldest, None)

    def accept(self, time: float, process: object, counts: Counts, *, born: float) -> None:
        """Note a page that was taken: which process wrote it, when that began, and its counters.

        Of another process than before only what it counted since is growth: all of it where it
        began since, else nothing.
        """
        is_other, is_new = process != self._process, born > self._accepted
        if not is_other:
            self._add({name: value - self._last.get(name, value) for name, value in counts.items()})
        elif is_new:
            self._add({**counts, "restarts": 1.0})
        self._last = counts if is_other else self._last | counts
        self._process, self._accepted = process, time
        self._seen[time] = dict(self._sums)

    def _add(self, grown: Counts) -> None:
        self._sums = {name: value + grown.get(name, 0.0) for name, value in self._sums.items()}

    def grown(self, start: float, end: float) -> Counts | None:
        """Return the increases between two accepted polls, None where one of them is too long ago."""
        if start not in self._seen or end not in self._seen:
            return None
        return {name: value - self._seen[start][name] for name, value in self._seen[end].items()}

    def finished(self, start: float, end: float) -> dict[str, float] | None:
        """Return the shares of the requests that really finished in between, read or not."""
        return self._requests[end].since(self._requests[start])
