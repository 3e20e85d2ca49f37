"""Before and after: what changed, judged by the traffic's own variation."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import recorded
from prefixwatch.comparison import MIN_POINTS, Comparison, compared
from prefixwatch.demo.offline import record
from prefixwatch.demo.traffic import Shape
from prefixwatch.figures.figure import Absent
from prefixwatch.page.reading import PageReading


def cut(pages: Sequence[PageReading], share: float = 0.5) -> Comparison:
    """Compare what came before a moment of a trace with what came after it."""
    start, end = pages[0].time, pages[-1].time
    moment = start + share * (end - start)
    before = recorded.watched(page for page in pages if page.time <= moment)
    return compared(before, recorded.watched(pages), after_seconds=end - moment)[0]


def test_a_changed_template_is_named() -> None:
    found = cut(recorded.pages("template_change"))
    assert {"token_hit_ratio", "cached_prompt_ratio", "request_hit_ratio", "cold_request_ratio"} <= set(found.changes)
    ratio = found.differences["token_hit_ratio"]
    assert not isinstance(ratio.before, Absent)
    assert not isinstance(ratio.after, Absent)
    assert ratio.before - ratio.after > 0.5
    assert not {"hit_ratio_ceiling", "prompt_tokens_per_request", "requests_per_second"} & set(found.changes)


STEADY = [name for name in recorded.NAMES if name not in ("template_change", "restart", "reset")]


@pytest.mark.parametrize("name", STEADY)
def test_nothing_changed_in_the_middle_of_steady_traffic(name: str) -> None:
    """Not even the cold start of the first half is more than it varies by itself."""
    assert cut(recorded.pages(name)).changes == []


@pytest.mark.parametrize("name", ["idle", "caching_disabled"])
def test_what_is_absent_on_both_sides_did_not_change(name: str) -> None:
    found = cut(recorded.pages(name))
    assert found.differences["token_hit_ratio"].is_change is None
    assert "token_hit_ratio" not in found.changes


def simulated(folder: Path, seed: int, name: str = "healthy", shape: Shape | None = None) -> Sequence[PageReading]:
    """Return the pages of steady traffic, its cold start and end left out."""
    record(name, folder, seed=seed, seconds=60.0, shape=shape)
    return recorded.pages_of(folder)[10:60]


SHAPE = Shape(prefix=512, question=96, groups=6, prefixes=20, rate=8.0)


@pytest.mark.parametrize(("name", "seed"), [("healthy", 1), ("mixed_long_warm", 3)])
def test_the_same_traffic_with_another_seed_did_not_change(name: str, seed: int, tmp_path: Path) -> None:
    sides = [simulated(tmp_path / str(one), one, name, SHAPE) for one in (seed, seed + 100)]
    (found,) = compared(*(recorded.watched(side) for side in sides))
    assert found.changes == []


def test_longer_prompts_are_named_and_so_is_what_follows(tmp_path: Path) -> None:
    longer = Shape(prefix=512, question=480, groups=6, rate=8.0)
    before = recorded.watched(simulated(tmp_path / "a", 1, shape=SHAPE))
    after = recorded.watched(simulated(tmp_path / "b", 2, shape=longer))
    (found,) = compared(before, after)
    assert {"token_hit_ratio", "prompt_tokens_per_request"} <= set(found.changes)
    assert "requests_per_second" not in found.changes


def test_a_figure_that_appears_is_a_change() -> None:
    before, after = recorded.watched(recorded.pages("caching_disabled")), recorded.watched(recorded.pages("healthy"))
    (found,) = compared(before, after)
    one = found.differences["token_hit_ratio"]
    assert isinstance(one.before, Absent)
    assert one.is_change is True
    assert one.standard_error is None


def test_a_small_difference_does_not_matter_however_sure_it_is() -> None:
    """Prompts of one length, over and over: no step differs from another."""
    for name in ("short_prompts", "divergent"):
        ratio = cut(recorded.pages(name)).differences["token_hit_ratio"]
        assert (ratio.before, ratio.after, ratio.standard_error) == (0.0, 0.0, 0.0)
        assert ratio.is_change is False
    assert MIN_POINTS > 0


def test_too_few_steps_judge_nothing() -> None:
    found = cut(recorded.pages("healthy")[10:16])
    assert found.changes == []
    assert found.differences["token_hit_ratio"].is_change is None


def test_peaks_are_shown_and_not_judged() -> None:
    found = cut(recorded.pages("pressure")).differences["kv_usage_max"]
    assert isinstance(found.before, float)
    assert (found.is_change, found.standard_error) == (None, None)


def test_json_has_its_reasons() -> None:
    found = cut(recorded.pages("template_change"))
    document = found.to_json()
    assert document["changes"] == found.changes
    assert document["diagnosis"] == {"before": "healthy", "after": "prompt_divergence"}
    assert set(document["figures"]) == set(found.differences)
    absent = set()
    for name, one in document["figures"].items():
        absent |= {f"{name}.{side}" for side in ("before", "after") if one[side] is None}
        is_whole = one["before"] is not None and one["after"] is not None
        assert one["difference"] == (one["after"] - one["before"] if is_whole else None)
    assert absent == set(document["reasons"])
    assert "external_hit_ratio.before" in absent
    assert all(document["reasons"].values())


def test_engines_are_compared_with_themselves() -> None:
    watch = recorded.watched(recorded.pages("two_engines"))
    assert [one.engine for one in compared(watch, watch)] == ["0", "1"]
    assert all(one.changes == [] for one in compared(watch, watch))


def test_one_engine_a_side_is_a_pair_whatever_it_is_called() -> None:
    pages = recorded.pages("healthy")
    before, after = recorded.watched(pages), recorded.watched(pages)
    after.engines = {("renamed", "7"): next(iter(after.engines.values()))}
    (found,) = compared(before, after)
    assert (found.model_name, found.engine) == ("renamed", "7")
    after.engines |= {("another", "8"): next(iter(after.engines.values()))}
    assert compared(before, after) == []
