"""One page over HTTP: certificates, tokens, bounds, and what must not be told."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edge import engines
from edge.certificates import Authority, encrypt
from edge.engines import Engine
from edge.waiting import until
from prefixwatch.config import Access
from prefixwatch.fetch import Address, Body, Fetcher, FetchError, session

PAGE = b"vllm:num_requests_running 1\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("strangers"), "strangers")


@asynccontextmanager
async def fetching(*, seconds: float = 5.0, max_bytes: int = 2**20) -> AsyncIterator[Fetcher]:
    async with session() as shared:
        yield Fetcher(shared, timeout=seconds, max_bytes=max_bytes)


async def outcome(address: Address, **options: float) -> Body | FetchError:
    async with fetching(**options) as fetcher:
        try:
            return await fetcher.page(address)
        except FetchError as error:
            result = error
    assert "\n" not in str(result), "an error is one line"
    return result


def kind(result: Body | FetchError) -> str:
    return result.kind if isinstance(result, FetchError) else "page"


async def test_a_page_comes_as_it_was_sent_and_compression_is_not_asked_for(engine: Engine) -> None:
    engine.page = PAGE
    assert await outcome(Address(url=engine.url)) == Body(content=PAGE, is_openmetrics=False)
    path, headers = engine.requests[0]
    assert path == "/metrics"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Accept"].startswith("text/plain")


async def test_openmetrics_is_told_by_its_content_type(engine: Engine) -> None:
    engine.answer = engines.body(
        PAGE + b"# EOF\n", **{"Content-Type": "application/openmetrics-text; version=1.0.0; charset=utf-8"}
    )
    assert await outcome(Address(url=engine.url)) == Body(content=PAGE + b"# EOF\n", is_openmetrics=True)


async def test_only_the_own_authority_is_trusted(authority: Authority, stranger: Authority) -> None:
    async with Engine(page=PAGE, tls=authority.server()) as engine:
        for access, expected in (
            (Access(ca_file=str(authority.ca_file)), "page"),
            (Access(ca_file=str(stranger.ca_file)), "tls"),
            (Access(), "tls"),
        ):
            assert kind(await outcome(Address(url=engine.url, access=access))) == expected, access


async def test_the_name_on_the_certificate_must_be_the_one_asked_for(authority: Authority) -> None:
    tls = authority.server("service", alternative="DNS:vllm.ml.svc")
    access = Access(ca_file=str(authority.ca_file))
    async with Engine(page=PAGE, tls=tls) as engine:
        assert kind(await outcome(Address(url=engine.url, access=access))) == "tls"
        named = Address(url=engine.url, access=access, server_name="vllm.ml.svc:8000")
        assert kind(await outcome(named)) == "page", "a pod behind a Service shows the Service's certificate"
        assert engine.requests[-1][1]["Host"] == "vllm.ml.svc:8000"


async def test_a_client_certificate(authority: Authority, stranger: Authority) -> None:
    ca = str(authority.ca_file)
    mine, other = ([str(file) for file in one.certificate("client")] for one in (authority, stranger))
    async with Engine(page=PAGE, tls=authority.server("mutual", wants_client=True)) as engine:
        results = []
        for cert_file, key_file in (mine, other, (None, None)):
            access = Access(ca_file=ca, cert_file=cert_file, key_file=key_file)
            results.append(await outcome(Address(url=engine.url, access=access)))
    assert [kind(result) == "page" for result in results] == [True, False, False]
    # A server may say why it hangs up, as TLS can, or just hang up: then it is a guess.
    assert all(kind(result) == "tls" or "client certificate?" in str(result) for result in results[1:])


async def test_a_renewed_certificate_is_read_without_a_restart(
    authority: Authority, stranger: Authority, tmp_path
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(stranger.ca_file.read_bytes())
    async with Engine(page=PAGE, tls=authority.server("renewed")) as engine, fetching() as fetcher:
        address = Address(url=engine.url, access=Access(ca_file=str(ca)))
        with pytest.raises(FetchError, match="TLS"):
            await fetcher.page(address)
        ca.write_bytes(authority.ca_file.read_bytes())
        assert (await fetcher.page(address)).content == PAGE
        for _ in range(3):
            await fetcher.page(address)
        assert len(engine.connections) == 1, "unchanged files keep the connection"
        assert len(fetcher._contexts) == 1


async def test_plain_http_where_tls_is_expected(engine: Engine) -> None:
    assert kind(await outcome(Address(url=engine.url.replace("http:", "https:")))) == "tls"


async def test_the_token_file_is_read_at_each_poll(engine: Engine, tmp_path: Path) -> None:
    engine.page, engine.answer = PAGE, engines.wants_token
    token = tmp_path / "token"
    address = Address(url=engine.url, access=Access(bearer_token_file=str(token)))
    async with fetching() as fetcher:
        for text, expected in (("wrong\n", "http_4xx"), ("open-sesame\n", "page"), ("wrong-again", "http_4xx")):
            token.write_text(text)
            try:
                result: Body | FetchError = await fetcher.page(address)
            except FetchError as error:
                result = error
            assert kind(result) == expected
            assert text.strip() not in str(result)
        assert "bearer_token_file" in str(result), "the message says what to do"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "No such file", id="no file"),
        pytest.param(b"", "not one token", id="empty"),
        pytest.param(b"hunter2\nhunter3\n", "not one token", id="two lines"),
        pytest.param(b"hunter2\r\nX-Evil: 1", "not one token", id="a header smuggled in"),
        pytest.param(b"hunter2\xff\xfe", "not one token", id="binary"),
        pytest.param("hunter2\u00e9".encode(), "not one token", id="not ASCII"),
    ],
)
async def test_a_token_that_cannot_be_one_is_an_error_that_does_not_show_it(
    engine: Engine, tmp_path: Path, content: bytes | None, says: str
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    result = await outcome(Address(url=engine.url, access=Access(bearer_token_file=str(token))))
    assert kind(result) == "access"
    assert says in str(result)
    assert str(token) in str(result)
    assert "hunter" not in str(result)
    assert engine.requests == []


async def test_files_of_certificates_that_cannot_be_used(engine: Engine, authority: Authority, tmp_path: Path) -> None:
    cert, _ = authority.certificate("one")
    _, other_key = authority.certificate("two")
    locked = tmp_path / "locked.key"
    locked.write_bytes(other_key.read_bytes())
    encrypt(locked)
    (tmp_path / "junk").write_text("junk")
    for access, fault in (
        (Access(ca_file=str(tmp_path / "missing")), "missing: No such file"),
        (Access(ca_file=str(tmp_path / "junk")), "junk: not certificates"),
        (Access(ca_file="/dev/zero"), "/dev/zero: cannot be read: not a regular file"),
        (Access(bearer_token_file="/dev/zero"), "/dev/zero: not a regular file"),
        (Access(cert_file=str(tmp_path / "junk"), key_file=str(tmp_path / "junk")), "not a certificate and its key"),
        (Access(cert_file=str(cert), key_file=str(other_key)), "key values mismatch"),
        (Access(cert_file=str(cert), key_file=str(locked)), "locked.key: is encrypted"),
    ):
        result = await outcome(Address(url=engine.url, access=access))
        assert kind(result) == "access", access
        assert "a file of access cannot be used" in str(result)
        assert fault in str(result)


@pytest.mark.parametrize("answer", [engines.hang, engines.drip], ids=["hangs", "a byte now and then"])
async def test_the_time_of_a_whole_answer_is_bounded(engine: Engine, answer: engines.Answer) -> None:
    engine.answer = answer
    before = time.monotonic()
    assert kind(await outcome(Address(url=engine.url), seconds=0.2)) == "timeout"
    assert time.monotonic() - before < 5


async def test_a_host_that_accepts_no_connection_in_time() -> None:
    """A full backlog drops what comes: the connection is never made."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = []
        try:
            for _ in range(4):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
                fillers.append(filler)
            assert kind(await outcome(Address(url=f"http://127.0.0.1:{port}/metrics"), seconds=0.3)) == "timeout"
        finally:
            for filler in fillers:
                filler.close()


