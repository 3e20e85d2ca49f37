"""One connection: how long it may wait, and what a request that cannot be read is answered with."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from prefixwatch.listener.headers import HEADERS, PLAIN_POLICY
from prefixwatch.listener.tls import is_allowed

REQUEST_SECONDS = 10.0
"""How long a request may take to arrive, from its first byte or from the connection's begin."""

IDLE_SECONDS = 75.0
"""How long a connection is kept for another request: longer than most scrape intervals."""

LINE_BYTES = 8190
"""How long a request line, or one header, may be."""

HEAD_BYTES = 65536
"""How much may arrive before a request is whole."""

_LINGER_SECONDS = 1.0


class Connection(web.RequestHandler):
    """aiohttp's handling of a connection, with an end to every wait.

    aiohttp itself waits for a request as long as for the next one on an idle connection, for an
    hour by default, and logs what it could not read, with its traceback.
    `note` is told whether the connection waits for a request; `allowed`: client_allowed_sans; `refuse` is
    called where the client is none of them.
    """

    __slots__ = ("_allowed", "_arrived", "_is_idle", "_note", "_refuse", "_timer")

    def __init__(
        self,
        server: web.Server,
        *,
        allowed: Collection[str] | None,
        note: "Callable[[Connection, bool | None], None]",
        refuse: Callable[[], None],
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # as AppRunner has it
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=_LINGER_SECONDS,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
            auto_decompress=False,
        )
        self._allowed, self._note, self._refuse = allowed, note, refuse
        self._arrived = 0
        self._is_idle = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for a request, unless this is not one of the clients that are allowed."""
        super().connection_made(transport)
        if is_allowed(transport.get_extra_info("peercert"), self._allowed):
            self._wait(REQUEST_SECONDS)
        else:
            self._refuse()
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        self._note(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; the first ones of a request set the time by which it has to be whole."""
        if self._is_idle:
            self._wait(REQUEST_SECONDS)
        self._arrived += len(data)
        if self._timer is not None and self._arrived > HEAD_BYTES:
            self.abort()
        else:
            super().data_received(data)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count as busy, however long that takes."""
        self._stop_waiting()
        self._note(self, False)
        try:
            yield
        finally:
            if self.transport is not None:
                self._wait(IDLE_SECONDS, is_idle=True)

    def abort(self) -> None:
        """End the connection at once, and drop what was not sent yet."""
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002  holds bytes of the request
    ) -> web.StreamResponse:
        """Answer what is no request, and say and log nothing of what it holds."""
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer was sent already")
        text = "this is not a request that can be read\n" if status < 500 else "a fault of the exporter; see its log\n"
        if status >= 500 and exc is not None:
            self.logger.error("a request failed inside the exporter", exc_info=exc)
        headers = {**HEADERS, "Content-Security-Policy": PLAIN_POLICY}
        response = web.Response(status=status, text=text, headers=headers)
        response.force_close()
        return response

    def log_exception(self, *_: Any, **kwargs: Any) -> None:
        """Log a fault of aiohttp's without what the client sent."""
        self.logger.error("a connection failed inside the exporter", exc_info=kwargs.get("exc_info"))

    def _wait(self, seconds: float, *, is_idle: bool = False) -> None:
        self._stop_waiting()
        self._is_idle, self._arrived = is_idle, 0
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)
        self._note(self, True)

    def _stop_waiting(self) -> None:
        self._is_idle = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
