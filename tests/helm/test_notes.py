"""What `helm install` prints is true: what it names is there, what it calls off is off, and its advice works."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from helm.chart import Rendered, Values, documents, for_each_case, merged, render
from helm.pods import ports
from helm.sidecar import SIDECARS, snippet
from helm.valuepaths import is_known, named

KINDS = {
    "ServiceMonitor": ["ServiceMonitor"], "PodMonitor": ["PodMonitor"], "monitor": ["ServiceMonitor", "PodMonitor"],
    "rules, alerts": ["PrometheusRule"], "dashboards": ["ConfigMap"], "NetworkPolicy": ["NetworkPolicy"],
}  # fmt: skip


def _state(notes: str) -> dict[str, list[str]]:
    """Return the lines that say what is installed, by the thing they speak of."""
    _, _, rest = notes.partition("INSTALLED BESIDE IT, AND NOT\n")
    found: dict[str, list[str]] = {}
    for line in rest.partition("\n\n")[0].splitlines():
        thing, words = re.fullmatch(r"  (\S+(?: \S+)*)  +(\S.*)", line).groups()  # type: ignore[union-attr]
        found.setdefault(thing, []).append(words)
    return found


def _boards(rendered: Rendered) -> list[dict[str, Any]]:
    return [one for one in rendered.of("ConfigMap") if any(".json" in key for key in _keys(one))]


def _keys(configmap: dict[str, Any]) -> set[str]:
    return {*configmap.get("data", {}), *configmap.get("binaryData", {})}


@for_each_case
def test_nothing_is_left_unfilled(values: Path) -> None:
    notes = render(values).notes
    assert "<no value>" not in notes and "%!" not in notes and "map[" not in notes and "{{" not in notes
    assert all(len(line) <= 160 and line == line.rstrip() for line in notes.splitlines()), notes


@for_each_case
def test_what_it_says_is_installed_is(values: Path) -> None:
    rendered = render(values)
    state = _state(rendered.notes)
    for kind in ("ServiceMonitor", "PodMonitor", "NetworkPolicy"):
        says = any(line.startswith("yes") for line in state.get(kind, ()))
        assert says is bool(rendered.of(kind)), kind
    rules = state["rules, alerts"]
    assert any("PrometheusRule" in line and not line.startswith("no") for line in rules) is bool(
        rendered.of("PrometheusRule")
    )
    (boards,) = state["dashboards"]
    assert boards.startswith("yes") is bool(_boards(rendered))
    if label := re.search(r"looks for (\S+)=(\S+)", boards):
        assert all(one["metadata"]["labels"][label[1]] == label[2] for one in _boards(rendered))


@for_each_case
def test_what_it_names_is_rendered_or_was_named_in_the_values(values: Path) -> None:
    rendered = render(values)
    made = {(one["kind"], one["metadata"]["name"]) for one in rendered.objects}
    for name in re.findall(r"ConfigMap (pw-\S+?)[,;]?(?=\s)", rendered.notes):
        assert ("ConfigMap", name) in made, name
    for name, port in re.findall(r"service/(\S+) \d+:(\d+)", rendered.notes):
        (service,) = (one for one in rendered.of("Service") if one["metadata"]["name"] == name)
        assert int(port) in {one["port"] for one in service["spec"]["ports"]}
    for name in re.findall(r"The Secret (\S+)", rendered.notes):
        assert name in str(merged(values))


@for_each_case
def test_what_it_calls_off_is_turned_on_by_what_it_says(values: Path) -> None:
    rendered = render(values)
    for thing, lines in _state(rendered.notes).items():
        for line in lines:
            if not line.startswith("no"):
                continue
            for path in re.findall(r"([\w.]+)\.enabled=true", line):
                change: Values = {"enabled": True}
                for step in reversed(path.split(".")):
                    change = {step: change}
                before, after = rendered, render(values, change)
                kinds = ["ConfigMap"] if path.endswith("configMap") else KINDS[thing]
                assert any(len(after.of(kind)) > len(before.of(kind)) for kind in kinds), f"{path}: {kinds}"


@for_each_case
def test_values_that_it_names_exist(values: Path) -> None:
    assert all(is_known(path) for path in named(render(values).notes))


@for_each_case
def test_each_target_is_named_and_so_is_the_cluster(values: Path) -> None:
    notes, given = render(values).notes, merged(values)
    for target in given.get("targets", ()):
        place = target.get("url") or target.get("dns") or f"{target['service']}.{target['namespace']}.svc"
        assert place in notes and f"(namespace {target['namespace']})" in notes
    assert (f'cluster="{given.get("cluster")}"' in notes) is ("cluster" in given)


TARGETS = {"targets": [{"service": "vllm", "namespace": "chat"}]}
WEB = {"webConfig": {"secretName": "web", "tls": True}}
POLICY = {"config": {"targets_file": "/t.yaml"}, "networkPolicy": {"enabled": True}}
MONITORS = [("serviceMonitor", TARGETS), ("podMonitor", {"mode": "sidecar"})]


@pytest.mark.parametrize(
    ("values", "warnings"),
    [
        *(
            pytest.param({**mode, **web, monitor: {"enabled": True, **keys}}, said, id=f"{monitor}, {what}")
            for monitor, mode in MONITORS
            for what, web, keys, said in (
                ("no web configuration", {}, {}, []),
                ("both missing", WEB, {}, [f"{monitor}.tlsConfig is empty", f"{monitor} has neither basicAuth nor"]),
                ("no TLS", {"webConfig": {"secretName": "web"}}, {}, [f"{monitor} has neither basicAuth nor"]),
                ("a password", WEB, {"basicAuth": {"username": {"name": "s", "key": "u"}}}, [f"{monitor}.tlsConfig is empty"]),
                ("a CA and a token", WEB, {"tlsConfig": {"serverName": "a"}, "authorization": {"type": "Bearer"}}, []),
            )
        ),
        pytest.param({**TARGETS, **WEB}, [], id="no monitor"),
        pytest.param(POLICY, ["CANNOT REACH what config.targets_file names: allow it in networkPolicy.extraEgress"], id="no way to a file's targets"),
        pytest.param({**POLICY, "networkPolicy": {"enabled": True, "extraEgress": [{}]}}, [], id="a way to a file's targets"),
        pytest.param({**TARGETS, "networkPolicy": {"enabled": True}}, [], id="a policy that knows its targets"),
    ],
)  # fmt: skip
def test_it_warns_of_what_cannot_work(values: Values, warnings: list[str]) -> None:
    notes = render(values).notes
    loud = [line for line in notes.splitlines() if re.search(r"EVERY SCRAPE FAILS|CANNOT REACH", line)]
    assert len(loud) == len(warnings), loud
    assert all(any(warning in line for line in loud) for warning in warnings), loud


@pytest.mark.parametrize("values", SIDECARS, ids=lambda path: path.name)
def test_the_snippet_is_the_one_that_is_tested(values: Path) -> None:
    rendered = render(values)
    _, _, rest = rendered.notes.partition("pod-template.yaml")
    lines = rest.splitlines()[1:]
    block = []
    for line in lines:
        if line.strip() and not line.startswith("  "):
            break
        block.append(line)
    printed = textwrap.dedent("\n".join(block))
    assert documents(printed) == documents(snippet(rendered)) != []
    assert re.sub(r"\s+\n", "\n", printed.strip()) == re.sub(r"\s+\n", "\n", snippet(rendered).strip())


@for_each_case
def test_it_speaks_of_the_mode_that_is_rendered(values: Path) -> None:
    rendered = render(values)
    is_central = bool(rendered.of("Deployment"))
    assert ("ONE EXPORTER polls" in rendered.notes) is is_central
    assert ("NO EXPORTER RUNS YET" in rendered.notes) is not is_central
    if "honor_labels" in rendered.notes:
        assert is_central
    tests = [one for one in rendered.of("Pod") if "helm.sh/hook" in one["metadata"]["annotations"]]
    assert ("helm test" in rendered.notes) is bool(tests)
    if is_central and "port-forward" in rendered.notes:
        (pod,) = (one["spec"]["template"] for one in rendered.of("Deployment"))
        assert ports(pod["spec"])
