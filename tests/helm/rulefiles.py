"""The rules as the chart gives them, and as alerts/render.py does for the same configuration."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import yaml
from render import rendered as rules_of
from rulebook.settings import Settings

from helm.chart import ROOT, Rendered, documents, render

TARGETS = {"targets": [{"service": "vllm", "namespace": "chat"}]}
ALERTS = ROOT / "alerts"
ALERT_RULES, RECORDING_RULES = FILES = ("prefixwatch.alerts.yaml", "prefixwatch.rules.yaml")
CONFIG: dict[str, Any] = yaml.safe_load((ALERTS / "config.yaml").read_text())
ON = {"enabled": True}
Groups = list[dict[str, Any]]


def rules(values: Mapping[str, Any] | None = None) -> Rendered:
    """Render the rules both ways, with these values of `rules`."""
    return render(TARGETS, {"rules": {"prometheusRule": ON, "configMap": ON}}, {"rules": values or {}})


def of_operator(rendered: Rendered) -> Groups:
    return list(rendered.only("PrometheusRule")["spec"]["groups"])


def of_files(rendered: Rendered) -> dict[str, Groups]:
    """Return what each rules file of a ConfigMap holds, by its name; nothing where there is none."""
    found = [one["data"] for one in rendered.of("ConfigMap") if any(key.endswith(".rules.yaml") for key in one["data"])]
    assert len(found) <= 1
    return {name: documents(text)[0]["groups"] for data in found for name, text in data.items()}


def with_settings(changes: Mapping[str, Any]) -> dict[str, Groups]:
    """Return the rules files with other settings, by their key paths."""
    return of_files(render(TARGETS, {"rules": {"configMap": ON, "settings": nested(changes)}}))


def shipped(config: Mapping[str, Any] = CONFIG) -> dict[str, Groups]:
    texts = rules_of(Settings(config, source="config.yaml"))
    return {name: documents(texts[name])[0]["groups"] for name in FILES}


def nested(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of `settings` from their key paths."""
    tree: dict[str, Any] = {}
    for path, value in changes.items():
        *above, key = path.split(".")
        level = tree
        for part in above:
            level = level.setdefault(part, {})
        level[key] = value
    return tree


def changed(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return alerts/config.yaml with other values."""
    config = deepcopy(CONFIG)
    for path, value in changes.items():
        entry = config
        for part in path.split("."):
            entry = entry[part]
        entry["value"] = value
    return config


def paths(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return each setting's value by its key path."""
    found: dict[str, Any] = {}
    for key, entry in tree.items():
        found |= {f"{above}{key}": entry["value"]} if "why" in entry else paths(entry, f"{above}{key}.")
    return found


DEFAULTS = paths(CONFIG)
EXPECTED = "alerts.PrefixCacheNoReuse.expected_models"


def another(path: str, value: Any) -> Any:
    """Return a value of a setting that is not its default."""
    match value:
        case str() if path.startswith("links."):
            return f"https://{path}.example/"
        case str() if value[:1].isdigit():
            return "2w3d4h5m6s"
        case str():
            return "meant"
        case list():
            return ["org/a", "org/b.c"]
        case _:
            return value / 2 if value <= 1 else value + 1.25
