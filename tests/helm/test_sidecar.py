"""The snippet in pods of other charts: valid, there before vLLM, gone after it, and no burden to it."""

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from edge.commands import ended, started
from edge.waiting import until
from helm.chart import Object, documents, render
from helm.container import as_process
from helm.kubernetes import NATIVE_SINCE, VERSIONS, faults, versions
from helm.pods import ports
from helm.restricted import containers
from helm.sidecar import NAME, SHAPES, SIDECARS, merged_into, sidecar, template
from prefixwatch.addresses import host_and_port, url_of
from prefixwatch.config import load
from prometheus.server import free_port

for_each_sidecar = pytest.mark.parametrize("values", SIDECARS, ids=lambda path: path.name.removesuffix("-values.yaml"))
for_each_shape = pytest.mark.parametrize("shape", SHAPES)
PLAIN = {"mode": "sidecar"}


def _workload(shape: str) -> Object:
    (found,) = documents(SHAPES[shape].read_text())
    return found


def test_there_are_shapes_to_merge_into() -> None:
    assert set(SHAPES) == {"kserve-deployment", "plain-pod", "production-stack-deployment", "vllm-chart-deployment"}


@for_each_shape
def test_the_shapes_are_valid_by_themselves(shape: str) -> None:
    for version in VERSIONS:
        assert faults(_workload(shape), version) == [], version


@for_each_shape
@for_each_sidecar
def test_it_is_valid_in_a_pod_of_another_chart(values: Path, shape: str) -> None:
    for version in versions(values):
        whole = merged_into(_workload(shape), sidecar(render(values, kube_version=version)))
        assert faults(whole, version) == [], version
        spec = template(whole)["spec"]
        for kind, names in {
            "containers": [one["name"] for one in containers(spec)],
            "volumes": [one["name"] for one in spec.get("volumes", ())],
            "port numbers": [port["containerPort"] for one in containers(spec) for port in one.get("ports", ())],
        }.items():
            assert len(names) == len(set(names)), f"{kind}: {names}"
        assert ports(spec)[NAME]


@for_each_sidecar
def test_it_is_native_where_kubernetes_has_native_sidecars(values: Path) -> None:
    """The kubelet starts init containers in turn before vLLM, and ends those that go on running after it.

    Among containers a restartPolicy would be refused.
    """
    for version in versions(values):
        found = sidecar(render(values, kube_version=version))
        assert found.container.get("restartPolicy") == ("Always" if found.is_native else None)
        told = render(values, {"sidecar": {"native": "auto"}}, kube_version=version)
        assert sidecar(told).is_native is (VERSIONS.index(version) >= VERSIONS.index(NATIVE_SINCE)), version


@pytest.mark.parametrize(("native", "version", "expected"), [
    ("auto", "1.28", False), ("auto", "1.29", True), (False, VERSIONS[-1], False), (True, "1.29", True),
])  # fmt: skip
def test_it_can_be_told_to_be_native_or_not(native: Any, version: str, expected: bool) -> None:
    assert sidecar(render({**PLAIN, "sidecar": {"native": native}}, kube_version=version)).is_native is expected


@pytest.mark.parametrize(
    ("host", "address", "target"),
    [
        pytest.param("$(POD_IP)", "10.0.0.7", "http://10.0.0.7:8000/metrics", id="the pod's address"),
        pytest.param("$(POD_IP)", "fd00::7", "http://[fd00::7]:8000/metrics", id="the pod's address, IPv6"),
        pytest.param("fd00::1", "fd00::7", "http://[fd00::1]:8000/metrics", id="IPv6"),
        pytest.param("[::1]", "fd00::7", "http://[::1]:8000/metrics", id="IPv6 in its brackets"),
        pytest.param("vllm.local", "fd00::7", "http://vllm.local:8000/metrics", id="a name"),
    ],
)
def test_it_polls_the_host_that_it_is_told(host: str, address: str, target: str) -> None:
    container = sidecar(render({**PLAIN, "sidecar": {"target": {"host": host}}})).container
    (own, *others) = container["env"]
    assert own["name"] == "POD_IP"
    env = {one["name"]: one["value"].replace("$(POD_IP)", address) for one in others}
    config = load(None, env, {})
    assert url_of(config.targets[0].url or "") == target
    assert config.name_of(config.targets[0]) == host_and_port(target, host=address)


@for_each_sidecar
def test_its_probes_ask_for_itself_alone(values: Path) -> None:
    """Ready would take the pod out of service with its exporter; a startup probe would hold vLLM back."""
    container = sidecar(render(values)).container
    assert "readinessProbe" not in container
    assert "lifecycle" not in container
    for kind in ("startupProbe", "livenessProbe"):
        probe = container.get(kind)
        assert probe or kind == "startupProbe"
        if probe:
            get = probe["httpGet"]
            assert get["path"] == "/healthz"
            assert get["port"] in {NAME, container["ports"][0]["containerPort"]}


@for_each_sidecar
def test_it_does_not_stand_in_the_way_of_an_init_container(values: Path) -> None:
    """Those that fetch a model run to their end whether it stands before or behind them: it waits for nothing."""
    found = sidecar(render(values, kube_version=VERSIONS[-1]))
    for first in (True, False):
        spec = template(merged_into(_workload("vllm-chart-deployment"), found, first=first))["spec"]
        assert faults({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, VERSIONS[-1]) == []
    assert "startupProbe" not in found.container or not found.is_native


@for_each_sidecar
def test_a_monitor_finds_its_port(values: Path) -> None:
    rendered = render(values)
    found = sidecar(rendered)
    for monitor in rendered.of("PodMonitor"):
        wanted = {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]}
        assert wanted == {port["name"] for port in found.container["ports"]}


def _status(metrics: str) -> str | None:
    found = re.search(r"^prefixwatch_up\{.*\} (\S+)$", metrics, re.MULTILINE)
    return found[1] if found else None


async def test_it_starts_without_vllm_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """Its exact command, with nothing at vLLM's port."""
    port, nobody = free_port(), free_port()
    found = sidecar(render({**PLAIN, "sidecar": {"port": port, "target": {"port": nobody}}}))
    process = as_process(found.container, found.volumes, {}, tmp_path)
    running = await started(*process.arguments, env=process.env)
    try:
        async with aiohttp.ClientSession() as client:

            async def answer(path: str) -> str | None:
                assert running.returncode is None
                try:
                    async with client.get(f"http://127.0.0.1:{port}{path}") as response:
                        return await response.text() if response.status == 200 else None
                except aiohttp.ClientError:
                    return None

            async def is_down() -> bool:
                return _status(await answer("/metrics") or "") == "0.0"

            await until(lambda: answer(found.container["livenessProbe"]["httpGet"]["path"]))
            await until(is_down)
            assert f'target="127.0.0.1:{nobody}"' in (await answer("/metrics") or "")
        running.send_signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            done = await ended(running)
        assert done.code == 0, done.err
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
