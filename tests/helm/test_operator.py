"""The schemas of the operator's objects accept what it knows, and refuse the mistakes that people make."""

from copy import deepcopy
from typing import Any

import pytest

from helm.chart import Object
from helm.kubernetes import operator_faults


def _monitor(kind: str, spec: dict[str, Any]) -> Object:
    return {
        "apiVersion": "monitoring.coreos.com/v1", "kind": kind, "metadata": {"name": "m", "namespace": "n"},
        "spec": {"selector": {"matchLabels": {"app": "vllm"}}, **spec},
    }  # fmt: skip


ENDPOINT = {
    "port": "metrics", "path": "/metrics", "scheme": "https", "interval": "15s", "scrapeTimeout": "10s",
    "honorLabels": True, "authorization": {"type": "Bearer", "credentials": {"name": "s", "key": "token"}},
    "tlsConfig": {
        "ca": {"secret": {"name": "s", "key": "ca.crt"}}, "cert": {"configMap": {"name": "c", "key": "tls.crt"}},
        "keySecret": {"name": "s", "key": "tls.key"}, "serverName": "engine",
    },
    "relabelings": [{"targetLabel": "cluster", "replacement": "west", "action": "replace"}],
    "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": "go_.*", "action": "drop"}],
}  # fmt: skip
PODS = _monitor("PodMonitor", {"podMetricsEndpoints": [ENDPOINT], "namespaceSelector": {"any": True}})
SERVICES = _monitor("ServiceMonitor", {"endpoints": [ENDPOINT], "namespaceSelector": {"matchNames": ["n"]}})
RULES: Object = {
    "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": {"name": "r", "namespace": "n"},
    "spec": {"groups": [{"name": "g", "interval": "1m", "rules": [
        {"record": "a:b:c", "expr": "vector(1)", "labels": {"x": "y"}},
        {"alert": "A", "expr": "a:b:c > 1", "for": "10m", "keep_firing_for": "5m", "labels": {}, "annotations": {}},
    ]}]},
}  # fmt: skip


@pytest.mark.parametrize("good", [PODS, SERVICES, RULES], ids=lambda one: one["kind"])
def test_what_the_operator_knows_is_accepted(good: Object) -> None:
    assert operator_faults(good) == []


def _changed(thing: Object, change: dict[str, Any], *path: str | int, without: str = "") -> Object:
    result = deepcopy(thing)
    inner: Any = result
    for step in path:
        inner = inner[step]
    inner.update(change)
    inner.pop(without, None)
    return result


_POD = (PODS, ("spec", "podMetricsEndpoints", 0))
_SERVICE = (SERVICES, ("spec", "endpoints", 0))
_GROUP = ("spec", "groups", 0)
_RECORD = (*_GROUP, "rules", 0)
_ALERT = (*_GROUP, "rules", 1)


@pytest.mark.parametrize("bad", [
    pytest.param(_changed(PODS, {"endpoints": [ENDPOINT]}, "spec"), id="endpoints of a PodMonitor"),
    pytest.param(_changed(SERVICES, {"podMetricsEndpoints": [ENDPOINT]}, "spec"), id="podMetricsEndpoints of a ServiceMonitor"),
    pytest.param(_changed(PODS, {"targetLabels": ["a"]}, "spec"), id="targetLabels of a PodMonitor"),
    pytest.param(_changed(PODS, {}, "spec", without="selector"), id="no selector"),
    pytest.param(_changed(PODS, {"apiVersion": "monitoring.coreos.com/v1beta1"}), id="another version"),
    pytest.param(_changed(PODS, {"selector": {"app": "vllm"}}, "spec"), id="labels without matchLabels"),
    pytest.param(_changed(PODS, {"namespaceSelector": {"matchLabels": {}}}, "spec"), id="namespaces by label"),
    *(
        pytest.param(_changed(thing, change, *path), id=f"{what} of a {thing['kind']}")
        for thing, path in (_POD, _SERVICE)
        for what, change in {
            "honourLabels": {"honourLabels": True},
            "a port's number": {"port": 9840},
            "interval as a number": {"interval": 15},
            "an interval in words": {"interval": "15 sec"},
            "relabelConfigs": {"relabelConfigs": []},
            "snake case in a relabeling": {"relabelings": [{"source_labels": ["a"], "target_label": "b"}]},
            "an unknown action": {"relabelings": [{"action": "rename"}]},
            "a source label with a dot": {"relabelings": [{"sourceLabels": ["a.b"]}]},
            "a file of Prometheus's": {"bearerTokenFile": "/x"},
            "a token in the clear": {"authorization": {"credentials": "secret"}},
            "two ways to authenticate": {"basicAuth": {"username": {"name": "s", "key": "u"}}},
            "a scheme in capitals": {"scheme": "HTTPS"},
            "ca_file": {"tlsConfig": {"ca_file": "/x"}},
            "a certificate without its key": {"tlsConfig": {"cert": {"secret": {"name": "s", "key": "k"}}}},
        }.items()
    ),
    pytest.param(_changed(PODS, {"caFile": "/x"}, *_POD[1], "tlsConfig"), id="a file of Prometheus's for a PodMonitor"),
    pytest.param(_changed(PODS, {}, *_POD[1], without="port"), id="no port"),
    pytest.param(_changed(RULES, {"keepFiringFor": "5m"}, *_ALERT), id="keepFiringFor"),
    pytest.param(_changed(RULES, {"for": 600}, *_ALERT), id="seconds as a number"),
    pytest.param(_changed(RULES, {"labels": {"severity": 1}}, *_ALERT), id="a label that is a number"),
    pytest.param(_changed(RULES, {}, *_ALERT, without="expr"), id="no expression"),
    pytest.param(_changed(RULES, {"record": "a"}, *_ALERT), id="alert and record"),
    pytest.param(_changed(RULES, {"for": "1m"}, *_RECORD), id="for of a record"),
    pytest.param(_changed(RULES, {"record": "a-b"}, *_RECORD), id="a name with a hyphen"),
    pytest.param(_changed(RULES, {}, *_GROUP, without="name"), id="a group without a name"),
])  # fmt: skip
def test_known_mistakes_are_refused(bad: Object) -> None:
    assert operator_faults(bad)
