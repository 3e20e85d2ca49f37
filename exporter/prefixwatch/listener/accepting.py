"""Accept connections: a bounded number, each on the terms that hold when it comes."""

import asyncio
import errno
import logging
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import web

from prefixwatch.listener.connection import Connection
from prefixwatch.listener.webfile import Terms

MAX_CONNECTIONS = 256
"""How many connections there may be; one more ends the one that has waited for a request the longest."""

HANDSHAKE_SECONDS = 10.0
_BACKLOG = 128
_TLS_CLOSE_SECONDS = 2.0
_TELL_SECONDS = 60.0
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_log = logging.getLogger(__name__)


class Listener:
    """Serve on one address until `close`. `terms`: what holds now.

    Why not aiohttp's own site: certificates have to be renewed in place, a handshake counts as a
    connection, and one that is too many must not cost Prometheus its scrape.
    """

    def __init__(self, server: web.Server, terms: Callable[[], Awaitable[Terms]]) -> None:
        self._server = server
        self._terms = terms
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._arriving: set[asyncio.Task[None]] = set()
        self._waiting: dict[Connection | asyncio.Task[None], None] = {}
        self._busy: set[Connection] = set()
        self._nobody_is_busy = asyncio.Event()
        self._nobody_is_busy.set()
        self._told: dict[str, float] = {}
        self._is_closing = False

    def listen(self, host: str | None, port: int) -> int:
        """Start to accept; return the port. No host is every address. Raises OSError."""
        self._sockets = _bound(host, port)
        self._accepting = [asyncio.create_task(self._accept(one)) for one in self._sockets]
        return int(self._sockets[0].getsockname()[1])

    async def close(self, *, within: float) -> None:
        """Accept no more, let answers in the making be sent `within` seconds, then end what is left."""
        self._is_closing = True
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for one in self._sockets:
            one.close()
        while self._waiting:
            self._end_longest_waiting()
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._nobody_is_busy.wait()
        for connection in list(self._busy):
            connection.abort()
        await asyncio.gather(*self._arriving, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:  # too many open files; or the client is gone already
                self._tell(f"cannot accept a connection: {os.strerror(error.errno or 0)}")
                await asyncio.sleep(0.1)
                continue
            if len(self._waiting) + len(self._busy) >= MAX_CONNECTIONS and not self._end_longest_waiting():
                self._tell(f"{MAX_CONNECTIONS} connections are being answered: more are refused")
                accepted.close()
                continue
            task = asyncio.create_task(self._admit(accepted))
            self._arriving.add(task)
            self._waiting[task] = None
            task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        self._arriving.discard(task)
        self._waiting.pop(task, None)

    async def _admit(self, accepted: socket.socket) -> None:
        """Shake hands where there is TLS, and hand the connection over. A client that cannot is nobody's fault."""
        try:
            terms = await self._terms()
        except BaseException:
            accepted.close()
            raise
        is_tls = terms.context is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._connection(terms),
                accepted,
                ssl=terms.context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if is_tls else None,
                ssl_shutdown_timeout=_TLS_CLOSE_SECONDS if is_tls else None,
            )
        except ssl.SSLCertVerificationError as error:
            self._tell(f"a client was refused: its certificate does not hold: {error.verify_message}")
        except OSError as error:  # the most of them are no clients: nothing is said
            if getattr(error, "reason", None) == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
                self._tell("a client was refused: it brought no certificate")

    def _connection(self, terms: Terms) -> Connection:
        allowed = terms.config.tls_server_config.client_allowed_sans
        return Connection(self._server, allowed=allowed, note=self._note, refuse=self._refuse)

    def _refuse(self) -> None:
        self._tell("a client was refused: its certificate has none of client_allowed_sans")

    def _note(self, connection: Connection, is_waiting: bool | None) -> None:
        """Take note of whether a connection waits for a request; None: it is gone. In order of how long they wait."""
        self._waiting.pop(connection, None)
        self._busy.discard(connection)
        if is_waiting:
            self._waiting[connection] = None
            if self._is_closing and connection.transport is not None:
                connection.transport.close()
        elif is_waiting is False:
            self._busy.add(connection)
        (self._nobody_is_busy.clear if self._busy else self._nobody_is_busy.set)()

    def _end_longest_waiting(self) -> bool:
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
        self._waiting.pop(longest)
        if isinstance(longest, Connection):
            longest.abort()
        else:
            longest.cancel()
        return True

    def _tell(self, message: str) -> None:
        """Log a trouble, each once a minute at most: an attack must not fill the disk."""
        if time.monotonic() - self._told.get(message, float("-inf")) >= _TELL_SECONDS:
            self._told[message] = time.monotonic()
            _log.warning("%s", message)


def _bound(host: str | None, port: int) -> list[socket.socket]:
    """Return a socket that listens for each address of a host, all of them on one port. Raises OSError."""
    bound: list[socket.socket] = []
    fault = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for family, _, _, _, address in dict.fromkeys(
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    ):
        place = (address[0], bound[0].getsockname()[1] if bound else port, *address[2:])
        try:
            bound.append(_listening(family, place))
        except OSError as error:
            fault = error
            if host is None and error.errno in _NO_SUCH_FAMILY:  # a host without IPv6, say
                continue
            for one in bound:
                one.close()
            raise
    if not bound:
        raise fault
    return bound


def _listening(family: int, place: tuple[object, ...]) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(place)
        one.listen(_BACKLOG)
    except OSError:
        one.close()
        raise
    one.setblocking(False)
    return one
