"""The chart below another one, whose own pods take the sidecar from it."""

import shutil
from pathlib import Path

import helm_python
import pytest

from helm.chart import CHART, Rendered, render
from helm.kubernetes import VERSIONS, faults
from helm.sidecar import sidecar

PARENT = """
apiVersion: v2
name: serving
version: 1.0.0
dependencies:
  - {name: prefixwatch, version: 0.x.x, repository: "file://../prefixwatch", condition: prefixwatch.enabled}
"""

# As the chart's README has it.
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: vllm, namespace: {{ .Release.Namespace }}}
spec:
  selector: {matchLabels: {app: vllm}}
  template:
    metadata: {labels: {app: vllm}}
    spec:
      initContainers:
        {{- include "prefixwatch.sidecar" .Subcharts.prefixwatch | nindent 8 }}
      containers:
        - {name: vllm, image: "vllm/vllm-openai:v0.11.0"}
      {{- with include "prefixwatch.sidecar.volumes" .Subcharts.prefixwatch }}
      volumes:
        {{- . | nindent 8 }}
      {{- end }}
"""


def _rendered(folder: Path, values: dict[str, object]) -> Rendered:
    """Render a chart that has this one as a dependency."""
    parent = folder / "serving"
    (parent / "templates").mkdir(parents=True)
    (parent / "Chart.yaml").write_text(PARENT)
    (parent / "templates" / "deployment.yaml").write_text(DEPLOYMENT)
    shutil.copytree(CHART, parent / "charts" / "prefixwatch")
    with helm_python.Chart.load(parent) as whole:
        return Rendered("pw", "chat", whole.render(values, name="pw", namespace="chat"))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="environment"),
        pytest.param({"sidecar": {"target": {"port": 8200}, "configMap": {"namespaces": ["chat"]}}}, id="ConfigMap"),
    ],
)
def test_a_parents_pod_has_the_sidecar_that_the_snippet_shows(tmp_path: Path, settings: dict[str, object]) -> None:
    own = {"mode": "sidecar", "cluster": "west", "podMonitor": {"enabled": True}, **settings}
    rendered = _rendered(tmp_path, {"prefixwatch": {"enabled": True, **own}, "global": {"registry": "mirror"}})
    deployment = rendered.only("Deployment")
    spec, shown = deployment["spec"]["template"]["spec"], sidecar(render(own))
    assert (spec["initContainers"], spec.get("volumes", [])) == ([shown.container], shown.volumes)
    made = {one["metadata"]["name"] for one in rendered.of("ConfigMap") if one["metadata"]["namespace"] == "chat"}
    assert {one["configMap"]["name"] for one in shown.volumes} <= made and bool(shown.volumes) is bool(settings)
    assert faults(deployment, VERSIONS[-1]) == []
    assert len(rendered.of("PodMonitor")) == 1


def test_a_parents_values_are_held_against_the_schema(tmp_path: Path) -> None:
    with pytest.raises(helm_python.HelmValuesError, match=r"prefixwatch:\n- at '/mode'"):
        _rendered(tmp_path, {"prefixwatch": {"mode": "sidekick"}})


def test_the_readme_shows_what_is_rendered_here() -> None:
    shown = '{{- include "prefixwatch.sidecar" .Subcharts.prefixwatch | nindent 2 }}'
    assert shown in (CHART / "README.md").read_text()
    assert shown.replace("2", "8") in DEPLOYMENT
