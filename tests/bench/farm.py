"""Many engines in one process, cheap to ask: pages of recorded traces whose numbers move on.

    python tests/bench/farm.py [--engines 1000] [--port 8100]

Engine i answers on an address of its own (`address_of`), all on one port. It plays one of the
recorded traces of a real vLLM over and over, begun at another second and on top of other counters, so
that no two engines say the same; a counter that moved in the recording moves here as it did.
`/served` on 127.0.0.1 tells what each engine said to whom: (unix seconds, queries, hits).
"""

import argparse
import asyncio
import json
import re
import socket
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from prefixwatch.trace import scrapes

TRACES = Path(__file__).parents[1] / "data" / "traces"
PLAYED = (
    "healthy", "mixed_long_warm", "mixed_short_warm", "thrash_low_usage", "divergent", "salted", "short_prompts",
    "mid_variable",
)  # fmt: skip
PERIOD = 1.0
"""Seconds between the pages of those recordings."""

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?P<rest>(?:\{.*\})?) (?P<value>\S+)")
_GROWING = ("_total", "_sum", "_count", "_bucket")
_MOMENTS = ("_created", "process_start_time_seconds")
_QUERIES, _HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"


def address_of(engine: int) -> str:
    """Return the loopback address of an engine."""
    return f"127.1.{engine // 250}.{engine % 250 + 1}"


class Recording:
    """Pages of one engine, as lines, made a template and a table of the numbers in it that ever change."""

    def __init__(self, pages: Sequence[Sequence[str]]) -> None:
        lines = list(pages[0])
        samples = [(number, match) for number, line in enumerate(lines) if (match := _SAMPLE.fullmatch(line))]
        numbers = [number for number, _ in samples]
        table = np.array([[float(page[number].rpartition(" ")[2]) for number in numbers] for page in pages])
        names = np.array([match["name"] for _, match in samples])
        is_moment = np.array([name.endswith(_MOMENTS) for name in names])
        is_moving = (table != table[0]).any(axis=0) | is_moment | np.isin(names, (_QUERIES, _HITS))
        for (number, match), moves in zip(samples, is_moving, strict=True):
            lines[number] = lines[number].replace("%", "%%")
            if moves:
                lines[number] = match["name"] + match["rest"].replace("%", "%%") + " %r"
        self._template = "\n".join(lines) + "\n"
        self._pages = table[:, is_moving]
        growing = np.array([name.endswith(_GROWING) and not name.endswith("_created") for name in names])
        self._growth = np.where(growing, table[-1] - table[0], 0.0)[is_moving]
        self._moments = is_moment[is_moving].astype(float)
        self._queries, self._hits = (int(np.flatnonzero(names[is_moving] == name)[0]) for name in (_QUERIES, _HITS))
        self._start = float(table[0, is_moment].max())

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read a recorded trace."""
        return cls([scrape.body.decode().splitlines() for scrape in scrapes(folder) if scrape.body is not None])

    def page(self, step: int, *, rounds: int, began: float) -> tuple[bytes, float, float]:
        """Return the page after `step` seconds on top of `rounds` rounds, its queries and its hits."""
        done, at = divmod(step, len(self._pages))
        values = self._pages[at] + (rounds + done) * self._growth + (began - self._start) * self._moments
        listed = values.tolist()
        return (self._template % tuple(listed)).encode(), listed[self._queries], listed[self._hits]


class Engine:
    """One engine, and what it said to whom: (unix seconds, queries, hits) by the client's name."""

    def __init__(self, number: int, recording: Recording, now: float) -> None:
        self._recording = recording
        self._shift, self._rounds = number * 7, number // len(PLAYED)
        self._began, self._birth = now - 3600.0 - number, now
        self.served: dict[str, list[tuple[float, float, float]]] = defaultdict(list)

    def page(self, client: str) -> bytes:
        now = time.time()
        step = int((now - self._birth) / PERIOD) + self._shift
        body, queries, hits = self._recording.page(step, rounds=self._rounds, began=self._began)
        self.served[client].append((now, queries, hits))
        return body


class Connection(asyncio.Protocol):
    """As much HTTP as scrapers need; the address asked tells the engine."""

    def __init__(self, engines: dict[str, Engine]) -> None:
        self._engines = engines
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**18)
        self._engine = self._engines.get(transport.get_extra_info("sockname")[0])

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while b"\r\n\r\n" in self._pending:
            head, _, self._pending = self._pending.partition(b"\r\n\r\n")
            status, kind, body = self._answer(head)
            start = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            self._transport.write(start.encode() + body)

    def _answer(self, head: bytes) -> tuple[str, str, bytes]:
        path = head.split(None, 2)[1]
        if path == b"/served":
            served = {address: engine.served for address, engine in self._engines.items()}
            return "200 OK", "application/json", json.dumps(served).encode()
        if self._engine is None or path != b"/metrics":
            return "404 Not Found", "text/plain", b"not found\n"
        agent = re.search(rb"(?im)^user-agent: *(\w+)", head)
        page = self._engine.page(agent[1].decode().lower() if agent else "")
        return "200 OK", "text/plain; version=0.0.4; charset=utf-8", page


async def serve(count: int, port: int, names: Sequence[str] = PLAYED) -> None:
    """Answer for `count` engines until cancelled."""
    recordings = [Recording.of(TRACES / name) for name in names]
    now = time.time()
    engines = {address_of(n): Engine(n, recordings[n % len(recordings)], now) for n in range(count)}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(engines), "0.0.0.0", port, backlog=2 * count)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=1000)
    parser.add_argument("--port", type=int, default=8100)
    options = parser.parse_args()
    asyncio.run(serve(options.engines, options.port))


if __name__ == "__main__":
    main()
