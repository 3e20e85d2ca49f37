"""The commands, as processes: what they print, where, and how they end."""

import asyncio
import gzip
import io
import json
import os
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import aiohttp
import pytest
import yaml

from edge import engines
from edge.commands import Done, ended, exporter, run, started
from edge.engines import DATA, Engine, playing, token_hit_ratio, trace
from edge.polled import nulls
from edge.waiting import until
from prefixwatch import serving
from prefixwatch.cli import main
from prefixwatch.fetch import Address
from prefixwatch.trace import scrapes

PAGES = [page for _, page in trace("healthy")]
BRIEF = ("--for", "2s", "--interval", "0.2s")


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Run a command that needs no loop of its own, in this process."""
    for name in os.environ:
        if name.startswith("PREFIXWATCH_"):
            monkeypatch.delenv(name)

    def call(*arguments: object) -> Done:
        code = main([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return call


def one_line(done: Done, *words: str) -> None:
    """Bad input: exit 2, and one line on stderr that says what, where, and what to do."""
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("prefixwatch: ")
    assert done.err.count("\n") == 1, done.err
    for word in words:
        assert word in done.err


def engine_of(done: Done) -> dict:
    assert done.code == 0, done.err
    (target,) = json.loads(done.out)["targets"]
    (one,) = target["engines"]
    return one


async def test_check_prints_a_table(engine: Engine) -> None:
    engine.answer = playing(PAGES)
    done = await run("check", engine.url, *BRIEF)
    assert (done.code, done.err) == (0, "")
    ratio = token_hit_ratio(engine.played[0], engine.played[-1])
    assert done.out.startswith(f"tiny, engine 0 at 127.0.0.1:{engine.port} (vLLM 0.32.0): 2 s, ")
    assert re.search(rf"token hit ratio +{ratio * 100:.1f} %", done.out)
    assert 9 <= len(engine.played) <= 11


async def test_check_prints_json(engine: Engine) -> None:
    engine.answer = playing(PAGES)
    one = engine_of(await run("check", engine.url, "--for", "1s", "--interval", "0.2s", "--json"))
    assert one["token_hit_ratio"] == pytest.approx(token_hit_ratio(engine.played[0], engine.played[-1]))
    assert nulls(one) == one["reasons"].keys()
    assert [path for path, _ in engine.requests].count("/version") == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(engines.status(404), "vLLM serves it at /metrics", id="404"),
        pytest.param(engines.status(401), "bearer_token_file", id="401"),
        pytest.param(engines.body(engines.HTML), "HTML", id="HTML"),
        pytest.param(engines.body(engines.SGLANG), "SGLang", id="another engine"),
    ],
)
async def test_check_of_something_else_says_why(engine: Engine, answer: engines.Answer, says: str) -> None:
    engine.answer = answer
    found = await serving.check(Address(url=engine.url), seconds=0.2, interval=0.1, window=None)
    assert found.engines == ()
    assert says in (found.error or "")


async def test_check_does_not_wait_for_what_will_not_pass(engine: Engine) -> None:
    engine.answer = engines.status(404)
    await asyncio.wait_for(serving.check(Address(url=engine.url), seconds=600, interval=0.05, window=None), 30)
    assert len(engine.requests) == 2


async def test_check_of_nothing_fails(engine: Engine) -> None:
    await engine.stop()
    done = await run("check", engine.url, "--for", "0.4s", "--interval", "0.2s")
    assert done == Done(1, "", f"prefixwatch: 127.0.0.1:{engine.port}: no connection: Connection refused\n")


async def test_a_long_fault_of_check_is_one_line(engine: Engine) -> None:
    name = "m" * 200
    engine.answer = engines.body(f'vllm:prefix_cache_hits_total{{model_name="{name}"}} 1 2 3 4\n'.encode())
    done = await run("check", engine.url, "--for", "0.2s", "--interval", "0.2s")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "line 1" in done.err


async def test_check_says_that_the_engine_died_meanwhile(engine: Engine) -> None:
    engine.answer = playing(PAGES)
    process = await started("check", engine.url, "--for", "4s", "--interval", "0.2s")
    await until(lambda: len(engine.played) >= 4)
    engine.answer = engines.status(500)
    done = await ended(process, within=20)
    assert (done.code, done.err) == (0, "")
    assert "the last poll failed, what stands above is from before it: HTTP 500" in done.out
    assert "token hit ratio" in done.out


async def test_check_ends_with_its_last_poll(engine: Engine) -> None:
    engine.answer = playing(PAGES)
    begun = time.monotonic()
    found = await serving.check(Address(url=engine.url), seconds=1.0, interval=1.0, window=None)
    assert 1.0 <= time.monotonic() - begun < 1.9
    assert len(engine.played) == 2
    assert found.engines[0].window_seconds == pytest.approx(1, abs=0.3)


async def test_check_keeps_what_it_saw_when_the_engine_dies_meanwhile(engine: Engine) -> None:
    engine.answer = playing(PAGES)
    checking = asyncio.create_task(serving.check(Address(url=engine.url), seconds=1.0, interval=0.1, window=None))
    await until(lambda: len(engine.played) >= 6)
    await engine.stop()
    found = await checking
    assert not found.is_up
    assert found.engines[0].token_hit_ratio == pytest.approx(token_hit_ratio(engine.played[0], engine.played[-1]))


async def test_ctrl_c_on_check_prints_what_was_seen_so_far(engine: Engine) -> None:
    engine.answer = playing(PAGES)
    process = await started("check", engine.url, "--for", "60s", "--interval", "0.2s", "--json")
    await until(lambda: len(engine.played) >= 6)
    process.send_signal(signal.SIGINT)
    one = engine_of(await ended(process, within=20))
    assert 0.5 < one["window_seconds"] < 30
    assert one["token_hit_ratio"] is not None


async def test_ctrl_c_on_check_does_not_wait_for_an_engine_that_hangs(engine: Engine) -> None:
    engine.answer = engines.hang
    process = await started("check", engine.url, "--for", "60s")
    await until(lambda: engine.requests)
    process.send_signal(signal.SIGINT)
    before = time.monotonic()
    done = await ended(process, within=20)
    assert time.monotonic() - before < 4, "a poll lasts 5 s"
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1


async def test_polls_that_an_engine_slept_through_are_not_made_up_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_TIMEOUT", 0.7)
    engine.answer = engines.hang
    found = await serving.check(Address(url=engine.url), seconds=1.0, interval=0.1, window=None)
    assert found.error == "no whole answer within 0.7 s"
    assert len(engine.requests) == 2, "at 0 s and at 0.7 s: the second lasts longer than was asked for"


@pytest.mark.parametrize("name", ["trace.txt", "trace.txt.gz"])
async def test_what_is_recorded_is_what_was_served_and_replays(
    engine: Engine, called, tmp_path: Path, name: str
) -> None:
    engine.answer = playing(PAGES)
    file = tmp_path / name
    done = await run("record", engine.url, file, "--for", "0.6s", "--interval", "0.2s")
    assert (done.code, done.out) == (0, "")
    assert f"{len(engine.played)} pages in {file}" in done.err
    assert [scrape.body for scrape in scrapes(file)] == engine.played
    one = engine_of(called("replay", file, "--json"))
    assert one["token_hit_ratio"] == pytest.approx(token_hit_ratio(engine.played[0], engine.played[-1]))


async def test_a_recording_holds_failures_and_ends_with_ctrl_c(engine: Engine, tmp_path: Path) -> None:
    engine.answer = playing(PAGES)
    file = tmp_path / "trace.txt"
    process = await started("record", engine.url, file, "--interval", "0.2s")
    await until(lambda: len(engine.played) >= 3)
    await engine.stop()
    await until(lambda: b"error connection" in file.read_bytes())
    process.send_signal(signal.SIGINT)
    done = await ended(process, within=20)
    assert done.code == 0
    found = list(scrapes(file))
    assert [scrape.body for scrape in found if scrape.body] == engine.played
    assert {scrape.error for scrape in found if not scrape.body} == {"connection"}


async def test_a_recording_without_a_page_is_a_failure(engine: Engine, tmp_path: Path) -> None:
    await engine.stop()
    done = await run("record", engine.url, tmp_path / "trace.txt", "--for", "0.4s", "--interval", "0.2s")
    assert (done.code, "Traceback" in done.err) == (1, False)


async def test_a_recording_that_cannot_be_written(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("precious")
    one_line(await run("record", engine.url, tmp_path / "there"), "there", "exists already")
    assert (tmp_path / "there").read_text() == "precious"
    one_line(await run("record", engine.url, tmp_path / "no" / "such"), "such", "No such file")


async def test_a_full_disk_ends_a_recording_with_one_line_and_what_was_written_can_be_read(
    engine: Engine, tmp_path: Path
) -> None:
    engine.answer = playing(PAGES)
    limit = len(PAGES[0]) * 2 + 1000

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = await run("record", engine.url, tmp_path / "trace.txt", "--interval", "0.2s", prepare=small_disk)
    one_line(done, "trace.txt", "cannot be written", "File too large")
    assert [scrape.body for scrape in scrapes(tmp_path / "trace.txt")][:2] == engine.played[:2]


def test_read_a_page_from_a_file_or_standard_input(called, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DATA / "pages" / "recorded-0.32.prom"
    by_name = called("read", file)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    by_pipe = called("read", "-")
    assert by_name.code == by_pipe.code == 0
    assert "since the engine's start" in " ".join(by_name.out.split())
    assert by_name.out.partition("\n\n")[2] == by_pipe.out.partition("\n\n")[2]
    one = engine_of(called("read", file, "--json"))
    assert 0 < one["token_hit_ratio"] < 1


def test_replay_a_trace_or_a_part_of_it(called) -> None:
    folder = DATA / "traces" / "healthy"
    whole, last, early = (
        engine_of(called("replay", folder, "--json", *more)) for more in ((), ("--window", "10s"), ("--at", "20s"))
    )
    assert whole["token_hit_ratio"] == pytest.approx(token_hit_ratio(PAGES[0], PAGES[-1]))
    assert last["window_seconds"] == pytest.approx(10, abs=1.1)
    assert early["window_seconds"] == pytest.approx(20, abs=1.1)
    table = called("replay", folder)
    assert table.code == 0
    assert "token hit ratio" in table.out


BAD_INPUT = [
    pytest.param(("check", "ftp://localhost"), ["is not a URL", "http://localhost:8000/metrics"], id="check: no URL"),
    pytest.param(("check", "http://me:hunter2@localhost"), ["no credentials in a URL"], id="check: credentials"),
    pytest.param(("record", "http://me:hunter2@localhost", "x"), ["no credentials in a URL"], id="record: credentials"),
    pytest.param(("check", "a", "--for", "1s", "--interval", "5s"), ["--interval: 5 s", "--for, 1 s", "two polls"], id="check: one poll"),
    pytest.param(("run",), ["config: targets: none", "prefixwatch run http://"], id="run: no target"),
    pytest.param(("run", "http://me:hunter2@localhost"), ["targets[0].url", "no credentials"], id="run: credentials"),
    pytest.param(("run", "a", "--poll-interval", "5 min"), ["poll_interval", "5 min"], id="run: no duration"),
    pytest.param(("run", "a", "--listen", "x"), ["listen", '"x"'], id="run: no address"),
    pytest.param(("run", "--config", "/no/such.yaml"), ["/no/such.yaml", "cannot be read"], id="run: no configuration"),
    pytest.param(("config", "a", "--log-level", "loud"), ["log_level", "loud"], id="config: bad value"),
    pytest.param(("read", "/no/such.prom"), ["/no/such.prom", "cannot be read"], id="read: no file"),
    pytest.param(("read", "/dev/null"), ["/dev/null: the page is empty"], id="read: nothing"),
    pytest.param(("read", "/dev/zero"), ["/dev/zero: larger than 16 MiB"], id="read: without an end"),
    pytest.param(("read", DATA / "traces"), ["traces", "cannot be read"], id="read: a folder"),
    pytest.param(("replay", "/no/such"), ["/no/such", "cannot be read"], id="replay: no file"),
    pytest.param(("replay", DATA / "pages"), ["pages", "scrapes.txt.gz"], id="replay: a folder without a trace"),
    pytest.param(("replay", DATA / "traces" / "healthy", "--at", "100s"), ["healthy", "ends at", "63 s"], id="replay: after the end"),
    pytest.param(("replay", DATA / "traces" / "healthy", "--at", "3000000000"), ["ends at"], id="replay: years after it"),
    pytest.param(("replay", DATA / "pages" / "pair-t0.prom"), ["pair-t0.prom: line 1"], id="replay: a page"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), BAD_INPUT)
def test_bad_input_is_one_line(called, arguments: tuple[object, ...], words: list[str]) -> None:
    done = called(*arguments)
    one_line(done, *words)
    assert "hunter2" not in done.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(engines.HTML, ["HTML"], id="HTML"),
        pytest.param(engines.JSON, ["JSON"], id="JSON"),
        pytest.param(b"vllm:prefix_cache_hits_total 1\nvllm:prefix_cache_hits_total{ 1\n", ["line 2"], id="broken"),
        pytest.param(gzip.compress(PAGES[0])[:-9], ["gzip"], id="gzip"),
    ],
)
def test_a_file_that_is_no_page_is_one_line(called, tmp_path: Path, content: bytes, words: list[str]) -> None:
    (tmp_path / "page").write_bytes(content)
    one_line(called("read", tmp_path / "page"), str(tmp_path / "page"), *words)


@pytest.mark.parametrize("page", ["", "# HELP other x\n", "other 1\n"])
@pytest.mark.parametrize("option", [(), ("--json",)])
def test_a_trace_without_an_engine_is_one_line(called, tmp_path: Path, page: str, option: tuple[str]) -> None:
    (tmp_path / "trace").write_text(f"# SCRAPE 1000\n{page}# SCRAPE 1001\n{page}")
    one_line(called("replay", tmp_path / "trace", *option), f"{tmp_path}/trace: no page of an engine in it: ")


@pytest.mark.parametrize(
    ("page", "why"),
    [
        pytest.param(engines.SGLANG.decode(), "it looks like SGLang", id="another engine's"),
        pytest.param("other 1\n", "it begins with other", id="anybody's"),
        pytest.param("# TYPE vllm:prefix_cache_hits counter\n", "are statistics switched off?", id="without a sample"),
    ],
)
def test_a_page_without_an_engine_is_read_as_such(called, tmp_path: Path, page: str, why: str) -> None:
    (tmp_path / "page").write_text(page)
    done = called("read", tmp_path / "page")
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)
    assert done.out.startswith(f"{tmp_path}/page: ")
    assert why in done.out
    (target,) = json.loads(called("read", tmp_path / "page", "--json").out)["targets"]
    assert target["engines"] == []
    assert why in target["reasons"]["engines"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
async def test_a_name_that_the_output_has_no_letters_for(tmp_path: Path, encoding: str) -> None:
    page = PAGES[-1].decode().replace('model_name="tiny"', 'model_name="\N{SNOWMAN}"')
    (tmp_path / "page").write_text(page)
    environment = {"PYTHONIOENCODING": encoding}
    done = await run("read", tmp_path / "page", env=environment)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("\\u2603, engine 0")
    one = engine_of(await run("read", tmp_path / "page", "--json", env=environment))
    assert one["model_name"] == "\N{SNOWMAN}"


@pytest.mark.parametrize("columns", ["0", "-1", "", "wide"])
def test_a_width_that_is_none_is_left_alone(called, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    usual = called("replay", DATA / "traces" / "healthy").out
    monkeypatch.setenv("COLUMNS", columns)
    assert called("replay", DATA / "traces" / "healthy").out == usual


def test_a_trace_that_ends_early_names_the_line(called, tmp_path: Path) -> None:
    content = (DATA / "traces" / "healthy" / "scrapes.txt.gz").read_bytes()
    (tmp_path / "cut.gz").write_bytes(content[: len(content) // 2])
    one_line(called("replay", tmp_path / "cut.gz"), "cut.gz: line ", "ends early")


@pytest.mark.parametrize(
    "arguments", [(), ("check",), ("check", "a", "--for", "soon"), ("check", "a", "--for", "0s"), ("nothing",)]
)
def test_wrong_usage_is_argparses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: prefixwatch")


def test_config_prints_what_holds_and_hides_secrets(called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "prefixwatch.yaml"
    file.write_text("poll_interval: 2s\nwindows: [1m, 10m]\ndiagnosis_window: 10m\n")
    monkeypatch.setenv("PREFIXWATCH_POLL_TIMEOUT", "3s")
    monkeypatch.setenv("PREFIXWATCH_POLL_INTERVAL", "4s")
    done = called("config", "http://a:8000/metrics?key=hunter2", "--config", file, "--poll-interval", "1s")
    assert (done.code, done.err) == (0, "")
    found = yaml.safe_load(done.out)
    assert (found["poll_interval"], found["poll_timeout"], found["windows"]) == ("1s", "3s", ["1m", "10m"])
    assert "hunter2" not in done.out


async def test_errors_that_nobody_reads_stop_nothing() -> None:
    done = await run("read", DATA / "pages" / "recorded-0.32.prom", "--json", prepare=lambda: os.close(2))
    assert engine_of(done)["token_hit_ratio"] is not None


async def test_an_input_that_is_closed_is_one_line() -> None:
    one_line(await run("read", "-", prepare=lambda: os.close(0)), "standard input: it is closed")


async def test_a_short_check_polls_more_often(engine: Engine) -> None:
    engine.answer = playing(PAGES)
    assert engine_of(await run("check", engine.url, "--for", "500ms", "--json"))["window_seconds"] > 0.3


async def test_a_pipe_that_closes_is_no_traceback() -> None:
    process = await started("read", DATA / "pages" / "recorded-0.32.prom", "--json")
    process.stdout._transport.close()
    done = await ended(process)
    assert (done.code, done.err) == (1, "")


@pytest.fixture
def full() -> Iterator[BinaryIO]:
    """A file that takes nothing."""
    with Path("/dev/full").open("wb") as file:
        yield file


@pytest.mark.parametrize("command", [("replay", DATA / "traces" / "healthy"), ("config", "a")])
async def test_a_full_disk_is_one_line(full: BinaryIO, command: tuple[object, ...]) -> None:
    done = await run(*command, out=full)
    assert (done.code, done.err) == (1, "prefixwatch: standard output cannot be written: No space left on device\n")


async def test_an_output_that_is_closed_is_no_traceback() -> None:
    done = await run("config", "a", prepare=lambda: os.close(1))
    assert (done.code, done.out, done.err) == (0, "", "")


def test_what_goes_into_a_file_has_a_width_of_its_own_and_no_blanks_at_the_ends(called, monkeypatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = called("replay", DATA / "traces" / "thrash_low_usage").out.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert 100 < max(map(len, lines)) <= 120


def test_the_readme_shows_what_is_printed(called, monkeypatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(DATA.parents[1])
    block = Path("README.md").read_text().partition("```\n$ prefixwatch ")[2].partition("```")[0]
    command, _, text = block.partition("\n")
    assert called(*command.partition("#")[0].split()).out.rstrip() == text.rstrip()


async def fetched(url: str) -> tuple[int, str]:
    async with aiohttp.request("GET", url) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_run_serves_and_ends_when_told_to(engine: Engine, number: signal.Signals) -> None:
    async with exporter(engine.url, "--poll-interval", "0.2s") as running:

        async def is_ready() -> bool:
            return (await fetched(f"{running.url}/readyz"))[0] == 200

        await until(is_ready)
        status, text = await fetched(f"{running.url}/metrics")
        assert status == 200
        assert f'prefixwatch_up{{target="127.0.0.1:{engine.port}"}} 1.0' in text
        before = time.monotonic()
        running.process.send_signal(number)
        done = await ended(running.process)
        assert done.code == 0
        assert time.monotonic() - before < 5
        assert "Traceback" not in done.err


async def test_run_ends_in_the_middle_of_a_poll_a_scrape_and_idle_connections(engine: Engine) -> None:
    engine.answer = engines.hang
    async with exporter(engine.url) as running, aiohttp.ClientSession() as client:
        await until(lambda: engine.requests)
        async with client.get(f"{running.url}/healthz") as response:
            assert response.status == 200  # this connection stays open
        _, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rpartition(":")[2]))
        writer.write(b"GET /metrics HTTP/1.1\r\nHost:")  # and this request never ends
        await writer.drain()
        before = time.monotonic()
        running.process.terminate()
        done = await ended(running.process)
        writer.close()
        assert done.code == 0
        assert time.monotonic() - before < 5
        assert "Traceback" not in done.err


async def test_run_on_a_busy_port_is_one_line(engine: Engine) -> None:
    done = await run("run", "http://127.0.0.1:9/metrics", "--listen", f"127.0.0.1:{engine.port}")
    one_line(done, f"cannot listen on 127.0.0.1:{engine.port}", "Address already in use", "--listen")


async def test_the_log_names_targets_and_never_tokens(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2")
    (tmp_path / "config.yaml").write_text(
        f"targets: [{{url: '{engine.url}?key=hunter2'}}]\naccess: {{bearer_token_file: {tmp_path}/token}}\n"
    )
    engine.answer = engines.wants_token
    async with exporter("--config", tmp_path / "config.yaml", "--poll-interval", "0.2s") as running:
        await until(lambda: len(engine.requests) >= 4)
        _, text = await fetched(f"{running.url}/api/v1/status")
        _, page = await fetched(f"{running.url}/")
        running.process.terminate()
        done = await ended(running.process)
    assert engine.requests[0][1]["Authorization"] == "Bearer hunter2"
    assert "http_4xx" in done.err
    for shown in (text, page, done.err):
        assert "hunter2" not in shown
    assert all(json.loads(line)["level"] for line in done.err.splitlines())
