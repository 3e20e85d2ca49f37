"""The part of values.schema.json that says what an alert and a setting may be."""

import json
from collections.abc import Mapping
from typing import Any

from rulebook.settings import Settings

Schema = dict[str, Any]
_SPAN = "^" + "".join(f"([0-9]+{unit})?" for unit in "wdhms") + "$"
_RATIOS = {"ceiling", "confidence", "deviation", "gap", "ratio", "share", "usage"}
"""A number whose key has one of these words is a part of a whole."""
_MAY_BE_ZERO = {"flap", "for"}
_KINDS: dict[str, Schema] = {
    "duration": {"type": "string", "allOf": [{"pattern": _SPAN}, {"pattern": "[1-9]"}]},
    "hold": {"type": "string", "minLength": 2, "pattern": _SPAN},
    "ratio": {"type": "number", "minimum": 0, "maximum": 1},
    "amount": {"type": "number", "minimum": 0},
    # In an annotation, which is a template: no braces.
    "link": {"type": "string", "pattern": r'^[^\s"`\\<>{}$]*$'},
    # Between PromQL's quotes.
    "label": {"type": "string", "pattern": "^[A-Za-z0-9 ._:/-]+$"},
    "names": {"type": "array", "uniqueItems": True, "items": {"type": "string", "pattern": r"^[^\x00-\x1f]+$"}},
}


def replaced(schema: str, settings: Settings) -> str:
    """Return values.schema.json with the definitions of `alerts` and `settings` written anew."""
    whole = json.loads(schema)
    enabled = _closed({"enabled": {"type": "boolean"}})
    definitions = whole.setdefault("definitions", {})
    definitions["alerts"] = _closed(dict.fromkeys(settings.tree["alerts"], enabled))
    definitions["settings"] = {"definitions": _KINDS, **_level(settings.tree)}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _closed(properties: Mapping[str, Schema]) -> Schema:
    return {
        "type": "object",
        "required": list(properties),
        "additionalProperties": False,
        "properties": dict(properties),
    }


def _level(tree: Mapping[str, Any]) -> Schema:
    return _closed({key: _setting(key, entry) if "why" in entry else _level(entry) for key, entry in tree.items()})


def _setting(key: str, entry: Mapping[str, Any]) -> Schema:
    kind = {"runbooks": "link", "dashboards": "link"}.get(key) or _kind(key, entry["value"])
    return {"description": entry["why"], "$ref": f"#/definitions/settings/definitions/{kind}"}


def _kind(key: str, value: object) -> str:
    match value:
        case list():
            return "names"
        case str() if value[:1].isdigit():
            return "hold" if key in _MAY_BE_ZERO else "duration"
        case str():
            return "label"
        case _:
            return "ratio" if _RATIOS & set(key.split("_")) else "amount"
