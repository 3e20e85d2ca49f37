"""What a setting may be: said once, for alerts/render.py and for the chart's schema."""

import math
import re
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]
_SPAN = "^" + "".join(f"([0-9]+{unit})?" for unit in "wdhms") + "$"
_RATIOS = {"ceiling", "confidence", "deviation", "gap", "ratio", "share", "usage"}
"""A number whose key has one of these words is a part of a whole."""
_MAY_BE_ZERO = {"flap", "for"}
_LINKS = {"runbooks", "dashboards"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of values: what it is in `words`, and as a JSON Schema."""

    words: str
    schema: Schema


KINDS = {
    "duration": Kind(
        words='a duration above 0, like "10m" or "1h30m"',
        schema={"type": "string", "allOf": [{"pattern": _SPAN}, {"pattern": "[1-9]"}]},
    ),
    "hold": Kind(words='a duration, like "10m" or "0s"', schema={"type": "string", "minLength": 2, "pattern": _SPAN}),
    "ratio": Kind(words="a number from 0 to 1", schema={"type": "number", "minimum": 0, "maximum": 1}),
    "amount": Kind(words="a number from 0 on", schema={"type": "number", "minimum": 0}),
    # In an annotation, which is a template: no braces.
    "link": Kind(
        words="an address without spaces, quotes and braces",
        schema={"type": "string", "pattern": r'^[^\s"`\\<>{}$]*$'},
    ),
    # Between PromQL's quotes.
    "label": Kind(
        words='a word of letters, digits and " ._:/-"', schema={"type": "string", "pattern": "^[A-Za-z0-9 ._:/-]+$"}
    ),
    "names": Kind(
        words="a list of names, none of them twice",
        schema={"type": "array", "uniqueItems": True, "items": {"type": "string", "pattern": r"^[^\x00-\x1f]+$"}},
    ),
}


def kind_of(key: str, default: object) -> str:
    """Return the kind of a setting by its key and its value in config.yaml."""
    match default:
        case _ if key in _LINKS:
            return "link"
        case list():
            return "names"
        case str() if default[:1].isdigit():
            return "hold" if key in _MAY_BE_ZERO else "duration"
        case str():
            return "label"
        case _:
            return "ratio" if _RATIOS & set(key.split("_")) else "amount"


def fits(value: object, schema: Schema) -> bool:
    """Whether a value is what a schema of `KINDS` allows; the schemas use no more of JSON Schema than this."""
    match schema["type"]:
        case "string":
            # For Python, not for JSON Schema, `$` matches before a last newline too.
            return (
                isinstance(value, str)
                and not value.endswith("\n")
                and len(value) >= schema.get("minLength", 0)
                and all(re.search(part["pattern"], value) for part in schema.get("allOf", [schema]))
            )
        case "array":
            return (
                isinstance(value, list)
                and all(fits(one, schema["items"]) for one in value)
                and len(set(value)) == len(value)
            )
        case _:
            return (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and math.isfinite(value)
                and schema["minimum"] <= value <= schema.get("maximum", math.inf)
            )
