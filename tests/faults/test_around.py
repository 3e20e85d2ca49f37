"""What fails around the exporter: the name server, the file of targets, the disk."""

import asyncio
import re
import resource
import socket
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import TestClient

from edge.commands import exporter, run
from edge.engines import Engine, playing, trace
from edge.waiting import until
from prefixwatch.config import Config, Duration, TargetConfig
from prefixwatch.poller import Poller
from prefixwatch.trace import scrapes
from prefixwatch.web import application

PAGES = [page for _, page in trace("healthy")][5:]
FAST = Config(
    poll_interval=Duration(0.2),
    windows=(Duration(1),),
    diagnosis_window=Duration(1),
    discovery_interval=Duration(0.05),
    forget_after=Duration(0.3),
)


async def up(client: TestClient | aiohttp.ClientSession, url: str = "") -> dict[str, str]:
    """Return the value of `prefixwatch_up` of each target, as it is written."""
    async with client.get(f"{url}/metrics") as response:
        return dict(re.findall(r'(?m)^prefixwatch_up\{target="(.*?)"\} (\S+)$', await response.text()))


@pytest.mark.parametrize("fault", [socket.EAI_AGAIN, socket.EAI_FAIL])
async def test_a_name_server_that_is_gone_takes_no_target_with_it(
    monkeypatch: pytest.MonkeyPatch, aiohttp_client, fault: int
) -> None:
    real, is_gone, asked = socket.getaddrinfo, False, 0

    def lookup(host: str, port: int, *rest: object, **options: object) -> object:
        nonlocal asked
        if host != "vllm.test":
            return real(host, port, *rest, **options)
        asked += 1
        if is_gone:
            raise socket.gaierror(fault, "the name server is gone")
        return real("127.0.0.1", port, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    async with Engine(answer=playing(PAGES)) as engine:
        targets = (
            TargetConfig(dns=f"http://vllm.test:{engine.port}/metrics"),
            TargetConfig(url=f"http://vllm.test:{engine.port}/metrics", name="by-name"),
        )
        config = Config(**{name: getattr(FAST, name) for name in FAST.__struct_fields__} | {"targets": targets})
        client = await aiohttp_client(application(config, Poller(config)))
        expected = {f"127.0.0.1:{engine.port}": "1.0", "by-name": "1.0"}

        async def is_well() -> bool:
            return await up(client) == expected

        await until(is_well)
        is_gone, asked, played = True, 0, len(engine.played)
        await until(lambda: asked > 3 and len(engine.played) > played + 6)
        assert (await up(client))[f"127.0.0.1:{engine.port}"] == "1.0", "the addresses known stay"
        is_gone = False
        await until(is_well)


async def test_a_targets_file_that_is_being_written_changes_nothing_until_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "targets.yaml"
    async with Engine(answer=playing(PAGES)) as old, Engine(answer=playing(PAGES)) as new:
        whole = f"- url: {old.url}\n- url: {new.url}\n"
        file.write_text(f"- url: {old.url}\n")
        (tmp_path / "config.yaml").write_text(
            f"targets_file: {file}\npoll_interval: 200ms\ndiscovery_interval: 50ms\nforget_after: 300ms\nwindows: [1s]\n"
        )
        async with exporter("--config", tmp_path / "config.yaml") as running, aiohttp.ClientSession() as client:

            async def reload_is(value: str) -> bool:
                async with client.get(f"{running.url}/metrics") as response:
                    text = await response.text()
                return f"prefixwatch_targets_file_last_reload_success {value}" in text

            async def watched() -> set[str]:
                return set(await up(client, running.url))

            async def are_both() -> bool:
                return len(await watched()) == 2

            await until(lambda: reload_is("1.0"))
            for text in ("", whole[: len(whole) // 2 + 12], "\x00" * 40, "- url: {", "targets: 5\n", None):
                if text is None:
                    file.unlink()
                else:
                    file.write_text(text)
                await until(lambda: reload_is("0.0"))
                polls = len(old.played)
                await until(lambda seen=polls: len(old.played) > seen + 2)
                assert await watched() == {f"127.0.0.1:{old.port}"}, "the last good targets stay"
                assert new.requests == []
            file.write_text(whole)
            await until(are_both)
            await until(lambda: reload_is("1.0"))


async def test_a_disk_that_is_full_ends_a_compressed_recording_and_gzip_saves_what_is_on_it(tmp_path: Path) -> None:
    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    file, saved = tmp_path / "trace.txt.gz", tmp_path / "saved.txt"
    async with Engine(answer=playing(PAGES)) as engine:
        done = await run("record", engine.url, file, "--interval", "0.2s", prepare=small_disk)
        assert done.code == 2
        assert done.err.count("\n") == 1
        assert "cannot be written: File too large" in done.err
        process = await asyncio.create_subprocess_shell(f"gzip -dc {file} > {saved}", stderr=asyncio.subprocess.DEVNULL)
        await process.wait()
        assert [one.body for one in scrapes(saved)][:2] == engine.played[:2]
