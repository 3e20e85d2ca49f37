"""Turns at the event loop, so that sockets are read however much work there is."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

SLICE = 0.005
"""After so many seconds of work the loop reads sockets before there is more: rounds of it cost time too."""

_T = TypeVar("_T")


class Turns:
    """Do pieces of work one after another, and let the loop make a round after each `SLICE` of them.

    However many wait, no answer that has come in meanwhile counts as timed out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._worked = 0.0

    async def do(self, work: Callable[[], _T]) -> _T:
        """Return what `work` does, when it is its turn."""
        async with self._lock:
            if self._worked >= SLICE:
                await asyncio.sleep(0)
                self._worked = 0.0
            began = self._clock()
            try:
                return work()
            finally:
                self._worked += self._clock() - began
