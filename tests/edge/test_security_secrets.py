"""A secret is planted wherever one can be, and looked for in everything that comes out."""

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest

from edge import engines
from edge.certificates import Authority
from edge.commands import Done, ended, run, started
from edge.engines import Engine, trace
from edge.listening import basic, hashed
from edge.waiting import until

SECRET = "Zx9-PLANTED-q7"
PROXIES = dict.fromkeys(("http_proxy", "HTTPS_PROXY", "ALL_PROXY"), f"http://me:{SECRET}@127.0.0.1:9")
ENVIRONMENT = {**PROXIES, "API_KEY": SECRET, "NETRC": SECRET}


async def leaky(engine: Engine, request: object) -> object:
    """Answer as an engine that gives away what it was sent, in one way after the other."""
    echo = f"{request.headers.get('Authorization')} {request.query_string} {SECRET}"
    step = engine.bytes_sent % 8
    engine.bytes_sent += 1
    if step == 0:
        return await engines.status(302, Location=f"http://127.0.0.1:9/?{SECRET}", **{"Set-Cookie": f"a={SECRET}"})(
            engine, request
        )
    if step == 1:
        return engines.web.Response(status=401, reason=SECRET, text=echo, headers={"WWW-Authenticate": echo})
    if step == 2:
        return engines.web.Response(status=500, text=echo)
    if step == 3:
        return engines.web.Response(text=f"<html>{echo}</html>", content_type="text/html")
    if step == 4:
        return engines.web.Response(text=f"vllm:num_requests_running{{{echo}\n{echo}\n")
    if step == 5:
        request.transport.write(f"HTTP/1.1 {SECRET}\r\n{SECRET}\r\n\r\n".encode())
        request.transport.close()
        return await engine.end_of_silence()
    if step == 6:
        return engines.web.Response(text=echo, headers={"Content-Encoding": SECRET})
    return engines.web.Response(body=engine.page, content_type="text/plain")


def planted(folder: Path, engine: Engine) -> Path:
    """Write a configuration with a secret in each file that it names; return it."""
    Authority(folder, "ca").certificate("server")
    (folder / "token").write_text(SECRET)
    (folder / "web-token").write_text(f"web-{SECRET}")
    (folder / "web.yaml").write_text(
        f"basic_auth_users: {{alice: {hashed(SECRET)}}}\nbearer_token_file: web-token\n"
        "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
    )
    (folder / "targets.yaml").write_text(
        f"- {{url: 'http://127.0.0.1:{engine.port}/metrics?key={SECRET}', name: from-file}}\n"
    )
    file = folder / "config.yaml"
    file.write_text(
        f"targets: [{{url: 'http://127.0.0.1:{engine.port}/metrics?api-key={SECRET}'}}, {{dns: 'http://localhost:{engine.port}/m?k={SECRET}'}}]\n"
        f"targets_file: {folder}/targets.yaml\nweb_config_file: {folder}/web.yaml\n"
        f"access: {{bearer_token_file: {folder}/token}}\n"
        "poll_interval: 200ms\nmax_backoff: 200ms\nlog_level: debug\n"
    )
    return file


@pytest.mark.parametrize("form", ["json", "text"])
async def test_nothing_that_the_exporter_says_holds_a_secret(engine: Engine, tmp_path: Path, form: str) -> None:
    engine.answer = leaky
    file = planted(tmp_path, engine)
    env = {**ENVIRONMENT, "PYTHONASYNCIODEBUG": "1"}
    process = await started("run", "--config", file, "--log-format", form, "--listen", "127.0.0.1:0", env=env)
    line = b""
    while b"serving" not in line:
        line = await process.stderr.readline()
        assert line
    port = int(json.loads(line)["listen"].rpartition(":")[2] if form == "json" else line.rpartition(b":")[2])
    seen = [line.decode()]
    await until(lambda: engine.bytes_sent > 32)
    key = (tmp_path / "server.key").read_text().splitlines()[1]
    async with aiohttp.ClientSession() as client:
        for authorization in (
            basic("alice", SECRET),
            basic("alice", f"not-{SECRET}"),
            f"Bearer web-{SECRET}",
            f"Bearer {SECRET}",
            SECRET,
        ):
            for path in ("/metrics", "/", "/api/v1/status", "/nothing", "/healthz"):
                async with client.get(
                    f"https://127.0.0.1:{port}{path}", ssl=False, params={"q": SECRET},
                    headers={"Authorization": authorization, "Cookie": SECRET, "X-Api-Key": SECRET},
                ) as response:  # fmt: skip
                    seen.append(f"{response.reason}{dict(response.headers)}{await response.text()}")
        answers = "".join(seen)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /{SECRET} HTTP/1.1\r\nAuthorization: {SECRET}\r\n\r\n".encode())
    await writer.drain()
    (tmp_path / "web.yaml").write_text(f"basic_auth_users: {{alice: {SECRET}}}\n")
    (tmp_path / "targets.yaml").write_text(f"- {{url: 'http://me:{SECRET}@a', name: {SECRET}\n")
    (tmp_path / "token").write_text(f"two {SECRET}")
    await asyncio.sleep(1.1)
    async with aiohttp.ClientSession() as client:
        for path in ("metrics", ""):
            async with client.get(f"https://127.0.0.1:{port}/{path}", ssl=False) as response:
                seen.append(await response.text())
    process.terminate()
    done = await ended(process)
    writer.close()
    seen += [done.out, done.err]
    assert "prefixwatch_up" in answers
    assert re.search(r'prefixwatch_poll_errors_total\{.*reason="redirect"', answers)
    assert "a file of access cannot be used" in answers or "web configuration cannot be used" in done.err
    for text in seen:
        assert SECRET not in text
        assert key not in text


