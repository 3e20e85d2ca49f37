"""Values that cannot be meant are refused, in words that name the key and say what is wrong."""

from collections.abc import Mapping
from typing import Any

import pytest

from helm.chart import ChartError, merged, render

CENTRAL = {"targets": [{"service": "vllm", "namespace": "chat"}]}
SIDECAR = {"mode": "sidecar"}


def _target(**keys: Any) -> dict[str, Any]:
    return {"targets": [{"service": "vllm", "namespace": "chat", **keys}]}


def _urls(*entries: Mapping[str, Any], **keys: Any) -> dict[str, Any]:
    """Return targets, with a NetworkPolicy, which names their ports."""
    return {
        "targets": [{"namespace": "lab", **one} for one in entries], "networkPolicy": {"enabled": True}, **keys,
    }  # fmt: skip


def _config(**keys: Any) -> dict[str, Any]:
    return {**CENTRAL, "config": keys}


def _settings(alert: str, **keys: Any) -> dict[str, Any]:
    return {**CENTRAL, "rules": {"settings": {"alerts": {alert: keys}}}}


BAD: dict[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {
    # What the mode needs
    "an unknown mode": ({**CENTRAL, "mode": "sidekick"}, ("/mode", "central", "sidecar")),
    "nothing to watch": ({}, ("targets", "service: vllm", "mode: sidecar")),
    "targets of a sidecar": ({**CENTRAL, **SIDECAR}, ("targets", "mode sidecar", "sidecar.target")),
    "a ServiceMonitor of sidecars": ({**SIDECAR, "serviceMonitor": {"enabled": True}}, ("serviceMonitor.enabled", "podMonitor.enabled")),
    "a NetworkPolicy of sidecars": ({**SIDECAR, "networkPolicy": {"enabled": True}}, ("networkPolicy.enabled", "9840")),
    "two monitors": (
        {**CENTRAL, "serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
        ("podMonitor.enabled", "serviceMonitor.enabled", "twice"),
    ),
    # Targets
    "a target without a namespace": ({"targets": [{"service": "vllm"}]}, ("targets[0].namespace", "label")),
    "a URL without a namespace": ({"targets": [{"url": "http://gpu-1:8000/metrics"}]}, ("targets[0].namespace", "bare-metal")),
    "both service and url": (_target(url="http://gpu-1:8000/metrics"), ("targets[0]", "service", "url", "exactly one")),
    "both dns and url": (
        {"targets": [{"dns": "http://a:1/m", "url": "http://b:1/m", "namespace": "chat"}]},
        ("targets[0]", "dns", "url", "exactly one"),
    ),
    "neither service, dns nor url": ({"targets": [{"namespace": "chat"}]}, ("targets[0]", "none", "exactly one")),
    "the second target": (
        {"targets": [*CENTRAL["targets"], {"service": "other"}]}, ("targets[1].namespace",),
    ),
    "a target in words": ({"targets": ["vllm.chat"]}, ("/targets/0", "object")),
    "targets by name": ({"targets": {"vllm": {"namespace": "chat"}}}, ("/targets", "array")),
    "an unknown key of a target": (_target(prot=1), ("/targets/0", "prot")),
    "a port in words": (_target(port="abc"), ("/targets/0/port", "integer")),
    "a port in quotes": (_target(port="8000"), ("/targets/0/port", "integer")),
    "a port that cannot be": (_target(port=70000), ("/targets/0/port", "65")),
    "a port beside a URL": (
        {"targets": [{"url": "http://a:1/m", "namespace": "chat", "port": 8000}]}, ("targets[0].port", "service"),
    ),
    "a name of many": (_target(name="gpu-1"), ("targets[0].name", "url")),
    "a path without its slash": (_target(path="metrics"), ("/targets/0/path",)),
    "another scheme": (_target(scheme="ftp"), ("/targets/0/scheme", "http", "https")),
    "a Service with a dot": (_target(service="vllm.chat"), ("/targets/0/service",)),
    "a URL without its scheme": ({"targets": [{"url": "gpu-1:8000", "namespace": "chat"}]}, ("/targets/0/url",)),
    "a password in a URL": (
        {"targets": [{"url": "http://me:secret@gpu-1:8000/metrics", "namespace": "chat"}]},
        ("targets[0].url", "credentials", "bearerToken"),
    ),
    "a password with a slash in a URL": (_urls({"url": "http://me:secret/1@gpu-1"}), ("targets[0].url", "is not a URL")),
    "an IPv6 address without its brackets": (_urls({"url": "http://fd00::1:8000/m"}), ("targets[0].url", "http://[fd00::1]:8000")),
    "a URL's port that cannot be": (_urls({"url": "http://gpu-1:99999/m"}), ("targets[0].url", "99999", "65535")),
    "a name's port that cannot be": (_urls({"dns": "http://gpu:0/m"}), ("targets[0].dns", "0 is not a port")),
    "two URLs of one engine": (_urls({"url": "http://GPU/m"}, {"url": "http://gpu:80/m?a"}), ("targets[1]", '"gpu:80" is targets[0]')),
    "two URLs of one name": (
        _urls({"url": "http://[::1]:1", "name": "gpu"}, {"url": "http://b", "name": "gpu"}), ("targets[1]", '"gpu" is targets[0]'),
    ),
    "a Service that two targets make": (
        _urls({"service": "vllm", "selector": {"a": "b"}}, {"service": "vllm", "selector": {"a": "b"}, "port": 8001}),
        ("targets[1].selector", "targets[0] makes the Service lab/vllm"),
    ),
    "the exporter's own Service": (
        {"targets": [{"service": "pw-prefixwatch", "namespace": "monitoring"}]},
        ("targets[0].service", "monitoring/pw-prefixwatch is the exporter's own"),
    ),
    "replays of a target that do not pair with its endpoints": (
        _target(events={"endpoints": ["tcp://*:5557"], "replay_endpoints": ["tcp://*:5558", "tcp://*:5559"]}),
        ("targets[0].events.replay_endpoints", "2 of them beside 1"),
    ),
    "cluster as a label": (_target(labels={"cluster": "west"}), ("targets[0].labels.cluster", "`cluster`")),
    "a label of the exporter's": (_target(labels={"engine": "1"}), ("targets[0].labels.engine", "own labels")),
    "a label with a hyphen": (_target(labels={"my-team": "a"}), ("my-team",)),
    "a label that is a number": (_target(labels={"team": 1}), ("/targets/0/labels/team", "string")),
    "a selector that selects nothing": (_target(selector={}), ("/targets/0/selector",)),
    # Misspelt and misplaced
    "an unknown key": ({**CENTRAL, "replicaCount": 2}, ("replicaCount",)),
    "an unknown key in a section": ({**CENTRAL, "serviceMonitor": {"enable": True}}, ("/serviceMonitor", "enable")),
    "an unknown key in a section of a section": (
        {**CENTRAL, "rules": {"prometheusRule": {"labels": {"release": "kps"}}}}, ("/rules/prometheusRule", "labels"),
    ),
    "an unknown setting of the exporter": ({**CENTRAL, "config": {"poll_intervall": "5s"}}, ("/config", "poll_intervall")),
    "an unknown threshold of the exporter": ({**CENTRAL, "config": {"thresholds": {"hit": 1}}}, ("/config/thresholds", "hit")),
    "a share of the exporter's above one": (_config(thresholds={"near_full": 2}), ("/config/thresholds/near_full", "1")),
    "fewer than none": (_config(thresholds={"min_requests": -1}), ("/config/thresholds/min_requests", "0")),
    "a window of the diagnosis that is no default": (_config(diagnosis_window="10m"), ("config.diagnosis_window", "10m", "(1m, 5m, 1h)")),
    "a window of the diagnosis that is none of the windows": (
        _config(diagnosis_window="5m", windows=["60s"]), ("config.diagnosis_window", "5m", "(60s)"),
    ),
    "polls too far apart for a default window": (_config(poll_interval="31s"), ("config.poll_interval", "31s", "1m", "two polls")),
    "a window too short for the default polls": (_config(windows=["1m", "9.9s"]), ("config.poll_interval", "5s", "9.9s")),
    "replays that do not pair with endpoints": (_config(events={"replay_endpoints": ["tcp://*:5558"]}), ("config.events.replay_endpoints", "beside 0")),
    "targets in config": ({**CENTRAL, "config": {"targets": []}}, ("config", "targets")),
    "listen in config": ({**CENTRAL, "config": {"listen": ":1"}}, ("config", "listen")),
    "a token in the clear": ({**CENTRAL, "access": {"bearerToken": "abc"}}, ("/access/bearerToken", "object")),
    "a token without its Secret": ({**CENTRAL, "access": {"bearerToken": {"key": "t"}}}, ("access.bearerToken", "secretName")),
    "a CA of two kinds": (
        {**CENTRAL, "access": {"ca": {"secretName": "a", "configMapName": "b"}}}, ("access.ca", "secretName", "configMapName"),
    ),
    "a target's token without its Secret": (
        _target(access={"bearerToken": {"key": "t"}}), ("targets[0].access.bearerToken", "secretName"),
    ),
    "TLS without the web configuration": ({**CENTRAL, "webConfig": {"tls": True}}, ("webConfig.tls", "webConfig.secretName")),
    # Values of the wrong kind
    "yes for true": ({**CENTRAL, "serviceMonitor": {"enabled": "yes"}}, ("/serviceMonitor/enabled", "boolean")),
    "a number for text": ({**CENTRAL, "cluster": 7}, ("/cluster", "string")),
    "a duration in words": ({**CENTRAL, "config": {"poll_interval": "5 sec"}}, ("/config/poll_interval",)),
    "an interval without a unit": ({**CENTRAL, "serviceMonitor": {"interval": "15"}}, ("/serviceMonitor/interval",)),
    "a timeout above the interval": (
        {**CENTRAL, "serviceMonitor": {"enabled": True, "interval": "10s", "scrapeTimeout": "1m"}},
        ("serviceMonitor.scrapeTimeout", "1m", "10s"),
    ),
    "a label that is true": ({**CENTRAL, "podLabels": {"a": True}}, ("/podLabels/a", "string")),
    "labels as a list": ({**CENTRAL, "podLabels": ["a"]}, ("/podLabels", "object")),
    "an unknown policy of pulling": ({**CENTRAL, "image": {"pullPolicy": "always"}}, ("/image/pullPolicy", "Always")),
    "a digest without its kind": ({**CENTRAL, "image": {"digest": "abc"}}, ("/image/digest",)),
    "an unknown type of Service": ({**CENTRAL, "service": {"type": "ExternalName"}}, ("/service/type", "ClusterIP")),
    "a section that is taken away": ({**CENTRAL, "service": None}, ("service",)),
    "a value that is taken away": ({**CENTRAL, "image": {"repository": None}}, ("repository",)),
    "a name with a space": ({**CENTRAL, "nameOverride": "A b"}, ("/nameOverride",)),
    # The sidecar
    "a window too short for a sidecar's polls": ({**SIDECAR, "config": {"windows": ["1s"]}}, ("config.poll_interval", "1s", "two polls")),
    "two targets in a path": ({**SIDECAR, "sidecar": {"target": {"path": "/m?a=1,2"}}}, ("sidecar.target.path", "comma", "%2C")),
    "a host with a port": ({**SIDECAR, "sidecar": {"target": {"host": "localhost:8000"}}}, ("/sidecar/target/host",)),
    "a port of vLLM in words": ({**SIDECAR, "sidecar": {"target": {"port": "http"}}}, ("/sidecar/target/port", "integer")),
    "native in words": ({**SIDECAR, "sidecar": {"native": "always"}}, ("/sidecar/native", "auto")),
    "thresholds without a ConfigMap": (
        {**SIDECAR, "config": {"thresholds": {"near_ceiling": 0.8}}}, ("config.thresholds", "sidecar.configMap.namespaces"),
    ),
    "access without a ConfigMap": (
        {**SIDECAR, "access": {"bearerToken": {"secretName": "t"}}}, ("access", "sidecar.configMap.namespaces"),
    ),
    "one port for the sidecar and vLLM": ({**SIDECAR, "sidecar": {"port": 8000}}, ("sidecar.port", "8000")),
    "a selector without matchLabels": (
        {**SIDECAR, "podMonitor": {"enabled": True, "selector": {"app": "vllm"}}}, ("/podMonitor/selector", "app"),
    ),
    # Rules
    "an unknown alert": ({**CENTRAL, "rules": {"alerts": {"PrefixCacheDisable": {"enabled": False}}}}, ("/rules/alerts", "PrefixCacheDisable")),
    "an alert switched without enabled": ({**CENTRAL, "rules": {"alerts": {"PrefixCacheDisabled": False}}}, ("/rules/alerts/PrefixCacheDisabled", "object")),
    "a ratio above one": (_settings("PrefixCacheKvPressure", usage=95), ("/rules/settings/alerts/PrefixCacheKvPressure/usage", "1")),
    "a critical share above the warning's": (
        _settings("PrefixCacheHitRatioDropped", share_critical=0.8),
        ("rules.settings.alerts.PrefixCacheHitRatioDropped.share_critical", "0.8", "share_warning, 0.7"),
    ),
    "a negative threshold": (_settings("PrefixCacheKvPressure", waiting=-1), ("PrefixCacheKvPressure/waiting", "0")),
    "a threshold of another alert": (_settings("PrefixCacheDisabled", usage=0.5), ("PrefixCacheDisabled", "usage")),
    "a duration of an alert in words": (_settings("PrefixCacheDisabled", **{"for": "half an hour"}), ("PrefixCacheDisabled/for",)),
    "a threshold that is taken away": (_settings("PrefixCacheDisabled", **{"for": None}), ("PrefixCacheDisabled", "for")),
}  # fmt: skip


@pytest.mark.parametrize(("values", "words"), BAD.values(), ids=BAD)
def test_a_mistake_is_refused_with_its_key(values: Mapping[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ChartError) as refused:
        render(values)
    message = str(refused.value)
    missing = [word for word in words if word not in message]
    assert not missing, message
    assert "nil pointer" not in message and "error calling" not in message, message


GOOD: dict[str, Mapping[str, Any]] = {
    "central": CENTRAL,
    "sidecar": SIDECAR,
    "an @ behind the host": _urls({"url": "http://gpu/m?a=b@c"}),
    "an IPv6 address": _urls({"url": "http://[fd00::1]:8000/m"}, {"url": "https://[fd00::1]/m"}),
    "a Service at two ports, made once": _urls({"service": "vllm", "selector": {"a": "b"}}, {"service": "vllm", "port": 8001}),
    "the exporter's own Service's name, elsewhere": _target(service="pw-prefixwatch"),
    "windows just long enough": _config(poll_interval="500ms", windows=["1s", "1m30s"], diagnosis_window="90s"),
    "replays that pair": _config(events={"endpoints": ["tcp://*:5557"], "replay_endpoints": ["tcp://*:5558"]}),
    "an IPv6 address beside a sidecar": {**SIDECAR, "sidecar": {"target": {"host": "fd00::1"}}},
}  # fmt: skip


@pytest.mark.parametrize("values", GOOD.values(), ids=GOOD)
def test_what_resembles_the_mistakes_is_good(values: Mapping[str, Any]) -> None:
    assert render(values).objects


@pytest.mark.parametrize("name", ["pw.x", "1pw"])
def test_a_release_whose_name_no_service_can_have_is_refused(name: str) -> None:
    with pytest.raises(ChartError, match=rf'fullnameOverride: empty, and "{name}-prefixwatch"'):
        render(CENTRAL, name=name)
    assert render(CENTRAL, {"fullnameOverride": "pw"}, name=name).objects
    assert render(SIDECAR, name=name).objects


def test_a_native_sidecar_is_refused_where_kubernetes_has_none() -> None:
    with pytest.raises(ChartError, match=r"sidecar\.native.*1\.29"):
        render(merged(SIDECAR, {"sidecar": {"native": True}}), kube_version="1.28")
