"""A container of the chart as a process on this machine: its arguments, environment and files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helm.chart import Object

POD_IP = "127.0.0.1"
_FIELDS = {
    "status.podIP": POD_IP,
    "status.hostIP": POD_IP,
    "metadata.name": "vllm-0",
    "metadata.namespace": "chat",
    "spec.nodeName": "node-1",
}
_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


@dataclass(frozen=True)
class Process:
    """What would be started in the image, whose entry point is `prefixwatch`."""

    arguments: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, Path]
    """Where on this machine the folder of each mount is."""


def as_process(container: Object, volumes: Sequence[Object], configmaps: Mapping[str, Object], folder: Path) -> Process:
    """Write what a container mounts into `folder`, and return how Kubernetes would start it there."""
    files = {
        mount["mountPath"]: _mounted(mount, volumes, configmaps, folder) for mount in container.get("volumeMounts", ())
    }
    env: dict[str, str] = {}
    for entry in container.get("env", ()):
        env[entry["name"]] = _value(entry, env)
    command = [*container.get("command", ["prefixwatch"]), *container.get("args", ())]
    assert command[0] == "prefixwatch", command
    arguments = tuple(_placed(_expanded(one, env), files) for one in command[1:])
    return Process(arguments, {name: _placed(value, files) for name, value in env.items()}, files)


def _mounted(mount: Object, volumes: Sequence[Object], configmaps: Mapping[str, Object], folder: Path) -> Path:
    (volume,) = (one for one in volumes if one["name"] == mount["name"])
    place = folder / mount["name"]
    place.mkdir(exist_ok=True)
    if "configMap" in volume:
        data = configmaps.get(volume["configMap"]["name"], {"data": {}})["data"]  # some are the user's own
        items = volume["configMap"].get("items") or [{"key": key, "path": key} for key in data]
        for item in items:
            (place / item["path"]).write_text(data[item["key"]])
    return place / mount["subPath"] if "subPath" in mount else place


def _value(entry: Mapping[str, Any], env: Mapping[str, str]) -> str:
    if "value" in entry:
        return _expanded(entry["value"], env)
    return _FIELDS[entry["valueFrom"]["fieldRef"]["fieldPath"]]


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """Fill in $(NAME) as the kubelet does: what is not defined stays."""
    return _VARIABLE.sub(lambda found: env.get(found[1], found[0]), text)


def _placed(text: str, files: Mapping[str, Path]) -> str:
    for mount, place in files.items():
        if text == mount or text.startswith(f"{mount}/"):
            return f"{place}{text.removeprefix(mount)}"
    return text
