"""Run the command line as a user would: in a process of its own."""

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, BinaryIO, NamedTuple

COMMAND = (sys.executable, "-m", "prefixwatch")


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


async def started(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    prepare: Callable[[], None] | None = None,
    out: int | BinaryIO = PIPE,
) -> Process:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFIXWATCH_")}
    return await asyncio.create_subprocess_exec(
        *COMMAND, *map(str, arguments), env={**clean, **(env or {})},
        stdin=PIPE, stdout=out, stderr=PIPE, preexec_fn=prepare,
    )  # fmt: skip


async def ended(process: Process, *, stdin: bytes = b"", within: float = 60.0) -> Done:
    try:
        async with asyncio.timeout(within):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Done(process.returncode, (out or b"").decode(), err.decode())


async def run(*arguments: object, stdin: bytes = b"", env: Mapping[str, str] | None = None, **options: Any) -> Done:
    """Run a command to its end."""
    return await ended(await started(*arguments, env=env, **options), stdin=stdin)


class Exporter(NamedTuple):
    """A running `prefixwatch run`."""

    process: Process
    url: str


@asynccontextmanager
async def exporter(*arguments: object, listen: str = "127.0.0.1:0", **options: Any) -> AsyncIterator[Exporter]:
    """Run the exporter until the block is left; it has its port when the block begins."""
    process = await started("run", *arguments, "--listen", listen, "--log-format", "json", **options)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(30):
            while True:
                line = await process.stderr.readline()
                assert line, "it ended before it served"
                entry = json.loads(line)
                if entry["message"] == "serving":
                    break
        yield Exporter(process, f"http://127.0.0.1:{re.sub('.*:', '', entry['listen'])}")
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
