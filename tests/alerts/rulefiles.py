"""The generated files as data."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ALERTS = Path(__file__).parents[2] / "alerts"
RULES, ALERT_RULES, ENGINE_ONLY = "prefixwatch.rules.yaml", "prefixwatch.alerts.yaml", "vllm.rules.yaml"
FILES = (RULES, ALERT_RULES, ENGINE_ONLY)
_NAME = re.compile(r"[a-zA-Z_][\w:]*")


class _Strict(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error, as it is for Prometheus."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT002
        keys = [self.construct_object(key) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {node.start_mark}"
        return super().construct_mapping(node, deep)


@functools.cache
def groups(file: str) -> list[dict[str, Any]]:
    return list(yaml.load((ALERTS / file).read_text(), _Strict)["groups"])


def rules(*files: str) -> Iterator[dict[str, Any]]:
    for file in files or FILES:
        for group in groups(file):
            yield from group["rules"]


def closure(*texts: str) -> dict[str, Any]:
    """Return a rules file with what the expressions or alerts named in `texts` need, and nothing else."""
    known = {rule.get("record") or rule["alert"]: [] for rule in rules()}
    for rule in rules():
        known[rule.get("record") or rule["alert"]].append(rule["expr"])
    wanted: set[str] = set()
    open_ones = [name for text in texts for name in _NAME.findall(text)]
    while open_ones:
        name = open_ones.pop()
        if name in known and name not in wanted:
            wanted.add(name)
            open_ones += [found for expr in known[name] for found in _NAME.findall(expr)]
    chosen = []
    for file in FILES:
        for group in groups(file):
            kept = [rule for rule in group["rules"] if (rule.get("record") or rule["alert"]) in wanted]
            chosen += [{**group, "rules": kept}] if kept else []
    return {"groups": chosen}


def records(*files: str) -> dict[str, str]:
    return {rule["record"]: rule["expr"] for rule in rules(*files) if "record" in rule}


def alerts() -> list[dict[str, Any]]:
    return list(rules(ALERT_RULES))
