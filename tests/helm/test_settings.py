"""The chart knows the exporter's settings and labels as the exporter does."""

from typing import Any

import msgspec
import pytest

from helm.chart import ChartError, chart, render
from prefixwatch.catalog import RESERVED_LABELS
from prefixwatch.config import Config
from prefixwatch.diagnosis import Thresholds

ELSEWHERE = {"access", "listen", "target_host", "targets", "web_config_file"}
"""What has values of its own; the chart says which where `config` has it."""


def _of_the_schema(*path: str) -> set[str]:
    part: Any = chart().schema
    for key in path:
        part = part["properties"][key]
    return set(part["properties"])


def test_every_setting_of_the_exporter_can_be_set_and_nothing_else() -> None:
    assert _of_the_schema("config") == {field.name for field in msgspec.structs.fields(Config)}
    assert _of_the_schema("config", "thresholds") == {field.name for field in msgspec.structs.fields(Thresholds)}


@pytest.mark.parametrize("window", [str(window) for window in Config().windows])
def test_the_exporters_windows_are_the_charts(window: str) -> None:
    """They hold where `config` has none: each may be the diagnosis's."""
    assert render(
        {"targets": [{"service": "vllm", "namespace": "chat"}], "config": {"diagnosis_window": window}}
    ).objects


@pytest.mark.parametrize("key", sorted(ELSEWHERE))
def test_a_setting_with_a_value_of_its_own_is_named(key: str) -> None:
    with pytest.raises(ChartError, match=rf"config\.{key}: is not set here; use `"):
        render({"targets": [{"service": "vllm", "namespace": "chat"}], "config": {key: "x"}})


@pytest.mark.parametrize("label", sorted(RESERVED_LABELS))
def test_a_label_of_the_exporter_is_refused(label: str) -> None:
    with pytest.raises(ChartError, match=rf"targets\[0\]\.labels\.{label}: is one of the exporter's own labels"):
        render({"targets": [{"service": "vllm", "namespace": "chat", "labels": {label: "x"}}]})


def test_namespaces_that_are_named_take_the_place_of_all() -> None:
    monitor = {"enabled": True, "namespaceSelector": {"matchNames": ["chat"]}}
    found = render({"mode": "sidecar", "podMonitor": monitor}).only("PodMonitor")["spec"]["namespaceSelector"]
    assert found == {"matchNames": ["chat"]}
