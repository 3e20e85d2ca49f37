"""What every object of every feature has: it is valid, has a name of its own, and says whose it is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helm.chart import CI, OLDEST, ChartError, Object, chart, for_each_case, merged, render
from helm.kubernetes import OPERATOR_KINDS, VERSIONS, faults, versions
from helm.pods import pods, ports, selectors

LONG = "a-" * 26 + "a"
"""As long as Helm lets a release's name be, with a hyphen wherever a name may be cut."""

_LABEL_OF_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
_MOST_OF_A_CONFIGMAP = 2**20


def _labels(thing: Any) -> Iterator[dict[str, str]]:
    """Yield every mapping of labels anywhere in an object."""
    if isinstance(thing, dict):
        for key, value in thing.items():
            if key in {"labels", "matchLabels"} and isinstance(value, dict):
                yield value
            yield from _labels(value)
    elif isinstance(thing, list):
        for one in thing:
            yield from _labels(one)


def _identity(thing: Object) -> tuple[str, str, str]:
    return thing["kind"], thing["metadata"]["namespace"], thing["metadata"]["name"]


def _nothings(thing: Any, path: str = "") -> Iterator[str]:
    if thing is None:
        yield path
    elif isinstance(thing, dict | list):
        for key, value in thing.items() if isinstance(thing, dict) else enumerate(thing):
            yield from _nothings(value, f"{path}.{key}")


def test_there_is_a_file_of_values_for_each_feature() -> None:
    """Their names say the feature; each changes something."""
    assert len(CI) >= 10, CI
    for path in CI:
        assert re.fullmatch(r"[a-z]+(-[a-z0-9]+)*-values\.yaml", path.name), path.name
    texts = [json.dumps(render(path).files, sort_keys=True) for path in CI]
    assert len(set(texts)) == len(texts), "two files of values render the same"
    assert {chart().merge_values(merged(path))["mode"] for path in CI} == {"central", "sidecar"}


@for_each_case
def test_every_object_is_valid_from_the_oldest_to_the_newest_kubernetes(values: Path) -> None:
    for version in versions(values):
        for one in render(values, kube_version=version).objects:
            assert faults(one, version) == [], f"{one['kind']} {one['metadata']['name']} at {version}"


def test_the_versions_and_kinds_that_objects_are_held_against() -> None:
    assert VERSIONS[0] == OLDEST and len(VERSIONS) >= 13, VERSIONS
    assert OPERATOR_KINDS == ["PodMonitor", "PrometheusRule", "ServiceMonitor"]
    assert set(OPERATOR_KINDS) <= {one["kind"] for path in CI for one in render(path).objects}


@for_each_case
def test_no_key_is_without_a_value(values: Path) -> None:
    for one in render(values).objects:
        assert list(_nothings(one)) == [], f"{one['kind']} {one['metadata']['name']}"


@for_each_case
@pytest.mark.parametrize("name", ["pw", "prefixwatch", LONG], ids=["short", "the chart's own", "long"])
def test_names_and_labels_are_those_that_kubernetes_takes(values: Path, name: str) -> None:
    rendered = render(values, name=name)
    for one in rendered.objects:
        own = one["metadata"]["name"]
        assert len(own) <= 63 and _LABEL_OF_DNS.fullmatch(own), own
        for labels in _labels(one):
            for key, value in labels.items():
                assert len(value) <= 63 and _LABEL_VALUE.fullmatch(value), f"{own}: {key}: {value}"
    for pod in pods(rendered).values():
        for port in ports(pod["spec"]):
            assert len(port) <= 15 and _PORT_NAME.fullmatch(port), port


@for_each_case
@pytest.mark.parametrize("name", ["pw", LONG], ids=["short", "long"])
def test_no_two_objects_are_one_and_each_stands_in_a_namespace(values: Path, name: str) -> None:
    found = [_identity(one) for one in render(values, name=name, namespace="here").objects]
    assert len(found) == len(set(found)), found


@for_each_case
def test_labels_say_whose_an_object_is(values: Path) -> None:
    for one in render(values, name="mine").objects:
        labels = one["metadata"].get("labels", {})
        what = f"{one['kind']} {one['metadata']['name']}"
        assert labels.get("app.kubernetes.io/instance") == "mine", what
        assert labels.get("app.kubernetes.io/managed-by") == "Helm", what
        assert labels.get("app.kubernetes.io/name") == merged(values).get("nameOverride", "prefixwatch"), what
        assert labels.get("app.kubernetes.io/version"), what
        assert labels.get("helm.sh/chart", "").startswith("prefixwatch-"), what


@for_each_case
def test_what_changes_with_a_release_of_the_chart_selects_nothing(values: Path) -> None:
    """Selectors of a Deployment cannot be changed, so that an upgrade would fail."""
    for one in render(values).objects:
        for labels in selectors(one):
            assert not set(labels) & {"helm.sh/chart", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"}, one


@for_each_case
@pytest.mark.parametrize("names", [("a", "b"), (f"{LONG[:-1]}x", f"{LONG[:-1]}y")], ids=["short", "long"])
def test_two_releases_share_a_namespace(values: Path, names: tuple[str, str]) -> None:
    """No object of the one is the other's, but what the values name; nothing of the one selects a pod of the other."""
    first, second = (render(values, name=name) for name in names)
    given = json.dumps(merged(values))
    both = {_identity(one) for one in first.objects} & {_identity(one) for one in second.objects}
    assert not {name for _, _, name in both if json.dumps(name) not in given}
    for one in first.objects:
        for labels in selectors(one):
            for pod in pods(second).values():
                assert not labels.items() <= pod["metadata"].get("labels", {}).items(), one["kind"]


@for_each_case
def test_a_configmap_is_not_larger_than_kubernetes_takes(values: Path) -> None:
    for one in render(values).of("ConfigMap"):
        size = sum(len(key) + len(text.encode()) for key, text in one["data"].items())
        assert size < _MOST_OF_A_CONFIGMAP, f"{one['metadata']['name']}: {size}"


def test_the_defaults_alone_are_refused_with_what_to_do() -> None:
    with pytest.raises(ChartError, match="targets"):
        render()
