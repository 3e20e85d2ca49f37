"""The generated files as data."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ALERTS = Path(__file__).parents[2] / "alerts"
RULES, ALERT_RULES, ENGINE_ONLY = "prefixwatch.rules.yaml", "prefixwatch.alerts.yaml", "vllm.rules.yaml"
FILES = (RULES, ALERT_RULES, ENGINE_ONLY)


class _Strict(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error, as it is for Prometheus."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT002
        keys = [self.construct_object(key) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {node.start_mark}"
        return super().construct_mapping(node, deep)


def groups(file: str) -> list[dict[str, Any]]:
    return list(yaml.load((ALERTS / file).read_text(), _Strict)["groups"])


def rules(*files: str) -> Iterator[dict[str, Any]]:
    for file in files or FILES:
        for group in groups(file):
            yield from group["rules"]


def records(*files: str) -> dict[str, str]:
    return {rule["record"]: rule["expr"] for rule in rules(*files) if "record" in rule}


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules(ALERT_RULES)]
