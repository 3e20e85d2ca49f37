"""Every value is documented, checked and used, and no text names one that is not there."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from helm.chart import CHART, CI, ChartError, chart, documents, merged, render
from helm.valuepaths import Steps, is_known, leaves, named, properties, resolved, schema

TEXT = (CHART / "values.yaml").read_text()
DEFAULTS: dict[str, Any] = documents(TEXT)[0]

WITHOUT_DEFAULT = {("global",), ("enabled",), ("podMonitor", "namespaceSelector", "matchNames")}
"""What Helm or a parent chart sets, and what takes the place of a default."""


def _lines() -> Iterator[tuple[Steps, bool]]:
    """Yield the path of each key of values.yaml, and whether a comment stands above it."""
    above: list[tuple[int, str]] = []
    is_commented = False
    for line in TEXT.splitlines():
        found = re.match(r"( *)([\w]+):", line)
        if found:
            depth = len(found[1])
            above = [*(one for one in above if one[0] < depth), (depth, found[2])]
            yield tuple(key for _, key in above), is_commented
        is_commented = line.lstrip().startswith("#")


def test_every_value_or_a_section_around_it_has_a_comment() -> None:
    commented = dict(_lines())
    bare = [path for path, _ in leaves(DEFAULTS) if not any(commented.get(path[:n]) for n in range(1, len(path) + 1))]
    assert not [".".join(path) for path in bare]


def test_every_value_is_in_the_schema() -> None:
    unknown = [".".join(path) for path, _ in leaves(DEFAULTS) if not is_known(path)]
    assert not unknown


def test_everything_in_the_schema_has_a_default() -> None:
    """But what a section that is empty by default may hold: an empty one says that there is none."""
    missing = []
    for path in properties(schema()):
        there: Any = DEFAULTS
        for step in path:
            there = there.get(step) if isinstance(there, dict) and there else ...
        if there is None and path not in WITHOUT_DEFAULT:
            missing.append(".".join(path))
    assert not missing


def test_the_schema_leaves_no_section_open() -> None:
    """Where the chart has defaults for keys, other keys are mistakes: but in what Kubernetes defines."""
    of_kubernetes = {("podSecurityContext",), ("securityContext",)}
    opened = [path for path in _sections(DEFAULTS) if path not in of_kubernetes and is_known((*path, "noSuchKey"))]
    inside = [path for path in opened if not any(path[: len(one)] == one for one in of_kubernetes)]
    assert not [".".join(path) for path in inside]


def _sections(values: Any, path: Steps = ()) -> Iterator[Steps]:
    if isinstance(values, dict) and values:
        yield path
        for key, value in values.items():
            yield from _sections(value, (*path, key))


def _others(value: Any, path: Steps) -> list[Any]:
    """Return values other than the default that might be allowed."""
    part: Any = schema()
    for step in path:
        part = resolved(part).get("properties", {}).get(step, {})
    known = [one for one in resolved(part).get("enum", ()) if one != value]
    if isinstance(value, bool):
        return [True, False]
    if isinstance(value, int | float):
        return [value + 1, value / 2, value / 2 + 0.25]
    if isinstance(value, str):
        return [*known, "other", "77s", "11s", "http://other", "sha256:" + "0" * 64, f"{value}/other"]
    if isinstance(value, list):
        return [
            [{"name": "other", "emptyDir": {}}], [{"name": "other", "value": "1"}], [{"name": "other", "mountPath": "/o"}],
            ["other"], [{"name": "other"}], [{"action": "labeldrop", "regex": "o"}], [{"key": "other"}], [{"url": "http://o", "namespace": "o"}],
        ]  # fmt: skip
    return [{"other": "other"}, {"secretName": "other"}, {"matchLabels": {"other": "other"}}, {"poll_interval": "7s"}]


@pytest.mark.parametrize(
    ("path", "value"), [pytest.param(path, value, id=".".join(path)) for path, value in leaves(DEFAULTS)]
)
def test_every_value_changes_something(path: Steps, value: Any) -> None:
    """With the values of some feature: what is rendered differs from what is rendered without."""
    refused = ""
    for other in _others(value, path):
        change: Any = other
        for step in reversed(path):
            change = {step: change}
        for case in sorted(CI, key=lambda case: path[0] not in merged(case)):  # the likely ones first
            try:
                if render(case, change).files != render(case).files:
                    return
            except ChartError as error:
                refused = str(error)
    raise AssertionError(f"it changes nothing (last refusal: {refused})")


@pytest.mark.parametrize(
    "file",
    ["README.md", "templates/NOTES.txt", "templates/_validate.tpl", "templates/_validate_targets.tpl", "values.yaml"],
)
def test_no_text_names_a_value_that_is_not_there(file: str) -> None:
    unknown = [".".join(path) for path in named((CHART / file).read_text()) if not is_known(path)]
    assert not unknown


def test_values_that_a_text_names_are_found() -> None:
    """So that the test above cannot hold for want of finding any."""
    text = "Set `image.tag`, targets[0].port or rules.nothing; see config.yaml, not http://image.example."
    assert named(text) == {("image", "tag"), ("targets", "[]", "port"), ("rules", "nothing")}
    assert not is_known(("rules", "nothing")) and not is_known(("targets", "[]", "prot"))
    assert is_known(("targets", "[]", "port")) and is_known(("podLabels", "anything"))


def _examples(text: str) -> list[Any]:
    """Return each YAML block of a text in Markdown that holds values of the chart."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    parsed = [one for block in blocks for one in documents(block)]
    return [one for one in parsed if isinstance(one, dict) and set(one) <= set(schema()["properties"])]


def test_examples_of_the_readme_are_values_that_the_chart_takes() -> None:
    examples = _examples((CHART / "README.md").read_text())
    assert examples
    for example in examples:
        is_whole = "targets" in example or example.get("mode") == "sidecar"
        assert render(*([] if is_whole else [CI[0]]), example).objects, json.dumps(example)


def test_every_file_of_values_says_something_else_than_the_defaults() -> None:
    for case in CI:
        assert merged(chart().values, case) != chart().values, case.name
