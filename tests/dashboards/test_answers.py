"""A real Prometheus, loaded with engines whose cause is known: what the boards say of them."""

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dashboards.boards_as_json import ALL_TARGETS, BOARDS, titled
from dashboards.database import serving
from dashboards.loaded import BY_HAND, CLUSTERS, SPAN, STANDIN, Loaded, fill
from drawing.answers import Answered, Server, annotated, answered, asked, substituted
from drawing.tables import tabulated
from lib.palette import CAUSE_RANKS
from prefixwatch.diagnosis import Cause
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.snapshot import EngineFigures
from preview import preview

# Where another scenario than the healthy one is what a query is for; whole panels, or one of their queries.
FOR = {
    "Alerts firing": BY_HAND, "Firing alerts": BY_HAND, "Avoidable misses": STANDIN, "Avoidable misses over time": STANDIN,
    "Working set": STANDIN, "Blocks stored and removed": STANDIN, "What if the pool were larger": STANDIN, "Split by key": STANDIN,
    "Targets file": BY_HAND, "Cache events": BY_HAND, "Found in a KV connector": BY_HAND,
    "Tokens loaded from a KV connector": BY_HAND,
    "Late reuses": "thrash_low_usage", "How long blocks survive, and when they come back": "thrash_low_usage",
    "Turnover against residency and reuse": "thrash_low_usage",
    "Prefill saved": "mixed_long_warm", "Prefill: spent and saved": "mixed_long_warm",
    ("Polls and cache events that failed, by reason", "A"): "restart", ("Polls and cache events that failed, by reason", "B"): BY_HAND, "Targets down": BY_HAND, "What skews the figures": BY_HAND,
}  # fmt: skip

# What is 0 or stands still without traffic, and is measured: the pool, the usage, the exporter's own state.
MEASURED_WHEN_IDLE = {
    "Usage, highest": "no request holds a block", "Usage and preemptions": "no request holds a block",
    "Where the time of requests goes": "no second is spent", "Prefill: spent and saved": "no second is spent",
    "Usage by running requests": "no request holds a block", "The queue": "nobody waits", "How long polls take": "polls go on",
    "Targets": "polls go on", "Replicas": "usage, cause and no lookups; the ratios are empty",
    "Models": "the cause, and no requests; the ratios are empty",
}  # fmt: skip


@pytest.fixture(scope="module", name="loaded")
def _loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    for program in ("prometheus", "promtool"):
        assert shutil.which(program), f"these tests need {program}: see tests/tools.sh"
    return fill(tmp_path_factory.mktemp("prometheus"))


@pytest.fixture(scope="module", name="url")
def _url(loaded: Loaded) -> Iterator[str]:
    with serving(loaded.folder) as url:
        yield url


@pytest.fixture(scope="module", name="server")
def _server(url: str) -> Server:
    return Server(url)


@pytest.fixture(scope="module", name="all_answers")
def _all_answers(server: Server) -> Mapping[str, list[tuple[str, Answered]]]:
    return {
        cluster: [
            (uid, one) for uid, board in BOARDS.items() for one in answered(board, server, SPAN, {"cluster": cluster})
        ]
        for cluster in CLUSTERS
    }


def test_every_query_runs_everywhere_and_gives_numbers(all_answers) -> None:
    for cluster, panels in all_answers.items():
        for uid, panel in panels:
            values = [value for found in panel.answers for series in found for _, value in series.points]
            assert all(math.isfinite(value) for value in values), f"{cluster}: {uid}: {panel.title}"


@pytest.mark.parametrize(
    ("uid", "panel", "target"),
    [pytest.param(*one, id=f"{one[0]}-{one[1]['title']}-{one[2]['refId']}") for one in ALL_TARGETS],
)
def test_each_query_answers_in_the_scenario_that_it_is_for(server: Server, uid, panel, target) -> None:
    cluster = FOR.get((panel["title"], target["refId"])) or FOR.get(panel["title"], "healthy")
    assert asked(target, server, SPAN, {"cluster": cluster}), (
        f"{panel['title']}: {substituted(target['expr'], {'cluster': cluster})}"
    )


