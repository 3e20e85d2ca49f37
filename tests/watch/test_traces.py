"""Traces of engines whose cause is known: recorded from real ones, and made by the stand-in."""

import functools
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import recorded
from prefixwatch.demo import scenarios
from prefixwatch.demo.offline import record
from prefixwatch.diagnosis import Cause, Diagnosis
from prefixwatch.figures.figure import Absent
from prefixwatch.figures.residency import Residency
from prefixwatch.page.reading import PageReading
from prefixwatch.snapshot import EngineFigures

# The engine restarts, is preempting, or there are two: some requests are counted on one side alone.
UNSTEADY = {"restart", "pressure", "two_engines"}
# Only the newest traffic shows the cause.
LAST_SECONDS = {"template_change": 20.0, "restart": 20.0, "reset": 20.0}
# What only the cache events could tell apart.
ALIKE = {"divergent_small_pool": {"insufficient_evidence"}, "salted": {"prompt_divergence"}}

SERVED = [name for name in recorded.NAMES if "token_hit_ratio" in recorded.truth(name) and name != "caching_disabled"]


def causes(found: Sequence[EngineFigures]) -> set[str]:
    assert found
    assert all(isinstance(one.diagnosis, Diagnosis) for one in found)
    return {str(one.diagnosis.cause) for one in found if isinstance(one.diagnosis, Diagnosis)}


@functools.cache
def whole(name: str) -> Sequence[EngineFigures]:
    """Return the figures of a whole recorded trace."""
    return recorded.figures(recorded.pages(name))


def assert_ratio(found: Sequence[EngineFigures], name: str) -> None:
    tolerance = 0.04 if name in UNSTEADY else 0.015
    for one in found:
        assert one.token_hit_ratio == pytest.approx(recorded.truth(name)["token_hit_ratio"], abs=tolerance)


@pytest.mark.parametrize("name", SERVED)
def test_token_hit_ratio(name: str) -> None:
    assert_ratio(whole(name), name)


@pytest.mark.parametrize("every", [2, 5])
@pytest.mark.parametrize("name", SERVED)
def test_token_hit_ratio_of_fewer_polls(name: str, every: int) -> None:
    assert_ratio(recorded.figures(recorded.pages(name)[::every]), name)


@pytest.mark.parametrize("name", ["idle", "caching_disabled"])
def test_without_lookups_there_is_no_ratio(name: str) -> None:
    (found,) = whole(name)
    assert isinstance(found.token_hit_ratio, Absent)


@pytest.mark.parametrize("name", recorded.NAMES)
def test_cause(name: str) -> None:
    seconds = LAST_SECONDS.get(name)
    found = whole(name) if seconds is None else recorded.figures(recorded.pages(name), seconds)
    assert causes(found) <= ALIKE.get(name, {recorded.truth(name)["cause"]})


@pytest.mark.parametrize("name", recorded.NAMES)
def test_cause_without_residency_is_right_or_not_told(name: str) -> None:
    found = recorded.figures(recorded.without_residency(recorded.pages(name)), LAST_SECONDS.get(name))
    assert causes(found) <= ALIKE.get(name, {recorded.truth(name)["cause"]}) | {"insufficient_evidence"}


@pytest.mark.parametrize("name", ["thrash_low_usage", "pressure", "divergent_small_pool"])
def test_turnover_is_how_long_blocks_live(name: str) -> None:
    (found,) = whole(name)
    assert isinstance(found.residency, Residency)
    assert found.turnover_seconds == pytest.approx(found.residency.mean_lifetime_seconds, rel=0.25)
    assert found.residency.mean_idle_seconds <= found.turnover_seconds, "it bounds how long an untouched one survives"


def nulls(value: Any, path: str = "") -> Iterator[str]:
    if value is None:
        yield path
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from nulls(part, f"{path}.{key}" if path else key)


@pytest.mark.parametrize("name", recorded.NAMES)
def test_every_null_has_its_reason(name: str) -> None:
    for engine in (one.to_json() for one in whole(name)):
        reasons = engine.pop("reasons")
        assert set(nulls(engine)) == set(reasons)
        assert all(reasons.values())


