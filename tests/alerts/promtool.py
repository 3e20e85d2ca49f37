"""Evaluate rules over series that a test writes down, with promtool."""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alerts.rulefiles import ALERT_RULES, ALERTS, RULES

Labels = Mapping[str, str]
Samples = Sequence[tuple[Labels, float]]
Series = Mapping[str, str]

BOTH = (ALERTS / RULES, ALERTS / ALERT_RULES)
ALERTS_ONLY = (ALERTS / ALERT_RULES,)


def selector(labels: Labels, name: str = "") -> str:
    return name + "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items()) + "}"


def constant(value: float, minutes: int = 400) -> str:
    return f"{value!r}+0x{minutes}"


def check(
    series: Series,
    *,
    rules: Sequence[Path] = ALERTS_ONLY,
    queries: Sequence[tuple[str, str, Samples]] = (),
    alerts: Sequence[tuple[str, str, Sequence[tuple[Labels, Labels]]]] = (),
) -> None:
    """Assert what queries give, (expression, time, samples), and which alerts fire.

    An alert is (name, time, firing instances as labels and annotations). One sample a minute.
    """
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": expr, "eval_time": at, "exp_samples": [{"labels": selector(of), "value": v} for of, v in samples]}
            for expr, at, samples in queries
        ],
        "alert_rule_test": [
            {
                "alertname": name, "eval_time": at,
                "exp_alerts": [{"exp_labels": dict(of), "exp_annotations": dict(text)} for of, text in firing],
            }
            for name, at, firing in alerts
        ],
    }  # fmt: skip
    whole = {"rule_files": [str(rule) for rule in rules], "evaluation_interval": "1m", "tests": [test]}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test.yaml"
        file.write_text(json.dumps(whole))  # JSON is YAML
        done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def state(name: str, at: str, *, firing: int = 0, pending: int = 0, **labels: str) -> list[tuple[str, str, Samples]]:
    """Return queries which say how many instances of an alert fire and wait at a time."""
    return [
        (
            f"count({selector({'alertname': name, 'alertstate': kind, **labels}, 'ALERTS')})", at,
            [({}, float(count))] if count else [],
        )
        for kind, count in (("firing", firing), ("pending", pending))
    ]  # fmt: skip
