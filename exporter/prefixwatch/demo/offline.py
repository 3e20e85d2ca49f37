"""Write a trace in the layout of the recorded ones without waiting: simulated time only."""

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prefixwatch.demo.pool import CacheEvent, Removed, Stored
from prefixwatch.demo.releases import LATEST
from prefixwatch.demo.request import FIRST_TOKEN_ID, Finished, Prompt
from prefixwatch.demo.scenarios import Scenario, scenario_named
from prefixwatch.demo.standin import StandIn
from prefixwatch.demo.traffic import Shape

EPOCH = 1_800_000_000.0
_DRAIN_SECONDS = 60.0

Truth = dict[str, object]


def record(
    scenario: str,
    out: Path | str,
    *,
    seed: int = 1,
    seconds: float = 60.0,
    period: float = 1.0,
    release: str = LATEST,
    shape: Shape | None = None,
    down_seconds: float = 10.0,
    kv_cache_metrics_sample: float | None = 1.0,
) -> Truth:
    """Record ``seconds`` of a scenario's traffic, scraped every ``period`` seconds.

    Writes scrapes.txt.gz, requests.jsonl.gz, kv_events.jsonl.gz and truth.json to ``out`` and
    returns the truth. The same arguments give the same bytes. Raises DemoError for an unknown
    scenario or release, OSError where ``out`` cannot be written.
    """
    chosen = scenario_named(scenario)
    recording = _Recording()
    recording.standin = StandIn(
        chosen,
        seed=seed,
        half_time=seconds / 2,
        release=release,
        down_seconds=down_seconds,
        kv_cache_metrics_sample=kv_cache_metrics_sample,
        unix=_unix,
        on_event=recording.add_event,
        kept=None,
    )
    recording.run(seconds=seconds, period=period, shape=shape)
    truth = _truth(chosen, recording.requests, seed=seed, period=period, release=release)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "scrapes.txt.gz", recording.scrapes)
    _write(
        folder / "requests.jsonl.gz",
        (json.dumps(request_row(request, _unix)) + "\n" for request in recording.requests),
    )
    _write(folder / "kv_events.jsonl.gz", (json.dumps(row) + "\n" for row in recording.events))
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return truth


def request_row(request: Finished, unix: Callable[[float], float]) -> dict[str, float | int]:
    """Return a finished request as a trace states it; ``unix`` maps simulated to unix seconds."""
    return {
        "t": round(unix(request.at), 3),
        "sent": round(unix(request.sent), 3),
        "prompt": request.prompt,
        "cached": request.cached,
        "output": request.output,
        "ttft": round(request.ttft, 4),
        "latency": round(request.latency, 4),
    }


def event_row(engine: int, event: CacheEvent, unix: Callable[[float], float]) -> dict[str, object]:
    """Return a cache event as a trace states it: hashes and digests, never tokens."""
    row: dict[str, object] = {"t": round(unix(event.at), 3), "engine": engine}
    if isinstance(event, Stored):
        row["stored"] = [key.hash[:8].hex() for key in event.keys]
        row["parent"] = event.parent[:8].hex() if event.parent else None
        row["tokens"] = [key.content.hex() for key in event.keys]
        row["keys"] = [key.extra.hex() if key.extra else None for key in event.keys]
    elif isinstance(event, Removed):
        row["removed"] = [event.hash[:8].hex()]
    else:
        row["cleared"] = True
    return row


class _Recording:
    """What is scraped from a stand-in whose clock starts at the epoch."""

    standin: StandIn

    def __init__(self) -> None:
        self.scrapes: list[str] = []
        self.events: list[dict[str, object]] = []
        self.requests: list[Finished] = []
        self._next_scrape = 0.0

    def add_event(self, engine: int, event: CacheEvent) -> None:
        self.events.append(event_row(engine, event, _unix))

    def run(self, *, seconds: float, period: float, shape: Shape | None) -> None:
        standin = self.standin
        # One request that warms the engine up: it stays in the counters, not in the truth.
        standin.send(Prompt(tokens=[FIRST_TOKEN_ID + token for token in range(40)], max_tokens=2))
        standin.advance(1.0)
        standin.requests.clear()
        self.events.clear()
        self._next_scrape = standin.now
        self._run_to(standin.now + 2 * period, period)
        standin.start(shape=shape)
        self._run_to(standin.now + seconds, period)
        standin.stop()
        drained = standin.now + _DRAIN_SECONDS
        while standin.in_flight and standin.now < drained:
            self._run_to(standin.now + period, period)
        self._run_to(standin.now + 2 * period, period)
        self.requests = sorted(standin.requests, key=lambda done: done.at)

    def _run_to(self, until: float, period: float) -> None:
        while self._next_scrape <= until:
            self.standin.advance(self._next_scrape)
            self._scrape()
            self._next_scrape += period
        self.standin.advance(until)

    def _scrape(self) -> None:
        at = _unix(self.standin.now)
        if self.standin.is_up:
            self.scrapes.append(f"# SCRAPE {at:.3f}\n{self.standin.page().decode()}")
        else:
            self.scrapes.append(f"# SCRAPE {at:.3f} error ClientConnectorError\n")


def _unix(now: float) -> float:
    return EPOCH + now


def _truth(scenario: Scenario, requests: Sequence[Finished], *, seed: int, period: float, release: str) -> Truth:
    block = scenario.config(release).block_size
    truth: Truth = {
        "scenario": scenario.name,
        "seed": seed,
        "cause": scenario.cause,
        "note": scenario.sees,
        "release": release,
        "block_size": block,
        "pool_blocks": scenario.blocks,
        "period_seconds": period,
        "requests": len(requests),
    }
    if requests:
        count, prompt = len(requests), sum(request.prompt for request in requests)
        truth |= {
            "token_hit_ratio": sum(request.cached for request in requests) / prompt,
            "request_hit_ratio_mean": sum(request.cached / request.prompt for request in requests) / count,
            "cold_request_ratio": sum(not request.cached for request in requests) / count,
            "mostly_cached_request_ratio": sum(2 * r.cached >= r.prompt for r in requests) / count,
            "full_request_ratio": sum(r.cached > 0 and r.prompt - r.cached <= block for r in requests) / count,
            "output_per_prompt_token": sum(request.output for request in requests) / prompt,
        }
    return truth


def _write(path: Path, lines: Iterable[str]) -> None:
    # No time and no name in the header: the same trace is the same bytes.
    path.write_bytes(gzip.compress("".join(lines).encode(), compresslevel=6, mtime=0))
