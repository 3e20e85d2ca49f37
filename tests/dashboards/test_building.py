"""Building boards: what is unknown is refused, and the same source gives the same bytes."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import palette, runbooks
from lib.errors import BoardError
from lib.layout import WIDTH, Beside, Cell, Stack, beside
from lib.metrics import ENGINE, alerts, of_engine, rate, ratio, raw, series
from lib.panels import Column, Line, table
from prefixwatch.diagnosis import Cause

GENERATE = Path(__file__).parents[2] / "dashboards" / "generate.py"


def generate(*arguments: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, GENERATE, *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )  # fmt: skip


def test_the_committed_files_are_current() -> None:
    done = generate("--check")
    assert done.returncode == 0, done.stderr


def test_a_stale_file_and_one_too_many_are_named(tmp_path: Path) -> None:
    assert generate("--out", str(tmp_path), seed="1").returncode == 0
    for name in ("prefixwatch-fleet.json", "another.json"):
        (tmp_path / name).write_text("{}")
    done = generate("--check", "--out", str(tmp_path), seed="2")
    assert done.returncode == 1
    assert "another.json, prefixwatch-fleet.json" in done.stderr


@pytest.mark.parametrize(
    ("build", "said"),
    [
        pytest.param(lambda: raw("token_hit_ration"), "no metric token_hit_ration", id="metric"),
        pytest.param(lambda: series("model:prefixwatch_hits:rate5m"), "no recording rule model:prefixwatch_hits:rate5m", id="record"),
        pytest.param(lambda: rate("model", "hit_tokens", "7m"), "no recording rule", id="recorded window"),
        pytest.param(lambda: raw("token_hit_ratio", windows="5m"), "has no label windows", id="label"),
        pytest.param(lambda: raw("token_hit_ratio", window="7m"), 'window is never "7m"', id="window"),
        pytest.param(lambda: raw("diagnosis", cause="evictions"), 'cause is never "evictions"', id="cause"),
        pytest.param(lambda: ratio("model", "hit_tokens_per_queried_token", "5m", bound="lower"), "has no label bound", id="label of a record"),
        pytest.param(lambda: str(raw("hit_tokens_total")), "take its rate", id="counter as it is"),
        pytest.param(lambda: raw("token_hit_ratio").rate(), "is no counter", id="rate of a gauge"),
        pytest.param(lambda: rate("model", "hit_tokens", "5m").sum_by("target"), "has no label target", id="aggregation"),
        pytest.param(lambda: rate("model", "hit_tokens", "5m").minus(rate("engine", "hit_tokens", "5m")), "different labels", id="two levels"),
        pytest.param(lambda: Line(query=of_engine("pool_tokens"), name="{{window}}", colour=""), "has no label window", id="legend"),
        pytest.param(
            lambda: table("t", Column(name="Model", label="model_name"), Column(name="Up", query=raw("up").max_by("target")), about="", empty=""),
            "has no label model_name", id="column",
        ),
        pytest.param(lambda: runbooks.runbook("PrefixCacheNothing"), "no alert PrefixCacheNothing", id="runbook"),
    ],
)  # fmt: skip
def test_what_is_unknown_is_refused(build, said: str) -> None:
    with pytest.raises(BoardError) as refused:
        build()
    assert said in str(refused.value)


def test_runbooks_are_linked_where_their_address_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runbooks.runbook("PrefixCacheNoReuse") == "`alerts/runbooks/PrefixCacheNoReuse.md`"
    assert runbooks.links() == ()
    monkeypatch.setattr(runbooks, "settings", lambda: {"links": {"runbooks": {"value": "https://example.org/r/"}}})
    assert runbooks.runbook("PrefixCacheNoReuse") == "[PrefixCacheNoReuse](https://example.org/r/PrefixCacheNoReuse.md)"
    assert 'https://example.org/r/$1.md"' in str(runbooks.with_runbook(alerts(alertstate="firing")))
    assert runbooks.links()


def test_an_engine_that_is_watched_twice_counts_once() -> None:
    assert str(of_engine("pool_tokens")).startswith(f"max by ({', '.join(ENGINE)}) (prefixwatch_pool_tokens{{")


def _boxes():
    return st.recursive(
        st.builds(Cell, st.just("panel"), st.integers(1, 9)),
        lambda inner: (
            st.builds(Beside, st.lists(inner, min_size=1, max_size=3))
            | st.builds(Stack, st.lists(inner, min_size=1, max_size=3))
        ),
        max_leaves=8,
    )


@given(_boxes())
def test_places_lie_in_the_grid_and_apart(box) -> None:
    taken = set()
    for place in box.places(WIDTH):
        assert place.x + place.w <= WIDTH
        assert place.y + place.h <= box.height
        cells = set(itertools.product(range(place.x, place.x + place.w), range(place.y, place.y + place.h)))
        assert not cells & taken
        taken |= cells


def test_shares_must_fit() -> None:
    with pytest.raises(ValueError, match="2 boxes, and 3 shares"):
        beside("a", "b", shares=(1, 2, 3))


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
BLINDNESS = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
TOGETHER = {
    "causes": {name: colour for name, (_, colour) in palette.CAUSES.items()},
    "levels": {"tokens": palette.TOKENS, "requests": palette.REQUESTS, "limit": palette.LIMIT},
    "sources": {"computed": palette.PROMPTS, "cached": palette.GOOD},
    "requests": {"cold": palette.PROMPTS, "mostly": palette.REQUESTS, "fully": palette.GOOD},
    "survival": {"evicted": palette.MEMORY, "reused": palette.GOOD, "turnover": palette.LIMIT},
    "time": {"prefill": palette.PROMPTS, "decode": palette.DECODE},
    "latency": {"waiting": palette.WAITING, "ratio": palette.TOKENS},
}


def lab(colour: str, blindness: str | None) -> np.ndarray:
    """Return a colour in CIE L*a*b*, as someone sees it."""
    srgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    if blindness:
        linear = np.clip(np.array(BLINDNESS[blindness]) @ linear, 0, 1)
    to_xyz = np.array(((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505)))
    xyz = to_xyz @ linear / np.array((0.9505, 1.0, 1.089))
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array((116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])))


@pytest.mark.parametrize("blindness", [None, *BLINDNESS])
@pytest.mark.parametrize("group", TOGETHER)
def test_colours_are_told_apart(group: str, blindness: str | None) -> None:
    """A difference of 10 is seen at a glance; of 2.3, side by side."""
    for (one, first), (other, second) in itertools.combinations(TOGETHER[group].items(), 2):
        distance = float(np.linalg.norm(lab(first, blindness) - lab(second, blindness)))
        assert distance > 10, f"{one} and {other}: {distance:.1f}"


def test_every_cause_has_a_word_and_a_colour_of_its_own() -> None:
    assert set(palette.CAUSES) == set(Cause)
    words, colours = zip(*palette.CAUSES.values(), strict=True)
    assert len(set(words)) == len(set(colours)) == len(Cause)
