"""Traces: the layout, determinism, and truth that agrees with the pages."""

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest

from prefixwatch.demo.errors import DemoError
from prefixwatch.demo.offline import record

FILES = ("scrapes.txt.gz", "requests.jsonl.gz", "kv_events.jsonl.gz", "truth.json")


def lines(path: Path) -> list[str]:
    """Return the lines of a compressed file."""
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        record("thrash_low_usage", tmp_path / name, seed=3, seconds=5)
    for file in FILES:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


def test_another_seed_gives_another_trace(tmp_path: Path) -> None:
    one = record("healthy", tmp_path / "one", seed=3, seconds=5)
    assert one != record("healthy", tmp_path / "other", seed=4, seconds=5)


def test_the_layout(tmp_path: Path) -> None:
    truth = record("healthy", tmp_path, seed=11, seconds=10, period=0.5)
    assert json.loads((tmp_path / "truth.json").read_text()) == truth
    scrapes = [line for line in lines(tmp_path / "scrapes.txt.gz") if line.startswith("# SCRAPE ")]
    times = [float(line.split()[2]) for line in scrapes]
    assert {round(later - earlier, 3) for earlier, later in pairwise(times)} == {0.5}
    requests = [json.loads(line) for line in lines(tmp_path / "requests.jsonl.gz")]
    assert list(requests[0]) == ["t", "sent", "prompt", "cached", "output", "ttft", "latency"]
    assert [row["t"] for row in requests] == sorted(row["t"] for row in requests)
    assert times[0] < requests[0]["sent"] < requests[-1]["t"] < times[-1]
    assert truth["requests"] == len(requests)
    event = json.loads(lines(tmp_path / "kv_events.jsonl.gz")[0])
    assert list(event) == ["t", "engine", "stored", "parent", "tokens", "keys"]


def test_a_restart_leaves_failed_scrapes(tmp_path: Path) -> None:
    record("restart", tmp_path, seed=1, seconds=20, down_seconds=3)
    failed = [line for line in lines(tmp_path / "scrapes.txt.gz") if " error " in line]
    assert len(failed) == 3


def test_the_events_of_a_thrashing_engine_store_again_what_was_removed(tmp_path: Path) -> None:
    record("thrash_low_usage", tmp_path, seed=11, seconds=30)
    removed: set[str] = set()
    stored = again = 0
    for line in lines(tmp_path / "kv_events.jsonl.gz"):
        event = json.loads(line)
        removed |= set(event.get("removed", ()))
        stored += len(event.get("stored", ()))
        again += len(removed & set(event.get("stored", ())))
    assert again / stored > 0.5


def test_salts_show_in_the_keys_of_equal_content(tmp_path: Path) -> None:
    record("salted", tmp_path, seed=11, seconds=5)
    events = [json.loads(line) for line in lines(tmp_path / "kv_events.jsonl.gz")]
    firsts = [event for event in events if event["parent"] is None]
    assert len({event["keys"][0] for event in firsts}) == len(firsts)
    assert len({event["tokens"][0] for event in firsts}) < len(firsts)


@pytest.mark.parametrize(("scenario", "release"), [("unknown", "0.32.0"), ("healthy", "1.0")])
def test_unknown_names_write_nothing(tmp_path: Path, scenario: str, release: str) -> None:
    with pytest.raises(DemoError):
        record(scenario, tmp_path / "out", release=release)
    assert not (tmp_path / "out").exists()
