"""The checker of the restricted standard, against pods that break one control each."""

from copy import deepcopy
from typing import Any

import pytest

from helm.chart import Object
from helm.restricted import violations

GOOD: Object = {
    "metadata": {"name": "p"},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [
            {"name": "first", "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
        ],
        "containers": [
            {"name": "main", "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}


def test_a_good_pod_breaks_nothing() -> None:
    assert violations(GOOD) == []


def _set(*path: str | int, to: Any) -> Object:
    pod = deepcopy(GOOD)
    inner: Any = pod
    for step in path[:-1]:
        inner = inner.setdefault(step, {}) if isinstance(inner, dict) else inner[step]
    inner[path[-1]] = to
    return pod


_POD = ("spec", "securityContext")
_MAIN = ("spec", "containers", 0)
_FIRST = ("spec", "initContainers", 0)


@pytest.mark.parametrize(("pod", "said"), [
    (_set("spec", "hostNetwork", to=True), "hostNetwork"),
    (_set("spec", "hostPID", to=True), "hostPID"),
    (_set("spec", "hostIPC", to=True), "hostIPC"),
    (_set("spec", "volumes", 0, to={"name": "v", "hostPath": {"path": "/"}}), "volume v"),
    (_set("spec", "volumes", 0, to={"name": "v", "nfs": {"server": "s", "path": "/"}}), "volume v"),
    (_set("spec", "volumes", 0, to={"name": "v"}), "volume v"),
    (_set(*_POD, "sysctls", to=[{"name": "kernel.msgmax", "value": "1"}]), "sysctl kernel.msgmax"),
    (_set(*_POD, "runAsNonRoot", to=False), "main: runAsNonRoot"),
    (_set(*_POD, "runAsUser", to=0), "pod: runAsUser 0"),
    (_set(*_POD, "seccompProfile", to={"type": "Unconfined"}), "pod: seccompProfile"),
    (_set(*_POD, to={"runAsNonRoot": True}), "main: no seccompProfile"),
    (_set(*_POD, "appArmorProfile", to={"type": "Unconfined"}), "pod: appArmorProfile"),
    (_set(*_POD, "seLinuxOptions", to={"type": "spc_t"}), "pod: seLinuxOptions"),
    (_set(*_POD, "windowsOptions", to={"hostProcess": True}), "pod: hostProcess"),
    (_set("metadata", "annotations", to={"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}), "annotation"),
    (_set(*_MAIN, "securityContext", "privileged", to=True), "main: privileged"),
    (_set(*_MAIN, "securityContext", "allowPrivilegeEscalation", to=True), "main: allowPrivilegeEscalation"),
    (_set(*_MAIN, "securityContext", "capabilities", to={}), "main: capabilities.drop"),
    (_set(*_MAIN, "securityContext", "capabilities", "add", to=["NET_RAW"]), "main: capabilities.add"),
    (_set(*_MAIN, "securityContext", "runAsNonRoot", to=False), "main: runAsNonRoot"),
    (_set(*_MAIN, "securityContext", "runAsUser", to=0), "main: runAsUser 0"),
    (_set(*_MAIN, "securityContext", "seccompProfile", to={"type": "Unconfined"}), "main: seccompProfile"),
    (_set(*_MAIN, "securityContext", "procMount", to="Unmasked"), "main: procMount"),
    (_set(*_MAIN, "securityContext", "seLinuxOptions", to={"user": "root"}), "main: seLinuxOptions"),
    (_set(*_MAIN, "ports", to=[{"containerPort": 1, "hostPort": 1}]), "main: hostPort 1"),
    (_set(*_MAIN, "livenessProbe", to={"httpGet": {"host": "h", "port": 1}}), "main: livenessProbe names a host"),
    (_set(*_MAIN, "lifecycle", to={"preStop": {"tcpSocket": {"host": "h", "port": 1}}}), "main: preStop names a host"),
    (_set(*_FIRST, "securityContext", to={}), "first: allowPrivilegeEscalation"),
])  # fmt: skip
def test_each_control(pod: Object, said: str) -> None:
    assert any(one.startswith(said) for one in violations(pod)), violations(pod)