def test_no_panel_is_always_empty(all_answers) -> None:
    titles = {
        (uid, one.title) for panels in all_answers.values() for uid, one in panels if one.kind not in ("row", "text")
    }
    answering = {(uid, one.title) for panels in all_answers.values() for uid, one in panels if any(one.answers)}
    assert titles - answering == set()


def test_idle_is_absence(all_answers) -> None:
    """Without traffic a ratio or a duration is not 0: there is none."""
    for uid, panel in all_answers["idle"]:
        if panel.kind in ("row", "text") or panel.title in MEASURED_WHEN_IDLE:
            continue
        units = [panel.panel["fieldConfig"]["defaults"].get("unit")]
        if units[0] in ("percentunit", "s"):
            assert not any(panel.answers), f"{uid}: {panel.title}: {panel.answers}"


@pytest.mark.parametrize(
    ("cluster", "cause"),
    [
        ("healthy", Cause.HEALTHY), ("thrash_low_usage", Cause.EVICTION), (STANDIN, Cause.EVICTION), ("pressure", Cause.EVICTION),
        ("decode_bound", Cause.DECODE_BOUND), ("short_prompts", Cause.SHORT_PROMPTS),
        ("caching_disabled", Cause.CACHING_DISABLED), ("idle", Cause.NO_TRAFFIC),
    ],
)  # fmt: skip
def test_the_cause_is_on_the_first_tile(server: Server, cluster: str, cause: Cause) -> None:
    for board, title in (("prefixwatch-overview", "Why"), ("prefixwatch-diagnosis", "Cause")):
        assert _one(server, board, title, cluster) == CAUSE_RANKS[cause]


def test_the_walk_marks_one_step(all_answers) -> None:
    marks = [
        found[0][0].points[-1][1]
        for _, one in all_answers["thrash_low_usage"]
        if one.title == "This?"
        for found in [one.answers]
    ]
    assert marks == [0, 0, 0, 2, 0, 0], "steps 1, 2, 3, 5, 6 and 7"


FIGURES = [
    ("prefixwatch-overview", "Token hit ratio", "token_hit_ratio"),
    ("prefixwatch-overview", "Request hit ratio", "request_hit_ratio"),
    ("prefixwatch-diagnosis", "Ceiling", "hit_ratio_ceiling"),
    ("prefixwatch-diagnosis", "Usage, highest", "kv_usage_max"),
    ("prefixwatch-diagnosis", "Avoidable misses", "avoidable_miss_ratio"),
    ("prefixwatch-kv-pool", "Working set", "working_set_ratio"),
    ("prefixwatch-diagnosis", "Prefill share", "prefill_share"),
    ("prefixwatch-diagnosis", "Output per prompt", "output_per_prompt_token"),
    ("prefixwatch-kv-pool", "Pool", "pool_tokens"),
    ("prefixwatch-kv-pool", "Turnover", "turnover_seconds"),
]


@pytest.mark.parametrize(
    "cluster", ["thrash_low_usage", "template_change", "pressure", "mixed_long_warm", "short_prompts", STANDIN]
)
def test_the_boards_say_what_the_exporter_says(loaded: Loaded, server: Server, cluster: str) -> None:
    figures = _figures(loaded, cluster)
    compared = 0
    for board, title, name in FIGURES:
        ours = getattr(figures, name)
        ours = ours.estimate if isinstance(ours, Estimate) else ours
        theirs = _one(server, board, title, cluster)
        if isinstance(ours, Absent):
            assert theirs is None, f"{title}: {ours.reason}"
            continue
        assert theirs == pytest.approx(ours, abs=0.01), title
        compared += 1
    assert compared >= 8


