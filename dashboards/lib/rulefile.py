"""The recording rules and alerts as files state them: names, and the labels that a recorded series has."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

from lib.errors import BoardError
from prefixwatch.catalog import METRICS

ALERTS = Path(__file__).parents[2] / "alerts"
RULES, ALERT_RULES, CONFIG = (
    ALERTS / "prefixwatch.rules.yaml",
    ALERTS / "prefixwatch.alerts.yaml",
    ALERTS / "config.yaml",
)
STATIC = ("cluster", "namespace")
"""Labels that targets have from the configuration, or from Prometheus."""
OF_SCRAPE = ("job", "instance")

RAW = {
    metric.full_name: frozenset({*metric.labels, *(STATIC if "target" in metric.labels else ()), *OF_SCRAPE})
    for metric in METRICS
}
"""The labels of each of the exporter's metrics, as Prometheus stores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recording rule: its expression, how often it is evaluated, and the labels of what it gives."""

    expr: str
    interval: str
    labels: frozenset[str]


@functools.cache
def recorded() -> Mapping[str, Recorded]:
    """Return the recording rules by name, in the order of their file."""
    found: dict[str, Recorded] = {}
    for group in _groups(RULES):
        for rule in group["rules"]:
            labels = _labels(promql.parse(rule["expr"]), found)
            found[rule["record"]] = Recorded(expr=rule["expr"], interval=group["interval"], labels=labels)
    return found


@functools.cache
def alerts() -> tuple[Mapping[str, Any], ...]:
    """Return the alerting rules as their file states them."""
    return tuple(rule for group in _groups(ALERT_RULES) for rule in group["rules"])


@functools.cache
def settings() -> Mapping[str, Any]:
    """Return the rules' configuration."""
    found: Mapping[str, Any] = yaml.safe_load(CONFIG.read_text())
    return found


def _groups(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(file.read_text())["groups"]
    return found


def _labels(node: Any, known: Mapping[str, Recorded]) -> frozenset[str]:
    """Return the labels of what an expression gives, as far as its form states them."""
    match node:
        case promql.VectorSelector():
            name = str(node.name)
            if name in known:
                return known[name].labels
            bare = name.replace("_created", "_total")
            if bare not in RAW:
                raise BoardError(
                    f"{RULES.name}: {node.name} is neither in the catalogue nor recorded before it is used"
                )
            return RAW[bare]
        case promql.MatrixSelector():
            return _labels(node.vector_selector, known)
        case promql.AggregateExpr():
            return frozenset(node.modifier.labels) if node.modifier else frozenset()
        case promql.Call():
            vectors = [one for one in node.args if not isinstance(one, promql.NumberLiteral | promql.StringLiteral)]
            return _labels(vectors[-1], known) if vectors else frozenset()
        case promql.BinaryExpr():
            left, right = node.lhs, node.rhs
            return _labels(right if isinstance(left, promql.NumberLiteral) else left, known)
        case promql.ParenExpr() | promql.SubqueryExpr() | promql.UnaryExpr():
            return _labels(node.expr, known)
        case _:
            raise BoardError(f"{RULES.name}: labels of {type(node).__name__} are not known")
