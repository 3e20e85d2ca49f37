"""One target: what a poll makes of whatever an engine does."""

import gzip
import logging
import re

import pytest

from edge import engines
from edge.engines import Engine, of_process, relabelled, trace
from edge.polled import CONFIG, OF_ENGINES, OF_WINDOWS, PASSED_THROUGH, Polled
from prefixwatch.config import Access, Config, Duration
from prefixwatch.targetpoller import BACKOFF, FAST_RETRIES, JITTER, TargetPoller, steady_clock, watch_of
from prefixwatch.targetwatch import TargetWatch

HEALTHY = trace("healthy")
FAULTS = [
    pytest.param(engines.hang, "timeout", id="hangs"),
    pytest.param(engines.drip, "timeout", id="slow"),
    pytest.param(engines.status(500), "http_5xx", id="500"),
    pytest.param(engines.status(503), "http_5xx", id="503"),
    pytest.param(engines.status(401), "http_4xx", id="401"),
    pytest.param(engines.status(404), "http_4xx", id="404"),
    pytest.param(engines.status(302, Location="http://127.0.0.1:9/elsewhere"), "redirect", id="redirect"),
    pytest.param(engines.body(engines.HTML), "not_metrics", id="HTML"),
    pytest.param(engines.body(engines.JSON), "not_metrics", id="JSON"),
    pytest.param(engines.body(gzip.compress(bytes(2**22)), **{"Content-Encoding": "gzip"}), "not_metrics", id="bomb"),
    pytest.param(engines.body(gzip.compress(HEALTHY[0][1])), "not_metrics", id="gzip that is not declared"),
    pytest.param(engines.body(b"\x00\xff\xfe\n" * 100), "broken_page", id="binary"),
    pytest.param(engines.cut_off, "cut_off", id="half of what Content-Length says"),
    pytest.param(engines.half, "cut_off", id="half a page"),
    pytest.param(engines.endless, "too_large", id="100 MB"),
    pytest.param(engines.not_http, "not_http", id="no HTTP"),
    pytest.param(engines.drop, "connection", id="closes"),
    pytest.param(engines.body(b"vllm:prefix_cache_hits_total{ 5\n"), "broken_page", id="a broken line"),
]


async def refuse(engine: Engine) -> None:
    await engine.stop()


def said(records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records]


def figures_of(polled: Polled) -> list[object]:
    return [engine.figures(span) for span in CONFIG.windows for engine in polled.status.state.engines]


@pytest.mark.parametrize(("answer", "reason"), [pytest.param(None, "connection", id="refuses"), *FAULTS])
async def test_a_fault_is_named_and_nothing_false_is_exported_meanwhile(
    engine: Engine, records: list[logging.LogRecord], answer: engines.Answer | None, reason: str
) -> None:
    async with Polled(engine) as polled:
        await polled.play(HEALTHY[:20])
        before = polled.exported()
        assert polled.status.is_up
        assert PASSED_THROUGH & before
        assert OF_WINDOWS & before

        engine.answer = answer
        if answer is None:
            await engine.stop()
        await polled.poll()
        assert polled.status.is_up is False
        assert not polled.status.is_loading
        assert not polled.status.is_stale
        assert polled.value("up") == 0
        await polled.poll(2)

        assert polled.status.is_stale
        assert polled.status.errors == {reason: 3}
        assert not OF_ENGINES & polled.exported(), "what is stale ends"
        assert polled.value("poll_errors_total", reason=reason) == 3
        assert polled.status.snapshot(10).engines == ()
        assert polled.status.snapshot(10).error

        if answer is None:
            await engine.start()
        await polled.play(HEALTHY[24:26])
        assert polled.status.is_up
        assert before <= polled.exported()
        assert said(records) == ["target cannot be used", "target is back"]
        assert records[0].reason == reason

        async with Polled(engine) as undisturbed:
            await undisturbed.play(HEALTHY[:20] + HEALTHY[24:26])
            assert figures_of(polled) == figures_of(undisturbed)


async def test_a_large_page_is_not_taken_in_whole(engine: Engine) -> None:
    async with Polled(engine) as polled:
        engine.answer = engines.endless
        await polled.poll()
        assert engine.bytes_sent < 20 * 2**20


