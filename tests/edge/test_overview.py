"""The page at `/`: what it says of each engine, how targets stand, and that nothing gets out of its text."""

import base64
import dataclasses
import functools
import hashlib
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixwatch.config import Config, Duration
from prefixwatch.diagnosis import Cause, Confidence, Diagnosis
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.residency import Residency
from prefixwatch.figures.savings import Saving
from prefixwatch.overview import (
    HEADERS,
    Choice,
    EngineView,
    Overview,
    State,
    TargetView,
    rendered,
    trend_scale,
    views_of,
)
from prefixwatch.overview.listing import MAX_ROWS
from prefixwatch.overview.views import view
from prefixwatch.snapshot import EngineFigures, TargetSnapshot
from prefixwatch.targetwatch import TargetWatch
from prefixwatch.web import application
from replayed import ReplayedPoller, status_of, watched

NOW = 1_800_000_000.0
VOID = {"input", "link", "meta"}
ELEMENTS = """
    html head meta title link style noscript body header p nav ul li a label input main script h1 h2 h3 small time
    article div span bdi strong em svg path rect figure figcaption table thead tbody tr th td section dl dt dd i code
"""
ATTRIBUTES = """
    lang charset name content rel href http-equiv class hidden type id checked role aria-label aria-labelledby
    aria-hidden aria-current datetime scope viewbox preserveaspectratio d x y width height data-refresh data-version
"""


