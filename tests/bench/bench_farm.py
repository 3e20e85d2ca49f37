"""A farm of engines, polled by one exporter, beside it a real Prometheus scraping the same pages.

    python tests/bench/bench_farm.py [--engines 1000] [--minutes 10] [--asked 3] [--interval 5] [--no-prometheus]

The engines are those of farm.py: pages of recorded traces, about 700 lines, whose numbers move. First the exporter only
polls, as Prometheus only scrapes, and `/healthz` is asked for ten times a second, whose slowest answer says how long the event
loop stood still at most. In the `--asked` minutes after that `/metrics` is scraped every 15 s, and the page and the JSON
are asked for each minute. At the end what the exporter says of each engine is held against what the farm served: counters,
and the token hit ratio of the shortest window. Exit 1 where that differs.

The first minute (or a fifth of the time), until all engines are known, is left out; CPU is that of the whole process, as a
share of one core.
"""

import argparse
import asyncio
import json
import math
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import aiohttp
from farm import address_of
from processes import Usage, free_port, running
from prometheus_client.parser import text_string_to_metric_families

SCRAPE_SECONDS, LOOK_SECONDS, PROBE_SECONDS = 15.0, 60.0, 0.1
FILES_PER_ENGINE, OTHER_FILES = 6, 500
WINDOWS = ("1m", "5m", "1h")
SLACK, NEWEST = 2.0, 8
"""A window ends when a poll began, and the farm served its page up to so many seconds later; the page that the JSON is of
is one of so many of the newest, since it takes a while to say all of that. The ratio has to be the same to nine digits."""


@dataclass(slots=True)
class Watched:
    """What was measured while the farm ran."""

    answers: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    sizes: dict[str, int] = field(default_factory=dict)
    usages: dict[str, list[Usage]] = field(default_factory=lambda: defaultdict(list))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--asked", type=float, default=3.0)
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--no-prometheus", action="store_true")
    sys.exit(asyncio.run(run(parser.parse_args())))


async def run(options: argparse.Namespace) -> int:
    """Run the farm and print what was measured; return the exit status."""
    allow_files(FILES_PER_ENGINE * options.engines + OTHER_FILES)
    with tempfile.TemporaryDirectory() as folder:
        async with started(options, Path(folder)) as (pids, farm, exporter):
            timeout = aiohttp.ClientTimeout(total=120)
            async with aiohttp.ClientSession(timeout=timeout) as client:
                seconds = 60 * options.minutes
                polled = await watch(client, exporter, pids, seconds=seconds, warm_up=min(60.0, seconds / 5))
                asked = await watch(client, exporter, pids, seconds=60 * options.asked, asks=True)
                told = await said(client, exporter)
                served = await fetched(client, f"{farm}/served")
    faults = list(wrong(served, *told))
    print_tables(options, polled, asked, served)
    for fault in faults[:10]:
        print(f"WRONG  {fault}")
    print(f"truth: {len(served)} engines, {len(faults)} faults")
    return 1 if faults else 0


