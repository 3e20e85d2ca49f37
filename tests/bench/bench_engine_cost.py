"""What a poll a second costs a running vLLM: requests a second, and time to first token, with and without.

    python tests/bench/bench_engine_cost.py http://localhost:8000 [--rounds 15] [--phase 20] [--clients 4]

Clients send completions one after the other, streamed, of 500 prompt tokens of which most are shared. A round is two
phases in random order, one with a poll of /metrics every `--period` seconds, one without; both begin with
a few seconds that do not count. Compared is within rounds, so that what drifts slowly cancels out. The interval
holds 95 % of 10,000 resamplings of the rounds: where it holds 0, no difference was measured.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

SETTLE_SECONDS = 2.0
PROMPT_TOKENS, SHARED_TOKENS, OUTPUT_TOKENS = 500, 380, 8
TOKENS = range(3, 500)
RESAMPLINGS = 10_000
SEED = 1


@dataclass(frozen=True, slots=True)
class Phase:
    """What a phase measured: requests a second, and the median and the 95th percentile of time to first token."""

    rate: float
    first_token: float
    late_first_token: float

    @classmethod
    def of(cls, first_tokens: Sequence[float], seconds: float) -> "Phase":
        if len(first_tokens) < 2:
            raise SystemExit("bench_engine_cost: fewer than two requests in a phase: make --phase longer")
        late = statistics.quantiles(first_tokens, n=20, method="inclusive")[-1]
        return cls(len(first_tokens) / seconds, statistics.median(first_tokens), late)


class Load:
    """Clients that keep an engine busy; `first_tokens` is what they saw since it was last emptied."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        self._session, self._url, self._model = session, url, model
        self._random = random.Random(SEED)
        self._shared = [self._tokens(SHARED_TOKENS) for _ in range(4)]
        self.first_tokens: list[float] = []

    def _tokens(self, count: int) -> list[int]:
        return self._random.choices(TOKENS, k=count)

    async def run(self) -> None:
        """Send request after request until cancelled."""
        while True:
            prompt = self._random.choice(self._shared) + self._tokens(PROMPT_TOKENS - SHARED_TOKENS)
            body = {
                "model": self._model, "prompt": prompt, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True,
                "temperature": 0, "stream": True,
            }  # fmt: skip
            started, first = time.monotonic(), None
            async with self._session.post(f"{self._url}/v1/completions", json=body) as response:
                if response.status != 200:
                    raise SystemExit(f"{self._url}: HTTP {response.status}: {(await response.text())[:200]}")
                async for line in response.content:
                    if first is None and line.startswith(b"data:"):
                        first = time.monotonic() - started
            if first is not None:
                self.first_tokens.append(first)


async def poll(session: aiohttp.ClientSession, url: str, period: float) -> None:
    """Ask for /metrics as the exporter does, until cancelled."""
    while True:
        started = time.monotonic()
        async with session.get(f"{url}/metrics", headers={"Accept-Encoding": "identity"}) as response:
            await response.read()
        await asyncio.sleep(max(0.0, started + period - time.monotonic()))


async def phase(load: Load, session: aiohttp.ClientSession, options: argparse.Namespace, *, is_polled: bool) -> Phase:
    """Measure one phase."""
    polling = asyncio.create_task(poll(session, options.url, options.period)) if is_polled else None
    try:
        await asyncio.sleep(SETTLE_SECONDS)
        load.first_tokens.clear()
        started = time.monotonic()
        await asyncio.sleep(options.phase)
        return Phase.of(list(load.first_tokens), time.monotonic() - started)
    finally:
        if polling is not None:
            polling.cancel()
            await asyncio.wait([polling])


async def run(options: argparse.Namespace) -> list[tuple[Phase, Phase]]:
    """Return what each round measured: without and with polls."""
    order = random.Random(SEED)
    rounds = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:
        async with session.get(f"{options.url}/v1/models") as response:
            model = json.loads(await response.read())["data"][0]["id"]
        load = Load(session, options.url, model)
        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(load.run()) for _ in range(options.clients)]
            await asyncio.sleep(SETTLE_SECONDS)
            for _ in range(options.rounds):
                found = {}
                for is_polled in order.sample([False, True], 2):
                    found[is_polled] = await phase(load, session, options, is_polled=is_polled)
                rounds.append((found[False], found[True]))
            for client in clients:
                client.cancel()
    return rounds


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return what holds 95 % of the means of resampled rounds."""
    source = random.Random(SEED)
    means = sorted(statistics.fmean(source.choices(differences, k=len(differences))) for _ in range(RESAMPLINGS))
    return means[int(0.025 * RESAMPLINGS)], means[int(0.975 * RESAMPLINGS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="a running vLLM, without /metrics")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--phase", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--period", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    if options.url is None:
        print("not run: it needs a vLLM; give the URL of one")
        return
    options.url = options.url.rstrip("/")
    rounds = asyncio.run(run(options))
    print(
        f"{len(rounds)} rounds of 2 x {options.phase:g} s, {options.clients} clients, a poll every {options.period:g} s"
    )
    print(f"{'':26} {'without':>9} {'with':>9} {'difference, 95 % interval':>34}")
    for name, field, unit in (
        ("requests a second", "rate", 1.0),
        ("first token, median, ms", "first_token", 1e3),
        ("first token, 95 %, ms", "late_first_token", 1e3),
    ):
        without, polled = ([unit * getattr(pair[side], field) for pair in rounds] for side in (0, 1))
        differences = [b - a for a, b in zip(without, polled, strict=True)]
        mean, (low, high) = statistics.fmean(without), interval(differences)
        print(
            f"{name:26} {mean:9.2f} {statistics.fmean(polled):9.2f} {statistics.fmean(differences):+9.3f}"
            f" ({low:+.3f} to {high:+.3f}), {100 * low / mean:+.1f} to {100 * high / mean:+.1f} %"
        )


if __name__ == "__main__":
    main()
