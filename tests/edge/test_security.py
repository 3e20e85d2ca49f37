"""What an attacker would try: other listeners, other targets, bombs, forged lines; and /healthz, which tells the truth."""

import asyncio
import dataclasses
import io
import json
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
import yaml
from rich.console import Console

from edge import engines
from edge.commands import exporter, run
from edge.engines import Engine, relabelled, trace
from edge.listening import hashed, idle_poller, listening, status_of
from edge.waiting import until
from prefixwatch import log, report, settings
from prefixwatch.addresses import without_credentials
from prefixwatch.config import Config, Duration, TargetConfig, load, read_targets
from prefixwatch.fetch import session
from prefixwatch.listener.headers import HEADERS
from prefixwatch.listener.negotiation import accepts_gzip, by_preference
from prefixwatch.poller import STALLED_AFTER, Poller
from prefixwatch.settings import ConfigError
from prefixwatch.trace import Recorder, TraceError
from prefixwatch.web import application
from replayed import watched
from writing import figures

HOSTILE = [
    '"><script>alert(1)</script>',
    "\x1b]0;owned\x07\x1b[2J\x1b[31m",
    "\u202etxt.exe\u2066",
    "line\r\n\x00ERROR forged",
    "\x9b31m\u2028\ud800",
    "x" * 10_000,
]


# Listeners and connections.


