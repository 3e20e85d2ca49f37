"""The region of values.yaml that holds the alerts and settings, each with its reason."""

import json
from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from rulebook.settings import Settings

BEGIN, END = "# --- rules: written by helm/sync.py", "# --- end of rules"
_WIDTH = 118


def replaced(values: str, settings: Settings) -> str:
    """Return values.yaml with its region written anew. Raises ValueError where the two lines are not there."""
    lines = values.splitlines()
    marks = [number for number, line in enumerate(lines) if line.strip() in (BEGIN, END)]
    if [lines[number].strip() for number in marks] != [BEGIN, END]:
        raise ValueError(f'values.yaml: needs the lines "{BEGIN}" and "{END}", once each and in this order')
    first, last = marks
    depth = len(lines[first]) - len(lines[first].lstrip())
    return "\n".join([*lines[: first + 1], *_region(settings, depth), *lines[last:]]) + "\n"


def _region(settings: Settings, depth: int) -> Iterator[str]:
    pad = " " * depth
    yield f"{pad}# -- Each alert by its name: false leaves its rules out. alerts/runbooks says what they mean."
    yield f"{pad}alerts:"
    for name in settings.tree["alerts"]:
        yield f"{pad}  {name}: {{enabled: true}}"
    yield f"{pad}# Thresholds, floors and durations of the rules, as in alerts/config.yaml, with their reasons."
    yield f"{pad}settings:"
    yield from _entries(settings.tree, depth + 2)


def _entries(tree: Mapping[str, Any], depth: int) -> Iterator[str]:
    pad = " " * depth
    for key, entry in tree.items():
        if "why" in entry:
            yield from wrap(entry["why"], _WIDTH, initial_indent=f"{pad}# -- ", subsequent_indent=f"{pad}# ")
            yield f"{pad}{key}: {json.dumps(entry['value'], ensure_ascii=False)}"
        else:
            yield f"{pad}{key}:"
            yield from _entries(entry, depth + 2)
