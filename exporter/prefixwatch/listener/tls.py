"""What a web configuration says of TLS, as Python's `ssl` has it."""

import ipaddress
import ssl
from collections.abc import Collection, Mapping
from typing import Any

from prefixwatch.certificates import load_certificate, words_of
from prefixwatch.listener.configuration import CIPHER_SUITES, TlsConfig
from prefixwatch.settings import ConfigError

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_MODES = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


def context_of(tls: TlsConfig) -> ssl.SSLContext:
    """Return the context of a listener. Raises `ConfigError` for a file or a suite that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.minimum_version, context.maximum_version = _VERSIONS[tls.min_version], _VERSIONS[tls.max_version]
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _choose_suites(context, tls.cipher_suites)
    try:
        load_certificate(context, tls.cert_file, tls.key_file)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    context.verify_mode = _MODES[tls.client_auth_type]
    if tls.client_ca_file or tls.client_ca:
        try:
            context.load_verify_locations(cafile=tls.client_ca_file or None, cadata=tls.client_ca or None)
        except (OSError, ValueError) as error:
            where = tls.client_ca_file or "tls_server_config.client_ca"
            raise ConfigError(f"{where}: not certificates: {words_of(error)}") from None
    return context


def _choose_suites(context: ssl.SSLContext, suites: Collection[str]) -> None:
    if not suites:
        return
    names = [CIPHER_SUITES[suite] for suite in suites]
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError:
        enabled: set[str] = set()
    else:
        enabled = {str(cipher["name"]) for cipher in context.get_ciphers()}
    missing = [suite for suite, name in zip(suites, names, strict=True) if name not in enabled]
    if missing:
        raise ConfigError(f"tls_server_config.cipher_suites: {missing[0]}: {ssl.OPENSSL_VERSION} does not offer it")


def is_allowed(certificate: Mapping[str, Any] | None, allowed: Collection[str] | None) -> bool:
    """Say whether one of a client certificate's alternative names is among `allowed`; None allows any client."""
    if allowed is None:
        return True
    names = (certificate or {}).get("subjectAltName", ())
    return any(_plain(kind, name) in allowed for kind, name in names)


def _plain(kind: str, name: str) -> str:
    """Return a name as it is written in a configuration: OpenSSL writes IPv6 addresses out in full."""
    if kind != "IP Address":
        return name
    try:
        return str(ipaddress.ip_address(name.strip()))
    except ValueError:
        return name
