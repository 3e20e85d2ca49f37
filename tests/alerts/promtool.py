"""Evaluate rules over series that a test writes down, with promtool."""

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alerts.rulefiles import closure

Labels = Mapping[str, str]
Samples = Sequence[tuple[Labels, float]]
Query = tuple[str, str, Samples]
Series = Mapping[str, str]


def selector(labels: Labels, name: str = "") -> str:
    return name + "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items()) + "}"


def state(name: str, at: str, *, firing: int = 0, pending: int = 0, **labels: str) -> list[Query]:
    """Return queries which say how many instances of an alert fire and wait at a time."""
    return [
        (
            f"count({selector({'alertname': name, 'alertstate': kind, **labels}, 'ALERTS')})", at,
            [({}, float(count))] if count else [],
        )
        for kind, count in (("firing", firing), ("pending", pending))
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """What `series`, one sample a minute, must give.

    `queries` are (expression, time, samples), `alerts` (name, time, those that fire as labels and
    annotations). Without `records` the series are what the recording rules would give.
    """

    series: Series
    queries: Sequence[Query] = ()
    alerts: Sequence[tuple[str, str, Sequence[tuple[Labels, Labels]]]] = ()
    records: bool = True

    def rules(self) -> dict[str, Any]:
        """Return the rules that the case needs: promtool evaluates all that it is given, which takes long."""
        named = (*(expr for expr, _, _ in self.queries), *(name for name, _, _ in self.alerts))
        needed = closure(*named)
        if not self.records:
            for group in needed["groups"]:
                group["rules"] = [rule for rule in group["rules"] if "alert" in rule]
        return needed

    def test(self) -> dict[str, Any]:
        return {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in self.series.items()],
            "promql_expr_test": [
                {"expr": expr, "eval_time": at, "exp_samples": [{"labels": selector(of), "value": v} for of, v in samples]}
                for expr, at, samples in self.queries
            ],
            "alert_rule_test": [
                {
                    "alertname": name, "eval_time": at,
                    "exp_alerts": [{"exp_labels": dict(of), "exp_annotations": dict(text)} for of, text in firing],
                }
                for name, at, firing in self.alerts
            ],
        }  # fmt: skip


@dataclass
class Batch:
    """Cases that one promtool evaluates, the first time that an outcome is asked for."""

    cases: dict[str, Case] = field(default_factory=dict)
    _outcomes: dict[str, str] | None = None

    def add(self, name: str, case: Case) -> None:
        assert name not in self.cases, name
        self.cases[name] = case

    def fault(self, name: str) -> str:
        """Return what promtool found wrong with a case; nothing if it holds."""
        if self._outcomes is None:
            self._outcomes = self._run()
        return self._outcomes[name]

    def _run(self) -> dict[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            for number, case in enumerate(self.cases.values()):
                rules, test = Path(folder) / f"rules{number}.yaml", Path(folder) / f"test{number}.yaml"
                whole = {"rule_files": [rules.name], "evaluation_interval": "1m", "tests": [case.test()]}
                rules.write_text(json.dumps(case.rules()))  # JSON is YAML
                test.write_text(json.dumps(whole))
            tests = [f"test{number}.yaml" for number in range(len(self.cases))]
            done = subprocess.run(
                ["promtool", "test", "rules", *tests], cwd=folder, capture_output=True, text=True, check=False
            )
        parts = re.split(r"(?m)^Unit Testing: +(\S+)$", done.stdout + done.stderr)[1:]
        said = dict(zip(parts[::2], parts[1::2], strict=True))
        # Failures go to another stream than the names: promtool keeps the order of each.
        failures = iter(re.split(r"(?m)^  FAILED:$", done.stderr)[1:])
        return {
            name: "" if "SUCCESS" in said[test].split("FAILED")[0] else next(failures)
            for name, test in zip(self.cases, tests, strict=True)
        }
