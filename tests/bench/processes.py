"""Processes that a benchmark starts, and what they use."""

import asyncio
import os
import socket
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp

READY_SECONDS = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process has used until `time` (monotonic): CPU seconds of all its threads, and its resident memory now."""

    time: float
    cpu: float
    megabytes: float

    @classmethod
    def now(cls) -> Self:
        """Return what this process has used."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Self:
        """Read /proc. Raises FileNotFoundError where the process has ended."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls(
            time=time.monotonic(),
            cpu=(int(fields[11]) + int(fields[12])) / _TICKS,
            megabytes=resident * _PAGE / 1e6,
        )

    @staticmethod
    def cores(usages: Sequence["Usage"]) -> float:
        """Return the CPU seconds a second between the first and the last."""
        return (usages[-1].cpu - usages[0].cpu) / (usages[-1].time - usages[0].time)

    @staticmethod
    def slope(usages: Sequence["Usage"]) -> float:
        """Return by how many MB an hour memory grows over the second half, by least squares."""
        late = usages[len(usages) // 2 :]
        middle, mean = sum(u.time for u in late) / len(late), sum(u.megabytes for u in late) / len(late)
        spread = sum((u.time - middle) ** 2 for u in late)
        return 3600 * sum((u.time - middle) * (u.megabytes - mean) for u in late) / spread if spread else 0.0


@asynccontextmanager
async def running(
    commands: Mapping[str, Sequence[object]], folder: Path, *, ready: Mapping[str, str]
) -> AsyncIterator[dict[str, int]]:
    """Run commands, by name, with their output in `folder`; yield their process ids once the URLs of `ready` answer 200."""
    processes: dict[str, Process] = {}
    try:
        for name, command in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                processes[name] = await asyncio.create_subprocess_exec(*map(str, command), stdout=DEVNULL, stderr=log)
        async with aiohttp.ClientSession() as client:
            for name, url in ready.items():
                await _until_ready(client, url, processes[name], folder / f"{name}.log")
        yield {name: process.pid for name, process in processes.items()}
    finally:
        for process in processes.values():
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in processes.values()))


async def _until_ready(client: aiohttp.ClientSession, url: str, process: Process, log: Path) -> None:
    end = time.monotonic() + READY_SECONDS
    while True:
        try:
            async with client.get(url) as response:
                if response.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        if process.returncode is not None or time.monotonic() > end:
            words = await asyncio.to_thread(log.read_text)
            raise SystemExit(f"{url} does not answer; its log ends with:\n{words[-2000:]}")
        await asyncio.sleep(0.1)
