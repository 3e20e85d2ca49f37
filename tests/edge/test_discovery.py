"""Which targets a configuration stands for, and what stays when they cannot be found anew."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from prefixwatch import discovery
from prefixwatch.config import Access, Config, TargetConfig
from prefixwatch.discovery import Discovery, DnsName
from prefixwatch.names import Names

HEADLESS = TargetConfig(dns="http://vllm.ml.svc:8000/metrics", labels={"pool": "a"})
GONE = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
NO_NAME = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def v4(*addresses: str) -> list[object]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 8000)) for address in addresses]


def v6(*addresses: str) -> list[object]:
    return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, 8000, 0, 0)) for address in addresses]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Set what the name server says: addresses, or an error."""
    said: list[object] = []

    def lookup(*_: object, **__: object) -> object:
        if isinstance(said[-1], Exception):
            raise said[-1]
        return said[-1]() if callable(said[-1]) else said[-1]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return said.append


def discovering(*targets: TargetConfig, **settings: object) -> Discovery:
    return Discovery(Config(targets=targets, **settings), Names())


@pytest.mark.parametrize(
    ("addresses", "names"),
    [
        pytest.param(v4("10.0.0.2", "10.0.0.1"), ["10.0.0.1:8000", "10.0.0.2:8000"], id="every address, in order"),
        pytest.param(v4("10.0.0.1", "10.0.0.1"), ["10.0.0.1:8000"], id="each once"),
        pytest.param(v6("fd00::2", "fd00::1"), ["[fd00::1]:8000", "[fd00::2]:8000"], id="IPv6"),
        pytest.param(v6("fd00::1") + v4("10.0.0.1"), ["10.0.0.1:8000"], id="both of one pod count once"),
    ],
)
async def test_a_dns_name_stands_for_all_its_addresses(answer, addresses: list[object], names: list[str]) -> None:
    answer(addresses)
    found = await discovering(HEADLESS).targets()
    assert list(found) == names
    for name, target in found.items():
        assert target.address.url == f"http://{name}/metrics"
        assert target.address.server_name == "vllm.ml.svc:8000", "certificates name the Service, not the pod"
        assert target.labels == {"pool": "a"}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(GONE, id="the name server is gone"),
        pytest.param(OSError(5, "Input/output error"), id="another fault of the system"),
        pytest.param(UnicodeError("label empty or too long"), id="no name at all"),
    ],
)
async def test_known_addresses_stay_with_one_line_when_dns_is_gone(answer, records, fault: Exception) -> None:
    finder = discovering(HEADLESS)
    answer(v4("10.0.0.1"))
    await finder.targets()
    answer(fault)
    for _ in range(3):
        assert list(await finder.targets()) == ["10.0.0.1:8000"]
    answer(v4("10.0.0.2"))
    assert list(await finder.targets()) == ["10.0.0.2:8000"]
    assert [record.getMessage() for record in records] == ["discovery failed", "discovery works again"]
    assert records[0].source == "dns vllm.ml.svc:8000"
    assert "the addresses known stay" in records[0].error


async def test_a_name_server_that_says_no_has_answered(answer, records) -> None:
    """A headless Service without a pod has no name; its last pods must not stay down for ever."""
    finder = discovering(HEADLESS)
    answer(v4("10.0.0.1"))
    await finder.targets()
    assert finder.dns_names == [DnsName(name="vllm.ml.svc:8000", labels={"pool": "a"}, addresses=1)]
    answer(NO_NAME)
    assert await finder.targets() == {}
    assert [found.addresses for found in finder.dns_names] == [0]
    assert await finder.targets() == {}
    answer(v4("10.0.0.1"))
    assert list(await finder.targets()) == ["10.0.0.1:8000"]
    assert [record.getMessage() for record in records] == ["discovery failed", "discovery works again"]


async def test_a_name_that_no_server_has_answered_for_is_unknown_and_not_empty(answer) -> None:
    finder = discovering(HEADLESS)
    answer(GONE)
    assert await finder.targets() == {}
    assert finder.dns_names == []


async def test_a_name_server_that_hangs_is_not_waited_for(answer, records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "LOOKUP_SECONDS", 0.1)
    gate = threading.Event()
    answer(lambda: gate.wait(30) and v4("10.0.0.1"))
    names = Names()
    finder = Discovery(Config(targets=(HEADLESS, TargetConfig(url="other:8000"))), names)
    try:
        assert list(await finder.targets()) == ["other:8000"]
        assert list(await finder.targets()) == ["other:8000"]
        assert [record.getMessage() for record in records] == ["discovery failed"]
    finally:
        gate.set()
    assert await names.addresses("vllm.ml.svc", 8000) == [(socket.AF_INET, "10.0.0.1")]
    assert len(await finder.targets()) == 2


async def test_each_name_fails_alone(monkeypatch: pytest.MonkeyPatch, records) -> None:
    def lookup(host: str, *_: object, **__: object) -> list[object]:
        if host == "b":
            raise GONE
        return v4("10.0.0.1" if host == "a" else "10.0.0.3")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    finder = discovering(*(TargetConfig(dns=f"{host}:8000") for host in "abc"))
    assert list(await finder.targets()) == ["10.0.0.1:8000", "10.0.0.3:8000"]
    assert len(records) == 1


def written(file: Path, text: str) -> Path:
    """Write a file whose time of change is another one, as a slower writer's would be."""
    before = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(text)
    os.utime(file, ns=(before + 10**9, before + 10**9))
    return file


