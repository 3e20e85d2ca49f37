"""Wait for a condition, never for a time."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 20.0
"""Seconds, for a machine that is busy with something else."""


async def until(condition: Callable[[], Any], *, seconds: float = PATIENCE) -> Any:
    """Return what `condition` (or the coroutine that it returns) gives, once that is true."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {inspect.getsource(condition).strip()}"
        await asyncio.sleep(0.01)
