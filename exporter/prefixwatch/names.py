"""Look names up, each in a thread of its own.

A lookup cannot be cancelled, and hangs for half a minute where the name server is gone. In the
event loop's pool a few of them would hold up all else that runs there, and the end of the process.
"""

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from aiohttp.abc import AbstractResolver, ResolveResult

AT_ONCE = 32
"""How many lookups may run side by side; more wait."""

Answer = tuple[socket.AddressFamily, str]
_Key = tuple[str, int, int]


class Names(AbstractResolver):
    """Look up names; a name that is being looked up already is not looked up once more."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._running: dict[_Key, asyncio.Task[list[Answer]]] = {}

    async def addresses(self, host: str, port: int, *, family: int = socket.AF_UNSPEC) -> list[Answer]:
        """Return (family, address) of each address behind a name. Raises OSError, and ValueError for no name."""
        key = (host, port, family)
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(self._looked_up(key))
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)  # who waits may give up; the thread goes on, and others may wait for it

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Do the same for aiohttp's connections."""
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(hostname=host, host=address, port=port, family=found, proto=0, flags=flags)
            for found, address in await self.addresses(host, port, family=family)
        ]

    async def close(self) -> None:
        """Wait for no lookup any longer."""
        for task in list(self._running.values()):
            task.cancel()

    async def _looked_up(self, key: _Key) -> list[Answer]:
        host, port, family = key
        async with self._slots:
            infos = await _in_thread(
                lambda: socket.getaddrinfo(
                    host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
                )
            )
        return [(info[0], _written(info[4])) for info in infos]

    def _ended(self, key: _Key, task: asyncio.Task[list[Answer]]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever waited has seen it; perhaps nobody waits any more


def _written(address: tuple[object, ...]) -> str:
    """Return an address as text; an IPv6 one of a single link carries its link."""
    return f"{address[0]}%{address[3]}" if len(address) == 4 and address[3] else str(address[0])


async def _in_thread[T](work: Callable[[], T]) -> T:
    """Await `work` in a thread that nothing waits for at the end of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, fault = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  it is raised where it is awaited
            fault = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(finish, result, fault)

    threading.Thread(target=run, name="lookup", daemon=True).start()
    return await future
