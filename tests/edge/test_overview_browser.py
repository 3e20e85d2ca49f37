"""The page at `/` in headless Chromium: the real application over recorded traces."""

import dataclasses
from collections.abc import Iterator

import pytest

from chromium import Browser, browser
from prefixwatch.config import Config, Duration
from prefixwatch.page.reading import Reading
from prefixwatch.targetwatch import TargetWatch
from replayed import ReplayedPoller, serving, status_of, watched

PHONE, WIDE = 375, 1280
SCHEMES = {"light": "rgb(244, 245, 247)", "dark": "rgb(14, 18, 23)"}
CONFIG = Config(
    windows=(Duration(15), Duration(30), Duration(60)), diagnosis_window=Duration(60), poll_interval=Duration(1)
)

# Every element that holds text of its own, and where it stands.
PLACES = """
    return [...document.querySelectorAll("body *:not(script):not(noscript)")]
        .filter(e => !e.closest("[hidden]") && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
        .filter(e => e.checkVisibility() || !e.closest(".wide, .narrow"))
        .map(e => { const r = e.getBoundingClientRect(); return [e.textContent, r.left, r.right, r.width * r.height] })
"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def assert_reads_well(tab: Browser, url: str, width: int) -> None:
    """No scrolling sideways, nothing cut or without extent, no complaint, nothing from elsewhere."""
    inner, scrolled = tab.run("return [innerWidth, document.documentElement.scrollWidth]")
    assert inner == width
    assert scrolled <= width
    places = tab.run(PLACES)
    assert len(places) > 5
    for text, left, right, area in places:
        assert left >= 0, text
        assert right <= width, text
        assert area > 0, text
    assert tab.log("browser") == []
    requested = tab.requested()
    assert requested
    assert [address for address in requested if not address.startswith((url, "data:"))] == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [PHONE, WIDE])
@pytest.mark.parametrize("trace", ["thrash_low_usage", "mixed_long_warm"])
def test_engine_in_full(tab, trace, width, scheme):
    with serving(CONFIG, ReplayedPoller([watched(trace)], spans=CONFIG.windows)) as url:
        tab.open(url, width=width, scheme=scheme)
        assert_reads_well(tab, url, width)
        assert tab.run("return getComputedStyle(document.body).backgroundColor") == SCHEMES[scheme]
        text = tab.run("return document.querySelector('main').innerText")
        named = (
            "tiny",
            "localhost:8000",
            "up",
            "token hit ratio",
            "15s",
            "30s",
            "1m",
            "token level",
            "cached prompt",
            "pool",
            "turnover",
            "highest usage",
            "preemptions",
            "running",
            "waiting",
            "requests",
            "prompt tokens",
            "output",
            "prefill",
            "Absent, not zero",
        )
        assert [name for name in named if name not in text] == []
        drawn = "const r = document.querySelector('.spark .line').getBoundingClientRect(); return [r.width, r.height]"
        assert min(tab.run(drawn)) > 10


@pytest.mark.parametrize("width", [PHONE, WIDE])
def test_hundred_targets(tab, width):
    watch = watched("healthy")
    poller = ReplayedPoller([watch])
    names = [f"gpu-{i:02}.inference.example.internal:8000" for i in range(100)]
    poller.statuses = [status_of(_named(watch, name)) for name in names]
    down = TargetWatch("down:8000")
    down.fail("no connection: refused")
    poller.statuses.append(status_of(down, missed=3, errors={"connection": 3}))
    with serving(Config(), poller) as url:
        tab.open(url, width=width)
        assert_reads_well(tab, url, width)
        rows = tab.run("return [...document.querySelectorAll('.list tbody tr')].map(e => e.innerText)")
        assert len(rows) == 101
        assert "down:8000" in rows[0]
        tab.run("document.querySelector('.list tbody a').click()")
        tab.wait("document.querySelector('h2')?.innerText === 'down:8000'")


def _named(watch: TargetWatch, name: str) -> TargetWatch:
    watch.target = name
    return watch


@pytest.mark.parametrize("width", [PHONE, WIDE])
@pytest.mark.parametrize(
    "value",
    [
        "<script>document.title = 'run'</script>\"'><img src=x onerror=\"document.title = 'run'\">",
        "</title></style></script><base href=//example.org><h1>",
        "x" * 10_000,
        "\u202e\u2067gnorw\n\n",
        "\x1b]0;owned\x07\x00\x9b31m\ud800 --><!--",
    ],
    ids=["script", "ends of elements", "10 kB", "direction overrides", "control characters"],
)
def test_hostile_values(tab, value, width):
    watch = watched("healthy", name=value)
    for key in [*watch.engines]:
        engine = watch.engines.pop(key)
        engine.last = _renamed(engine.last, value)
        watch.engines[value, value] = engine
    with serving(CONFIG, ReplayedPoller([watch], spans=CONFIG.windows)) as url:
        tab.open(url, width=width)
        assert_reads_well(tab, url, width)
        assert tab.run("return document.title").endswith("prefixwatch")
        assert tab.run("return document.querySelectorAll('script, style, h1, base, img').length") == 3
        assert tab.run("return getComputedStyle(document.querySelector('.lead')).direction") == "ltr"


def _renamed(reading: Reading, value: str) -> Reading:
    return dataclasses.replace(reading, model_name=value, engine=value)


def test_page_refreshes_itself_in_place_and_says_when_it_cannot(tab):
    poller = ReplayedPoller([watched("healthy")], spans=CONFIG.windows)
    with serving(CONFIG, poller) as url:
        tab.open(url, width=PHONE)
        tab.run("window.isSame = true; scrollTo(0, 500)")
        poller.statuses = [status_of(watched("divergent", name="other:8000"), spans=CONFIG.windows)]
        tab.wait("document.querySelector('main').innerText.includes('other:8000')")
        assert tab.run("return [window.isSame, scrollY]") == [True, 500]
        assert tab.run("return document.title").startswith("0.0\N{NO-BREAK SPACE}% tiny")
        assert tab.log("browser") == []
        assert not tab.run("return document.getElementById('lost').checkVisibility()")
    tab.wait("document.getElementById('lost').checkVisibility()")


def test_page_refreshes_without_scripts_too(tab):
    poller = ReplayedPoller([watched("healthy")], spans=CONFIG.windows)
    with serving(CONFIG, poller) as url:
        tab.cdp("Emulation.setScriptExecutionDisabled", value=True)
        try:
            tab.open(url)
            text = tab.run("return document.querySelector('noscript').innerHTML")
            assert 'http-equiv="refresh" content="2"' in text
            assert not tab.run("return document.getElementById('live').checkVisibility()")
        finally:
            tab.cdp("Emulation.setScriptExecutionDisabled", value=False)