@pytest.mark.parametrize(
    ("size", "expected"), [pytest.param(1000, "page", id="at the bound"), pytest.param(1001, "too_large", id="above")]
)
async def test_the_size_of_a_page_is_bounded(engine: Engine, size: int, expected: str) -> None:
    engine.page = b"#" * (size - 1) + b"\n"
    assert kind(await outcome(Address(url=engine.url), max_bytes=1000)) == expected


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "zstd"])
async def test_what_is_compressed_unasked_is_refused_unread(engine: Engine, coding: str) -> None:
    engine.answer = engines.body(b"\x1f\x8b" + bytes(100), **{"Content-Encoding": coding})
    assert kind(await outcome(Address(url=engine.url))) == "not_metrics"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(engine: Engine, status: int) -> None:
    async with Engine(page=PAGE) as elsewhere:
        engine.answer = engines.status(status, Location=elsewhere.url)
        assert kind(await outcome(Address(url=engine.url))) == "redirect"
        assert elsewhere.requests == []


async def test_cookies_are_not_kept(engine: Engine) -> None:
    engine.answer = engines.body(PAGE, **{"Set-Cookie": "session=1"})
    async with fetching() as fetcher:
        for _ in range(2):
            await fetcher.page(Address(url=engine.url))
    assert "Cookie" not in engine.requests[1][1]