class Parsed(HTMLParser):
    """A page as a browser would read it: its elements, and the text that is seen."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.seen)).replace("\N{EN DASH}", "-")

    @property
    def structure(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(element, tuple(attributes)) for element, attributes in self.elements]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script", "title"} & set(self.open):
            self.seen.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def figures(**known: object) -> EngineFigures:
    fields = [field.name for field in dataclasses.fields(EngineFigures) if field.default is dataclasses.MISSING]
    absent = dict.fromkeys(fields, Absent("not of this test"))
    defaults = {"model_name": "tiny", "engine": "0", "window_seconds": 300.0}
    return EngineFigures(**{**absent, **defaults, **known})


def target(*engines: EngineView, **changes: object) -> TargetView:
    snapshot = {
        "target": "localhost:8000",
        "is_up": True,
        "dialect": "vllm",
        "release": "0.32.0",
        "caveats": (),
        "engines": (),
    }
    of_view = {key: changes.pop(key) for key in ("state", "advice", "last_success") if key in changes}
    return TargetView(
        snapshot=TargetSnapshot(**{**snapshot, **changes}), engines=engines, **{"state": State.UP, **of_view}
    )


def page(*targets: TargetView, **changes: object) -> str:
    spans = {"window": Duration(300), "trend_span": Duration(3600), "refresh": Duration(5)}
    return rendered(Overview(targets=targets, **{"time": NOW, **spans, **changes}))


def shown(*targets: TargetView, **changes: object) -> str:
    return Parsed(page(*targets, **changes)).text


def drawn(page: str) -> list[str]:
    return [attributes["aria-label"] for element, attributes in Parsed(page).elements if element == "svg"]


DIVERGENCE = Diagnosis(
    cause=Cause.PROMPT_DIVERGENCE,
    confidence=Confidence.HIGH,
    evidence=("the pool never filled",),
    next_steps=("raise --max-num-seqs",),
)
RESIDENCY = Residency(
    evictions=30.0,
    lifetime_seconds={0.5: 3.0, 0.9: 9.0},
    idle_seconds={0.5: 1.4, 0.9: 5.0},
    reuse_gap_seconds={},
    mean_lifetime_seconds=4.0,
    mean_idle_seconds=2.0,
    gaps_per_eviction=0.0,
    late_reuse_share=Absent("no evicted block had been used again"),
    evicted_reuse_share=0.5,
)
SHARE = Estimate(estimate=0.571, lower=0.55, upper=0.6, method="pooled")


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param({"token_hit_ratio": 0.768}, "76.8 % token hit ratio", id="the ratio leads"),
        pytest.param({"token_hit_ratio": 0.0}, "0.0 % token hit ratio", id="a measured zero is a zero"),
        pytest.param(
            {"token_hit_ratio": Absent("nothing was looked up")},
            "- token hit ratio Absent: nothing was looked up.",
            id="absent is no zero",
        ),
        pytest.param({"token_hit_ratio": 0.5, "window_seconds": 42.0}, "over the 42 s seen so far", id="a young watch"),
        pytest.param({"token_hit_ratio": 0.5, "window_seconds": 299.0}, "over the last 5m", id="a covered window"),
        pytest.param(
            {"request_hit_ratio": SHARE}, "request level 57.1 % mean over requests (55.0 to 60.0 %)", id="bounds"
        ),
        pytest.param({"request_hit_ratio": SHARE, "hit_ratio_gap": 0.2}, "20 points below the token level", id="gap"),
        pytest.param(
            {"request_hit_ratio": SHARE, "hit_ratio_gap": -0.2}, "20 points above the token level", id="gap up"
        ),
        pytest.param(
            {"cold_request_ratio": dataclasses.replace(SHARE, lower=0.571, upper=0.571)},
            "cold 57.1 % got nothing from the cache (exact)",
            id="exact",
        ),
        pytest.param(
            {"hit_ratio_ceiling": SHARE}, "ceiling 57.1 % the most that these prompt lengths allow", id="ceiling"
        ),
        pytest.param(
            {"external_hit_ratio": 0.25}, "external 25.0 % of what was looked up in the KV connector", id="external"
        ),
        pytest.param({"cached_prompt_ratio": 0.25}, "cached prompt 25.0 %", id="cached prompt"),
        pytest.param({"mostly_cached_request_ratio": SHARE}, "mostly cached 57.1 %", id="mostly cached"),
        pytest.param({"full_request_ratio": SHARE}, "fully cached 57.1 %", id="fully cached"),
        pytest.param(
            {"pool_tokens": 6400, "pool_filled": True}, "pool 6,400 tokens, filled since the start", id="pool"
        ),
        pytest.param({"pool_tokens": 6400, "pool_filled": False}, "not filled since the start", id="pool not filled"),
        pytest.param({"turnover_seconds": 2.26}, "turnover 2.3 s", id="turnover"),
        pytest.param({"kv_usage_max": 0.09}, "highest usage 9.0 %", id="usage"),
        pytest.param({"requests": 1394.0}, "requests 1,394 finished", id="requests"),
        pytest.param({"preemptions": 0.0}, "preemptions 0", id="preemptions"),
        pytest.param(
            {"requests_running": 3.0, "requests_waiting": 7.0}, "running 3 requests, now waiting 7", id="queue"
        ),
        pytest.param(
            {"prompt_tokens_by_source": {"computed": 10.0, "local_cache": 30.0, "external": 0.0}},
            "prompt tokens 40 from the cache 30 computed 10",
            id="sources",
        ),
        pytest.param(
            {"prompt_tokens_by_source": {"computed": 1.0, "b": 2.0, "a": 3.0}},
            "computed 1 a, b 5",
            id="unknown sources together",
        ),
        pytest.param({"prompt_tokens_by_source": {"computed": 0.0}}, "prompt tokens 0", id="no tokens from any source"),
        pytest.param({"output_per_prompt_token": 0.0482}, "output 0.048 generated per prompt token", id="output"),
        pytest.param({"prefill_share": 0.2}, "prefill 20.0 %", id="prefill"),
        pytest.param(
            {"prefill_seconds_saved": Saving(estimate=41.0, standard_error=3.0), "prefill_saved_share": 0.25},
            "saved 41 s of prefill that the cache spared, ± 3 s, in request-seconds, 25.0 % of what it would",
            id="saved prefill",
        ),
        pytest.param(
            {"residency": RESIDENCY},
            "lifetime 3 s of evicted blocks, the partly filled last one of each request included, median; 90 % within 9 s",
            id="lifetime",
        ),
        pytest.param({"residency": RESIDENCY}, "idle 1.4 s before eviction, median; 90 % within 5 s", id="idle"),
        pytest.param({"avoidable_miss_ratio": 0.3}, "avoidable misses 30.0 %", id="avoidable misses"),
        pytest.param({"working_set_ratio": 1.52}, "working set 1.5 times the pool", id="working set"),
        pytest.param({"model_name": ""}, "a model without a name engine 0", id="no model name"),
    ],
)
def test_figure(known, expected):
    text = re.sub(r"\s", "", shown(target(EngineView(figures=figures(**known)))))
    assert re.sub(r"\s", "", expected) in text


def test_headline_names_model_engine_target_release_and_labels():
    view = EngineView(figures=figures(model_name="org/model", engine="3"))
    text = shown(target(view, labels={"cluster": "eu", "namespace": "prod"}))
    assert "org/model engine 3localhost:8000 · vLLM 0.32.0 · cluster=eu · namespace=prod● up" in text


def test_time_is_the_one_passed_in():
    assert "as of 2027-01-15 08:00:00 UTC" in shown(target())


def test_absent_figures_are_named_under_each_reason_once():
    known = figures(external_hit_ratio=Absent("no KV connector"), cached_prompt_ratio=Absent("no KV connector"))
    text = shown(target(EngineView(figures=known)))
    assert "external hit ratio, cached prompt ratio: no KV connector" in text
    assert text.count("no KV connector") == 1


def test_caveats_stand_once_for_all_engines_of_a_target():
    text = shown(target(*(EngineView(figures=figures(engine=e)) for e in "01"), caveats=("name: what is wrong",)))
    assert text.count("what is wrong") == 1
    assert "name:" not in text


def test_value_of_each_window_and_why_one_has_none():
    by_window = {
        "1m": figures(token_hit_ratio=0.41, request_hit_ratio=SHARE),
        "5m": figures(token_hit_ratio=0.42, request_hit_ratio=SHARE),
        "1h": figures(token_hit_ratio=Absent("not covered"), request_hit_ratio=Absent("not covered")),
    }
    text = shown(target(EngineView(figures=figures(token_hit_ratio=0.42), by_window=by_window)))
    assert "window1m5m1htoken level41.0 %42.0 %-request level57.1 %57.1 %-1h: not covered" in text


def test_why_there_is_no_ratio_is_not_said_again_for_each_window():
    off = figures(token_hit_ratio=Absent("caching is off"))
    text = shown(target(EngineView(figures=off, by_window={"1m": off, "5m": off})))
    assert text.count("caching is off") == 2  # below the ratio, and where absent figures are named


def test_trend_is_drawn_with_words_for_it():
    view = EngineView(
        figures=figures(token_hit_ratio=0.5, hit_ratio_ceiling=SHARE), trend_of=lambda: [None, 0.25, 0.5, None, 0.4]
    )
    made = page(target(view))
    label = "Token hit ratio over the last 1h: between 25.0 % and 50.0 %, last 40.0 %; unknown in 2 of 5 steps"
    assert label in drawn(made)
    line = next(a["d"] for e, a in Parsed(made).elements if e == "path" and a.get("class") == "line")
    assert line == "M120.0 75.0L200.0 50.0M360.0 60.0h0.01"  # a gap parts it, a lone step is a dot
    assert "dashed: the most these prompt lengths allow" in made


@pytest.mark.parametrize("trend", [(), (None, None)])
def test_no_trend_is_no_drawing(trend):
    assert "<figure" not in page(target(EngineView(figures=figures(), trend_of=lambda: trend)))


def test_diagnosis_names_cause_confidence_evidence_and_next_steps():
    made = page(target(EngineView(figures=figures(diagnosis=DIVERGENCE))))
    text = Parsed(made).text
    assert "Why: prompt divergence (high confidence)the pool never filledWhat to doraise --max-num-seqs" in text
    assert "<code>--max-num-seqs</code>" in made
    assert "Why:" not in shown(target(EngineView(figures=figures())))


@pytest.mark.parametrize(
    ("changes", "state", "expected"),
    [
        pytest.param({"is_up": None, "last_success": None}, State.WAITING, "not polled yet", id="not polled yet"),
        pytest.param(
            {"is_up": False, "is_loading": True, "errors": {"connection": 1}},
            State.LOADING,
            "No connection: refused. An engine answers once its model is loaded: wait.",
            id="loading",
        ),
        pytest.param(
            {"is_up": False, "errors": {"connection": 3}},
            State.ERROR,
            "It has not answered since the exporter started. Does it run, is this its address,",
            id="never up",
        ),
        pytest.param(
            {"is_up": False, "errors": {"http_4xx": 3}},
            State.ERROR,
            "No connection: refused. It has not answered since the exporter started.",
            id="an error that says it",
        ),
        pytest.param(
            {"is_up": False, "is_stale": True, "last_success": NOW - 90, "errors": {"timeout": 9}},
            State.STALE,
            "Last answer 90 s ago. Does the engine still run? Its figures are no longer true",
            id="stale",
        ),
        pytest.param(
            {"is_up": True, "last_success": NOW},
            State.ERROR,
            "Is this the /metrics of a vLLM engine?",
            id="unknown page",
        ),
    ],
)
def test_target_without_engines(changes, state, expected):
    watch = TargetWatch("gpu-7:8000")
    watch.fail("no connection: refused") if changes["is_up"] is not None else None
    seen = view(status_of(watch, **changes), window=300.0, windows=(), trend=(Duration(300), 4))
    assert seen.state is state
    text = shown(seen)
    assert "gpu-7:8000" in text
    assert expected in text
    assert state.value in text


def test_late_target_keeps_its_figures_and_says_how_old_they_are():
    watch = watched("idle")
    watch.fail("no whole answer within 4 s")
    late = status_of(watch, missed=1, last_success=NOW - 7, errors={"timeout": 1})
    text = shown(view(late, window=300.0, windows=(), trend=(Duration(300), 4)))
    assert "◆ late" in text
    assert "No whole answer within 4 s. Last answer 7 s ago. The figures are those of its last answer." in text
    assert "token hit ratio" in text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {}, "There are no targets. Name one, like prefixwatch run http://localhost:8000/metrics", id="none"
        ),
        pytest.param({"is_discovered": False}, "Looking for targets.", id="not yet discovered"),
        pytest.param(
            {"is_targets_file_good": False}, "The targets file cannot be used: the log says why", id="broken file"
        ),
    ],
)
def test_page_without_targets(changes, expected):
    assert expected in shown(**changes)


def fleet(count: int = 100) -> list[TargetView]:
    many = [
        target(
            EngineView(figures=figures(token_hit_ratio=0.9 - i / 1100), trend_of=lambda: (0.1, 0.2)),
            target=f"gpu-{i:03}:8000",
        )
        for i in reversed(range(count))
    ]
    many[50] = target(target="down:8000", is_up=False, state=State.STALE, error="no connection")
    many[60] = target(EngineView(figures=figures()), target="a-idle:8000")
    return many


def linked(page: str) -> list[str]:
    return [str(a["href"]) for e, a in Parsed(page).elements if e == "a" and str(a["href"]).startswith("?target=")]


def test_many_engines_are_a_list_the_worst_first():
    links = linked(page(*fleet()))
    assert len(links) == 100
    assert links[:3] == ["?target=down%3A8000", "?target=gpu-099%3A8000", "?target=gpu-098%3A8000"]
    assert links[-1] == "?target=a-idle%3A8000"


def test_list_has_an_end():
    made = page(*fleet(1000))
    assert len(linked(made)) == MAX_ROWS
    assert "999 engines, 1 target without one" in made
    assert f"The first {MAX_ROWS} are shown." in made


def test_list_names_causes():
    many = [target(EngineView(figures=figures(diagnosis=DIVERGENCE)), target=f"t{i}") for i in range(9)]
    assert "prompt divergence 9" in shown(*many)  # the link
    assert shown(*many).count("prompt divergence") == 1 + 2 * 9  # beside the link: in a column, or beside the state


@pytest.mark.parametrize(
    ("choice", "present", "missing"),
    [
        pytest.param(Choice(target="gpu-007:8000"), "gpu-007:8000", "gpu-008:8000", id="one target, in full"),
        pytest.param(Choice(only_troubled=True), "down:8000", "gpu-000:8000", id="in trouble"),
        pytest.param(Choice(cause="eviction"), "Nothing here is of this choice", "gpu-000", id="a cause"),
        pytest.param(Choice(model="tiny"), "gpu-000:8000", "down:8000", id="a model"),
        pytest.param(Choice(target="gone:1"), "Nothing here is of this choice. Show all", "gpu-000", id="nothing"),
    ],
)
def test_choice(choice, present, missing):
    text = shown(*fleet(), choice=choice)
    assert present in text
    assert missing not in text


def test_links_narrow_the_list_down():
    many = [*fleet(), target(EngineView(figures=figures(model_name="other model")), target="other:1")]
    links = {str(a["href"]) for e, a in Parsed(page(*many)).elements if e == "a"}
    assert {".", "?show=trouble", "?model=tiny", "?model=other+model", "metrics", "api/v1/status", "healthz"} <= links


HOSTILE = [
    pytest.param("<script>alert(1)</script>", "<script>alert(1)</script>", id="script"),
    pytest.param("\"'><img src=x onerror=alert(1)>", "\"'><img src=x onerror=alert(1)>", id="quotes"),
    pytest.param("&lt;b&gt;&#60;", "&lt;b&gt;&#60;", id="entities"),
    pytest.param("a\nb\r\tc\0", r"a\nb\r\tc\x00", id="control characters"),
    pytest.param("\u202egpj.exe\u2066", r"\u202egpj.exe\u2066", id="direction overrides"),
    pytest.param("\ud800", r"\ud800", id="half a surrogate pair"),
    pytest.param("x" * 10_000, "x" * 79 + "…", id="10 kB"),
    pytest.param("模型 🦙 é", "模型 🦙 é", id="other scripts stay"),
]


@pytest.mark.parametrize(("value", "expected"), HOSTILE)
def test_hostile_values_are_text(value, expected):
    made = page(filled(value))
    assert made.encode("utf-8")
    assert Parsed(made).structure == harmless(1)
    assert expected in "".join(Parsed(made).seen)
    assert len(made) < 40_000


def filled(text: str, **changes: object) -> TargetView:
    """A target that says `text` wherever something outside has a say."""
    known = figures(
        model_name=text,
        engine=text,
        token_hit_ratio=0.5,
        external_hit_ratio=Absent(f".{text}"),
        prompt_tokens_by_source={f".{text}": 3.0, "computed": 1.0},
        diagnosis=Diagnosis(cause=text, confidence=text, evidence=(text,), next_steps=(text,)),
    )
    engine = EngineView(figures=known, trend_of=lambda: (0.1, None, 0.2), by_window={"1m": known})
    names = {"target": text, "release": f".{text}", "dialect": text, "labels": {text: text}, "caveats": (f".{text}",)}
    return target(engine, **names, error=f".{text}", state=State.LATE, last_success=NOW - 5, **changes)


_TEXT = st.text(st.characters() | st.sampled_from("<>\"'&=`/! \n"), min_size=1, max_size=60).filter(
    lambda text: not re.search(r"--[a-z-]{2}", text)
)


@functools.cache
def harmless(count: int) -> list[tuple[str, tuple[str, ...]]]:
    return Parsed(page(*[filled("x")] * count)).structure


@settings(max_examples=100, deadline=None)
@given(text=_TEXT, count=st.sampled_from([1, 6]))
def test_no_text_becomes_markup(text, count):
    made = Parsed(page(*[filled(text)] * count))
    assert made.structure == harmless(count)
    assert {element for element, _ in made.elements} <= set(ELEMENTS.split())
    assert {attribute for _, attributes in made.elements for attribute in attributes} <= set(ATTRIBUTES.split())


def test_nothing_comes_from_elsewhere_and_policy_allows_just_what_is_inline():
    made = page(*fleet())
    policy = HEADERS["Content-Security-Policy"]
    for kind in ("style", "script"):
        content = re.search(rf"<{kind}>(.*?)</{kind}>", made, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for element, attributes in Parsed(made).elements:
        assert not {"style", "src", "srcset", "action"} & attributes.keys()
        assert not [attribute for attribute in attributes if attribute.startswith("on")]
        if "href" in attributes and element != "link":
            assert not re.match(r"[a-z]+:|//", attributes["href"])


def test_headings_and_labels_for_those_who_do_not_see_the_page():
    made = Parsed(
        page(
            *(target(EngineView(figures=figures(token_hit_ratio=0.4), trend_of=lambda: (0.1,)), target=t) for t in "ab")
        )
    )
    elements = made.elements
    assert [element for element, _ in elements].count("h1") == 1
    assert {element for element, _ in elements} >= {"main", "header", "nav", "article"}
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {a["aria-labelledby"] for e, a in elements if e == "article"} <= set(ids)
    assert all(a["role"] == "img" and a["aria-label"] for e, a in elements if e == "svg")
    assert all(a["scope"] in ("col", "row") for e, a in elements if e == "th")


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast_of_text_is_aa(scheme):
    style = re.search(r"<style>(.*?)</style>", page(), re.DOTALL)[1]
    colours = dict(re.findall(r"--(\w+): #(\w{6});", re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]))
    for ink in ("ink", "quiet", "accent", "good", "calm", "warn", "bad"):
        for ground in ("page", "card"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for shape in ("accent", "limit", "part0", "part1", "part2", "part3", "part4"):
        assert contrast(colours[shape], colours["card"]) >= 3, shape


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        shares = (int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4))
        red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in shares)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize(
    ("windows", "poll", "expected"),
    [
        pytest.param((60, 300, 3600), 5, (60, 9), id="a minute seen: the shortest, a poll in each step"),
        pytest.param((60, 180, 3600), 1, (180, 40), id="a third of the longest"),
        pytest.param((3600,), 1, (3600, 40), id="nothing is covered: the shortest there is"),
    ],
)
def test_trend_is_over_what_was_seen(windows, poll, expected):
    spans = tuple(Duration(span) for span in windows)
    statuses = [status_of(watched("healthy"), spans=spans)]
    assert trend_scale(statuses, Config(windows=spans, poll_interval=Duration(poll))) == expected


def test_many_engines_get_fewer_steps():
    config = Config(poll_interval=Duration(1))
    assert trend_scale([status_of(watched("healthy"))] * 400, config) == (60, 10)


def test_figures_by_window_are_made_for_what_is_shown_in_full():
    statuses = [status_of(watched("healthy", name=f"t{i}")) for i in range(9)]
    config = Config()
    views = views_of(statuses, config=config, trend=(Duration(60), 4), choice=Choice(target="t3"))
    assert [bool(target.engines[0].by_window) for target in views] == [False] * 3 + [True] + [False] * 5


@pytest.mark.parametrize(
    "query", ["", "?target=localhost:8000", "?target=none", "?model=tiny", "?show=trouble", "?target=%00%F0<"]
)
async def test_application_answers_the_page(aiohttp_client, query):
    client = await aiohttp_client(application(Config(), ReplayedPoller([watched("healthy")]), polls=False))
    answer = await client.get(f"/{query}")
    assert answer.status == 200
    assert answer.content_type == "text/html"
    assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert Parsed(await answer.text()).elements
