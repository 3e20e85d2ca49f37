"""Compare the stand-in engine with recorded traces of the real one.

    python tests/bench/compare_standin.py [TRACES_DIR] [--seconds S]

TRACES_DIR (default tests/data/traces) holds traces in vllm-lab's layout. Each trace of one of the
compared scenarios is generated again by the stand-in, with the trace's own seed, period and
length, and three figures are read from both pages in the same way:

- token hit ratio: increase of hits over increase of queries;
- turnover: pool tokens over tokens written (computed and generated) a second;
- cold: the share of requests with nothing cached, from the responses' usage.

Exit 1 when a ratio differs by more than 0.03 or a turnover by more than 20 %.
"""

import argparse
import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prefixwatch.demo.offline import record

COMPARED = ("healthy", "mixed_long_warm", "thrash_low_usage", "divergent", "short_prompts")
RATIO_LIMIT, TURNOVER_LIMIT = 0.03, 0.20
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a trace says; turnover in seconds."""

    requests: int
    hit_ratio: float
    turnover: float
    cold: float


def scrapes(folder: Path) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield the time of each page of a trace, and its vLLM samples summed over their labels."""
    text = gzip.decompress((folder / "scrapes.txt.gz").read_bytes()).decode()
    for chunk in text.split("# SCRAPE ")[1:]:
        head, _, page = chunk.partition("\n")
        sums: dict[str, float] = {}
        for line in page.splitlines():
            name, brace, rest = line.partition("{")
            if not brace or not name.startswith("vllm:") or name.endswith("_bucket"):
                continue
            value = float(rest.rpartition(" ")[2])
            if name == "vllm:cache_config_info":
                name, value = "pool", float(rest.partition('kv_cache_size_tokens="')[2].partition('"')[0])
            sums[name] = sums.get(name, 0.0) + value
        if sums:
            yield float(head.split()[0]), sums


def figures(folder: Path) -> Figures:
    """Read a trace over the time in which it had traffic."""
    pages = list(scrapes(folder))
    counts = [page["vllm:prompt_tokens_total"] for _, page in pages]
    start = max(index for index, count in enumerate(counts) if count == counts[0])
    end = counts.index(counts[-1])
    (since, first), (until, last) = pages[start], pages[end]

    def increase(name: str) -> float:
        return last[name] - first[name]

    computed = increase("vllm:request_prefill_kv_computed_tokens_sum")
    written = (computed + increase("vllm:generation_tokens_total")) / (until - since)
    rows = [json.loads(line) for line in gzip.decompress((folder / "requests.jsonl.gz").read_bytes()).splitlines()]
    queries = increase("vllm:prefix_cache_queries_total")
    return Figures(
        requests=len(rows),
        hit_ratio=increase("vllm:prefix_cache_hits_total") / queries if queries else 0.0,
        turnover=last["pool"] / written,
        cold=sum(row["cached"] == 0 for row in rows) / len(rows),
    )


def compare(folder: Path, seconds: float | None) -> tuple[str, bool]:
    """Return a trace's row of the table, and whether the stand-in is near enough."""
    truth = json.loads((folder / "truth.json").read_text())
    recorded = figures(folder)
    if seconds is None:
        rows = gzip.decompress((folder / "requests.jsonl.gz").read_bytes()).splitlines()
        sent = [json.loads(row)["sent"] for row in rows]
        seconds = max(sent) - min(sent)
    with tempfile.TemporaryDirectory() as scratch:
        record(truth["scenario"], scratch, seed=truth["seed"], seconds=seconds, period=truth["period_seconds"])
        standin = figures(Path(scratch))
    hit = standin.hit_ratio - recorded.hit_ratio
    cold = standin.cold - recorded.cold
    turnover = standin.turnover / recorded.turnover - 1
    is_near = abs(hit) <= RATIO_LIMIT and abs(cold) <= RATIO_LIMIT and abs(turnover) <= TURNOVER_LIMIT
    row = (
        f"{truth['scenario']:17} {truth['seed']:4} {standin.requests:5}/{recorded.requests:<5}"
        f" {standin.hit_ratio:7.4f} {recorded.hit_ratio:7.4f} {hit:+7.4f}"
        f" {standin.cold:7.4f} {recorded.cold:7.4f} {cold:+7.4f}"
        f" {standin.turnover:8.2f} {recorded.turnover:8.2f} {turnover:+7.1%}  {'ok' if is_near else 'FAR'}"
    )
    return row, is_near


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="?", type=Path, default=ROOT / "tests" / "data" / "traces")
    parser.add_argument("--seconds", type=float, help="length of the stand-in's traffic (default: the trace's own)")
    arguments = parser.parse_args()
    folders = [
        path.parent
        for path in sorted(arguments.traces.glob("*/truth.json"))
        if json.loads(path.read_text())["scenario"] in COMPARED
    ]
    if not folders:
        print(f"compare_standin: {arguments.traces}: no trace of {', '.join(COMPARED)} there", file=sys.stderr)
        return 2
    print(
        f"{'scenario':17} {'seed':>4} {'requests':^11} {'hit ratio: stand-in, real, diff':^23}"
        f" {'cold: stand-in, real, diff':^23} {'turnover s: stand-in, real, diff':^25}"
    )
    results = [compare(folder, arguments.seconds) for folder in folders]
    print("\n".join(row for row, _ in results))
    return 0 if all(is_near for _, is_near in results) else 1


if __name__ == "__main__":
    sys.exit(main())
