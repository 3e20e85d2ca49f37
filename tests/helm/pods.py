"""The pods that a release consists of, and what selects them."""

from collections.abc import Iterator, Mapping
from typing import Any

from helm.chart import Object, Rendered

_TEMPLATED = {"Deployment", "StatefulSet", "DaemonSet", "Job"}


def pods(rendered: Rendered) -> dict[str, Object]:
    """Return each pod, or template of pods, by the object's kind and name."""
    found: dict[str, Object] = {}
    for one in rendered.objects:
        if one["kind"] in _TEMPLATED:
            found[f"{one['kind']}/{one['metadata']['name']}"] = one["spec"]["template"]
        elif one["kind"] == "Pod":
            found[f"Pod/{one['metadata']['name']}"] = one
    return found


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a selector as Kubernetes has it takes an object with these labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(one, labels) for one in selector.get("matchExpressions") or ())


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise AssertionError(expression)


def selectors(thing: Object) -> Iterator[Mapping[str, str]]:
    """Yield every mapping of labels by which an object selects its own release's pods."""
    spec = thing.get("spec") or {}
    match thing["kind"]:
        case "Service":
            yield spec["selector"]
        case "Deployment" | "ServiceMonitor":
            yield spec["selector"]["matchLabels"]
        case "NetworkPolicy":
            yield spec["podSelector"]["matchLabels"]


def ports(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of each named port of a pod's containers, the native sidecars among them."""
    found: dict[str, int] = {}
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for port in container.get("ports") or ():
            if "name" in port:
                assert port["name"] not in found, f"two ports are called {port['name']}"
                found[port["name"]] = port["containerPort"]
    return found
