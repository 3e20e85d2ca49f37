"""TLS and authentication of the listener: who gets an answer, and what a wrong password costs."""

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from edge.certificates import Authority
from edge.commands import exporter
from edge.engines import Engine
from edge.listening import Listening, basic, hashed, listening, status_of
from edge.waiting import until
from prefixwatch.listener import credentials, webfile
from prefixwatch.listener.configuration import WebConfig
from prefixwatch.listener.credentials import Doorkeeper, Verdict
from prefixwatch.listener.webfile import Terms
from prometheus.server import prometheus

PATHS = ("/", "/metrics", "/api/v1/status", "/nothing", "/healthz/", "/HEALTHZ", "//healthz", "/metrics/../healthz")
PROBES = ("/healthz", "/readyz", "/%68ealthz")
FATAL_ALERT = b"\x15\x03\x01\x00\x02\x02\x32"
SERVER = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("ca"), "ca")
    made.certificate("server", alternative="IP:127.0.0.1,DNS:localhost")
    made.certificate("client", alternative="DNS:scraper.example.org,IP:::1")
    return made


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Listening]:
    """A listener that wants alice's password, or a token."""
    (tmp_path / "token").write_text("open-sesame\n")
    (tmp_path / "web.yaml").write_text(
        f"basic_auth_users: {{alice: {hashed('wonder:land')}, bob: {hashed('x' * 80)}}}\nbearer_token_file: token\n"
    )
    async with listening(tmp_path / "web.yaml") as served:
        yield served


def client_context(authority: Authority, *, brings: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca_file)
    if brings:
        context.load_cert_chain(authority.folder / f"{brings}.pem", authority.folder / f"{brings}.key")
    return context


def web_file(authority: Authority, name: str, text: str) -> Path:
    file = authority.folder / name
    file.write_text(text)
    return file


# Credentials.


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        pytest.param(basic("alice", "wonder:land"), 200, id="right"),
        pytest.param(basic("bob", "x" * 80), 200, id="longer than bcrypt reads"),
        pytest.param("bEARER   open-sesame", 200, id="token"),
        pytest.param(None, 401, id="none"),
        pytest.param(basic("alice", "wonder"), 401, id="wrong password"),
        pytest.param(basic("alice", ""), 401, id="empty password"),
        pytest.param(basic("alice", "wonder:land\0"), 401, id="NUL"),
        pytest.param(basic("bob", "wonder:land"), 401, id="another's password"),
        pytest.param(basic("carol", "wonder:land"), 401, id="unknown user"),
        pytest.param("Basic !!!", 401, id="not base64"),
        pytest.param("Basic YWxpY2U=", 401, id="no colon"),
        pytest.param("Basic /w==", 401, id="not UTF-8, no colon"),
        pytest.param("Basic /zp4", 401, id="not UTF-8"),
        pytest.param("Bearer open-sesam", 401, id="wrong token"),
        pytest.param("Bearer", 401, id="no token"),
        pytest.param("open-sesame", 401, id="no scheme"),
        pytest.param("Digest username=alice", 401, id="another scheme"),
    ],
)
async def test_who_is_answered(guarded: Listening, authorization: str | None, status: int) -> None:
    assert await status_of(guarded.port, authorization=authorization) == status
    assert await status_of(guarded.port, authorization=authorization) == status, "and once more, as it is remembered"