@pytest.mark.parametrize("answer", [engines.not_http, engines.drop, engines.hang, engines.cut_off, None])
async def test_a_query_is_not_shown_in_errors(engine: Engine, answer: engines.Answer | None) -> None:
    """Some gateways want their key there."""
    engine.page, engine.answer = PAGE * 10, answer
    url = engine.url + "?key=hunter2"
    if answer is None:
        await engine.stop()
    result = await outcome(Address(url=url), seconds=0.2)
    assert isinstance(result, FetchError)
    assert "hunter" not in str(result)
    assert result.__cause__ is None


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param(socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "dns", id="unknown"),
        pytest.param(socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "dns", id="no name server"),
    ],
)
async def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch, fault: OSError, expected: str) -> None:
    def lookup(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    result = await outcome(Address(url="http://vllm.invalid:8000/metrics"))
    assert kind(result) == expected
    assert fault.strerror in str(result)


@pytest.mark.parametrize("url", ["http://a..b:8000/metrics", f"http://{'x' * 70}.com:8000/", "http://127.0.0.1:0/"])
async def test_an_address_that_can_be_none(url: str) -> None:
    assert kind(await outcome(Address(url=url))) in ("connection", "dns")


@pytest.mark.parametrize(
    ("url", "path"),
    [("/metrics", "/version"), ("/v1/metrics", "/v1/version"), ("/metrics?x=1", "/version")],
)
async def test_the_release_is_asked_beside_the_page(engine: Engine, url: str, path: str) -> None:
    async with fetching() as fetcher:
        release = await fetcher.release(Address(url=engine.url.replace("/metrics", url)))
    assert release == ("0.32.0" if path == "/version" else None)
    assert engine.requests[0][0] == path


async def test_a_poll_that_is_cancelled_leaves_no_connection_behind(engine: Engine) -> None:
    engine.answer = engines.hang
    async with fetching() as fetcher:
        task = asyncio.create_task(fetcher.page(Address(url=engine.url)))
        await until(lambda: engine.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        engine.answer, engine.page = None, PAGE
        assert (await fetcher.page(Address(url=engine.url))).content == PAGE
