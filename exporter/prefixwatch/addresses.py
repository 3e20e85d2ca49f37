"""Addresses as people write them, and how they are shown: never with credentials."""

import re
import reprlib
from ipaddress import ip_address
from urllib.parse import urlsplit

HIDDEN = "<hidden>"
_CREDENTIALS = re.compile(r"""((?:^|(?<=['"\s]))(?:\w+://)?)[^\s'"]*@""")
_QUERY = re.compile(r"""\?[^\s'"]+""")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_BRACKETED_IPV4 = re.compile(r"^(\w+://)\[([0-9.]+)\](?=[:/?#]|$)")
_NOT_IN_URLS = re.compile(r'[\s\x00-\x20\x7f<>"{}|\\^`]')


def url_of(text: str) -> str:
    """Complete what people write for a target: "localhost:8000" becomes http://localhost:8000/metrics.

    Brackets around an IPv4 address are dropped: a template that does not know of which kind an address is writes them
    always. Raises ValueError saying what is wrong.
    """
    url = _BRACKETED_IPV4.sub(r"\1\2", text if "://" in text else f"http://{text}")
    try:
        parts = urlsplit(url)
        is_fine = (parts.port is None or parts.port > 0) and not _NOT_IN_URLS.search(url) and url.isprintable()
    except ValueError:
        is_fine = False
        parts = urlsplit("")
    if not is_fine or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f'"{without_credentials(text)}" is not a URL; use a form like "http://localhost:8000/metrics"')
    if parts.username or parts.password:
        raise ValueError(
            f'"{without_credentials(text)}": no credentials in a URL; use access.bearer_token_file, or --bearer-token-file'
        )
    path = parts.path if parts.path not in ("", "/") else "/metrics"
    return parts._replace(path=path, fragment="").geturl()


def host_and_port(url: str, *, host: str | None = None) -> str:
    """Return the `target` of a URL: host:port, the scheme's port where none is written.

    `host` stands for the URL's own; an IPv6 address gets its brackets.
    """
    parts = urlsplit(url)
    shown = (host or parts.hostname or "").strip("[]")
    return f"{f'[{shown}]' if ':' in shown else shown}:{parts.port or {'https': 443}.get(parts.scheme, 80)}"


def is_host(text: str) -> bool:
    """Whether a text is an IP address, with or without brackets, or a name of a host."""
    try:
        ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return _HOST_NAME.fullmatch(text) is not None
    return True


def without_credentials(value: object) -> str:
    """Show a value in an error message, with hidden what looks like credentials, or like the query of a URL."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, Exception) else repr(value)
    # Hidden before it is cut: behind a cut, nothing shows any longer that it was a credential.
    return one_line(_QUERY.sub(f"?{HIDDEN}", _CREDENTIALS.sub(rf"\1{HIDDEN}@", text)))


def one_line(value: object) -> str:
    """Show a value in an error message: on one line, and not for ever."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, Exception) else reprlib.repr(value)
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:200])
    return text if len(text) <= 80 else text[:77] + "..."
