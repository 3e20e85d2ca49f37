"""An engine is (cluster, namespace, target, model_name, engine), whoever watches it.

Both modes watch one engine here, at once. A real Prometheus scrapes both with the jobs that the operator
would write for the rendered monitors; discovery alone is replaced.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from edge.commands import exporter
from edge.waiting import until
from helm.chart import Object, Rendered, documents, render
from helm.container import POD_IP, as_process
from helm.operatorjob import job, seen_endpoint, seen_pod
from helm.sidecar import NAME, SHAPES, merged_into, sidecar, template
from prefixwatch.demo.server import serve
from prometheus.server import free_port, prometheus

IDENTITY = ("cluster", "namespace", "target", "model_name", "engine")
METRIC = "prefixwatch_queried_tokens_total"
CENTRAL, SIDECAR = "monitoring", "chat"
"""The namespaces of the exporter, and of the engine."""

CLUSTER = "we$1st"
"""A dollar stands for itself, in a configuration as in a relabeling."""

Job = dict[str, Any]


def _configmaps(rendered: Rendered) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in rendered.of("ConfigMap")}


@asynccontextmanager
async def central(port: int, folder: Path, monitor: str) -> AsyncIterator[Job]:
    """Run what the mode `central` renders, and yield the job that scrapes it."""
    rendered = render({
        "mode": "central", "cluster": CLUSTER, "targets": [{"service": "vllm", "namespace": "chat", "port": port}],
        monitor: {"enabled": True},
    }, namespace=CENTRAL)  # fmt: skip
    pod = rendered.only("Deployment")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    process = as_process(container, pod["spec"]["volumes"], _configmaps(rendered), folder)
    (config,) = (file for place in process.files.values() for file in place.glob("*.yaml"))
    written = config.read_text()
    assert "vllm.chat.svc" in written
    config.write_text(written.replace("vllm.chat.svc", "localhost"))  # no name server knows the Service
    async with exporter(*process.arguments[1:], env=process.env) as running:
        address = running.url.removeprefix("http://")
        if monitor == "podMonitor":
            found = rendered.only("PodMonitor")
            (endpoint,) = found["spec"]["podMetricsEndpoints"]
            seen = seen_pod(pod, namespace=CENTRAL, name="pw-0", address=address, port=endpoint["port"])
        else:
            found, service = rendered.only("ServiceMonitor"), rendered.only("Service")
            (endpoint,) = found["spec"]["endpoints"]
            (behind,) = (one for one in service["spec"]["ports"] if one["name"] == endpoint["port"])
            seen = seen_pod(pod, namespace=CENTRAL, name="pw-0", address=address, port=behind["targetPort"])
            seen = seen_endpoint(service, endpoint["port"], seen)
        yield job(found, [seen])


@asynccontextmanager
async def beside(port: int, folder: Path) -> AsyncIterator[Job]:
    """Run what the mode `sidecar` renders in the pod of vLLM's chart, and yield the job that scrapes it."""
    own = free_port()
    rendered = render({
        "mode": "sidecar", "cluster": CLUSTER, "sidecar": {"port": own, "target": {"port": port}},
        "podMonitor": {"enabled": True, "selector": {"matchLabels": {"environment": "test"}}},
    }, name="beside", namespace=CENTRAL)  # fmt: skip
    found = sidecar(rendered)
    (workload,) = documents(SHAPES["vllm-chart-deployment"].read_text())
    pod = template(merged_into(workload, found))
    process = as_process(found.container, found.volumes, {}, folder)
    async with exporter(*process.arguments[1:], env=process.env, listen=f"{POD_IP}:{own}"):
        seen = seen_pod(pod, namespace=SIDECAR, name="vllm-0", address=f"{POD_IP}:{own}", port=NAME)
        yield job(rendered.only("PodMonitor"), [seen])


@pytest.mark.parametrize("monitor", ["serviceMonitor", "podMonitor"])
async def test_an_engine_is_called_the_same_in_both_modes(tmp_path: Path, monitor: str) -> None:
    one, other = tmp_path / "central", tmp_path / "sidecar"
    one.mkdir()
    other.mkdir()
    async with await serve("healthy") as engine:
        port = urlsplit(engine.url).port
        assert port
        async with (
            central(port, one, monitor) as first,
            beside(port, other) as second,
            prometheus(tmp_path, scrapes=[first, second]) as server,
        ):

            async def both() -> bool:
                return len({labels["pod"] for labels, _ in await server.vector(METRIC)}) == 2

            await until(both, seconds=40)
            found = {labels["pod"]: labels for labels, _ in await server.vector(METRIC)}
            expected = {
                "cluster": CLUSTER, "namespace": "chat", "target": f"{POD_IP}:{port}", "model_name": "tiny", "engine": "0",
            }  # fmt: skip
            for pod, labels in found.items():
                assert {key: labels.get(key) for key in IDENTITY} == expected, pod
                assert not [key for key in labels if key.startswith("exported_")], pod
            # An engine that both watch counts once, and an exporter's own series say whose it is.
            assert len(await server.vector(f"max by ({', '.join(IDENTITY)}) ({METRIC})")) == 1
            own = {labels["pod"]: labels["namespace"] for labels, _ in await server.vector("prefixwatch_build_info")}
            assert own == {"pw-0": CENTRAL, "vllm-0": SIDECAR}
