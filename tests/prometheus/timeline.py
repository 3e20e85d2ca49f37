"""A long trace from recorded ones: one after the other, counters going on, now and then a restart."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from edge.engines import of_process, trace

_COUNTER = re.compile(rb"(?m)^(vllm:\S*?(?:_total|_bucket|_sum|_count)(?:\{.*\})?) (\S+)$")


@dataclass(kw_only=True)
class Timeline:
    """Play traces from `start` on. `restarts`: the positions of those before which the engine restarts."""

    traces: Sequence[str]
    start: float
    restarts: frozenset[int] = frozenset()
    _carried: dict[bytes, float] = field(default_factory=dict)

    def pages(self) -> Iterator[tuple[float, bytes]]:
        """Yield (time, page); times go on evenly over the joints."""
        now, process = self.start, self.start - 100
        for position, name in enumerate(self.traces):
            recorded = trace(name)
            if position in self.restarts:
                process = now - 1.5
                self._carried.clear()
            # The first page of a trace has counts from before it: they are no growth of ours.
            before = {} if position in self.restarts else _counters(recorded[0][1])
            base, page = now - recorded[0][0], b""
            for at, text in recorded:
                now = at + base
                page = of_process(_moved(text, self._carried, before), process)
                yield now, page
            self._carried = _counters(page)
            now += 1.0


def _moved(page: bytes, carried: Mapping[bytes, float], before: Mapping[bytes, float]) -> bytes:
    """Return the page with its counters where the last trace left them."""

    def line(match: re.Match[bytes]) -> bytes:
        name, value = match[1], float(match[2])
        return b"%b %a" % (name, value + carried.get(name, 0.0) - before.get(name, 0.0))

    return _COUNTER.sub(line, page)


def _counters(page: bytes) -> dict[bytes, float]:
    return {name: float(value) for name, value in _COUNTER.findall(page)}
