"""The sidecar that users paste into pods of their own, and pods that they paste it into."""

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from helm.chart import CI, ROOT, Object, Rendered, documents, merged

NAME = "prefixwatch"
"""What the container and its port are called."""

SIDECARS = [path for path in CI if merged(path).get("mode") == "sidecar"]
"""The files of values that render a snippet."""

SHAPES: dict[str, Path] = {path.stem: path for path in sorted((ROOT / "tests" / "data" / "helm").glob("*.yaml"))}
"""Pods of vLLM as others' charts write them."""


@dataclass(frozen=True)
class Sidecar:
    """The snippet, taken apart."""

    container: Object
    volumes: list[Object]
    annotations: dict[str, str]
    is_native: bool


def snippet(rendered: Rendered) -> str:
    """Return what the chart says belongs in the template of the user's pods."""
    (found,) = (one["data"] for one in rendered.of("ConfigMap") if one["metadata"]["name"].endswith("-snippet"))
    (text,) = found.values()
    return str(text)


def sidecar(rendered: Rendered) -> Sidecar:
    """Read the snippet: one container, and what goes with it."""
    (part,) = documents(snippet(rendered))
    assert set(part) <= {"metadata", "spec"}, part.keys()
    metadata, spec = part.get("metadata", {}), part["spec"]
    assert set(metadata) <= {"annotations"}, metadata.keys()
    assert len({"initContainers", "containers"} & set(spec)) == 1 and set(spec) <= {
        "initContainers",
        "containers",
        "volumes",
    }, spec.keys()
    (container,) = spec.get("initContainers") or spec["containers"]
    return Sidecar(container, spec.get("volumes", []), metadata.get("annotations", {}), "initContainers" in spec)


def template(workload: Object) -> Object:
    """Return the pod of a workload, or the pod that it is."""
    pod: Object = workload if workload["kind"] == "Pod" else workload["spec"]["template"]
    return pod


def merged_into(workload: Object, one: Sidecar, *, first: bool = False) -> Object:
    """Paste the snippet into a workload: at the end of its list, as people do, or at its beginning."""
    result = deepcopy(workload)
    pod = template(result)
    key = "initContainers" if one.is_native else "containers"
    there = pod["spec"].get(key, [])
    pod["spec"][key] = [one.container, *there] if first else [*there, one.container]
    if one.volumes:
        pod["spec"]["volumes"] = [*pod["spec"].get("volumes", []), *one.volumes]
    if one.annotations:
        pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **one.annotations}
    return result
