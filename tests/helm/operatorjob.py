"""The scrape job that the Prometheus Operator writes for a monitor, and what discovery would tell it of a pod.

Discovery itself is replaced by targets in a file: they carry the same meta labels.
"""

import re
from collections.abc import Mapping
from typing import Any

from helm.chart import Object
from helm.pods import ports

Rule = dict[str, Any]


def job(monitor: Object, targets: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a scrape job over `targets`, each {"targets": [address], "labels": meta labels}."""
    kind, spec = monitor["kind"], monitor["spec"]
    (endpoint,) = spec["podMetricsEndpoints" if kind == "PodMonitor" else "endpoints"]
    name = f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"
    first = _of_pods(spec, endpoint, name) if kind == "PodMonitor" else _of_services(spec, endpoint)
    rules = [
        _moved(["job"], "__tmp_prometheus_job_name"),
        *first,
        {"target_label": "endpoint", "replacement": endpoint["port"]},
        *map(_relabeling, endpoint.get("relabelings", ())),
    ]
    return {
        "job_name": f"{kind[0].lower()}{kind[1:]}/{name}/0",
        "honor_labels": endpoint.get("honorLabels", False),
        "metrics_path": endpoint.get("path", "/metrics"),
        "scheme": endpoint.get("scheme", "http"),
        "relabel_configs": rules,
        "metric_relabel_configs": [*map(_relabeling, endpoint.get("metricRelabelings", ()))],
        "static_configs": targets,
    }


def seen_pod(pod: Object, *, namespace: str, name: str, address: str, port: str) -> dict[str, Any]:
    """Return what discovery tells of one port of a pod, its native sidecars included."""
    containers = (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])
    (container,) = (one for one in containers if port in {p.get("name") for p in one.get("ports", ())})
    meta = {
        "namespace": namespace, "pod_name": name, "pod_phase": "Running", "pod_container_name": container["name"],
        "pod_container_port_name": port, "pod_container_port_number": str(ports(pod["spec"])[port]),
        "pod_container_init": "true" if container in (pod["spec"].get("initContainers") or ()) else "false",
        "pod_ip": address.rpartition(":")[0],
    }  # fmt: skip
    labels = {f"__meta_kubernetes_{key}": value for key, value in meta.items()}
    return {"targets": [address], "labels": labels | _present("pod", pod["metadata"].get("labels", {}))}


def seen_endpoint(service: Object, port: str, seen: Mapping[str, Any]) -> dict[str, Any]:
    """Return what discovery tells of a Service's endpoint, beyond what it tells of the pod behind it."""
    meta = {
        "service_name": service["metadata"]["name"], "endpoint_port_name": port,
        "endpointslice_port_name": port, "endpoint_address_target_kind": "Pod",
        "endpoint_address_target_name": seen["labels"]["__meta_kubernetes_pod_name"],
    }  # fmt: skip
    labels = {f"__meta_kubernetes_{key}": value for key, value in meta.items()}
    return {
        "targets": seen["targets"],
        "labels": seen["labels"] | labels | _present("service", service["metadata"]["labels"]),
    }


def _of_pods(spec: Mapping[str, Any], endpoint: Mapping[str, Any], name: str) -> list[Rule]:
    return [
        {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop"},
        *_selecting("pod", spec["selector"]),
        _kept(["__meta_kubernetes_pod_container_port_name"], re.escape(endpoint["port"])),
        _moved(["__meta_kubernetes_namespace"], "namespace"),
        _moved(["__meta_kubernetes_pod_container_name"], "container"),
        _moved(["__meta_kubernetes_pod_name"], "pod"),
        *_taken_over(spec, "podTargetLabels", "pod"),
        {"target_label": "job", "replacement": name},
        *_named_job(spec, "pod"),
    ]


def _of_services(spec: Mapping[str, Any], endpoint: Mapping[str, Any]) -> list[Rule]:
    target = ["__meta_kubernetes_endpoint_address_target_kind", "__meta_kubernetes_endpoint_address_target_name"]
    return [
        *_selecting("service", spec["selector"]),
        _kept(["__meta_kubernetes_endpoint_port_name"], re.escape(endpoint["port"])),
        {**_moved(target, "pod"), "separator": ";", "regex": "Pod;(.*)", "replacement": "${1}"},
        _moved(["__meta_kubernetes_namespace"], "namespace"),
        _moved(["__meta_kubernetes_service_name"], "service"),
        _moved(["__meta_kubernetes_pod_container_name"], "container"),
        {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop"},
        *_taken_over(spec, "targetLabels", "service"),
        *_taken_over(spec, "podTargetLabels", "pod"),
        {**_moved(["__meta_kubernetes_service_name"], "job"), "replacement": "${1}"},
        *_named_job(spec, "service"),
    ]


def _selecting(what: str, selector: Mapping[str, Any]) -> list[Rule]:
    assert set(selector) <= {"matchLabels"}, "expressions are not written here"
    return [
        _kept(
            [f"__meta_kubernetes_{what}_label_{_safe(key)}", f"__meta_kubernetes_{what}_labelpresent_{_safe(key)}"],
            f"({re.escape(value)});true",
        )
        for key, value in selector.get("matchLabels", {}).items()
    ]


def _taken_over(spec: Mapping[str, Any], key: str, what: str) -> list[Rule]:
    return [
        {**_moved([f"__meta_kubernetes_{what}_label_{_safe(one)}"], _safe(one)), "regex": "(.+)", "replacement": "${1}"}
        for one in spec.get(key, ())
    ]


def _named_job(spec: Mapping[str, Any], what: str) -> list[Rule]:
    return [
        {**_moved([f"__meta_kubernetes_{what}_label_{_safe(one)}"], "job"), "regex": "(.+)", "replacement": "${1}"}
        for one in [spec["jobLabel"]]
    ] if spec.get("jobLabel") else []  # fmt: skip


def _relabeling(rule: Mapping[str, Any]) -> Rule:
    """Write a relabeling of a monitor as Prometheus's file of settings has it."""
    written = {re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", key): value for key, value in rule.items()}
    return {**written, "action": written.get("action", "replace").lower()}


def _moved(labels: list[str], to: str) -> Rule:
    return {"source_labels": labels, "target_label": to}


def _kept(labels: list[str], regex: str) -> Rule:
    return {"source_labels": labels, "regex": regex, "action": "keep"}


def _present(what: str, labels: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in labels.items():
        found[f"__meta_kubernetes_{what}_label_{_safe(key)}"] = value
        found[f"__meta_kubernetes_{what}_labelpresent_{_safe(key)}"] = "true"
    return found


def _safe(key: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)
