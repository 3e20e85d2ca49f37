"""What is served: the exposition against its catalogue, the JSON against its contract."""

import asyncio
import dataclasses
import os
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from edge import engines
from edge.engines import DATA, Engine, of_process, trace
from edge.polled import CONFIG, Polled, exposition, names, nulls
from edge.waiting import until
from prefixwatch import web
from prefixwatch.catalog import BY_NAME, METRICS, PREFIX, Group, Kind, budget
from prefixwatch.config import Config, Duration, TargetConfig
from prefixwatch.discovery import DnsName, Target
from prefixwatch.eventchannel import ChannelStatus
from prefixwatch.fetch import Address
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.page.interpreter import Interpreter
from prefixwatch.poller import Poller
from prefixwatch.replaying import RecordedFeed
from prefixwatch.snapshot import TargetSnapshot
from prefixwatch.targetpoller import TargetStatus, watch_of
from prefixwatch.web import TURN_ITEMS, application

GOLDEN = DATA / "golden" / "thrash_low_usage.prom"
RENEW = "RENEW_GOLDEN"
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0"}
TEXT = {"Accept": "text/plain;version=0.0.4"}
LABELS = {"zone": "a"}

SHORT = Config(windows=(Duration(20), Duration(40), Duration(60)), diagnosis_window=Duration(20))

# Exported where an engine does what no recorded one did.
NOT_RECORDED: set[str] = set()

# What promtool says of quantiles that are no summary's: ours are of a window, from vLLM's sampled blocks.
QUANTILES = 'non-summary metrics should not have "quantile" label'

# What may differ from run to run and from release to release: the version, how long a poll took,
# and digits behind the fifth of a fitted estimate.
VOLATILE = re.compile(
    r'(?<=version=")[^"]*|(?<=_seconds\{zone="a",target="tiny:8000"\} )\S+|(?<=\.\d{5})\d+(?=$|e)', re.MULTILINE
)


class Polls(SimpleNamespace):
    """What the application asks of a poller."""

    def __init__(self, *statuses: TargetStatus) -> None:
        discovery = SimpleNamespace(is_file_good=True, is_done=True, dns_names=())
        super().__init__(statuses=list(statuses), discovery=discovery, is_ready=True)


@pytest.fixture(scope="module")
def seen() -> TargetStatus:
    """A target that was polled through a whole trace."""

    async def polled() -> TargetStatus:
        async with Engine() as engine, Polled(engine, Config(), name="tiny:8000") as polled:
            await polled.play(trace("thrash_low_usage"))
            return polled.status

    return asyncio.run(polled())


@pytest.fixture
async def client(aiohttp_client, seen: TargetStatus) -> TestClient:
    return await aiohttp_client(application(Config(), Polls(seen), polls=False))


async def scraped(client: TestClient, path: str = "/metrics", headers: Mapping[str, str] = TEXT) -> str:
    response = await client.get(path, headers=headers)
    assert response.status == 200
    return await response.text()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slow(TargetStatus):
    """A status whose snapshot waits until it may be made."""

    begun: threading.Event
    go: threading.Event
    made: list[float]

    def snapshot(self, seconds: float) -> TargetSnapshot:
        self.begun.set()
        assert self.go.wait(30)
        self.made.append(seconds)
        return TargetSnapshot(target="a", is_up=False, dialect=None, release=None, caveats=(), engines=())


@pytest.mark.parametrize("path", ["/api/v1/status", "/"])
async def test_a_scrape_comes_in_between_the_turns_of_what_people_look_at(
    aiohttp_client, seen: TargetStatus, path: str
) -> None:
    begun, go, made, made_before = threading.Event(), threading.Event(), [], []
    fields = {field.name: getattr(seen, field.name) for field in dataclasses.fields(TargetStatus)}
    statuses = [Slow(**fields, begun=begun, go=go, made=made)] * (2 * TURN_ITEMS + 1)

    class Looked(Polls):
        @property
        def statuses(self) -> list[TargetStatus]:
            made_before.append(len(made))
            return statuses

        @statuses.setter
        def statuses(self, _: list[TargetStatus]) -> None:
            pass

    app = application(Config(), Looked(), polls=False)
    client = await aiohttp_client(app)
    waiting = app[web._RENDERER]._work_queue
    looking = asyncio.create_task(scraped(client, path))
    await until(begun.is_set)
    scraping = asyncio.create_task(scraped(client))
    await until(waiting.qsize)
    go.set()
    await asyncio.gather(looking, scraping)
    assert made_before == [0, TURN_ITEMS]
    assert len(made) == len(statuses)


