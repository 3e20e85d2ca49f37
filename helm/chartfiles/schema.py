"""The part of values.schema.json that says what an alert and a setting may be."""

import json
from collections.abc import Mapping
from typing import Any

from rulebook.kinds import KINDS, Schema, kind_of
from rulebook.settings import Settings


def replaced(schema: str, settings: Settings) -> str:
    """Return values.schema.json with the definitions of `alerts` and `settings` written anew."""
    whole = json.loads(schema)
    enabled = _closed({"enabled": {"type": "boolean"}})
    definitions = whole.setdefault("definitions", {})
    definitions["alerts"] = _closed(dict.fromkeys(settings.tree["alerts"], enabled))
    definitions["settings"] = {
        "definitions": {name: kind.schema for name, kind in KINDS.items()},
        **_level(settings.tree),
    }
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
    kind = kind_of(key, entry["value"])
    return {"description": entry["why"], "$ref": f"#/definitions/settings/definitions/{kind}"}
