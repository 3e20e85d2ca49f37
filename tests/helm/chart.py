"""The chart, rendered by Helm's own engine as `helm template` would render it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml
from helm_python import _native

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "prefixwatch"
CI = sorted((CHART / "ci").glob("*-values.yaml"))
OLDEST = "1.25"
"""The oldest Kubernetes that everything is checked against."""

for_each_case = pytest.mark.parametrize("values", CI, ids=lambda path: path.name.removesuffix("-values.yaml"))
"""Run a test with the `values` of every feature."""

Object = dict[str, Any]
Values = Mapping[str, Any]


class ChartError(Exception):
    """Helm refused the values; the text is what a person sees."""


@dataclass(frozen=True)
class Rendered:
    """What a release would consist of. It is shared by all who ask for the same values: do not change it."""

    name: str
    namespace: str
    files: Mapping[str, str]
    """The text of each template by its path in the chart."""

    @cached_property
    def objects(self) -> list[Object]:
        """Everything that would be sent to Kubernetes, hooks among it."""
        texts = (text for path, text in sorted(self.files.items()) if not path.endswith(".txt"))
        return [one for text in texts for one in _documents(text)]

    @property
    def notes(self) -> str:
        """What `helm install` prints at its end."""
        return self.files["templates/NOTES.txt"]

    def of(self, kind: str) -> list[Object]:
        """Return the objects of a kind."""
        return [one for one in self.objects if one["kind"] == kind]

    def only(self, kind: str) -> Object:
        """Return the one object of a kind that is no hook."""
        found = [one for one in self.of(kind) if not is_hook(one)]
        assert len(found) == 1, f"{len(found)} objects of kind {kind}"
        return found[0]


class _Loader(yaml.CSafeLoader):
    """YAML in which a key that stands twice is a mistake, as it is for Kubernetes."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT002
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice among {keys}"
        return super().construct_mapping(node, deep)


def documents(text: str) -> list[Any]:
    """Return each document of a YAML text that holds anything."""
    return [one for one in yaml.load_all(text, Loader=_Loader) if one is not None]


@lru_cache(maxsize=500)
def _documents(text: str) -> list[Any]:
    """Read a text once: most are the same whatever the version of Kubernetes."""
    return documents(text)


def is_hook(thing: Object) -> bool:
    """Whether it is not a part of the release, but of `helm test`."""
    return "helm.sh/hook" in thing["metadata"].get("annotations", {})


def values_of(path: Path) -> dict[str, Any]:
    """Read a file of values; an empty one holds the defaults."""
    read = documents(path.read_text())
    assert len(read) <= 1, f"{path.name} holds {len(read)} documents"
    return read[0] if read else {}


def merged(*values: Values | Path) -> dict[str, Any]:
    """Return one mapping in which the later wins, as with several `--values` of Helm."""
    result: dict[str, Any] = {}
    for one in values:
        _merge(result, values_of(one) if isinstance(one, Path) else one)
    return result


def render(
    *values: Values | Path, name: str = "pw", namespace: str = "monitoring", kube_version: str | None = None
) -> Rendered:
    """Render with the chart's defaults and `values` over them, for a Kubernetes such as "1.29".

    Values that the schema or a template refuses raise ChartError.
    """
    return _render(json.dumps(merged(*values), sort_keys=True), name, namespace, kube_version)


@cache
def chart() -> helm_python.Chart:
    """Return the chart as Helm has loaded it."""
    return helm_python.Chart.load(CHART)


@lru_cache(maxsize=200)
def _render(values: str, name: str, namespace: str, kube_version: str | None) -> Rendered:
    options = {"name": name, "namespace": namespace}
    if kube_version is not None:
        options["kube_version"] = f"v{kube_version}.0"
    try:
        # Chart.render() does not pass the version of Kubernetes on; what it calls does.
        answer = _native.call_string("helm_render", chart()._raw(), values, json.dumps(options))
    except helm_python.HelmError as error:
        raise ChartError(str(error)) from None
    return Rendered(name, namespace, {path.partition("/")[2]: text for path, text in json.loads(answer).items()})


def _merge(into: dict[str, Any], over: Values) -> None:
    for key, value in over.items():
        if isinstance(value, Mapping):
            inner = into.get(key)
            into[key] = dict(inner) if isinstance(inner, Mapping) else {}
            _merge(into[key], value)
        else:
            into[key] = value