def allow_files(count: int) -> None:
    """Raise the limit of open files for this process and those it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        sys.exit(
            f"bench_farm: {count} open files are needed, {hard} are allowed: raise `ulimit -Hn`, or ask for fewer --engines"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@asynccontextmanager
async def started(options: argparse.Namespace, folder: Path) -> AsyncIterator[tuple[dict[str, int], str, str]]:
    """Start farm, exporter and Prometheus; yield their process ids, and the URLs of the first two."""
    port, listen = free_port(), f"127.0.0.1:{free_port()}"
    places = [f"{address_of(n)}:{port}" for n in range(options.engines)]
    (folder / "config.yaml").write_text(json.dumps({
        "targets": [{"url": f"http://{place}/metrics"} for place in places],
        "poll_interval": f"{options.interval:g}s", "windows": WINDOWS, "listen": listen,
    }))  # fmt: skip
    (folder / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": f"{options.interval:g}s", "scrape_timeout": f"{0.8 * options.interval:g}s"},
        "scrape_configs": [{"job_name": "engines", "static_configs": [{"targets": places}]}],
    }))  # fmt: skip
    python = sys.executable
    commands = {
        "farm": [python, Path(__file__).with_name("farm.py"), "--engines", options.engines, "--port", port],
        "exporter": [python, "-m", "prefixwatch", "run", "--config", folder / "config.yaml"],
    }
    if not options.no_prometheus:
        commands["Prometheus"] = [
            "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{free_port()}",
        ]  # fmt: skip
    urls = {"farm": f"http://127.0.0.1:{port}/served", "exporter": f"http://{listen}/healthz"}
    async with running(commands, folder, ready=urls) as pids:
        yield pids, f"http://127.0.0.1:{port}", f"http://{listen}"


async def watch(
    client: aiohttp.ClientSession,
    url: str,
    pids: Mapping[str, int],
    *,
    seconds: float,
    warm_up: float = 0.0,
    asks: bool = False,
) -> Watched:
    """Sample what the processes use; `asks`: and ask the exporter as Prometheus and people would."""
    watched = Watched()
    begin = time.monotonic()

    async def every(period: float, *paths: str) -> None:
        while time.monotonic() - begin < seconds:
            for path in paths:
                started = time.monotonic()
                body = await fetched(client, url + path, is_json=False)
                if started - begin >= warm_up:
                    watched.answers[path].append(time.monotonic() - started)
                    watched.sizes[path] = len(body)
            await asyncio.sleep(max(0.0, min(started + period, begin + seconds) - time.monotonic()))

    async def sample() -> None:
        await asyncio.sleep(warm_up)
        while time.monotonic() - begin < seconds:
            for name, pid in pids.items():
                watched.usages[name].append(Usage.of(pid))
            await asyncio.sleep(5.0)

    wanted = [every(PROBE_SECONDS, "/healthz"), sample()]
    if asks:
        wanted += every(SCRAPE_SECONDS, "/metrics"), every(LOOK_SECONDS, "/", "/api/v1/status")
    await asyncio.gather(*wanted)
    return watched


async def fetched(client: aiohttp.ClientSession, url: str, *, is_json: bool = True):
    async with client.get(url) as response:
        assert response.status == 200, f"{url}: HTTP {response.status}"
        body = await response.read()
    return json.loads(body) if is_json else body


async def said(client: aiohttp.ClientSession, url: str):
    """Return what the exporter says of each engine: samples of /metrics by name, the JSON over the shortest window."""
    status = await fetched(client, f"{url}/api/v1/status?window={WINDOWS[0]}")
    text = (await fetched(client, f"{url}/metrics", is_json=False)).decode()
    samples = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("window", WINDOWS[0]) == WINDOWS[0]:
                samples[sample.labels.get("target", "").partition(":")[0]][sample.name] = sample.value
    return samples, {target["target"].partition(":")[0]: target for target in status["targets"]}


def wrong(served, samples, status) -> Iterator[str]:
    """Name each engine of which the exporter says what the farm did not serve."""
    for address, by_client in served.items():
        pages = by_client.get("python", [])
        told, engines = samples.get(address, {}), status.get(address, {}).get("engines", [])
        if told.get("prefixwatch_up") != 1 or len(engines) != 1:
            yield f"{address}: not up"
            continue
        if "prefixwatch_poll_errors_total" in told:
            yield f"{address}: a poll failed"
        if (told["prefixwatch_queried_tokens_total"], told["prefixwatch_hit_tokens_total"]) not in {
            (queries, hits) for _, queries, hits in pages
        }:
            yield f"{address}: counters that the farm never served"
        ratio, length = engines[0]["token_hit_ratio"], engines[0]["window_seconds"]
        possible = possible_ratios(pages, length)
        is_right = any(math.isnan(one) if ratio is None else abs(one - ratio) < 1e-9 for one in possible)
        if not is_right:
            yield f"{address}: a token hit ratio of {ratio} over {length:.2f} s; served were {possible}"


def possible_ratios(pages: Sequence[tuple[float, float, float]], length: float) -> list[float]:
    """Return the ratios over those pages that lie as far apart as the window is long, up to one of the newest; NaN: idle."""
    return [
        (hits - first_hits) / (queries - first_queries) if queries > first_queries else math.nan
        for end, queries, hits in pages[-NEWEST:]
        for start, first_queries, first_hits in pages
        if start < end and abs(end - start - length) < SLACK
    ]


def print_tables(options: argparse.Namespace, polled: Watched, asked: Watched, served) -> None:
    print(f"{options.engines} engines, every {options.interval:g} s, three windows;"
          f" load of the machine {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores")  # fmt: skip
    gaps = [b[0] - a[0] for by_client in served.values() for a, b in pairwise(by_client.get("python", []))]
    print(f"polls: {len(gaps) + len(served)}; the longest time between two of an engine: {max(gaps):.2f} s;"
          f" missed (two intervals without one): {sum(gap > 2 * options.interval for gap in gaps)}")  # fmt: skip
    print_table(f"{options.minutes:g} minutes, polled alone", polled)
    print_table(f"{options.asked:g} minutes, asked too", asked)


def print_table(title: str, watched: Watched) -> None:
    cores = {name: Usage.cores(usages) for name, usages in watched.usages.items()}
    print(f"\n{title:24} {'cores':>7} {'MB then':>8} {'MB now':>8} {'MB an hour':>11}")
    for name, usages in watched.usages.items():
        first, last, slope = usages[0].megabytes, usages[-1].megabytes, Usage.slope(usages)
        print(f"  {name:22} {cores[name]:7.3f} {first:8.0f} {last:8.0f} {slope:11.1f}")
    if "Prometheus" in cores:
        print(f"  CPU of the exporter / Prometheus: {cores['exporter'] / cores['Prometheus']:.2f}")
    print(f"  {'asked for':22} {'answers':>7} {'median s':>8} {'longest s':>8} {'kB':>11}")
    for path, seconds in watched.answers.items():
        median, longest, size = statistics.median(seconds), max(seconds), watched.sizes[path] / 1e3
        print(f"  {path:22} {len(seconds):7} {median:8.3f} {longest:8.3f} {size:11.0f}")


if __name__ == "__main__":
    main()