async def test_redirects_are_not_followed_and_take_no_token_along(engine: Engine, tmp_path) -> None:
    (tmp_path / "token").write_text("open-sesame\n")
    async with Engine() as elsewhere:
        engine.answer = engines.status(307, Location=elsewhere.url)
        async with Polled(engine, access=Access(bearer_token_file=str(tmp_path / "token"))) as polled:
            await polled.poll(3)
        assert polled.status.errors == {"redirect": 3}
        assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("page", "why"),
    [
        pytest.param(engines.SGLANG, "SGLang", id="another engine"),
        pytest.param(b"", "empty", id="an empty page"),
        pytest.param(b"# EOF\n", "empty", id="an empty OpenMetrics page"),
    ],
)
async def test_a_page_without_vllm_has_no_engines_and_says_why(engine: Engine, page: bytes, why: str) -> None:
    async with Polled(engine) as polled:
        engine.page = page
        await polled.poll(2)
        assert polled.status.is_up
        assert not OF_ENGINES & polled.exported()
        assert why in (polled.status.snapshot(10).error or "")

        await polled.play(HEALTHY[:3])
        assert OF_ENGINES & polled.exported()
        engine.page = page
        await polled.poll()
        assert polled.status.errors == {"incomplete": 1}, "it may be a page that is being written"
        await polled.poll(2)
        assert not OF_ENGINES & polled.exported()
        assert why in (polled.status.snapshot(10).error or "")


@pytest.mark.parametrize(
    ("answer", "is_loading"),
    [
        pytest.param(None, True, id="refuses"),
        pytest.param(engines.status(503), True, id="503"),
        pytest.param(engines.status(500), False, id="500"),
        pytest.param(engines.hang, False, id="hangs"),
        pytest.param(engines.body(engines.HTML), False, id="HTML"),
    ],
)
async def test_loading_is_told_apart_from_broken(
    engine: Engine, records: list[logging.LogRecord], answer: engines.Answer | None, *, is_loading: bool
) -> None:
    async with Polled(engine) as polled:
        engine.answer = answer
        if answer is None:
            await engine.stop()
        await polled.poll(5)
        assert polled.status.is_loading is is_loading
        assert polled.value("target_loading") == is_loading
        first = "target has not answered yet: still loading?" if is_loading else "target cannot be used"
        assert said(records) == [first]

        if answer is None:
            await engine.start()
        await polled.play(HEALTHY[:1])
        assert not polled.status.is_loading
        engine.answer = engines.status(503)
        await polled.poll()
        assert not polled.status.is_loading, "it answered before: this is an outage"


async def test_before_the_first_poll_nothing_is_said_of_a_target(engine: Engine) -> None:
    async with Polled(engine) as polled:
        assert polled.status.is_up is None
        assert "up" not in polled.exported()
        await polled.poll()
        assert polled.status.is_up


async def test_a_restarted_engine_counts_from_zero(engine: Engine) -> None:
    async with Polled(engine) as polled:
        await polled.play(HEALTHY[:30])
        await engine.stop()
        await polled.poll(2)
        await engine.start()
        last = polled.now
        pages = [(last + 1 + i, of_process(page, last + 0.5)) for i, (_, page) in enumerate(HEALTHY[10:12])]
        await polled.play(pages)
        assert polled.status.errors == {"connection": 2}
        assert polled.value("engine_restarts_total") == 1
        queried = float(re.search(rb"vllm:prefix_cache_queries_total{.*} (.*)", engine.page)[1])
        assert polled.value("queried_tokens_total") == queried
        assert polled.value("queried_tokens_created") == last + 0.5


async def test_two_engines_in_turn_are_named_and_nothing_is_derived(
    engine: Engine, records: list[logging.LogRecord]
) -> None:
    async with Polled(engine) as polled:
        for i, (time, page) in enumerate(HEALTHY[:12]):
            await polled.play([(time, of_process(page, 1_795_983_000.0 + i % 2))])
        assert polled.status.is_up is False
        assert set(polled.status.errors) == {"several_engines"}
        assert not OF_ENGINES & polled.exported()
        assert "load-balanced" in (polled.status.snapshot(10).error or "")
        assert said(records) == ["target cannot be used"]


async def test_labels_that_change_all_the_time_pile_nothing_up(engine: Engine) -> None:
    async with Polled(engine) as polled:
        for i, (time, page) in enumerate(HEALTHY[:30]):
            await polled.play([(time, relabelled(page, f"m{i}"))])
        assert len(polled.status.state.engines) <= 1
        assert polled.exposition().count("prefixwatch_queried_tokens_total{") <= 1