@pytest.mark.parametrize("credentials", [b"Bearer \xff", b"Basic \xff", b"\xff", b"Bearer \xc3\xa9", b"Bearer \x85"])
async def test_bytes_that_are_no_text_are_refused_like_others(
    guarded: Listening, caplog: pytest.LogCaptureFixture, credentials: bytes
) -> None:
    head = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: "
    assert (await guarded.raw(head + credentials + b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
    assert caplog.records == []


@pytest.mark.parametrize("path", PATHS)
async def test_everything_asks_for_credentials(guarded: Listening, path: str) -> None:
    answer = await guarded.raw(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert head.count(b"WWW-Authenticate: ") == 2
    assert body == b"401 Unauthorized\n"


@pytest.mark.parametrize("path", PROBES)
async def test_but_the_probes(guarded: Listening, path: str) -> None:
    answer = await guarded.raw(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_two_authorizations_are_none(guarded: Listening) -> None:
    right = f"Authorization: {basic('alice', 'wonder:land')}\r\n"
    answer = await guarded.raw(f"GET / HTTP/1.1\r\nHost: a\r\n{right}{right}Connection: close\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 401 ", b"HTTP/1.0 400 "))


async def test_a_kind_that_is_not_configured_is_not_admitted(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("open-sesame")
    (tmp_path / "web.yaml").write_text("bearer_token_file: token")
    async with listening(tmp_path / "web.yaml") as served:
        assert await status_of(served.port, authorization=basic("", "open-sesame")) == 401
        assert await status_of(served.port, authorization="Bearer open-sesame") == 200


def users(**passwords: str) -> Terms:
    return Terms(config=WebConfig(basic_auth_users=passwords))


async def test_a_password_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = counted(monkeypatch)
    terms, keeper = users(alice=hashed("right")), Doorkeeper()
    for _ in range(5):
        assert await keeper.judge(basic("alice", "right"), terms) is Verdict.ADMITTED
        assert await keeper.judge(basic("alice", "wrong"), terms) is Verdict.REFUSED
        assert await keeper.judge(basic("nobody", "right"), terms) is Verdict.REFUSED
    assert len(checks) == 3
    assert await keeper.judge(basic("alice", "right"), users(alice=hashed("new"))) is Verdict.REFUSED
    keeper.close()


async def test_a_user_who_was_taken_out_is_out_whoever_has_the_same_hash() -> None:
    shared, keeper = hashed("right"), Doorkeeper()
    both, one = users(alice=shared, bob=shared), users(alice=shared)
    for terms, verdict in ((both, Verdict.ADMITTED), (one, Verdict.REFUSED), (both, Verdict.ADMITTED)):
        assert await keeper.judge(basic("bob", "right"), terms) is verdict
        assert await keeper.judge(basic("alice", "right"), terms) is Verdict.ADMITTED
    keeper.close()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    checks: list[str] = []
    original = credentials._matches
    monkeypatch.setattr(credentials, "_matches", lambda *pair: checks.append(pair[1]) or original(*pair))
    return checks


async def test_an_unknown_user_costs_what_a_known_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = counted(monkeypatch)
    monkeypatch.setattr(credentials, "REST", 0.0)
    hash_ = hashed("right", cost=5)
    keeper = Doorkeeper()
    await keeper.judge(basic("alice", "wrong"), users(alice=hash_))
    await keeper.judge(basic("nobody", "wrong"), users(alice=hash_))
    assert checks == [hash_, hash_], "a hash of the same cost"
    keeper.close()


async def test_guessing_is_slow_bounded_and_shuts_nobody_out_who_was_in(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = counted(monkeypatch)
    terms, keeper = users(alice=hashed("right", cost=8)), Doorkeeper()
    assert await keeper.judge(basic("alice", "right"), terms) is Verdict.ADMITTED
    checks.clear()
    cpu, began = time.process_time(), time.monotonic()
    verdicts = await asyncio.gather(*(keeper.judge(basic("alice", f"guess {i}"), terms) for i in range(1000)))
    spent, took = time.process_time() - cpu, time.monotonic() - began
    assert verdicts.count(Verdict.REFUSED) == len(checks) == credentials.WAITING
    assert verdicts.count(Verdict.BUSY) == 1000 - credentials.WAITING
    assert spent < 0.6 * took, "the thread rests after each wrong one"
    assert await keeper.judge(basic("alice", "right"), terms) is Verdict.ADMITTED
    keeper.close()


async def test_what_is_remembered_is_bounded_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_matches", lambda password, _: password == b"right")
    monkeypatch.setattr(credentials, "REST", 0.0)
    terms, keeper = users(alice="x"), Doorkeeper()
    for i in range(credentials.KEPT + 50):
        await keeper.judge(basic(f"user {i}", "s3cret"), terms)
    await keeper.judge(basic("alice", "right"), terms)
    assert (len(keeper._wrong), len(keeper._right)) == (credentials.KEPT, 1)
    assert not any(secret in key for key in (*keeper._wrong, *keeper._right) for secret in (b"s3cret", b"right"))
    keeper.close()


async def test_polling_goes_on_while_a_password_is_checked(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(f"basic_auth_users: {{a: {hashed('right', cost=13)}}}\n")
    async with exporter(engine.url, "--poll-interval", "0.2s", "--web-config-file", tmp_path / "web.yaml") as running:
        port = int(running.url.rpartition(":")[2])
        await until(lambda: len(engine.requests) > 2)
        checking = asyncio.create_task(status_of(port, authorization=basic("a", "wrong")))
        polls, began = len(engine.requests), time.monotonic()
        assert await checking == 401
        assert len(engine.requests) - polls >= (time.monotonic() - began) / 0.2 - 2


# TLS.

NO_CERTIFICATE = "it brought no certificate"
ANOTHERS = "its certificate does not hold: unable to get local issuer certificate"
NO_NAME = "its certificate has none of client_allowed_sans"


async def test_tls_alone(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    async with listening(web_file(authority, "tls.yaml", SERVER)) as served:
        assert await status_of(served.port, context=client_context(authority)) == 200
        assert b"HTTP" not in await served.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "no plain text"
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await status_of(served.port, context=ssl.create_default_context())
        assert await served.raw(b"\x16\x03\x01\x00\x05rubbish" * 9) in (b"", FATAL_ALERT)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("extra", "brings", "refused"),
    [
        pytest.param("client_auth_type: RequireAndVerifyClientCert", "client", None, id="wanted, brought"),
        pytest.param("client_auth_type: RequireAndVerifyClientCert", None, NO_CERTIFICATE, id="wanted, not brought"),
        pytest.param("client_auth_type: RequireAndVerifyClientCert", "stranger", ANOTHERS, id="of another authority"),
        pytest.param("client_auth_type: VerifyClientCertIfGiven", None, None, id="not needed"),
        pytest.param("client_auth_type: VerifyClientCertIfGiven", "stranger", ANOTHERS, id="not needed, but wrong"),
        pytest.param("client_auth_type: RequireAndVerifyClientCert\n  client_allowed_sans: [scraper.example.org]", "client", None, id="name"),
        pytest.param("client_auth_type: RequireAndVerifyClientCert\n  client_allowed_sans: ['::1']", "client", None, id="address"),
        pytest.param("client_auth_type: RequireAndVerifyClientCert\n  client_allowed_sans: [example.org]", "client", NO_NAME, id="another name"),
        pytest.param("client_auth_type: RequireAndVerifyClientCert\n  client_allowed_sans: []", "client", NO_NAME, id="no name"),
    ],
)  # fmt: skip
async def test_client_certificates(
    authority: Authority, records: list[logging.LogRecord], extra: str, brings: str | None, refused: str | None
) -> None:
    if brings == "stranger":
        other = Authority(authority.folder / "other", "other")
        for file in other.certificate("stranger"):
            (authority.folder / file.name).write_bytes(file.read_bytes())
    file = web_file(authority, "mtls.yaml", f"{SERVER}  client_ca_file: ca.pem\n  {extra}\n")
    async with listening(file) as served:
        context = client_context(authority, brings=brings)
        if refused is None:
            assert await status_of(served.port, context=context) == 200
            assert records == []
        else:
            for _ in range(2):
                with pytest.raises((aiohttp.ClientError, OSError)):
                    await status_of(served.port, "/healthz", context=context)
            await until(lambda: records)
            assert [one.getMessage() for one in records] == [f"a client was refused: {refused}"], "once a minute"


@pytest.mark.parametrize(
    ("extra", "version", "cipher"),
    [
        ("max_version: TLS12", "TLSv1.2", None),
        ("min_version: TLS13", "TLSv1.3", None),
        ("max_version: TLS12\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]", "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ],
)  # fmt: skip
async def test_versions_and_suites(authority: Authority, extra: str, version: str, cipher: str | None) -> None:
    async with listening(web_file(authority, "versions.yaml", f"{SERVER}  {extra}\n")) as served:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=client_context(authority))
        assert writer.get_extra_info("ssl_object").version() == version
        assert cipher in (None, writer.get_extra_info("cipher")[0])
        writer.close()
        other = client_context(authority)
        if version == "TLSv1.3":
            other.maximum_version = ssl.TLSVersion.TLSv1_2
        else:
            other.minimum_version = ssl.TLSVersion.TLSv1_3
        with pytest.raises((ssl.SSLError, OSError)):
            await asyncio.open_connection("127.0.0.1", served.port, ssl=other)


async def test_a_renewed_certificate_is_used_for_the_next_connection(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webfile, "EVERY", 0.0)
    for kind in ("pem", "key"):
        (tmp_path / f"server.{kind}").write_bytes((authority.folder / f"server.{kind}").read_bytes())
    (tmp_path / "web.yaml").write_text(SERVER)
    renewed = Authority(tmp_path / "new", "new")
    async with listening(tmp_path / "web.yaml") as served, aiohttp.ClientSession() as old:
        url, context = f"https://127.0.0.1:{served.port}/metrics", client_context(authority)
        async with old.get(url, ssl=context) as response:
            assert response.status == 200
        for file in renewed.certificate("server"):
            file.replace(tmp_path / file.name)
        assert await status_of(served.port, context=client_context(renewed)) == 200
        async with old.get(url, ssl=context) as response:
            assert response.status == 200, "a connection that stands goes on"


async def test_a_password_that_was_changed_holds_at_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webfile, "EVERY", 0.0)
    file = tmp_path / "web.yaml"
    file.write_text(f"basic_auth_users: {{a: {hashed('old')}}}\n")
    headers = {"Authorization": basic("a", "old")}
    async with listening(file) as served, aiohttp.ClientSession(headers=headers) as client:
        for password, status in (("old", 200), ("new", 401)):
            file.write_text(f"basic_auth_users: {{a: {hashed(password)}}}\n")
            async with client.get(f"http://127.0.0.1:{served.port}/metrics") as response:
                assert response.status == status


# The whole: a real Prometheus.


@pytest.mark.parametrize("kind", ["basic_auth", "authorization"])
async def test_prometheus_scrapes_over_tls_with_credentials(
    authority: Authority, engine: Engine, tmp_path: Path, kind: str
) -> None:
    token = web_file(authority, "token", "open-sesame\n")
    file = web_file(
        authority, "whole.yaml",
        f"{SERVER}  client_ca_file: ca.pem\n  client_auth_type: RequireAndVerifyClientCert\n"
        f"  client_allowed_sans: [scraper.example.org]\n"
        f"basic_auth_users: {{prom: {hashed('hunter2', cost=10)}}}\nbearer_token_file: token\n",
    )  # fmt: skip
    given = {
        "basic_auth": {"username": "prom", "password": "hunter2"},
        "authorization": {"credentials_file": str(token)},
    }
    names = {"ca_file": "ca.pem", "cert_file": "client.pem", "key_file": "client.key"}
    settings = {
        "scheme": "https",
        "tls_config": {name: str(authority.folder / file) for name, file in names.items()},
    }
    async with exporter(engine.url, "--poll-interval", "0.2s", "--web-config-file", file) as running:
        job = {**settings, "static_configs": [{"targets": [running.url.removeprefix("http://")]}]}
        jobs = [{**job, "job_name": "good", kind: given[kind]}, {**job, "job_name": "bad"}]
        async with prometheus(tmp_path, scrapes=jobs) as server:

            async def scraped() -> bool:
                return await server.value('up{job="good"}') == 1 and await server.value('up{job="bad"}') == 0

            await until(scraped)
            assert await server.value('prefixwatch_up{job="good"}') == 1
            async with server.client.get(f"{server.url}/api/v1/targets") as response:
                errors = [one["lastError"] for one in json.loads(await response.text())["data"]["activeTargets"]]
            assert sorted(errors) == ["", "server returned HTTP status 401 Unauthorized"]
