"""Which values there are: by values.yaml, and by the schema."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from helm.chart import chart

Steps = tuple[str, ...]

_NAMED = re.compile(r"(?<![\w./$-])([a-z]\w*(?:\[\d*\])?(?:\.\w+(?:\[\d*\])?)+)(?![\w/]|\.\w)")
_ENDINGS = {"yaml", "md", "json", "py", "tpl", "txt", "crt", "key"}


@cache
def schema() -> dict[str, Any]:
    """Return values.schema.json."""
    found = chart().schema
    assert found
    return found


def resolved(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference within the schema."""
    while "$ref" in part:
        there: Any = schema()
        for step in part["$ref"].removeprefix("#/").split("/"):
            there = there[step]
        part = there
    return part


def leaves(values: Any, path: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Yield each default that holds no further defaults."""
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from leaves(value, (*path, key))
    else:
        yield path, values


def properties(part: Mapping[str, Any], path: Steps = ()) -> Iterator[Steps]:
    """Yield the path of each property that the schema names, but not of those within lists."""
    for key, value in resolved(part).get("properties", {}).items():
        yield (*path, key)
        yield from properties(value, (*path, key))


def is_known(path: Steps) -> bool:
    """Whether the schema has a place for a value; where it leaves the keys open, anything has."""
    part: Mapping[str, Any] = schema()
    for step in path:
        part = resolved(part)
        if step == "[]":
            part = part.get("items", {})
        elif step in part.get("properties", {}):
            part = part["properties"][step]
        else:
            return part.get("additionalProperties", True) is not False
    return True


def named(text: str) -> set[Steps]:
    """Return the paths of values that a text names, like `image.tag` or `targets[].port`."""
    found = set()
    for match in _NAMED.finditer(text):
        steps = re.findall(r"\w+|\[\d*\]", match[1])
        if steps[0] in schema()["properties"] and steps[-1] not in _ENDINGS:
            found.add(tuple("[]" if step.startswith("[") else step for step in steps))
    return found