@pytest.mark.parametrize("place", ["reader", "watch.add", "watch.state"])
async def test_a_fault_of_the_exporter_is_counted_and_logged_with_its_traceback(
    engine: Engine, records: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    async with Polled(engine) as polled:
        await polled.play(HEALTHY[:3])

        def broken(*_: object, **__: object) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            if place == "reader":
                patch.setattr(polled.poller._reader, "read", broken)
            else:
                patch.setattr(TargetWatch, place.partition(".")[2], broken)
            await polled.poll(3)
        assert polled.status.errors == {"internal": 3}
        assert polled.status.is_stale
        assert polled.status.is_up is False
        assert "its log" in (polled.status.snapshot(10).error or "")
        tracebacks = [record for record in records if record.exc_info]
        assert len(tracebacks) == 3
        assert len(records) == 4, "one line says that it broke, as ever"

        await polled.play(HEALTHY[8:10])
        assert polled.status.is_up
        assert said(records)[-1] == "target is back"


async def test_the_release_is_asked_once_and_again_after_an_outage(engine: Engine) -> None:
    def asked() -> int:
        return sum(path == "/version" for path, _ in engine.requests)

    async with Polled(engine) as polled:
        await polled.play(HEALTHY[:5])
        assert polled.status.snapshot(10).release == "0.32.0"
        assert asked() == 1
        engine.answer = engines.status(500)
        await polled.poll(4)
        assert asked() == 1, "not while it does not answer"
        engine.release = "0.33.0"
        await polled.play(HEALTHY[9:12])
        assert polled.status.snapshot(10).release == "0.33.0"
        assert asked() == 2


async def test_a_target_without_version_is_asked_again_now_and_then(engine: Engine) -> None:
    engine.release = None
    async with Polled(engine) as polled:
        await polled.play(HEALTHY[:3])
        assert polled.status.snapshot(10).release is None
        assert polled.status.is_up
        polled.now += 700
        engine.release = "0.32.0"
        await polled.poll()
        assert polled.status.snapshot(10).release == "0.32.0"
        assert [path for path, _ in engine.requests].count("/version") == 2


@pytest.mark.parametrize("version", ["", "1\n2", "x" * 1000])
async def test_a_strange_release_does_no_harm(engine: Engine, version: str) -> None:
    engine.release = version
    async with Polled(engine) as polled:
        await polled.poll()
        assert polled.status.is_up
        assert len(polled.status.snapshot(10).release or "") <= 64


async def test_a_connection_is_used_again_and_its_end_is_no_fault(engine: Engine) -> None:
    async with Polled(engine) as polled:
        await polled.play(HEALTHY[:5])
        assert len(engine.connections) == 1
        for connection in engine.connections:
            connection.close()
        await polled.play(HEALTHY[5:8])
        assert polled.status.errors == {}
        assert len(engine.connections) == 2


async def test_last_success_is_in_the_systems_time_and_readings_are_not(engine: Engine) -> None:
    """The system's clock may be set while the exporter runs; windows must not see it."""
    async with Polled(engine) as polled:
        await polled.play(HEALTHY[:10])
        polled.wall = polled.now - 3600.0
        await polled.play(HEALTHY[10:20])
        assert polled.status.last_success == polled.wall
        assert polled.status.errors == {}
        assert polled.status.state.engines[0].past.window(10).seconds == pytest.approx(10, abs=1.1)


def test_the_steady_clock_starts_at_the_systems_time_and_ignores_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    clock = steady_clock()
    assert clock() == pytest.approx(1000, abs=1)
    monkeypatch.setattr("time.time", lambda: 9_999_999.0)
    assert clock() == pytest.approx(1000, abs=1)


@pytest.mark.parametrize(
    ("missed", "seconds"),
    [
        pytest.param(0, 5, id="as configured"),
        pytest.param(FAST_RETRIES, 5, id="an engine that restarts is back soon"),
        pytest.param(FAST_RETRIES + 1, 5 * BACKOFF, id="slower"),
        pytest.param(FAST_RETRIES + 2, 5 * BACKOFF**2, id="slower still"),
        pytest.param(10_000, 15, id="not slower than max_backoff"),
    ],
)
def test_backoff(missed: int, seconds: float) -> None:
    poller = _idle_poller(Config(), jitter=lambda low, high: high)
    poller._missed = missed
    assert poller.delay() == pytest.approx(seconds * (1 + JITTER))
    poller._jitter = lambda low, high: low
    assert poller.delay() == pytest.approx(seconds * (1 - JITTER))


def test_backoff_never_polls_faster_than_configured() -> None:
    poller = _idle_poller(Config(poll_interval=Duration(60), max_backoff=Duration(15)), jitter=lambda low, high: 1.0)
    poller._missed = 100
    assert poller.delay() == 60


def _idle_poller(config: Config, *, jitter: object) -> TargetPoller:
    target = Polled(Engine())._target
    watch = watch_of(target, config)
    return TargetPoller(target, config, None, None, watch=watch, spans=(), clock=lambda: 0.0, jitter=jitter)
