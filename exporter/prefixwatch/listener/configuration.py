"""The web configuration file, in the form that Prometheus's exporters share, and what is refused of it.

The form is the exporter toolkit's: github.com/prometheus/exporter-toolkit, docs/web-configuration.md.
`bearer_token_file` is an addition of ours. What this server cannot do is an error and never ignored.
Errors quote no value: it may be a password.
"""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from prefixwatch.addresses import one_line
from prefixwatch.settings import ConfigError, Duration, converted, read

VERSIONS = ("TLS12", "TLS13")
_OLD_VERSIONS = ("TLS10", "TLS11")
CLIENT_AUTH_TYPES = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
_UNVERIFIED_TYPES = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
MAX_COST = 14
"""Of a bcrypt hash: one to two seconds for each password that is tried."""

_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}", re.ASCII)
_HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}

# Go's names of suites for TLS 1.2, and OpenSSL's.
CIPHER_SUITES = {
    f"TLS_ECDHE_{key}_WITH_{go}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for go, openssl in (
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a listener over TLS is and asks for. Files are paths, relative to the web configuration file."""

    cert: str = ""
    key: str = ""
    client_ca: str = ""
    cert_file: str = ""
    key_file: str = ""
    client_auth_type: str = ""
    client_ca_file: str = ""
    client_allowed_sans: tuple[str, ...] | None = None
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True
    curve_preferences: tuple[str, ...] = ()

    @property
    def is_on(self) -> bool:
        """Whether the listener speaks TLS: as soon as anything of it is set, so that a slip never means plain text."""
        return self != TlsConfig()


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Headers for every answer, over those that are there anyhow. `http2`: only False can be had."""

    http2: bool = False
    headers: dict[str, str] = {}


class RateLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bucket of `burst` requests that gains one each `interval`; 0: none."""

    interval: Duration = Duration(0)
    burst: int = 0


class WebConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. `basic_auth_users`: bcrypt hashes by user."""

    tls_server_config: TlsConfig = TlsConfig()
    http_server_config: HttpConfig = HttpConfig()
    basic_auth_users: dict[str, str] = {}
    rate_limit: RateLimit = RateLimit()
    bearer_token_file: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it names."""
        tls = self.tls_server_config
        return tuple(file for file in (tls.cert_file, tls.key_file, tls.client_ca_file, self.bearer_token_file) if file)


_KEYS = WebConfig.__struct_fields__


def read_web_config(file: Path) -> WebConfig:
    """Read a web configuration file; paths in it become those of its folder. Raises `ConfigError`."""
    content = read(file, is_secret=True)
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: this must be a mapping, like `tls_server_config: {{cert_file: server.pem, ...}}`")
    # `key:` with nothing is not there; a key that nobody knows is refused all the same.
    content = {key: value for key, value in content.items() if value is not None or key not in _KEYS}
    _take_zero_for_none(content)
    config: WebConfig = converted(content, WebConfig, str(file), is_secret=True)

    def refuse(path: str, why: str) -> ConfigError:
        return ConfigError(f"{file}: {path}: {why}")

    _check_tls(config.tls_server_config, refuse)
    _check_http(config.http_server_config, refuse)
    _check_users(config.basic_auth_users, refuse)
    if config.rate_limit.interval and config.rate_limit.burst < 1:
        raise refuse("rate_limit.burst", "must be above 0, or no request is ever answered")
    return _with_paths_of(file.parent, config)


def _take_zero_for_none(content: dict[str, object]) -> None:
    """Let `interval: 0` stand for "0s", as Go's durations do."""
    limit = content.get("rate_limit")
    if isinstance(limit, dict) and limit.get("interval") == 0 and not isinstance(limit["interval"], bool):
        content["rate_limit"] = {**limit, "interval": "0s"}


_Refuse = Callable[[str, str], ConfigError]


def _check_tls(tls: TlsConfig, refuse: _Refuse) -> None:
    path = "tls_server_config"
    for name, instead in (("cert", "cert_file"), ("key", "key_file")):
        if getattr(tls, name):
            raise refuse(f"{path}.{name}", f"cannot be given inline: Python reads it from a file; use {instead}")
        if tls.is_on and not getattr(tls, instead):
            raise refuse(f"{path}.{instead}", "is missing")
    for name in ("min_version", "max_version"):
        if getattr(tls, name) in _OLD_VERSIONS:
            raise refuse(
                f"{path}.{name}", "TLS 1.0 and 1.1 are obsolete (RFC 8996) and not offered; use TLS12 or TLS13"
            )
        if getattr(tls, name) not in VERSIONS:
            raise refuse(f"{path}.{name}", "must be TLS12 or TLS13")
    if VERSIONS.index(tls.min_version) > VERSIONS.index(tls.max_version):
        raise refuse(f"{path}.min_version", "is above max_version")
    for position, suite in enumerate(tls.cipher_suites):
        if suite in ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"):
            raise refuse(
                f"{path}.cipher_suites[{position}]", "the suites of TLS 1.3 cannot be chosen, all are on: leave it out"
            )
        if suite not in CIPHER_SUITES:
            raise refuse(f"{path}.cipher_suites[{position}]", f"there are {', '.join(CIPHER_SUITES)}")
    if tls.curve_preferences:
        raise refuse(f"{path}.curve_preferences", "cannot be set from Python, OpenSSL's own are used: leave it out")
    _check_client(tls, refuse, path)


def _check_client(tls: TlsConfig, refuse: _Refuse, path: str) -> None:
    kind = tls.client_auth_type or CLIENT_AUTH_TYPES[0]
    if kind in _UNVERIFIED_TYPES:
        raise refuse(
            f"{path}.client_auth_type", f"{kind} takes any certificate, which Python cannot; use {CLIENT_AUTH_TYPES[2]}"
        )
    if kind not in CLIENT_AUTH_TYPES:
        raise refuse(f"{path}.client_auth_type", f"must be one of {', '.join(CLIENT_AUTH_TYPES)}")
    if tls.client_ca and tls.client_ca_file:
        raise refuse(f"{path}.client_ca", "give this or client_ca_file")
    has_authority = bool(tls.client_ca or tls.client_ca_file)
    if has_authority and kind == CLIENT_AUTH_TYPES[0]:
        raise refuse(
            f"{path}.client_auth_type", f"a client_ca_file without it has no effect; use {CLIENT_AUTH_TYPES[2]}"
        )
    if not has_authority and kind != CLIENT_AUTH_TYPES[0]:
        raise refuse(f"{path}.client_ca_file", "is missing: which authority signs the clients' certificates?")
    if tls.client_allowed_sans is not None and kind != CLIENT_AUTH_TYPES[2]:
        raise refuse(f"{path}.client_allowed_sans", f"needs client_auth_type: {CLIENT_AUTH_TYPES[2]}")


def _check_http(http: HttpConfig, refuse: _Refuse) -> None:
    if http.http2:
        raise refuse("http_server_config.http2", "this server speaks HTTP/1.1 alone; leave it out, or say false")
    for name, value in http.headers.items():
        path = f"http_server_config.headers.{one_line(name)}"
        if name not in _HEADERS:
            raise refuse(path, f"this header cannot be set; there are {', '.join(_HEADERS)}")
        if _HEADERS[name] and value and value not in _HEADERS[name]:
            raise refuse(path, f"must be {' or '.join(_HEADERS[name])}")
        if not value.isprintable():
            raise refuse(path, "holds a control character")


def _check_users(users: dict[str, str], refuse: _Refuse) -> None:
    for user, hashed in users.items():
        path = f"basic_auth_users.{one_line(user)}"
        if ":" in user:
            raise refuse(
                "basic_auth_users", "the name of a user holds a colon: what stands behind it may be a password"
            )
        parts = _BCRYPT.fullmatch(hashed)
        if parts is None:
            raise refuse(path, 'not a bcrypt hash; make one with `htpasswd -nBC 10 ""`')
        if not 4 <= int(parts[1]) <= MAX_COST:
            raise refuse(
                path, f"a hash of cost {int(parts[1])}; it must be from 4 to {MAX_COST}, as each check takes as long"
            )


def _with_paths_of(folder: Path, config: WebConfig) -> WebConfig:
    def placed(file: str) -> str:
        return str(folder / file) if file else ""

    tls = config.tls_server_config
    return msgspec.structs.replace(
        config,
        bearer_token_file=placed(config.bearer_token_file),
        tls_server_config=msgspec.structs.replace(
            tls,
            cert_file=placed(tls.cert_file),
            key_file=placed(tls.key_file),
            client_ca_file=placed(tls.client_ca_file),
        ),
    )
