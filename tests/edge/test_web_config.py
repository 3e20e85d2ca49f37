"""The web configuration file: its form, what is refused of it, and that it is reread."""

import asyncio
import logging
import os
import re
from pathlib import Path

import pytest

from edge.certificates import Authority, encrypt
from edge.commands import run
from edge.listening import hashed
from prefixwatch.listener import webfile
from prefixwatch.listener.configuration import CIPHER_SUITES, read_web_config
from prefixwatch.listener.tls import context_of
from prefixwatch.listener.webfile import WebFile, read_terms
from prefixwatch.settings import ConfigError

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
TLS = "cert_file: a.pem, key_file: a.key"

WHOLE = f"""\
tls_server_config:
  cert_file: server.pem
  key_file: /etc/tls/server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca/clients.pem
  client_allowed_sans: [prometheus.example.org]
  min_version: TLS12
  max_version: TLS13
  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: true
http_server_config:
  http2: false
  headers:
    Strict-Transport-Security: max-age=31536000
    X-Frame-Options: deny
    X-XSS-Protection: ''
basic_auth_users:
  prometheus: {HASH}
rate_limit: {{interval: 100ms, burst: 20}}
bearer_token_file: token
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "web.yaml"
    file.write_text(text)
    return file


def test_the_whole_form_is_read_and_paths_are_those_of_its_folder(tmp_path):
    found = read_web_config(written(tmp_path, WHOLE))
    tls = found.tls_server_config
    assert (tls.cert_file, tls.key_file) == (f"{tmp_path}/server.pem", "/etc/tls/server.key")
    assert (tls.client_ca_file, found.bearer_token_file) == (f"{tmp_path}/ca/clients.pem", f"{tmp_path}/token")
    assert found.basic_auth_users == {"prometheus": HASH}
    assert (found.rate_limit.interval, found.rate_limit.burst) == (0.1, 20)
    assert found.files == (tls.cert_file, tls.key_file, tls.client_ca_file, found.bearer_token_file)


@pytest.mark.parametrize(
    "text", ["", "{}", "# nothing", "tls_server_config: {}", "basic_auth_users:", "rate_limit: {interval: 0, burst: 0}"]
)
def test_a_file_that_says_nothing_is_plain_http_for_all(tmp_path, text):
    terms = read_terms(written(tmp_path, text))
    assert (terms.context, terms.asks_who, terms.demands) == (None, False, frozenset())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[]", "this must be a mapping"),
        ("tls: {}", "tls: there is no such setting"),
        ("tls_server_config: {certfile: s3cret}", "tls_server_config.certfile: there is no such setting"),
        ("tls_server_config: {cert_file: [s3cret]}", "tls_server_config.cert_file: expected text, got a list"),
        ("tls_server_config: {cert_file: a.pem}", "tls_server_config.key_file: is missing"),
        ("tls_server_config: {key_file: a.key}", "tls_server_config.cert_file: is missing"),
        ("tls_server_config: {min_version: TLS13}", "tls_server_config.cert_file: is missing"),
        (f"tls_server_config: {{{TLS}, key: s3cret}}", "tls_server_config.key: cannot be given inline"),
        (f"tls_server_config: {{{TLS}, cert: s3cret}}", "tls_server_config.cert: cannot be given inline"),
        (f"tls_server_config: {{{TLS}, min_version: TLS11}}", "tls_server_config.min_version: TLS 1.0 and 1.1 are obsolete"),
        (f"tls_server_config: {{{TLS}, max_version: TLS10}}", "tls_server_config.max_version: TLS 1.0 and 1.1 are obsolete"),
        (f"tls_server_config: {{{TLS}, min_version: s3cret}}", "tls_server_config.min_version: must be TLS12 or TLS13"),
        (f"tls_server_config: {{{TLS}, min_version: TLS13, max_version: TLS12}}", "tls_server_config.min_version: is above"),
        (f"tls_server_config: {{{TLS}, cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]}}", "tls_server_config.cipher_suites[0]: there are"),
        (f"tls_server_config: {{{TLS}, cipher_suites: [TLS_AES_128_GCM_SHA256]}}", "tls_server_config.cipher_suites[0]: the suites of TLS 1.3"),
        (f"tls_server_config: {{{TLS}, curve_preferences: [X25519]}}", "tls_server_config.curve_preferences: cannot be set"),
        (f"tls_server_config: {{{TLS}, client_auth_type: RequireAnyClientCert}}", "tls_server_config.client_auth_type: RequireAnyClientCert takes any"),
        (f"tls_server_config: {{{TLS}, client_auth_type: s3cret}}", "tls_server_config.client_auth_type: must be one of NoClientCert"),
        (f"tls_server_config: {{{TLS}, client_auth_type: VerifyClientCertIfGiven}}", "tls_server_config.client_ca_file: is missing"),
        (f"tls_server_config: {{{TLS}, client_ca_file: ca.pem}}", "tls_server_config.client_auth_type: a client_ca_file without it"),
        (f"tls_server_config: {{{TLS}, client_ca_file: a, client_ca: b, client_auth_type: RequireAndVerifyClientCert}}", "tls_server_config.client_ca: give"),
        (f"tls_server_config: {{{TLS}, client_ca_file: a, client_auth_type: VerifyClientCertIfGiven, client_allowed_sans: [a]}}",
         "tls_server_config.client_allowed_sans: needs"),
        ("http_server_config: {http2: true}", "http_server_config.http2: this server speaks HTTP/1.1 alone"),
        ("http_server_config: {headers: {Server: s3cret}}", "http_server_config.headers.Server: this header cannot be set"),
        ("http_server_config: {headers: {X-Frame-Options: s3cret}}", "http_server_config.headers.X-Frame-Options: must be deny or sameorigin"),
        ('http_server_config: {headers: {X-XSS-Protection: "s3cret\\r\\nX: y"}}', "http_server_config.headers.X-XSS-Protection: holds a control"),
        ("basic_auth_users: {alice: s3cret}", "basic_auth_users.alice: not a bcrypt hash"),
        ("basic_auth_users: {alice: 12345}", "basic_auth_users.alice: expected text, got a whole number"),
        ("basic_auth_users: {'alice:s3cret': x}", "basic_auth_users: the name of a user holds a colon"),
        (f"basic_auth_users: {{alice: {HASH.replace('$10$', '$20$')}}}", "basic_auth_users.alice: a hash of cost 20"),
        ("rate_limit: {interval: 1s}", "rate_limit.burst: must be above 0"),
        ("rate_limit: {interval: often, burst: 1}", "rate_limit.interval: is not a duration"),
        ("basic_auth_users: {alice: *s3cret}", "line 1: not YAML"),
        ("basic_auth_users: {alice: !s3cret x}", "line 1: not YAML"),
        (f"basic_auth_users:\n  alice: {HASH}\n  alice: {HASH}", "line 3: alice: stands twice in one mapping"),
        ("'a line of s3cret': x\n'a line of s3cret': y", "line 2: a line o...: stands twice in one mapping"),
        ("'root:$6$s3cret': x", "root:$6$...: there is no such setting"),
        ("bearer_tokenfile:", "bearer_tokenfile: there is no such setting"),
        ("tls_server_config: {certfile: }", "tls_server_config.certfile: there is no such setting"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_with_its_key_and_without_its_value(tmp_path, text, fault):
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_web_config(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: {fault}") or (fault in message and message.startswith(f"{file}: "))
    assert not [secret for secret in ("s3cret", "12345", "often", "\n") if secret in message]


@pytest.mark.parametrize("suite", CIPHER_SUITES)
def test_every_cipher_suite_that_can_be_named_is_the_one_that_is_used(tmp_path, suite):
    Authority(tmp_path, "ca").certificate("server")
    file = written(
        tmp_path, f"tls_server_config: {{cert_file: server.pem, key_file: server.key, cipher_suites: [{suite}]}}"
    )
    names = {cipher["name"] for cipher in read_terms(file).context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}
    assert names == {CIPHER_SUITES[suite]}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda folder: (folder / "server.key").unlink(), "server.key: cannot be read: No such file"),
        (lambda folder: (folder / "server.pem").unlink(), "server.pem: cannot be read: No such file"),
        (lambda folder: encrypt(folder / "server.key"), "server.key: is encrypted, and nobody is there to be asked"),
        (lambda folder: (folder / "server.key").write_text("s3cret"), "not a certificate and its key"),
        (lambda folder: (folder / "server.key").write_bytes((folder / "ca.key").read_bytes()), "key values mismatch"),
        (lambda folder: (folder / "ca.pem").write_text("s3cret"), "ca.pem: not certificates"),
        (lambda folder: (folder / "token").write_text("two s3cret"), "token: not one token"),
        (lambda folder: (folder / "token").unlink(), "token: cannot be read: No such file"),
        (
            lambda folder: replaced(folder / "token").symlink_to("/dev/zero"),
            "token: cannot be read: not a regular file",
        ),
        (lambda folder: os.mkfifo(replaced(folder / "token")), "token: cannot be read: not a regular file"),
        (lambda folder: (folder / "token").write_text("x" * (2**16 + 1)), "token: not one token"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path, change, fault):
    Authority(tmp_path, "ca").certificate("server")
    (tmp_path / "token").write_text("open-sesame\n")
    file = written(tmp_path, f"bearer_token_file: token\n{SERVER}")
    read_terms(file)
    change(tmp_path)
    with pytest.raises(ConfigError, match=fault) as caught:
        read_terms(file)
    assert "s3cret" not in str(caught.value)


def replaced(file: Path) -> Path:
    file.unlink()
    return file


SERVER = (
    "tls_server_config: {cert_file: server.pem, key_file: server.key, client_ca_file: ca.pem, "
    "client_auth_type: VerifyClientCertIfGiven}\n"
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def later(file: WebFile, clock: Clock) -> object:
    clock.now += webfile.EVERY
    return await file.terms()


async def test_files_are_reread_when_they_change_and_not_otherwise(tmp_path, records, monkeypatch):
    clock = Clock()
    one, two = hashed("one"), hashed("two")
    (tmp_path / "token").write_text("first")
    path = written(tmp_path, f"basic_auth_users: {{a: {one}}}\nbearer_token_file: token\n")
    file = WebFile(path, clock=clock)
    before = await file.terms()
    reads = []
    original = webfile.read_web_config
    monkeypatch.setattr(webfile, "read_web_config", lambda path: reads.append(path) or original(path))
    assert await later(file, clock) is before
    assert reads == []

    path.write_text(f"basic_auth_users: {{a: {two}}}\nbearer_token_file: token\n")
    assert await file.terms() is before, "looked at not long ago"
    assert (await later(file, clock)).config.basic_auth_users == {"a": two}
    (tmp_path / "token").write_text("second")
    assert (await later(file, clock)).token == "second"
    assert len(reads) == 2
    assert [record.levelno for record in records] == [logging.INFO, logging.INFO]


async def test_a_file_that_is_broken_leaves_the_last_good_one_and_is_told_once(tmp_path, records):
    clock = Clock()
    path = written(tmp_path, f"basic_auth_users: {{a: {hashed('one')}}}\n")
    file = WebFile(path, clock=clock)
    good = await file.terms()
    path.write_text("basic_auth_users: {a: s3cret}\n")
    for _ in range(3):
        assert await later(file, clock) is good
    (record,) = records
    assert record.levelno == logging.WARNING
    assert record.error == f'{path}: basic_auth_users.a: not a bcrypt hash; make one with `htpasswd -nBC 10 ""`'
    path.unlink()
    assert await later(file, clock) is good
    assert "cannot be read" in records[-1].error
    path.write_text(f"basic_auth_users: {{b: {hashed('two')}}}\n")
    assert (await later(file, clock)).config.basic_auth_users.keys() == {"b"}
    assert records[-1].levelno == logging.INFO


@pytest.mark.parametrize(
    ("kept", "gone"),
    [("", "TLS"), ("tls_server_config: {cert_file: server.pem, key_file: server.key}", "authentication")],
)
async def test_a_half_written_file_takes_no_protection_away(tmp_path, records, kept, gone):
    Authority(tmp_path, "ca").certificate("server")
    clock = Clock()
    path = written(
        tmp_path,
        "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
        f"basic_auth_users: {{a: {hashed('one')}}}\n",
    )
    file = WebFile(path, clock=clock)
    good = await file.terms()
    path.write_text(kept)
    assert await later(file, clock) is good
    assert records[-1].error == f"{path}: {gone} is no longer in it: that takes a restart"


async def test_a_certificate_replaced_together_with_its_key_is_never_half_used(tmp_path, records):
    authority, clock = Authority(tmp_path, "ca"), Clock()
    authority.certificate("server"), authority.certificate("next")
    file = WebFile(written(tmp_path, "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"), clock=clock)
    before = await file.terms()
    (tmp_path / "next.pem").replace(tmp_path / "server.pem")
    assert await later(file, clock) is before
    assert "key values mismatch" in records[-1].error
    (tmp_path / "next.key").replace(tmp_path / "server.key")
    assert (await later(file, clock)).context is not before.context


async def test_requests_wait_for_one_look_at_the_files_together(tmp_path):
    clock = Clock()
    path = written(tmp_path, "")
    file = WebFile(path, clock=clock)
    await file.terms()
    path.write_text(f"basic_auth_users: {{a: {hashed('one')}}}\n")
    clock.now += webfile.EVERY
    found = await asyncio.gather(*(file.terms() for _ in range(50)))
    assert {id(one) for one in found} == {id(found[0])}
    assert found[0].asks_who


@pytest.mark.parametrize("command", ["run", "config"])
async def test_a_web_configuration_that_cannot_be_used_is_one_line_at_the_start(tmp_path, command):
    file = written(tmp_path, "basic_auth_users: {a: s3cret}")
    done = await run(command, "http://127.0.0.1:9/metrics", "--web-config-file", file)
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(rf"prefixwatch: {re.escape(str(file))}: basic_auth_users\.a: not a bcrypt hash; .*\n", done.err)


async def test_the_file_is_named_by_the_environment_too(tmp_path):
    file = written(tmp_path, "basic_auth_users: {a: s3cret}")
    done = await run("config", "http://127.0.0.1:9/metrics", env={"PREFIXWATCH_WEB_CONFIG_FILE": str(file)})
    assert done.code == 2
    assert "basic_auth_users.a" in done.err


def test_inline_authorities_are_read(tmp_path):
    Authority(tmp_path, "ca").certificate("server")
    indented = (tmp_path / "ca.pem").read_text().replace("\n", "\n    ")
    text = (
        "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
        f"  client_auth_type: RequireAndVerifyClientCert\n  client_ca: |\n    {indented}\n"
    )
    tls = read_web_config(written(tmp_path, text)).tls_server_config
    assert len(context_of(tls).get_ca_certs()) == 1