@pytest.mark.parametrize("cluster", ["thrash_low_usage", "pressure", "mixed_long_warm", STANDIN])
def test_shares_of_requests_are_those_of_the_exporters_counters(loaded: Loaded, server: Server, cluster: str) -> None:
    """The window's own figure fits all intervals anew; a counter is never revised. Both lie within the bounds."""
    own = loaded.counters[cluster, "gpu-1:8000"]
    first, last = (own[max(at for at in own if at <= moment)] for moment in (SPAN.end - 300, SPAN.end))
    ours = (last["cold_requests/estimate"] - first["cold_requests/estimate"]) / (last["requests"] - first["requests"])
    bounds = _figures(loaded, cluster).cold_request_ratio
    for board in ("prefixwatch-overview", "prefixwatch-diagnosis"):
        theirs = _one(server, board, "Cold requests", cluster)
        assert theirs == pytest.approx(ours, abs=0.01)
        assert bounds.lower - 0.01 <= theirs <= bounds.upper + 0.01


def test_a_table_has_a_row_per_replica(all_answers) -> None:
    (replicas,) = [one for _, one in all_answers["healthy"] if one.title == "Replicas" and one.kind == "table"]
    columns, rows = tabulated(replicas)
    assert [row["Target"] for row in rows] == ["gpu-1:8000", "gpu-2:8000"]
    assert set(columns) == set(rows[0]), "each column has a value"
    (models,) = [one for _, one in all_answers["healthy"] if one.title == "Models"]
    columns, rows = tabulated(models)
    assert len(rows) == 1
    assert set(columns) == set(rows[0])


def test_ranks_are_told_apart(all_answers) -> None:
    (ranks,) = [one for _, one in all_answers["two_engines"] if one.title == "Hit ratio by data-parallel rank"]
    assert {series.name for series in ranks.answers[0]} == {"tiny rank 0", "tiny rank 1"}


def test_a_firing_alert_has_its_runbook(all_answers) -> None:
    (firing,) = [one for _, one in all_answers[BY_HAND] if one.title == "Firing alerts"]
    _, rows = tabulated(firing)
    assert rows[0]["Runbook"].endswith("alerts/runbooks/PrefixCacheKvPressure.md")


def test_annotations_mark_restarts_and_alerts(server: Server) -> None:
    board = BOARDS["prefixwatch-overview"]
    marks = {name: starts for name, _, starts in annotated(board, server, SPAN, {"cluster": "restart"})}
    assert len(marks["Engine restarts"]) == 1
    marks = {name: starts for name, _, starts in annotated(board, server, SPAN, {"cluster": BY_HAND})}
    assert len(marks["Firing alerts"]) == 1


def test_a_row_stands_for_each_model(server: Server) -> None:
    board = json.loads(json.dumps(BOARDS["prefixwatch-overview"]))
    rows = [one.title for one in answered(board, server, SPAN, {"cluster": "healthy|by_hand"}) if one.kind == "row"]
    assert rows == ["Now", "Model tiny"]


def test_a_preview_says_what_it_is(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "fleet.png"
    texts = []
    monkeypatch.setattr("matplotlib.figure.Figure.text", lambda self, x, y, text, **_: texts.append(text))
    assert preview(url, "fleet", SPAN, {"cluster": "healthy"}, file) < 200_000
    assert file.read_bytes().startswith(b"\x89PNG")
    assert any("preview" in text for text in texts)


def _one(server: Server, board: str, title: str, cluster: str) -> float | None:
    found = asked(titled(board, title)["targets"][0], server, SPAN, {"cluster": cluster})
    assert len(found) <= 1
    return found[0].points[-1][1] if found else None


def _figures(loaded: Loaded, cluster: str) -> EngineFigures:
    (engine,) = loaded.ends[cluster, "gpu-1:8000"].state.engines
    return engine.figures(300.0)
