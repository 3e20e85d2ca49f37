"""The restricted Pod Security Standard of Kubernetes, with the controls of its baseline, as a check of a pod."""

from collections.abc import Iterator, Mapping
from typing import Any

from helm.chart import Object

_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
_SELINUX_TYPES = {None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
_SYSCTLS = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
}  # fmt: skip
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"


def violations(pod: Object) -> list[str]:
    """Return each control that the pod (or pod template) breaks, as `place: what`."""
    return [*_of_the_pod(pod)] + [
        one for container in containers(pod["spec"]) for one in _of_a_container(container, pod)
    ]


def containers(spec: Mapping[str, Any]) -> list[Object]:
    """Return every container of a pod's specification, whatever its kind."""
    return [one for kind in ("initContainers", "containers", "ephemeralContainers") for one in spec.get(kind) or ()]


def _of_the_pod(pod: Object) -> Iterator[str]:
    spec = pod["spec"]
    context = spec.get("securityContext") or {}
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield f"{key}: true"
    for volume in spec.get("volumes") or ():
        kinds = set(volume) - {"name"}
        if not kinds or kinds - _VOLUMES:
            yield f"volume {volume['name']}: {sorted(kinds)}"
    for sysctl in context.get("sysctls") or ():
        if sysctl["name"] not in _SYSCTLS:
            yield f"sysctl {sysctl['name']}"
    for key, value in (pod.get("metadata", {}).get("annotations") or {}).items():
        if key.startswith(_APPARMOR_ANNOTATION) and value != "runtime/default" and not value.startswith("localhost/"):
            yield f"annotation {key}: {value}"
    yield from _of_a_context("pod", context)


def _of_a_container(container: Object, pod: Object) -> Iterator[str]:
    name = container["name"]
    context = container.get("securityContext") or {}
    around = pod["spec"].get("securityContext") or {}
    if context.get("privileged"):
        yield f"{name}: privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation is not false"
    if context.get("procMount") not in {None, "Default"}:
        yield f"{name}: procMount {context['procMount']}"
    capabilities = context.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or ()):
        yield f"{name}: capabilities.drop is without ALL"
    if set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capabilities.add {capabilities['add']}"
    if context.get("runAsNonRoot", around.get("runAsNonRoot")) is not True:
        yield f"{name}: runAsNonRoot is not true"
    if "seccompProfile" not in context and "seccompProfile" not in around:
        yield f"{name}: no seccompProfile"
    for port in container.get("ports") or ():
        if port.get("hostPort"):
            yield f"{name}: hostPort {port['hostPort']}"
    for place, handler in _handlers(container):
        if any((handler.get(kind) or {}).get("host") for kind in ("httpGet", "tcpSocket")):
            yield f"{name}: {place} names a host"
    yield from _of_a_context(name, context)


def _of_a_context(place: str, context: Mapping[str, Any]) -> Iterator[str]:
    """Check what may stand in the security context of a pod and in that of a container."""
    if context.get("runAsUser") == 0:
        yield f"{place}: runAsUser 0"
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield f"{place}: hostProcess"
    if "seccompProfile" in context and context["seccompProfile"].get("type") not in {"RuntimeDefault", "Localhost"}:
        yield f"{place}: seccompProfile {context['seccompProfile']}"
    if (context.get("appArmorProfile") or {}).get("type") not in {None, "RuntimeDefault", "Localhost"}:
        yield f"{place}: appArmorProfile {context['appArmorProfile']}"
    selinux = context.get("seLinuxOptions") or {}
    if selinux.get("type") not in _SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield f"{place}: seLinuxOptions {selinux}"


def _handlers(container: Object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(probe):
            yield probe, container[probe]
    yield from (container.get("lifecycle") or {}).items()
