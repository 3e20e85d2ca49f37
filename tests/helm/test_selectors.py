"""A selector that matches nothing is the usual silent fault: each matches what it is meant for."""

import json
from pathlib import Path
from typing import Any

from helm.chart import CI, Object, Rendered, for_each_case, is_hook, merged, render
from helm.pods import matches, pods, ports
from helm.restricted import containers


def _exporters(rendered: Rendered) -> list[Object]:
    return [one["spec"]["template"] for one in rendered.of("Deployment")]


@for_each_case
def test_a_deployment_selects_its_own_pods(values: Path) -> None:
    for one in render(values).of("Deployment"):
        selector = one["spec"]["selector"]
        assert selector["matchLabels"]
        assert matches(selector, one["spec"]["template"]["metadata"]["labels"])


@for_each_case
def test_a_service_selects_the_exporter_and_no_pod_of_a_test(values: Path) -> None:
    rendered = render(values)
    for one in rendered.of("Service"):
        if one["spec"].get("clusterIP") == "None":
            continue  # of the engines, below
        selector = {"matchLabels": one["spec"]["selector"]}
        taken = {name: pod for name, pod in pods(rendered).items() if matches(selector, pod["metadata"]["labels"])}
        assert [name.partition("/")[0] for name in taken] == ["Deployment"], taken.keys()
        (pod,) = taken.values()
        for port in one["spec"]["ports"]:
            known = ports(pod["spec"])
            assert port["targetPort"] in known or port["targetPort"] in known.values(), port


@for_each_case
def test_a_headless_service_selects_the_engines_that_a_target_names(values: Path) -> None:
    rendered = render(values)
    made = [one for one in rendered.of("Service") if one["spec"].get("clusterIP") == "None"]
    wanted = [one for one in merged(values).get("targets", ()) if "selector" in one]
    assert len(made) == len(wanted)
    for service, target in zip(made, wanted, strict=True):
        assert (service["metadata"]["namespace"], service["metadata"]["name"]) == (
            target["namespace"],
            target["service"],
        )
        assert service["spec"]["selector"] == target["selector"]
        assert [one["port"] for one in service["spec"]["ports"]] == [target.get("port", 8000)]
        assert service["spec"]["publishNotReadyAddresses"] is True