ERRORS = [
    pytest.param(f"targets: [{{url: 'http://me:{SECRET}@h'}}]", id="credentials"),
    pytest.param(f"targets: [{{url: 'http://me:{SECRET * 20}@h'}}]", id="long credentials"),
    pytest.param(f"targets: [{{url: 'ftp://h/?key={SECRET}'}}]", id="query of what is no URL"),
    pytest.param(f"targets: ['http://h/?key={SECRET}']", id="query in the wrong place"),
    pytest.param(f"targets: [{{url: ['http://me:{SECRET}@h']}}]", id="credentials in the wrong place"),
    pytest.param(f"access: {SECRET}", id="access"),
    pytest.param(f"access: [{SECRET}]", id="access, a list"),
    pytest.param(f"access: {{bearer_token: {SECRET}}}", id="token for its file"),
    pytest.param(f"access: {{bearer_token_file: [{SECRET}]}}", id="token in a list"),
    pytest.param(f"targets: [{{url: h, access: {SECRET}}}]", id="access of a target"),
    pytest.param(f"targets: [{{url: h, headers: {{Authorization: {SECRET}}}}}]", id="header"),
    pytest.param(f"web_config_file: {{basic_auth_users: {{a: {SECRET}}}}}", id="web configuration in the wrong place"),
    pytest.param(f"basic_auth_users: {{a: {SECRET}}}", id="users in the wrong file"),
]


@pytest.mark.parametrize("text", ERRORS)
async def test_no_error_repeats_a_secret(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    done = await run("config", "--config", tmp_path / "config.yaml", env=ENVIRONMENT)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert SECRET not in done.err + done.out


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TARGETS", f"http://me:{SECRET}@h"), ("TARGETS", f"ftp://h/?{SECRET}"), ("ACCESS", SECRET), ("BEARER_TOKEN", SECRET),
        ("EVENTS", f"tcp://me:{SECRET}@h:1"),
    ],
)  # fmt: skip
async def test_no_setting_of_the_environment_is_repeated(name: str, value: str) -> None:
    done = await run("config", "http://h", env={f"PREFIXWATCH_{name}": value})
    assert SECRET not in done.err + done.out


async def test_config_shows_no_secret(engine: Engine, tmp_path: Path) -> None:
    done = await run("config", "--config", planted(tmp_path, engine), env=ENVIRONMENT)
    assert done.code == 0
    assert done.out.count("<hidden>") == 2
    assert SECRET not in done.err + done.out


@pytest.mark.parametrize("command", [("check", "--json"), ("check",), ("record",)])
async def test_check_and_record_repeat_no_secret(engine: Engine, tmp_path: Path, command: Sequence[str]) -> None:
    (tmp_path / "token").write_text(SECRET)
    outputs: list[Done] = []
    for page in (trace("healthy")[0][1], None):
        engine.answer = leaky if page is None else engines.body(page)
        file = (tmp_path / f"{len(outputs)}.txt",) if command[0] == "record" else ()
        url = f"{engine.url}?key={SECRET}"
        outputs.append(
            await run(
                command[0], url, *file, *command[1:], "--for", "1.5s", "--interval", "0.1s", "--bearer-token-file", tmp_path / "token",
                env=ENVIRONMENT,
            )
        )  # fmt: skip
    for done in outputs:
        assert SECRET not in done.out + done.err
    if command[0] == "record":
        assert SECRET not in (tmp_path / "0.txt").read_text()