def test_a_low_usage_gauge_does_not_hide_eviction() -> None:
    (found,) = whole("thrash_low_usage")
    assert isinstance(found.kv_usage_max, float)
    assert found.kv_usage_max < 0.1
    assert causes([found]) == {Cause.EVICTION}


Made = tuple[Mapping[str, Any], tuple[PageReading, ...], float]


def made(folder: Path, name: str, seed: int, *, seconds: float = 30.0, **changes: Any) -> Made:
    """Make a trace; return its truth, its pages, and how many of the stored blocks had been evicted before."""
    known = dict(scenarios.SCENARIOS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenarios, "SCENARIOS", {**known, name: replace(known[name], **changes)})
        truth = record(name, folder, seed=seed, seconds=seconds)
    gone: set[str] = set()
    stored = again = 0
    with gzip.open(folder / "kv_events.jsonl.gz", "rt") as rows:
        for row in map(json.loads, rows):
            for block in row.get("stored", ()):
                stored, again = stored + 1, again + (block in gone)
                gone.discard(block)
            gone.update(row.get("removed", ()))
    return truth, recorded.pages_of(folder), again / max(stored, 1)


@pytest.mark.parametrize("name", sorted(set(scenarios.SCENARIOS) - {"pressure"}))
def test_stand_in(name: str, tmp_path: Path) -> None:
    """With and without residency the cause is right, or it is said that nothing tells."""
    truth, pages, _ = made(tmp_path, name, seed=3)
    allowed = {truth["cause"], "insufficient_evidence", *ALIKE.get(name, ())}
    found = recorded.figures(pages, LAST_SECONDS.get(name))
    assert causes(found) <= allowed
    assert causes(recorded.figures(recorded.without_residency(pages), LAST_SECONDS.get(name))) <= allowed
    if "token_hit_ratio" in truth and name not in (*UNSTEADY, "caching_disabled"):
        assert recorded.figures(pages)[0].token_hit_ratio == pytest.approx(truth["token_hit_ratio"], abs=0.015)


GOOD = {"healthy", "decode_bound"}


@pytest.mark.parametrize(
    ("name", "seed", "blocks", "most"),
    [
        pytest.param("thrash_low_usage", 1, 100, {"eviction"}, id="four times the pool"),
        pytest.param("thrash_low_usage", 1, 600, GOOD | {"insufficient_evidence"}, id="the working set fits"),
        pytest.param("pressure", 3, 160, {"eviction"}, id="running requests crowd the cache out"),
        pytest.param("pressure", 2, 160, GOOD, id="they hold half of it, and every prefix stays"),
        pytest.param("mid_variable", 1, 100, {"insufficient_evidence"}, id="tails are evicted, and never come back"),
        pytest.param("mixed_long_warm", 1, 200, GOOD, id="what is evicted was used once"),
        pytest.param("mixed_short_warm", 2, 60, {"insufficient_evidence"}, id="a small pool that is large enough"),
    ],
)
def test_eviction_is_what_the_events_show(name: str, seed: int, blocks: int, most: set[str], tmp_path: Path) -> None:
    """The residency histograms alone tell whether at least a fifth of the misses were avoidable."""
    fewer = {"rate": 8.0, "clients": 10} if name == "pressure" else {}
    _, pages, avoidable = made(tmp_path, name, seed, blocks=blocks, **fewer)
    assert (avoidable >= 0.2) is (most == {"eviction"})
    assert causes(recorded.figures(pages)) <= most


@pytest.mark.parametrize("seed", [1, 2])
def test_a_handful_of_requests_says_nothing_of_the_prompts(seed: int, tmp_path: Path) -> None:
    """The first request of each prefix misses, however much they share."""
    _, pages, _ = made(tmp_path, "healthy", seed, rate=0.12, seconds=60.0)
    found = recorded.figures(pages)
    assert causes(found) <= {"insufficient_evidence", "healthy", "warming_up"}