async def test_the_targets_file_is_reread_when_it_changes(tmp_path: Path) -> None:
    file = written(tmp_path / "targets.yaml", "- url: a:8000\n")
    finder = discovering(targets_file=str(file))
    assert finder.is_file_good is False
    assert list(await finder.targets()) == ["a:8000"]
    assert finder.is_file_good
    written(file, "- url: b:8000\n  name: replica-b\n  labels: {zone: eu}\n- targets: [c:8000]\n  labels: {zone: us}\n")
    found = await finder.targets()
    assert {name: dict(target.labels) for name, target in found.items()} == {
        "replica-b": {"zone": "eu"},
        "c:8000": {"zone": "us"},
    }
    written(file, "[]\n")
    assert await finder.targets() == {}


async def test_an_unchanged_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "targets.yaml", "- url: a:8000\n")
    finder = discovering(targets_file=str(file))
    await finder.targets()
    monkeypatch.setattr(discovery, "read_targets", None)
    assert list(await finder.targets()) == ["a:8000"]


async def test_a_file_that_takes_anothers_place_is_read_even_with_the_same_time_and_size(tmp_path: Path) -> None:
    file = written(tmp_path / "targets.yaml", "- url: a:8000\n")
    finder = discovering(targets_file=str(file))
    await finder.targets()
    other = tmp_path / "new"
    other.write_text("- url: b:8000\n")
    os.utime(other, ns=(file.stat().st_mtime_ns,) * 2)
    other.replace(file)
    assert list(await finder.targets()) == ["b:8000"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("- url: b:8000\n- url: [", "not YAML", id="half-written"),
        pytest.param("", "must be a list", id="emptied, not yet written"),
        pytest.param("- url: b:8000\n  lables: {}\n", "lables", id="unknown key"),
        pytest.param("- url: ftp://b\n", "is not a URL", id="bad URL"),
        pytest.param("- url: http://me:secret@b:8000\n", "credentials", id="credentials"),
        pytest.param(None, "cannot be read: No such file", id="gone"),
    ],
)
async def test_a_broken_file_keeps_the_targets_known_with_one_line(
    tmp_path: Path, records, text: str | None, said: str
) -> None:
    file = written(tmp_path / "targets.yaml", "- url: a:8000\n")
    finder = discovering(targets_file=str(file))
    await finder.targets()
    if text is None:
        file.unlink()
    else:
        written(file, text)
    for _ in range(3):
        assert list(await finder.targets()) == ["a:8000"]
        assert finder.is_file_good is False
    written(file, "- url: b:8000\n")
    assert list(await finder.targets()) == ["b:8000"]
    assert finder.is_file_good
    assert [record.getMessage() for record in records] == ["discovery failed", "discovery works again"]
    assert said in records[0].error
    assert "Errno" not in records[0].error
    assert str(file) in records[0].error
    assert "secret" not in records[0].error


async def test_another_fault_of_the_file_is_another_line(tmp_path: Path, records) -> None:
    """Who mends the first must not wait for a second that nothing tells of."""
    file = tmp_path / "targets.yaml"
    finder = discovering(targets_file=str(file))
    for text, said in ((None, "No such file"), ("- url: [", "not YAML"), ("", "must be a list"), ("- uri: a:1", "uri")):
        if text is not None:
            written(file, text)
        for _ in range(2):
            await finder.targets()
        assert said in records[-1].error
    assert len(records) == 4
    written(file, "- url: a:1")
    await finder.targets()
    assert len(records) == 5


async def test_another_fault_of_a_name_is_another_line(monkeypatch: pytest.MonkeyPatch, records) -> None:
    answers = iter([TimeoutError(), TimeoutError(), GONE, TimeoutError(), GONE, v4("10.0.0.1")])

    def lookup(*_: object, **__: object) -> list[object]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    finder = discovering(TargetConfig(dns="a:8000"))
    for _ in range(6):
        await finder.targets()
    assert [record.getMessage() for record in records] == [*["discovery failed"] * 2, "discovery works again"]


async def test_of_two_targets_with_one_name_the_first_counts_and_that_is_said(tmp_path: Path, records) -> None:
    file = written(tmp_path / "targets.yaml", "- url: other:8000\n  name: one\n- url: c:8000\n")
    finder = discovering(TargetConfig(url="first:8000", name="one"), targets_file=str(file))
    for _ in range(2):
        found = await finder.targets()
        assert {name: target.address.url for name, target in found.items()} == {
            "one": "http://first:8000/metrics",
            "c:8000": "http://c:8000/metrics",
        }
    assert [(record.getMessage(), record.source) for record in records] == [("discovery failed", "one")]


async def test_an_address_that_is_named_twice_is_one_target(answer, records) -> None:
    answer(v4("10.0.0.1"))
    finder = discovering(TargetConfig(url="10.0.0.1:8000"), HEADLESS)
    assert list(await finder.targets()) == ["10.0.0.1:8000"]
    assert records == []


async def test_a_sidecars_target_has_the_host_that_the_configuration_says(answer) -> None:
    answer(v4("10.0.0.9"))
    named = TargetConfig(url="http://localhost:8001", name="rank-1")
    found = await discovering(
        TargetConfig(url="http://localhost:8000"), named, HEADLESS, target_host="fd00::1"
    ).targets()
    assert list(found) == ["[fd00::1]:8000", "rank-1", "10.0.0.9:8000"]
    assert found["[fd00::1]:8000"].address.url == "http://localhost:8000/metrics"


async def test_a_target_has_its_own_access_else_the_general_one(answer) -> None:
    answer(v4("10.0.0.1"))
    own, general = Access(bearer_token_file="own"), Access(ca_file="general")
    finder = discovering(TargetConfig(url="a:1", access=own), TargetConfig(url="b:1"), HEADLESS, access=general)
    assert [target.address.access for target in (await finder.targets()).values()] == [own, general, general]
