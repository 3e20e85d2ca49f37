"""Grafana's own model of a dashboard reads the boards, and gives them back."""

import json
from pathlib import Path

import pytest
import yaml
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.boards_as_json import BOARDS

PROVISIONING = Path(__file__).parents[2] / "dashboards" / "provisioning"

# What Grafana reads and this model does not know: the variable editor's copy of its query, and Prometheus's annotations.
UNKNOWN_TO_THE_MODEL = {"definition", "step", "titleFormat", "textFormat", "useValueForTime"}


def lost(before: object, after: object, path: str = "") -> list[str]:
    """Return what is in the one and not, or otherwise, in the other; what was added is the model's default."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            fault
            for key, value in before.items()
            if key not in UNKNOWN_TO_THE_MODEL
            for fault in (lost(value, after[key], f"{path}/{key}") if key in after else [f"{path}/{key} is lost"])
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            fault for i, pair in enumerate(zip(before, after, strict=True)) for fault in lost(*pair, f"{path}[{i}]")
        ]
    return [] if before == after else [f"{path}: {before} became {after}"]


@pytest.mark.parametrize("uid", BOARDS)
def test_round_trip(uid: str) -> None:
    plugins.register_default_plugins()
    decoded = Dashboard.from_json(BOARDS[uid])
    again = json.loads(JSONEncoder().encode(decoded))
    assert lost(BOARDS[uid], again) == []
    assert json.loads(JSONEncoder().encode(Dashboard.from_json(again))) == again


def test_a_lost_field_is_noticed() -> None:
    assert lost({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]}) == ["/a[0]/c is lost"]


def test_provisioning() -> None:
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prefixwatch.yaml").read_text())["datasources"]
    assert (source["uid"], source["type"], source["isDefault"]) == ("prefixwatch-prometheus", "prometheus", True)
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "prefixwatch.yaml").read_text())["providers"]
    assert provider["type"] == "file"
    assert not provider["allowUiUpdates"]
