"""Look names up, each in a thread of its own.

A lookup cannot be cancelled, and hangs for half a minute where the name server is gone. In the
event loop's pool a few of them would hold up all else that runs there, and the end of the process.
"""

import asyncio
import concurrent.futures
import socket
import threading

from aiohttp.abc import AbstractResolver, ResolveResult

AT_ONCE = 32
"""How many lookups may run side by side; more wait."""

Answer = tuple[int, str]
"""Family and address."""

_Query = tuple[str, int, int]


class Names(AbstractResolver):
    """Look up names; one that is being looked up already is not looked up once more."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._running: dict[_Query, asyncio.Task[list[Answer]]] = {}

    async def addresses(self, host: str, port: int, *, family: int = socket.AF_UNSPEC) -> list[Answer]:
        """Return every address behind a name. Raises OSError, and ValueError for what can be no name."""
        query = (host, port, family)
        task = self._running.get(query)
        if task is None:
            task = self._running[query] = asyncio.create_task(self._answers(query))
            task.add_done_callback(lambda ended: self._end(query, ended))
        return await asyncio.shield(task)  # who asked may give up: the thread goes on, and so may others

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Do the same in the form that aiohttp's connections want."""
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(hostname=host, host=address, port=port, family=found, proto=0, flags=flags)
            for found, address in await self.addresses(host, port, family=family)
        ]

    async def close(self) -> None:
        """Wait for no lookup any longer."""
        for task in self._running.values():
            task.cancel()

    async def _answers(self, query: _Query) -> list[Answer]:
        async with self._slots:
            return await asyncio.wrap_future(_started(query))

    def _end(self, query: _Query, task: asyncio.Task[list[Answer]]) -> None:
        self._running.pop(query, None)
        if not task.cancelled():
            task.exception()  # seen: perhaps nobody waits any longer


def _started(query: _Query) -> concurrent.futures.Future[list[Answer]]:
    """Look up in a thread that nothing waits for at the end of the process."""
    future: concurrent.futures.Future[list[Answer]] = concurrent.futures.Future()
    host, port, family = query

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            infos = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            future.set_result([(info[0], _text(info[4])) for info in infos])
        except Exception as error:  # noqa: BLE001  raised where it is awaited
            future.set_exception(error)

    threading.Thread(target=run, name="lookup", daemon=True).start()
    return future


def _text(address: tuple[object, ...]) -> str:
    """Return an address as text; an IPv6 one that is good on one link only names that link."""
    return f"{address[0]}%{address[3]}" if len(address) == 4 and address[3] else str(address[0])
