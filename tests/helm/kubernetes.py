"""What a Kubernetes of some version, and the Prometheus Operator, would say to an object."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
from jsonschema import Draft7Validator
from kubernetes_validate.utils import all_versions, major_minor

from helm.chart import OLDEST, Object, merged

_OPERATOR = Path(__file__).with_name("operator")
OPERATOR_KINDS = sorted(path.stem for path in _OPERATOR.glob("[A-Z]*.json"))


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


VERSIONS = sorted({major_minor(one) for one in all_versions() if _number(one) >= _number(OLDEST)}, key=_number)
"""Each minor from the oldest supported to the newest whose schemas are there."""

NATIVE_SINCE = "1.29"
"""The first that has native sidecars without being told to."""


def versions(values: Path) -> list[str]:
    """Return those that a file of values can be rendered for: not all of them have native sidecars."""
    is_native = merged(values).get("sidecar", {}).get("native") is True
    return VERSIONS[VERSIONS.index(NATIVE_SINCE) :] if is_native else VERSIONS


def faults(thing: Object, version: str) -> list[str]:
    """Return what is wrong with an object; unknown fields are."""
    if thing["apiVersion"].startswith("monitoring.coreos.com/"):
        return operator_faults(thing)
    return _faults(json.dumps(thing, sort_keys=True), version)


def operator_faults(thing: Object) -> list[str]:
    """Return what is wrong with an object of the operator, whose kinds do not depend on the version of Kubernetes."""
    return _operator_faults(json.dumps(thing, sort_keys=True))


@cache
def _faults(thing: str, version: str) -> list[str]:
    try:
        kubernetes_validate.validate(json.loads(thing), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}"]
    return []


@cache
def _operator_faults(thing: str) -> list[str]:
    read = json.loads(thing)
    return [f"{error.json_path}: {error.message}" for error in _operator(read["kind"]).iter_errors(read)]


@cache
def _operator(kind: str) -> Draft7Validator:
    schema: dict[str, Any] = json.loads((_OPERATOR / f"{kind}.json").read_text())
    common = json.loads((_OPERATOR / "common.json").read_text())
    schema["definitions"] = common | schema["definitions"]
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)
