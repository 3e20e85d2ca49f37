"""A panel's place on the picture, and how values are shown in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import colors
from matplotlib.axes import Axes

from drawing.answers import Answered, Json, Span

PAPER, CARD, INK, SOFT, EDGE = "#f4f5f5", "#ffffff", "#24292e", "#6e7780", "#dfe2e5"

Annotations = Sequence[tuple[str, str, list[float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A panel to draw: its axes are `wide` by `high` pixels, from the upper left."""

    axes: Axes
    one: Answered
    wide: int
    high: int
    span: Span
    annotations: Annotations


def said(value: float, defaults: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return a value's word, None without one, and its colour."""
    for mapping in defaults.get("mappings", ()):
        if (found := mapping["options"].get(f"{value:g}")) is not None:
            return found["text"], found["color"]
    if defaults["color"].get("mode") == "fixed":
        return None, defaults["color"]["fixedColor"]
    steps = defaults.get("thresholds", {}).get("steps", ())
    reached = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
    return None, reached[-1] if reached else SOFT


def properties(over: Json) -> dict[str, Any]:
    """Return what an override sets."""
    return {one["id"]: one["value"] for one in over["properties"]}


def readable(colour: str) -> str:
    """Return the colour of text on a colour."""
    red, green, blue = colors.to_rgb(colour)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else "#ffffff"