async def test_the_whole_exposition(client: TestClient) -> None:
    """Renew the file with RENEW_GOLDEN=1, and read what changed: others depend on it."""
    text = VOLATILE.sub("", await scraped(client))
    if os.environ.get(RENEW):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), f"if this is meant: {RENEW}=1 pytest {Path(__file__).name}"


def test_promtool_finds_nothing_to_say(seen: TargetStatus) -> None:
    text = exposition([seen], Config())
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    found = (done.stdout + done.stderr).splitlines()
    assert [line for line in found if not line.endswith(QUANTILES)] == []
    assert done.returncode == (3 if found else 0)


@pytest.mark.parametrize(
    ("accept", "content_type", "parsed"),
    [
        pytest.param(
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
            openmetrics_families,
            id="Prometheus",
        ),
        pytest.param("text/plain;version=0.0.4", "text/plain; version=0.0.4; charset=utf-8", text_families, id="text"),
        pytest.param("*/*", "text/plain; version=0.0.4; charset=utf-8", text_families, id="curl"),
        pytest.param("text/html", "text/plain; version=0.0.4; charset=utf-8", text_families, id="a browser"),
    ],
)
async def test_content_is_negotiated(client: TestClient, accept: str, content_type: str, parsed) -> None:
    response = await client.get("/metrics", headers={"Accept": accept})
    assert content_type.startswith(response.headers["Content-Type"])
    text = await response.text()
    assert text.endswith("# EOF\n") is (parsed is openmetrics_families)
    assert len(list(parsed(text))) > 20


@pytest.mark.parametrize(("accepted", "coding"), [("gzip, deflate", "gzip"), ("identity", None), ("br", None)])
async def test_gzip_where_it_is_asked_for(client: TestClient, accepted: str, coding: str | None) -> None:
    plain = await scraped(client, headers={**TEXT, "Accept-Encoding": "identity"})
    url = client.make_url("/metrics")
    async with aiohttp.request("GET", url, headers={**TEXT, "Accept-Encoding": accepted}) as response:
        assert response.headers.get("Content-Encoding") == coding
        assert await response.text() == plain
        assert (int(response.headers["Content-Length"]) < len(plain) / 3) is (coding == "gzip")


async def test_families_can_be_chosen_by_name(client: TestClient) -> None:
    text = await scraped(client, "/metrics?name[]=prefixwatch_up&name[]=prefixwatch_hit_tokens_total")
    assert names(text) == {"up", "hit_tokens_total"}
    assert await scraped(client, "/metrics?name[]=prefixwatch_nothing") == ""


async def test_an_unreachable_engine_is_a_sample_not_a_failed_scrape(aiohttp_client, engine: Engine) -> None:
    await engine.stop()
    config = Config(targets=(TargetConfig(url=engine.url),))
    client = await aiohttp_client(application(config, Poller(config)))
    await until(lambda: _status_of(client, "/readyz", 200))
    text = await scraped(client)
    assert f'prefixwatch_up{{target="127.0.0.1:{engine.port}"}} 0.0' in text
    assert re.search(r'prefixwatch_poll_errors_total\{reason="connection",.*\} [1-9]', text)
    assert (await client.get("/healthz")).status == 200


async def _status_of(client: TestClient, path: str, wanted: int) -> bool:
    return (await client.get(path)).status == wanted


async def test_ready_after_the_first_round_and_healthy_before(aiohttp_client, engine: Engine) -> None:
    engine.answer = engines.hang
    config = Config(targets=(TargetConfig(url=engine.url),), poll_timeout=Duration(60))
    client = await aiohttp_client(application(config, Poller(config)))
    await until(lambda: engine.requests)
    for path, status, text in (
        ("/readyz", 503, "the first round of polling has not ended yet\n"),
        ("/healthz", 200, "ok\n"),
    ):
        response = await client.get(path)
        assert (response.status, await response.text()) == (status, text)
    assert names(await scraped(client)) == {"build_info", "target_loading"}

    await engine.stop()
    await until(lambda: _status_of(client, "/readyz", 200))


# The exposition and its catalogue.


def scenarios() -> Iterator[tuple[str, str]]:
    """Yield (name, exposition) of what recorded traces and pages show."""
    for name in ("healthy", "thrash_low_usage", "two_engines", "restart", "caching_disabled", "pressure"):
        yield name, _exposition(trace(name))
    yield "a KV connector", _exposition(_with_connector(trace("healthy")))
    yield "cache events", _exposition(trace("thrash_low_usage"), feed=_Feed(DATA / "traces" / "thrash_low_usage"))
    for file in sorted((DATA / "pages").glob("*.prom")):
        yield file.name, _exposition([(1.0, file.read_bytes()), (2.0, file.read_bytes())])


