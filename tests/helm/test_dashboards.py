"""Grafana's sidecar finds each board, with the bytes that the repository ships."""

import base64
import gzip
import json
from typing import Any

import pytest

from helm.chart import CHART, ROOT, ChartError, Object, render

TARGETS = {"targets": [{"service": "vllm", "namespace": "chat"}]}
SHIPPED = {file.name: file.read_text() for file in (ROOT / "dashboards/generated").glob("*.json")}
MEBIBYTE = 2**20
"""What etcd takes for one object."""


def boards(**dashboards: Any) -> list[Object]:
    rendered = render(TARGETS, {"dashboards": {"enabled": True, **dashboards}})
    return [one for one in rendered.of("ConfigMap") if any(key.endswith(".json") for key in one["data"])]


def test_they_are_off_unless_asked_for() -> None:
    assert not [one for one in render(TARGETS).objects if "grafana_dashboard" in one["metadata"]["labels"]]


def test_each_board_is_a_configmap_of_the_same_bytes() -> None:
    found = boards()
    assert [len(one["data"]) for one in found] == [1] * len(SHIPPED)
    assert {name: text for one in found for name, text in one["data"].items()} == SHIPPED


def test_by_default_they_are_what_the_sidecar_of_grafanas_chart_looks_for() -> None:
    for one in boards():
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["namespace"] == "monitoring"
        assert "annotations" not in one["metadata"]


def test_label_folder_and_namespace_can_be_set() -> None:
    found = boards(
        label="boards", labelValue="vllm", folder="vLLM caches", folderAnnotation="k8s-sidecar-target-directory",
        namespace="grafana", additionalLabels={"team": "ml"}, annotations={"argocd.argoproj.io/sync-wave": "2"},
    )  # fmt: skip
    assert len(found) == len(SHIPPED)
    for one in found:
        metadata = one["metadata"]
        assert metadata["namespace"] == "grafana"
        assert metadata["labels"].items() >= {"boards": "vllm", "team": "ml"}.items()
        assert "grafana_dashboard" not in metadata["labels"]
        assert metadata["annotations"] == {
            "k8s-sidecar-target-directory": "vLLM caches", "argocd.argoproj.io/sync-wave": "2",
        }  # fmt: skip


def test_the_boards_own_braces_survive() -> None:
    """Legends hold {{ }}, which are Grafana's and no template of Helm."""
    assert any("{{" in text for one in boards() for text in one["data"].values())


def test_a_board_fits_into_a_configmap_and_the_release_into_its_secret() -> None:
    for one in boards():
        assert len(json.dumps(one).encode()) < MEBIBYTE / 2
    everything = {"enabled": True}
    rendered = render(
        TARGETS, {"dashboards": everything, "rules": {"prometheusRule": everything, "configMap": everything}}
    )
    # Helm keeps the chart's files and what it rendered in one Secret: compressed, then twice in base64.
    chart = {str(file): file.read_text() for file in CHART.rglob("*") if file.is_file() and "ci" not in file.parts}
    release = gzip.compress(json.dumps([chart, dict(rendered.files)]).encode())
    assert len(base64.b64encode(base64.b64encode(release))) < MEBIBYTE / 2


@pytest.mark.parametrize(
    ("dashboards", "said"),
    [
        pytest.param({"labelValue": 1}, "at '/dashboards/labelValue': got number, want string", id="a number as label"),
        pytest.param({"label": ""}, "at '/dashboards/label'", id="no label"),
        pytest.param({"folders": "x"}, "additional properties 'folders' not allowed", id="a misspelt key"),
    ],
)
def test_values_that_are_refused(dashboards: dict[str, Any], said: str) -> None:
    with pytest.raises(ChartError, match=said.replace("(", r"\(")):
        boards(**dashboards)
