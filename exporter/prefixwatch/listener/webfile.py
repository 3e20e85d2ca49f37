"""The web configuration file as it holds now: reread when it, or a file that it names, changes."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prefixwatch.listener.configuration import WebConfig, read_web_config
from prefixwatch.listener.tls import context_of
from prefixwatch.settings import ConfigError, read_token

EVERY = 1.0
"""Seconds between two looks at the files, as far as anybody asks."""

_Stamp = tuple[tuple[int, int, int], ...]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms the listener answers. `context` None: no TLS; `token` None: no bearer token is wanted."""

    config: WebConfig = WebConfig()
    context: ssl.SSLContext | None = None
    token: str | None = None

    @property
    def asks_who(self) -> bool:
        """Whether a request has to bring credentials."""
        return bool(self.config.basic_auth_users) or self.token is not None

    @property
    def demands(self) -> frozenset[str]:
        """What a client is held to."""
        tls = self.config.tls_server_config
        held = {
            "TLS": self.context is not None,
            "a client certificate": tls.client_auth_type == "RequireAndVerifyClientCert",
            "client_allowed_sans": tls.client_allowed_sans is not None,
            "authentication": self.asks_who,
        }
        return frozenset(name for name, is_held in held.items() if is_held)


def read_terms(file: Path) -> Terms:
    """Read a web configuration file and all that it names. Raises `ConfigError`."""
    return _terms_of(read_web_config(file))


def _terms_of(config: WebConfig) -> Terms:
    token = None
    if config.bearer_token_file:
        try:
            token = read_token(Path(config.bearer_token_file))
        except OSError as error:
            raise ConfigError(f"{config.bearer_token_file}: cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(str(error)) from None
    context = context_of(config.tls_server_config) if config.tls_server_config.is_on else None
    return Terms(config=config, context=context, token=token)


class WebFile:
    """Keep the terms of a file. One that cannot be used leaves the last good ones, and is told once.

    A change never takes a demand away, as a half-written file would: that needs a restart. Raises
    `ConfigError` where the file cannot be used to begin with.
    """

    def __init__(self, file: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._terms, self._stamp = self._read()
        self._looked = clock()
        self._fault: str | None = None
        self._looking: asyncio.Task[None] | None = None

    async def terms(self) -> Terms:
        """Return what holds now; it is `EVERY` seconds old at most. Files are read in a thread."""
        if self._looking is None and self._clock() - self._looked >= EVERY:
            self._looking = asyncio.create_task(asyncio.to_thread(self._look))
            self._looking.add_done_callback(self._end_looking)
        if self._looking is not None:
            await asyncio.shield(self._looking)
        return self._terms

    def _end_looking(self, _: asyncio.Task[None]) -> None:
        self._looking, self._looked = None, self._clock()

    def _look(self) -> None:
        if self._stamp is not None and self._stamp == _stamps(str(self._file), *self._terms.config.files):
            return
        try:
            terms, stamp = self._read()
            if missing := self._terms.demands - terms.demands:
                raise ConfigError(f"{self._file}: {min(missing)} is no longer in it: that takes a restart")
        except ConfigError as error:
            self._stamp = None  # read again next time: a file that is being written is whole soon
            if str(error) != self._fault:
                self._fault = str(error)
                _log.warning(
                    "the web configuration cannot be used; what was known of it stays", extra={"error": str(error)}
                )
        else:
            self._terms, self._stamp, self._fault = terms, stamp, None
            _log.info("the web configuration was read anew", extra={"file": str(self._file)})

    def _read(self) -> tuple[Terms, _Stamp | None]:
        """Return the terms, and what tells the files from what they were: each stamped before it is read."""
        stamp = _stamps(str(self._file))
        config = read_web_config(self._file)
        others = _stamps(*config.files)
        return _terms_of(config), None if stamp is None or others is None else stamp + others


def _stamps(*files: str) -> _Stamp | None:
    """Return a stamp of each file, None where one is missing."""
    try:
        stats = [Path(file).stat() for file in files]
    except OSError:
        return None
    return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)