def listeners(process_id: int) -> set[str]:
    """Return the sockets on which a process can be reached, from /proc: TCP and UDP ports, Unix sockets that listen."""
    inodes = set()
    for descriptor in Path(f"/proc/{process_id}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if match := re.match(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                inodes.add(match[1])
    found = set()
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{process_id}/net/{kind}").read_text().splitlines()[1:]:
            place, state, inode = (line.split()[i] for i in (1, 3, 9))
            if inode in inodes and state in ("0A", "07"):  # listens; or UDP without a peer
                found.add(f"{kind.rstrip('6')} {int(place.rpartition(':')[2], 16)}")
    for line in Path(f"/proc/{process_id}/net/unix").read_text().splitlines()[1:]:
        flags, inode = (line.split()[i] for i in (3, 6))
        if inode in inodes and int(flags, 16) & 0x10000:
            found.add("unix")
    return found


@pytest.mark.parametrize("events", [(), ("--events", "tcp://127.0.0.1:9")], ids=["polling", "and events"])
async def test_nothing_listens_but_the_configured_address(engine: Engine, events: tuple[str, ...]) -> None:
    async with exporter(engine.url, "--poll-interval", "0.2s", *events) as running:
        await until(lambda: len(engine.requests) > 3)
        await status_of(int(running.url.rpartition(":")[2]))
        assert listeners(running.process.pid) == {f"tcp {running.url.rpartition(':')[2]}"}


@asynccontextmanager
async def trap() -> AsyncIterator[tuple[int, list[object]]]:
    """A port that nobody may connect to."""
    visitors: list[object] = []
    server = await asyncio.start_server(lambda _, writer: (visitors.append(1), writer.close()), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], visitors


async def test_no_request_makes_the_exporter_connect_anywhere(engine: Engine) -> None:
    async with trap() as (port, visitors), exporter(engine.url, "--poll-interval", "0.2s") as running:
        evil = f"http://127.0.0.1:{port}/metrics"
        headers = {
            "Host": f"127.0.0.1:{port}",
            "X-Forwarded-Host": f"127.0.0.1:{port}",
            "Referer": evil,
            "Forwarded": f"host={evil}",
        }
        async with aiohttp.ClientSession(headers=headers) as client:
            for path in ("/metrics", "/", "/api/v1/status", "/probe", "/federate", "/healthz", "/readyz"):
                for name in ("target", "url", "module", "match[]", "name[]", "window", "dns", "endpoint"):
                    async with client.get(f"{running.url}{path}", params={name: evil}) as response:
                        assert response.status in (200, 400, 404)
            _, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rpartition(":")[2]))
            writer.write(f"GET {evil} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            await writer.drain()
            writer.close()
        seen = len(engine.requests)
        await until(lambda: len(engine.requests) > seen + 3)
        assert visitors == []
        assert {path for path, _ in engine.requests} == {"/metrics", "/version"}


@pytest.mark.parametrize("path", ["/metrics", "/version"])
async def test_redirects_are_not_followed(engine: Engine, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with trap() as (port, visitors):
        original = Engine._respond

        async def redirecting(self: Engine, request: object) -> object:
            if request.path == path:
                self.requests.append((request.path, dict(request.headers)))
                return await engines.status(302, Location=f"http://127.0.0.1:{port}/")(self, request)
            return await original(self, request)

        monkeypatch.setattr(Engine, "_respond", redirecting)
        async with Engine(page=engine.page) as other:
            done = await run("check", other.url, "--for", "0.4s", "--interval", "0.2s")
        assert done.code == (1 if path == "/metrics" else 0)
        assert (path in {one for one, _ in other.requests}, visitors) == (True, [])


async def test_no_proxy_of_the_environment_and_no_netrc_is_used(engine: Engine, tmp_path: Path) -> None:
    async with trap() as (port, visitors):
        proxy = f"http://user:s3cret@127.0.0.1:{port}"
        names = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password s3cret\n")
        env = {**dict.fromkeys(names, proxy), "NETRC": str(tmp_path / ".netrc"), "HOME": str(tmp_path)}
        done = await run("check", engine.url, "--for", "0.4s", "--interval", "0.2s", env=env)
    assert (done.code, visitors) == (0, [])
    assert not [headers for _, headers in engine.requests if "Authorization" in headers]
    async with session() as shared:
        assert not shared.trust_env


async def test_a_path_cannot_be_walked(engine: Engine) -> None:
    async with listening() as served:
        for path in (
            "/../../etc/passwd",
            "/%2e%2e/%2e%2e/etc/passwd",
            "/..%2f..%2fetc/passwd",
            "/metrics/../../etc/passwd",
            "//etc/passwd",
        ):
            answer = await served.raw(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 404 ")
            assert b"root:" not in answer


# Headers.


async def test_every_answer_has_its_headers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "web.yaml").write_text(
        f"basic_auth_users: {{a: {hashed('x')}}}\nhttp_server_config: {{headers: {{Strict-Transport-Security: max-age=60}}}}\n"
    )

    async def broken(*_: object) -> None:
        raise ZeroDivisionError("s3cret")

    app = application(Config(), idle_poller(), polls=False)
    app.router.add_get("/broken", broken)
    seen = {}
    async with listening(app=app) as open_, listening(tmp_path / "web.yaml") as guarded:
        for served, line in (
            (open_, "GET /metrics HTTP/1.1"), (open_, "HEAD / HTTP/1.1"), (open_, "GET /healthz HTTP/1.1"),
            (open_, "GET /api/v1/status?window=9 HTTP/1.1"), (open_, "GET /nothing HTTP/1.1"), (open_, "POST / HTTP/1.1"),
            (open_, "GET /broken HTTP/1.1"), (open_, "rubbish"), (open_, "GET / HTTP/1.1\r\nExpect: the unexpected"),
            (guarded, "GET / HTTP/1.1"),
        ):  # fmt: skip
            answer = await served.raw(f"{line}\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
            lines = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")
            headers = dict(one.split(": ", 1) for one in lines[1:])
            seen[int(lines[0].split()[1])] = headers
            assert headers.items() >= HEADERS.items(), line
            policy = headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; ")
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert "aiohttp" not in answer.decode()
    assert seen.keys() == {200, 400, 401, 404, 405, 417, 500}
    assert seen[401]["Strict-Transport-Security"] == "max-age=60"


async def test_a_fault_inside_is_answered_without_its_words(records) -> None:
    async def broken(_: object) -> None:
        raise ZeroDivisionError("s3cret")

    app = application(Config(), idle_poller(), polls=False)
    app.router.add_get("/broken", broken)
    async with listening(app=app) as served:
        answer = await served.raw(b"GET /broken HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\nConnection: close\r\n\r\n")
        assert answer.endswith(b"\r\n\r\n500 Internal Server Error\n")
    assert [record.getMessage() for record in records] == ["a request failed inside the exporter"]


@pytest.mark.parametrize(
    ("header", "is_gzipped"),
    [
        ("", False), ("gzip", True), ("GZIP", True), ("x-gzip", True), ("gzip;q=0", False), ("gzip;q=0.0", False), ("gzip; q=0.000", False),
        ("deflate, gzip;q=1.0", True), ("*", True), ("*;q=0", False), ("*, gzip;q=0", False), ("identity", False), ("gzipped", False),
        ("identity;q=1, gzip;q=0.5", False), ("identity;q=0.5, gzip", True), ("br, *;q=0.1", True), ("gzip;Q=0", False), (",,;q=", False),
    ],
)  # fmt: skip
async def test_gzip_by_quality(header: str, is_gzipped: bool) -> None:
    assert accepts_gzip(header) is is_gzipped
    async with listening() as served:
        answer = await served.raw(
            f"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {header}\r\nConnection: close\r\n\r\n".encode()
        )
    assert (b"Content-Encoding: gzip" in answer) is is_gzipped
    assert b"Vary: Accept, Accept-Encoding" in answer


@pytest.mark.parametrize(
    ("header", "content_type"),
    [
        ("application/openmetrics-text", "application/openmetrics-text"), ("application/openmetrics-text;q=0", "text/plain"),
        ("application/openmetrics-text;q=0.1, text/plain;version=1.0.0;q=0.9", "text/plain"),
        ("text/plain;version=1.0.0;q=0.1, application/openmetrics-text;q=0.9", "application/openmetrics-text"),
        ("application/openmetrics-text;version=rubbish", "text/plain"), ("application/openmetrics-text;version=1.0.0;escaping=rubbish", ""),
        ("a" * 5000, "text/plain"), ("text/plain;version=" + "9" * 2000, "text/plain"),
    ],
)  # fmt: skip
async def test_formats_by_quality(header: str, content_type: str) -> None:
    async with listening() as served:
        answer = await served.raw(
            f"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: {header}\r\nConnection: close\r\n\r\n".encode()
        )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert f"\r\nContent-Type: {content_type}".encode() in answer


def test_preference_is_an_order() -> None:
    assert by_preference("a;q=0.2, b, c;q=0, d;q=0.9") == "b,d;q=0.9,a;q=0.2"


# Bombs and other YAML.

LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(LAUGHS, "more than 500,000 values", id="billion laughs"),
        pytest.param(MERGES, "more than 500,000 values", id="billion merges"),
        pytest.param("a: &a {b: *a}", "a part of", id="a part of itself"),
        pytest.param("poll_interval: 5s\npoll_interval: 6s\n", "line 2: poll_interval: stands twice", id="twice"),
        pytest.param("listen: !!python/object/apply:os.system [touch owned]", "not YAML", id="code"),
        pytest.param("listen: !!python/name:os.system", "not YAML", id="name"),
        pytest.param("# " + "x" * settings.MAX_BYTES, "larger than 4 MiB", id="too large"),
        pytest.param("[" * 1200, "not YAML", id="deep"),
    ],
)
def test_a_file_that_means_harm_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, fault: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file.yaml"
    file.write_text(text)
    for read in (lambda: load(file, {}, {}), lambda: read_targets(file)):
        with pytest.raises(ConfigError, match=fault):
            read()
    assert not (tmp_path / "owned").exists()


def test_anchors_that_are_meant_well_are_read(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    access = "&access {bearer_token_file: /run/token}"
    file.write_text(
        f"- {{url: 'a:1', access: {access}}}\n"
        + "".join(f"- {{url: 'a:{i}', access: *access}}\n" for i in range(2, 500))
    )
    assert len({target.access for target in read_targets(file)}) == 1


# Lines and terminals.


@pytest.mark.parametrize("value", HOSTILE, ids=["HTML", "terminal", "direction", "lines", "C1", "long"])
def test_no_value_starts_a_line_or_reaches_a_terminal(value: str) -> None:
    record = logging.makeLogRecord(
        {
            "name": "prefixwatch",
            "levelno": 30,
            "levelname": "WARNING",
            "msg": "failed: %s",
            "args": (value,),
            "error": value,
        }
    )
    try:
        raise ValueError(value)
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    (line,) = log.JsonFormatter().format(record).splitlines()
    assert json.loads(line)["error"] == value
    assert line.isascii()
    first, *others = log.TextFormatter().format(record).split("\n")
    assert first.startswith("WARNING failed: ")
    assert all(one.startswith("    ") for one in others)
    assert all(one.isprintable() for one in (first, *others))

    watch = watched("healthy", name=value)
    engine = watch.engines.pop(("tiny", "0"))
    engine.last = dataclasses.replace(engine.last, model_name=value, engine=value)
    watch.engines[value, value] = engine
    assert figures(watch)[0].model_name == value
    printed = io.StringIO()
    report.show(
        [watch.state((None,)).snapshot(None)],
        Console(file=printed, force_terminal=True, color_system="standard", width=120),
    )
    without_style = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())
    assert all(char.isprintable() or char == "\n" for char in without_style)
    assert "\x1b[31m" not in printed.getvalue()


async def test_check_prints_a_hostile_engine_harmlessly(engine: Engine) -> None:
    engine.page = relabelled(trace("healthy")[0][1], "\x1b]0;owned\x07\x1b[2J\u202e")
    done = await run(
        "check", engine.url, "--for", "0.4s", "--interval", "0.2s", env={"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    )
    assert done.code == 0
    assert "owned" in done.out
    for forbidden in ("\x1b]", "\x07", "\x1b[2J", "\u202e"):
        assert forbidden not in done.out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no http://me:s3cret@host/metrics", "no http://<hidden>@host/metrics"),
        ("GET https://host:1/m?token=s3cret failed", "GET https://host:1/m?<hidden> failed"),
        ("both http://me:s3cret@host/?s3cret", "both http://<hidden>@host/?<hidden>"),
        ("headers {'Authorization': 'Bearer s3cret.s3cret'}", "headers {'Authorization': 'Bearer <hidden>'}"),
        ("basic c3NjcmV0", "basic <hidden>"),
        ("is http://host/metrics up?", "is http://host/metrics up?"),
    ],
)
def test_the_log_hides_what_a_library_may_say(text: str, shown: str) -> None:
    for form in (log.JsonFormatter(), log.TextFormatter()):
        record = logging.makeLogRecord({"levelname": "WARNING", "msg": text, "error": text})
        line = form.format(record)
        assert "s3cret" not in line
        assert line.count(json.dumps(shown)[1:-1]) == 2


@pytest.mark.parametrize(
    "text", ["a://" * 50_000, "'" * 200_000, "Bearer " * 30_000, "w" * 200_000 + "@", "; q=" * 2000, "?" * 200_000]
)
def test_no_text_makes_an_expression_slow(text: str) -> None:
    began = time.process_time()
    log.TextFormatter().format(logging.makeLogRecord({"levelname": "WARNING", "msg": "%s", "args": (text,)}))
    without_credentials(text)
    accepts_gzip(text[:8190])
    with pytest.raises(ValueError, match="not a duration"):
        Duration.parse(text)
    assert time.process_time() - began < 3


# /healthz.


async def answered(client: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    async with client.get(url) as response:
        return response.status, await response.text()


async def test_healthy_whatever_the_engines_do(engine: Engine) -> None:
    config = Config(
        targets=(TargetConfig(url=engine.url),),
        poll_interval=Duration(0.2),
        poll_timeout=Duration(0.2),
        max_backoff=Duration(0.2),
    )
    app = application(config, Poller(config))
    async with listening(app=app) as served:
        for answer in (None, engines.status(500), engines.hang, engines.drop, engines.body(engines.HTML)):
            engine.answer, seen = answer, len(engine.requests)
            await until(lambda seen=seen: len(engine.requests) > seen + 2)
            assert await status_of(served.port, "/healthz") == 200
        await engine.stop()
        assert await status_of(served.port, "/healthz") == 200


async def test_ill_once_polling_has_ended(engine: Engine, monkeypatch: pytest.MonkeyPatch, records) -> None:
    config = Config(targets=(TargetConfig(url=engine.url),), poll_interval=Duration(0.2))
    poller = Poller(config)
    dies = asyncio.Event()

    async def run_until_it_dies() -> None:
        await dies.wait()
        raise ZeroDivisionError

    monkeypatch.setattr(poller, "run", run_until_it_dies)
    async with listening(app=application(config, poller)) as served, aiohttp.ClientSession() as client:
        url = f"http://127.0.0.1:{served.port}/healthz"
        assert await answered(client, url) == (200, "ok\n")
        dies.set()
        await until(lambda: _is_ill(client, url))
        assert await answered(client, url) == (503, "the polling has ended\n")
    assert [record.getMessage() for record in records] == ["the polling has ended inside the exporter"]


async def _is_ill(client: aiohttp.ClientSession, url: str) -> bool:
    return (await answered(client, url))[0] == 503


async def test_ill_once_a_target_is_polled_no_longer_or_no_poll_ends(engine: Engine) -> None:
    now = 1000.0
    config = Config(targets=(TargetConfig(url=engine.url),), poll_interval=Duration(0.2))
    poller = Poller(config, clock=lambda: now)
    task = asyncio.create_task(poller.run())
    await until(lambda: poller.is_ready)
    assert poller.why_ill() is None
    now += STALLED_AFTER * (2 * config.poll_timeout + config.max_backoff) + 1
    assert poller.why_ill() == "no poll has ended for 231 s"
    now -= 231
    for one in poller._tasks.values():
        one.cancel()
    await until(lambda: poller.why_ill() == "the polling of 1 of 1 targets has ended")
    task.cancel()
    await asyncio.wait((task,))


# Files.


def test_a_recording_follows_no_link_and_overwrites_nothing(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in ("trace.txt", "trace.txt.gz"):
        (tmp_path / name).symlink_to(precious)
        with pytest.raises(TraceError, match="exists already"):
            Recorder(tmp_path / name)
        (tmp_path / f"dangling-{name}").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(TraceError, match="exists already"):
            Recorder(tmp_path / f"dangling-{name}")
    assert precious.read_text() == "precious"
    assert not (tmp_path / "elsewhere").exists()


def test_a_url_cut_short_hides_its_credentials_still() -> None:
    for text in (
        f"http://user:{'s3cret' * 50}@host/metrics",
        [f"http://user:{'s3cret' * 50}@host"],
        "http://h/?token=s3cret",
        "h?s3cret",
    ):
        assert "s3cret" not in without_credentials(text)


def test_yaml_is_loaded_safely_everywhere() -> None:
    for file in Path(settings.__file__).parent.rglob("*.py"):
        assert not re.search(
            r"yaml\.(load|full_load|unsafe_load|Loader|FullLoader|UnsafeLoader)\b", file.read_text()
        ), file
    assert issubclass(yaml.SafeLoader, yaml.constructor.SafeConstructor)
