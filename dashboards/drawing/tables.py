"""Draw tables, their queries merged as the panel says."""

from collections.abc import Mapping
from typing import Any

from drawing.answers import Answered, Span
from drawing.card import EDGE, INK, SOFT, Card, properties, readable, said
from drawing.units import written


def table(card: Card) -> None:
    """Draw a table: as many rows as there is room for."""
    axes, one, wide, high, span = card.axes, card.one, card.wide, card.high, card.span
    defaults = one.panel["fieldConfig"]["defaults"]
    columns, rows = tabulated(one)
    if not rows:
        axes.text(wide / 2, high / 2, defaults["noValue"], fontsize=12, color=SOFT, ha="center", va="center")
        return
    styles = {over["matcher"]["options"]: properties(over) for over in one.panel["fieldConfig"]["overrides"]}
    texts = [[_cell(row.get(column), styles.get(column, {}), span) for column in columns] for row in rows]
    sizes = [max(len(column), *(len(row[i][0]) for row in texts)) + 3 for i, column in enumerate(columns)]
    scale = (wide - 16) / sum(sizes)
    lefts = [8 + scale * sum(sizes[:i]) for i in range(len(columns))]
    size = min(9.0, 1.25 * scale)
    for column, left in zip(columns, lefts, strict=True):
        axes.text(left, 34, column, fontsize=size, color=SOFT, va="center", clip_on=True)
    for number, row in enumerate(texts):
        y = 56 + 22 * number
        if y > high - 8:
            break
        axes.axhline(y - 11, color=EDGE, lw=0.7)
        for (text, colour, is_block), left, width in zip(row, lefts, sizes, strict=True):
            if is_block:
                axes.fill_between([left - 4, left + scale * width - 8], y - 10, y + 10, color=colour, lw=0)
            axes.text(
                left, y, text, fontsize=size, color=readable(colour) if is_block else colour, va="center", clip_on=True
            )


def tabulated(one: Answered) -> tuple[list[str], list[dict[str, Any]]]:
    """Return a table's columns and rows, its queries merged and its columns renamed as the panel says."""
    organize = next(step["options"] for step in one.panel["transformations"] if step["id"] == "organize")
    names, order = organize["renameByName"], organize["indexByName"]
    merged: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for target, found in zip(one.panel["targets"], one.answers, strict=True):
        value = f"Value #{target['refId']}" if len(one.panel["targets"]) > 1 else "Value"
        for series in found:
            labels = {key: text for key, text in series.labels.items() if key in names}
            row = merged.setdefault(tuple(sorted(labels.items())), dict(labels))
            row[value] = series.points[-1][1]
    columns = [names[source] for source in sorted(order, key=order.__getitem__)]
    rows = [{names[source]: value for source, value in row.items() if source in names} for row in merged.values()]
    for by in one.panel["options"].get("sortBy", ()):
        rows.sort(key=lambda row: row.get(by["displayName"], float("-inf")), reverse=by["desc"])
    return columns, rows


def _cell(value: Any, style: Mapping[str, Any], span: Span) -> tuple[str, str, bool]:
    """Return (text, colour, whether the colour is behind it)."""
    if value is None:
        return "", INK, False
    if isinstance(value, str):
        return value, INK, False
    text, colour = said(value, {"mappings": style.get("mappings", ()), "color": {}})
    if text is not None:
        return text, colour, True
    fixed = style.get("color", {}).get("fixedColor", INK)
    return written(value, style.get("unit", "none"), now=span.end, decimals=style.get("decimals")), fixed, False
