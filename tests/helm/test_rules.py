"""The chart's rules are those of alerts/, with its values as the configuration."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helm.chart import CI, ChartError, documents, render, values_of
from helm.rulefiles import (
    ALERTS,
    CONFIG,
    DEFAULTS,
    EXPECTED,
    FILES,
    RECORDING_RULES,
    TARGETS,
    Groups,
    another,
    of_files,
    of_operator,
    rules,
    shipped,
    with_settings,
)

NAMES = sorted(CONFIG["alerts"])
WITH_RULES = [file for file in CI if "rules" in values_of(file)]


def test_nothing_is_rendered_unless_asked_for() -> None:
    rendered = render(TARGETS)
    assert not rendered.of("PrometheusRule")
    assert not of_files(rendered)


def test_by_default_they_are_what_compose_mounts() -> None:
    mounted = {name: documents((ALERTS / name).read_text())[0]["groups"] for name in FILES}
    assert of_files(rules()) == mounted
    assert of_operator(rules()) == [group for name in FILES for group in mounted[name]]


def test_braces_of_annotations_survive() -> None:
    texts = [
        text
        for group in of_operator(rules())
        for rule in group["rules"]
        for text in rule.get("annotations", {}).values()
    ]
    assert any("{{ $value | humanizePercentage }}" in text for text in texts)
    assert any("{{ with printf `" in text for text in texts)


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_can_be_left_out(name: str) -> None:
    rendered = rules({"alerts": {name: {"enabled": False}}})
    expected = [
        {**group, "rules": [rule for rule in group["rules"] if rule.get("alert") != name]}
        for file in FILES
        for group in shipped()[file]
    ]
    assert of_operator(rendered) == [group for group in expected if group["rules"]]
    assert [group for groups in of_files(rendered).values() for group in groups] == of_operator(rendered)


def test_a_group_without_alerts_is_not_there() -> None:
    groups = of_operator(rules({"alerts": {"PrefixCacheExporterDown": {"enabled": False}}}))
    assert "prefixwatch.alerts.exporter" not in [group["name"] for group in groups]


def test_without_alerts_the_recording_rules_stay_for_the_boards() -> None:
    rendered = rules({"alerts": {name: {"enabled": False} for name in NAMES}})
    recording = shipped()[RECORDING_RULES]
    assert of_operator(rendered) == recording
    assert of_files(rendered) == {RECORDING_RULES: recording}


def test_labels_can_be_added_to_alerts_and_to_objects() -> None:
    rendered = rules(
        {
            "additionalRuleLabels": {"team": "ml"},
            "prometheusRule": {"additionalLabels": {"release": "kps"}, "namespace": "rules", "annotations": {"a": "b"}},
            "configMap": {"additionalLabels": {"thanos": "rule"}, "namespace": "thanos", "annotations": {"c": "d"}},
        }
    )
    found = [rule for group in of_operator(rendered) for rule in group["rules"]]
    original = [rule for file in FILES for group in shipped()[file] for rule in group["rules"]]
    for rule, plain in zip(found, original, strict=True):
        assert rule.get("labels") == ({**plain["labels"], "team": "ml"} if "alert" in rule else None)
    operators = rendered.only("PrometheusRule")["metadata"]
    assert (operators["labels"]["release"], operators["namespace"]) == ("kps", "rules")
    assert operators["annotations"] == {"a": "b"}
    [files] = [one["metadata"] for one in rendered.of("ConfigMap") if FILES[0] in one["data"]]
    assert (files["labels"]["thanos"], files["namespace"]) == ("rule", "thanos")
    assert files["annotations"] == {"c": "d"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param({"alerts": {"PrefixCacheX": {"enabled": False}}}, "'PrefixCacheX' not allowed", id="no such alert"),
        pytest.param({"alerts": {"PrefixCacheNoReuse": False}}, "PrefixCacheNoReuse': got boolean, want object", id="shortened"),
        pytest.param({"alerts": {"PrefixCacheNoReuse": {"enabled": "no"}}}, "enabled': got string, want boolean", id="a text"),
        pytest.param(
            {"additionalRuleLabels": {"severity": "info"}},
            "rules.additionalRuleLabels.severity: alerts have this label already; give yours another name",
            id="a label that is taken",
        ),
        pytest.param({"additionalRuleLabels": {"my-team": "ml"}}, "additionalRuleLabels': additional properties 'my-team'", id="no label"),
        pytest.param({"prometheusRules": {"enabled": True}}, "'prometheusRules' not allowed", id="a misspelt key"),
        pytest.param({"settings": None}, "at '/rules': missing property 'settings'", id="everything taken away"),
    ],
)  # fmt: skip
def test_other_values_that_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ChartError, match=re.escape(said)):
        rules(values)


def promtool(folder: Path, files: Sequence[Groups]) -> str:
    for number, groups in enumerate(files):
        (folder / f"{number}.yaml").write_text(json.dumps({"groups": groups}))  # JSON is YAML
    command = ["promtool", "check", "rules", *(str(folder / f"{number}.yaml") for number in range(len(files)))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("values", WITH_RULES, ids=lambda file: file.name)
def test_promtool_accepts_the_rules_of_each_file_of_values(values: Path, tmp_path: Path) -> None:
    rendered = render(values)
    found = [of_operator(rendered)] if rendered.of("PrometheusRule") else []
    found += of_files(rendered).values()
    assert found
    assert promtool(tmp_path, found).count("SUCCESS") == len(found)


def test_promtool_accepts_other_values_for_everything(tmp_path: Path) -> None:
    changes = {path: another(path, value) for path, value in DEFAULTS.items()} | {EXPECTED: ['a"b', "c\\d", "e.(f"]}
    assert promtool(tmp_path, list(with_settings(changes).values())).count("SUCCESS") == 2


def test_there_are_files_of_values_for_the_operator_and_for_rulers() -> None:
    kinds = [{"PrometheusRule"} & {one["kind"] for one in render(file).objects} for file in WITH_RULES]
    assert len(kinds) >= 4
    assert {"PrometheusRule"} in kinds and set() in kinds