@for_each_case
def test_a_servicemonitor_selects_the_service_and_a_port_of_it(values: Path) -> None:
    rendered = render(values)
    for one in rendered.of("ServiceMonitor"):
        assert one["spec"]["selector"].get("matchLabels")
        taken = [
            service
            for service in rendered.of("Service")
            if matches(one["spec"]["selector"], service["metadata"]["labels"]) and _is_searched(one, service)
        ]
        assert len(taken) == 1, f"{len(taken)} Services"
        names = {port["name"] for port in taken[0]["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in one["spec"]["endpoints"]} <= names


def _is_searched(monitor: Object, thing: Object) -> bool:
    """Whether a monitor looks into the namespace of an object."""
    where = monitor["spec"].get("namespaceSelector") or {}
    names = where.get("matchNames") or [monitor["metadata"]["namespace"]]
    return where.get("any", False) or thing["metadata"]["namespace"] in names


@for_each_case
def test_a_podmonitor_beside_a_deployment_selects_its_pods(values: Path) -> None:
    rendered = render(values)
    for one in rendered.of("PodMonitor"):
        for pod in _exporters(rendered):
            assert one["spec"]["selector"].get("matchLabels")
            assert matches(one["spec"]["selector"], pod["metadata"]["labels"])
            known = ports(pod["spec"])
            assert {endpoint["port"] for endpoint in one["spec"]["podMetricsEndpoints"]} <= known.keys()


@for_each_case
def test_a_network_policy_selects_the_exporter_and_lets_its_port_in(values: Path) -> None:
    rendered = render(values)
    for one in rendered.of("NetworkPolicy"):
        (pod,) = _exporters(rendered)
        assert one["spec"]["podSelector"]["matchLabels"]
        assert matches(one["spec"]["podSelector"], pod["metadata"]["labels"])
        known = ports(pod["spec"])
        let_in = [port["port"] for rule in one["spec"].get("ingress", ()) for port in rule.get("ports", ())]
        assert let_in, "a policy that lets nobody in"
        assert all(port in known or port in known.values() for port in let_in), let_in


@for_each_case
def test_a_network_policy_lets_the_exporter_reach_its_targets_and_dns(values: Path) -> None:
    rendered, given = render(values), merged(values)
    for one in rendered.of("NetworkPolicy"):
        dns, *others = one["spec"]["egress"]
        # 5353: OpenShift's DNS pods.
        assert sorted((port["port"], port["protocol"]) for port in dns["ports"]) == [
            (53, "TCP"), (53, "UDP"), (5353, "TCP"), (5353, "UDP"),
        ]  # fmt: skip
        assert "to" not in dns
        for rule, target in zip(others, given["targets"], strict=False):
            first = rule["ports"][0]["port"]
            expected = {"http": 80, "https": 443}[target["url"].partition(":")[0]] if "url" in target else 8000
            assert first == target.get("port", expected)


@for_each_case
def test_what_a_pod_refers_to_is_rendered_or_was_named_in_the_values(values: Path) -> None:
    rendered, given = render(values), json.dumps(merged(values))
    made = {(one["kind"], one["metadata"]["name"]) for one in rendered.objects}
    for where, pod in pods(rendered).items():
        for kind, name in _references(pod["spec"]):
            assert (kind, name) in made or json.dumps(name) in given, f"{where}: there is no {kind} {name}"


@for_each_case
def test_mounts_and_volumes_belong_together(values: Path) -> None:
    for where, pod in pods(render(values)).items():
        volumes = [one["name"] for one in pod["spec"].get("volumes", ())]
        mounts = [one for container in containers(pod["spec"]) for one in container.get("volumeMounts", ())]
        assert len(volumes) == len(set(volumes)), f"{where}: two volumes have one name"
        assert {one["name"] for one in mounts} == set(volumes), where
        for container in containers(pod["spec"]):
            paths = [one["mountPath"] for one in container.get("volumeMounts", ())]
            assert len(paths) == len(set(paths)), f"{where}: two volumes in one place"


@for_each_case
def test_a_changed_configuration_restarts_the_exporter(values: Path) -> None:
    before = render(values)
    if not before.of("Deployment"):
        return
    after = render(values, {"config": {"forget_after": "77s"}})
    assert before.only("Deployment")["spec"]["template"] != after.only("Deployment")["spec"]["template"]


def test_each_kind_of_selector_was_met() -> None:
    """So that none of the above holds for want of an object."""
    kinds = {one["kind"] for path in CI for one in render(path).objects if not is_hook(one)}
    assert {"Deployment", "Service", "ServiceMonitor", "PodMonitor", "NetworkPolicy", "ConfigMap"} <= kinds


def _references(spec: dict[str, Any]) -> list[tuple[str, str]]:
    found = [("Secret", one["name"]) for one in spec.get("imagePullSecrets", ())]
    if spec.get("serviceAccountName", "default") != "default":
        found.append(("ServiceAccount", spec["serviceAccountName"]))
    for volume in spec.get("volumes", ()):
        for source in (volume, *volume.get("projected", {}).get("sources", ())):
            if "configMap" in source:
                found.append(("ConfigMap", source["configMap"]["name"]))
            if "secret" in source:
                found.append(("Secret", source["secret"].get("secretName") or source["secret"]["name"]))
    for container in containers(spec):
        for entry in container.get("env", ()):
            for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if key in entry.get("valueFrom", {}):
                    found.append((kind, entry["valueFrom"][key]["name"]))
    return found
