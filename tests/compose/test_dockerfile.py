"""exporter/Dockerfile and .dockerignore without Docker: rules of a small and safe image."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import pytest
from aiohttp import web

from compose.stack import ROOT, instructions
from edge.certificates import Authority
from prefixwatch.cli import main

ALL = instructions((ROOT / "exporter/Dockerfile").read_text())
FROM = [position for position, (word, _) in enumerate(ALL) if word == "FROM"]
BUILD, FINAL = ALL[FROM[0] : FROM[1]], ALL[FROM[1] :]


def values(stage: list[tuple[str, str]], word: str) -> list[str]:
    return [rest for instruction, rest in stage if instruction == word]


def test_both_stages_stand_on_one_pinned_base() -> None:
    ((word, base),) = ALL[: FROM[0]]
    assert word == "ARG"
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+\.\d+-slim-[a-z]+", base)
    assert [ALL[position][1] for position in FROM] == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]


def test_it_runs_as_a_number_that_is_not_root() -> None:
    assert values(FINAL, "USER") == ["1000:1000"]
    assert FINAL.index(("USER", "1000:1000")) > max(n for n, (word, _) in enumerate(FINAL) if word in ("RUN", "COPY"))


def test_what_was_built_is_all_that_is_taken_over() -> None:
    assert values(FINAL, "COPY") == ["--from=build /opt/prefixwatch /opt/prefixwatch"]
    assert values(ALL, "ADD") == []


def test_no_build_tools_are_inside() -> None:
    (run,) = values(FINAL, "RUN")
    assert run.startswith("python -m pip uninstall")
    assert not re.search(r"apt-get|apk|curl|wget|gcc", " ".join(rest for _, rest in ALL))
    assert "--without-pip" in values(BUILD, "RUN")[0]


def test_it_includes_cache_events() -> None:
    assert "[events]" in values(BUILD, "RUN")[0]


def test_commands_are_lists_so_that_signals_arrive() -> None:
    assert json.loads(values(FINAL, "ENTRYPOINT")[0]) == ["prefixwatch"]
    assert json.loads(values(FINAL, "CMD")[0]) == ["run"]
    assert "STOPSIGNAL" not in dict(FINAL)


def test_labels_say_what_it_is() -> None:
    found = re.findall(r"org\.opencontainers\.image\.(\w+)=", values(FINAL, "LABEL")[0])
    assert found == ["title", "description", "licenses", "version", "revision"]


def health_command() -> list[str]:
    (check,) = values(FINAL, "HEALTHCHECK")
    assert {"--interval=10s", "--timeout=5s", "--start-period=20s", "--retries=3"} <= set(check.split())
    command: list[str] = json.loads(check.partition(" CMD ")[2])
    return command


def test_the_health_check_asks_healthz_on_the_port_that_is_exposed() -> None:
    assert values(FINAL, "EXPOSE") == ["9840"]
    assert "HEALTH_URL=http://127.0.0.1:9840/healthz" in values(FINAL, "ENV")[0]
    assert health_command()[:2] == ["python", "-Ic"]


@pytest.mark.parametrize(
    ("status", "scheme", "is_healthy"),
    [
        pytest.param(200, "http", True, id="well"),
        pytest.param(200, "https", True, id="well, over TLS"),
        pytest.param(503, "http", False, id="ill"),
        pytest.param(503, "https", False, id="ill, over TLS"),
        pytest.param(None, "http", False, id="nobody there"),
    ],
)
async def test_the_health_check_itself(status: int | None, scheme: str, is_healthy: bool, tmp_path: Path) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status or 200)

    app = web.Application()
    app.router.add_get("/healthz", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    context = Authority(tmp_path, "unknown").server() if scheme == "https" else None
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    port = runner.addresses[0][1]
    if status is None:
        await runner.cleanup()
    # A proxy that Docker hands on to its containers is none of the check's business.
    environment = {
        **os.environ,
        "HEALTH_URL": f"{scheme}://127.0.0.1:{port}/healthz",
        "http_proxy": "http://127.0.0.1:9",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, *health_command()[1:], env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    assert (await process.wait() == 0) is is_healthy
    await runner.cleanup()


def test_the_build_sees_what_it_copies_and_nothing_else() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {path for rest in values(BUILD, "COPY") for path in rest.split()[:-1]}
    assert allowed == copied
    assert all((ROOT / path).exists() for path in copied)


def test_what_the_containers_run_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    for command in ("run", "config", "engine"):
        assert re.search(rf"^    {command} ", said, re.MULTILINE)