def _with_connector(scrapes: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    for count, (time, page) in enumerate(scrapes):
        queried = re.sub(rb"(external_prefix_cache_queries_total.*) \S+", rb"\1 %d" % (100 * count), page)
        yield time, re.sub(rb"(external_prefix_cache_hits_total.*) \S+", rb"\1 %d" % (40 * count), queried)


class _Feed(RecordedFeed):
    """Recorded events, as if from an endpoint that had its troubles."""

    def status(self) -> tuple[ChannelStatus, ...]:
        errors = {"unreachable": 2, "gap": 1, "malformed_event": 1}
        return (
            ChannelStatus(
                endpoint="tcp://tiny:5557", engine="0", is_connected=True, batches=9, missed=1, refilled=2, restarts=0,
                lag=0.1, errors=errors, is_from_start=True,
            ),
        )  # fmt: skip


def _exposition(scrapes: Iterable[tuple[float, bytes]], *, feed: RecordedFeed | None = None) -> str:
    target = Target(name="tiny:8000", address=Address(url="http://tiny:8000/"), labels=LABELS)
    watch, reader, interpreter = watch_of(target, SHORT, feed=feed), PageReader(is_wanted), Interpreter()
    for time, page in scrapes:
        if feed is not None:
            feed.take(time)
        watch.add(interpreter.interpret(reader.read(page), time=time))
        state = watch.state(SHORT.windows)
    status = TargetStatus(
        state=state, is_up=True, is_loading=False, is_stale=False,
        duration=0.01, last_success=1.0, began=0.0, errors={"timeout": 1, "connection": 2},
    )  # fmt: skip
    return exposition([status], SHORT)


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    return dict(scenarios())


def test_what_is_exported_is_in_the_catalogue_word_for_word(shown: dict[str, str]) -> None:
    for scenario, text in shown.items():
        for family in text_families(text):
            if family.name.endswith("_created"):
                continue
            name = family.name.removeprefix(PREFIX) + ("_total" if family.type == "counter" else "")
            metric = BY_NAME[name]
            assert (family.type, family.documentation) == (metric.kind, metric.help), scenario
            static = LABELS.keys() if "target" in metric.labels else set()
            for sample in family.samples:
                assert sample.labels.keys() == {*metric.labels, *static}, (scenario, sample)


def test_every_entry_of_the_catalogue_is_exported_by_some_scenario(shown: dict[str, str]) -> None:
    exported = set[str]().union(*(names(text) for text in shown.values())) | {
        "targets_file_last_reload_success",
        "dns_addresses",
    }
    assert BY_NAME.keys() - exported == NOT_RECORDED


def test_an_engine_has_no_more_series_than_its_budget(shown: dict[str, str]) -> None:
    for scenario, text in shown.items():
        engines_seen: set[tuple[str, str]] = set()
        series: Counter[str] = Counter()
        for family in text_families(text):
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    series[sample.name.removeprefix(PREFIX)] += 1
                if "engine" in sample.labels:
                    engines_seen.add((sample.labels["model_name"], sample.labels["engine"]))
        count = max(1, len(engines_seen))
        over = {name: n for name, n in series.items() if n > max(1, BY_NAME[name].series_per_engine) * count}
        assert not over, scenario
        assert series.total() <= budget() * count, scenario


def test_help_texts_say_what_a_gauge_of_a_window_must_not_be_used_for() -> None:
    for metric in METRICS:
        assert metric.help.endswith((".", "?")), metric.name
        if metric.group is Group.WINDOW:
            assert "do not average" in metric.help, metric.name
        assert metric.name.endswith("_total") is (metric.kind is Kind.COUNTER), metric.name


async def test_counters_passed_through_keep_the_engines_created(engine: Engine, aiohttp_client) -> None:
    born = 1_795_000_000.25
    async with Polled(engine) as polled:
        await polled.play([(time, of_process(page, born)) for time, page in trace("healthy")[:3]])
        client = await aiohttp_client(application(CONFIG, Polls(polled.status), polls=False))
    text, openmetrics = await scraped(client), await scraped(client, headers=OPENMETRICS)
    for families in (text_families(text), openmetrics_families(openmetrics)):
        created = {
            sample.name.removeprefix(PREFIX).removesuffix("_created"): sample.value
            for family in families
            for sample in family.samples
            if sample.name.endswith("_created")
        }
        ours = {metric.name.removesuffix("_total") for metric in METRICS if metric.group is Group.ENGINE}
        exported = {name.removesuffix("_total") for name in names(text)}
        assert {name: created[name] for name in ours & exported} == dict.fromkeys(ours & exported, born)
        assert len(ours & exported) >= 8


# The JSON and its contract.

OF_TARGET = {"target", "up", "dialect", "release", "caveats", "engines"}
OF_ENGINE = [
    "model_name",
    "engine",
    "window_seconds",
    "requests",
    "token_hit_ratio",
    "external_hit_ratio",
    "cached_prompt_ratio",
    "hit_ratio_ceiling",
    "request_hit_ratio",
    "mostly_cached_request_ratio",
    "full_request_ratio",
    "cold_request_ratio",
    "hit_ratio_gap",
    "prompt_tokens_by_source",
    "output_per_prompt_token",
    "prefill_share",
    "pool_tokens",
    "pool_filled",
    "turnover_seconds",
    "kv_usage_max",
    "requests_running",
    "requests_waiting",
    "preemptions",
    "residency",
    "avoidable_miss_ratio",
    "working_set_ratio",
    "prefill_seconds_saved",
    "reasons",
    "diagnosis",
]
ESTIMATES = [
    "hit_ratio_ceiling",
    "request_hit_ratio",
    "mostly_cached_request_ratio",
    "full_request_ratio",
    "cold_request_ratio",
]


async def status_json(client: TestClient, query: str = "") -> dict[str, Any]:
    response = await client.get(f"/api/v1/status{query}")
    assert response.status == 200
    assert response.content_type == "application/json"
    return await response.json()


@pytest.mark.parametrize("window", ["1m", "5m", "1h"])
async def test_the_json_has_the_contracts_fields_and_a_reason_for_each_null(client: TestClient, window: str) -> None:
    (target,) = (await status_json(client, f"?window={window}"))["targets"]
    assert target.keys() >= OF_TARGET
    assert (target["target"], target["up"], target["dialect"], target["release"]) == (
        "tiny:8000",
        True,
        "vllm",
        "0.32.0",
    )
    (one,) = target["engines"]
    assert set(OF_ENGINE) <= one.keys()
    assert nulls(one) == one["reasons"].keys()
    assert all(one["reasons"].values())
    for name in ESTIMATES:
        if one[name] is not None:
            assert one[name]["lower"] <= one[name]["estimate"] <= one[name]["upper"], name


async def test_the_json_is_of_the_diagnosis_window_unless_another_is_asked_for(client: TestClient) -> None:
    assert await status_json(client) == await status_json(client, "?window=5m") == await status_json(client, "?window=")
    assert (await status_json(client, "?window=1m"))["targets"][0]["engines"][0]["window_seconds"] < 62


@pytest.mark.parametrize("wanted", ["2m", "300s", "5", "-1m", "5m5m", "<script>alert(1)</script>"])
async def test_a_window_that_is_not_kept_is_refused(client: TestClient, wanted: str) -> None:
    response = await client.get("/api/v1/status", params={"window": wanted})
    assert (response.status, response.content_type) == (400, "text/plain")
    assert await response.text() == "window: not one of 1m, 5m, 1h\n"


async def test_a_target_that_is_stale_has_no_engines_and_says_why(engine: Engine, aiohttp_client) -> None:
    async with Polled(engine) as polled:
        await polled.play(trace("healthy")[:15])
        engine.answer = engines.status(500)
        await polled.poll(3)
        client = await aiohttp_client(application(CONFIG, Polls(polled.status), polls=False))
    (target,) = (await status_json(client))["targets"]
    assert (target["up"], target["engines"], target["error"]) == (False, [], "HTTP 500")
    assert names(await scraped(client)) == {
        "up", "target_loading", "poll_duration_seconds", "last_success_timestamp_seconds", "poll_errors_total",
        "build_info", "targets_file_last_reload_success",
    }  # fmt: skip


async def test_a_name_without_an_address_can_be_seen(aiohttp_client) -> None:
    polls = Polls()
    polls.discovery.dns_names = [
        DnsName(name="vllm.ml.svc:8000", labels={"namespace": "ml"}, addresses=0),
        DnsName(name="chat.ml.svc:8000", labels={}, addresses=2),
    ]
    text = await scraped(await aiohttp_client(application(CONFIG, polls, polls=False)))
    assert 'prefixwatch_dns_addresses{dns="vllm.ml.svc:8000",namespace="ml"} 0.0' in text
    assert 'prefixwatch_dns_addresses{dns="chat.ml.svc:8000",namespace=""} 2.0' in text


async def test_targets_come_from_the_configuration_alone(client: TestClient) -> None:
    for path in ("/metrics?target=http://127.0.0.1:9/", "/probe?target=http://127.0.0.1:9/", "/api/v1/status?target=x"):
        assert (await client.get(path)).status in (200, 404)
    for method in ("post", "put", "delete"):
        assert (await getattr(client, method)("/metrics")).status == 405
