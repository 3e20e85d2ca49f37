"""A chart of one's own takes the sidecar from this one, as a dependency."""

from pathlib import Path

import helm_python
import pytest

from helm.chart import CHART, documents
from helm.sidecar import NAME

PARENT = {
    "Chart.yaml": """
apiVersion: v2
name: mine
version: 1.0.0
dependencies:
  - {name: prefixwatch, version: 0.x, condition: prefixwatch.enabled}
""",
    "values.yaml": """
global: {registry: example.com}
prefixwatch:
  enabled: true
  mode: sidecar
  config: {windows: [2m]}
  sidecar: {target: {port: 8200}, configMap: {namespaces: [chat]}}
""",
    "templates/pod.yaml": """
apiVersion: v1
kind: Pod
metadata: {name: vllm}
spec:
  initContainers:
    {{- include "prefixwatch.sidecar" .Subcharts.prefixwatch | nindent 4 }}
  containers: [{name: vllm, image: "vllm/vllm-openai:v0.9.0"}]
  volumes:
    {{- include "prefixwatch.sidecar.volumes" .Subcharts.prefixwatch | nindent 4 }}
""",
}


@pytest.fixture
def parent(tmp_path: Path) -> helm_python.Chart:
    for name, text in PARENT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "charts").mkdir()
    helm_python.package(CHART, destination=str(tmp_path / "charts"))
    return helm_python.Chart.load(tmp_path)


def test_it_includes_the_container_and_its_volumes(parent: helm_python.Chart) -> None:
    files = parent.render(name="mine", namespace="chat")
    (pod,) = documents(files["mine/templates/pod.yaml"])
    (container,) = pod["spec"]["initContainers"]
    assert (container["name"], container["restartPolicy"]) == (NAME, "Always")
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert environment["PREFIXWATCH_TARGETS"] == "http://localhost:8200/metrics"
    (volume,) = pod["spec"]["volumes"]
    maps = {
        one["metadata"]["name"]: one
        for path, text in files.items()
        if path.endswith(".yaml")
        for one in documents(text)
    }
    assert "windows" in maps[volume["configMap"]["name"]]["data"]["config.yaml"]
