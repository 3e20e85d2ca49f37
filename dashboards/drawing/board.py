"""Draw a board: panels where Grafana would put them. A preview, and it says so."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from PIL import Image

from drawing.answers import Answered, Json, Series, Span
from drawing.units import written

mpl.use("Agg")

DPI = 100
UNIT_WIDTH, UNIT_HEIGHT, GAP, HEAD = 66, 38, 8, 46
"""Pixels: of one unit of the grid, between panels, above all."""
PAPER, CARD, INK, SOFT, EDGE = "#f4f5f5", "#ffffff", "#24292e", "#6e7780", "#dfe2e5"
NOTE = "preview drawn by prefixwatch from the panels' queries; Grafana looks different"

Annotations = Sequence[tuple[str, str, list[float]]]


def drawn(board: Json, panels: Iterable[Answered], span: Span, annotations: Annotations, note: str = "") -> Figure:
    """Return the picture of a board."""
    placed = list(panels)
    rows = max(one.y + one.h for one in placed)
    width, height = 24 * UNIT_WIDTH + GAP, rows * UNIT_HEIGHT + HEAD + GAP
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAPER)
    until = datetime.fromtimestamp(span.end, UTC)
    figure.text(GAP / width, 1 - 18 / height, f"{board['title']}    {note}", fontsize=14, color=INK, va="center", weight="bold")
    figure.text(
        1 - GAP / width, 1 - 18 / height, f"{NOTE}; {(span.end - span.start) / 60:.0f} min to {until:%H:%M} UTC",
        fontsize=9, color=SOFT, va="center", ha="right",
    )  # fmt: skip
    for one in placed:
        left, top = one.x * UNIT_WIDTH + GAP, one.y * UNIT_HEIGHT + HEAD
        wide, high = one.w * UNIT_WIDTH - GAP, one.h * UNIT_HEIGHT - GAP
        card = figure.add_axes((left / width, 1 - (top + high) / height, wide / width, high / height))
        _card(card, one, wide, high)
        _DRAWN[one.kind](card, one, wide, high, span, annotations)
    return figure


def saved(figure: Figure, file: Path) -> int:
    """Write a PNG of few colours; return its size in bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)
    return file.stat().st_size


def _card(axes: Axes, one: Answered, wide: int, high: int) -> None:
    axes.set(xlim=(0, wide), ylim=(high, 0), xticks=[], yticks=[], facecolor=PAPER if one.kind == "row" else CARD)
    for spine in axes.spines.values():
        spine.set(color=EDGE, visible=one.kind != "row")
    if one.kind != "row":
        axes.text(8, 12, one.title, fontsize=9, color=INK, va="center", weight="bold", clip_on=True)


def _row(axes: Axes, one: Answered, wide: int, high: int, span: Span, annotations: Annotations) -> None:
    axes.text(2, high / 2 + 2, f"▾ {one.title}", fontsize=11, color=INK, va="center")


def _text(axes: Axes, one: Answered, wide: int, high: int, span: Span, annotations: Annotations) -> None:
    content = one.panel["options"]["content"].replace("**", "").replace("`", "")
    lines = [line for part in content.split("\n") for line in textwrap.wrap(part, int(wide / 7.6)) or [""]]
    axes.text(10, 26, "\n".join(lines), fontsize=9, color=INK, va="top", linespacing=1.35)


def _stat(axes: Axes, one: Answered, wide: int, high: int, span: Span, annotations: Annotations) -> None:
    defaults = one.panel["fieldConfig"]["defaults"]
    series = one.answers[0]
    if not series:
        size = 14 if len(defaults["noValue"]) < 14 else 10
        axes.text(wide / 2, high / 2 + 8, "\n".join(textwrap.wrap(defaults["noValue"], max(8, int(wide / 8)))), fontsize=size, color=SOFT, va="center", ha="center")
        return
    value = series[0].points[-1][1]
    text, colour = _said(value, defaults)
    if text is None:
        text = written(value, defaults["unit"], now=span.end, decimals=defaults.get("decimals"))
    is_block = one.panel["options"]["colorMode"] == "background"
    if colour == "transparent":
        colour = SOFT
    elif is_block:
        axes.set_facecolor(colour)
        colour = _readable(colour)
        axes.texts[0].set_color(colour)
    axes.text(wide / 2, high / 2 + 10, text, fontsize=min(26, 1.1 * (wide - 20) / max(len(text), 5)), color=colour, va="center", ha="center")


def _chart(axes: Axes, one: Answered, wide: int, high: int, span: Span, annotations: Annotations) -> None:
    defaults = one.panel["fieldConfig"]["defaults"]
    custom = defaults["custom"]
    drawn_lines, right = [], None
    styles = [_style(one.panel, target["refId"]) for target in one.panel["targets"]]
    has_right = any(style.get("custom.axisPlacement") == "right" for style, found in zip(styles, one.answers, strict=True) if found)
    names = sorted({series.name for found in one.answers for series in found})
    rows = _legend_rows(names, wide)
    bottom, top = 26 + 15 * rows, 26
    plot = axes.inset_axes((58 / wide, bottom / high, (wide - 58 - (58 if has_right else 14)) / wide, (high - bottom - top) / high))
    plot.set(xlim=(span.start, span.end), facecolor=CARD)
    if custom["scaleDistribution"]["type"] == "log":
        plot.set_yscale("log")
    if not names:
        plot.text(0.5, 0.5, defaults["noValue"], fontsize=11, color=SOFT, ha="center", va="center", transform=plot.transAxes)
        plot.set_axis_off()
        return
    base: dict[float, float] = {}
    by_name: dict[str, Series] = {}
    for style, found in zip(styles, one.answers, strict=True):
        where = plot
        if style.get("custom.axisPlacement") == "right" and found:
            if right is None:
                right = plot.twinx()
                right.patch.set_visible(False)
            where = right
        for position, series in enumerate(found):
            colour = _shade(style["color"], position, len(found))
            dashes = style.get("custom.lineStyle", {}).get("dash")
            points = _with_gaps(series.points, span.step)
            if custom["stacking"]["mode"] == "normal":
                low = [base.get(t, 0.0) for t, _ in points]
                up = [floor + value for floor, (_, value) in zip(low, points, strict=True)]
                base.update(zip((t for t, _ in points), up, strict=True))
                where.fill_between([t for t, _ in points], low, up, color=colour, alpha=0.45, lw=0)
                points = list(zip((t for t, _ in points), up, strict=True))
            (line,) = where.plot(
                *zip(*points, strict=True), color=colour, lw=0.7 * style.get("custom.lineWidth", 2),
                ls=(0, [d / 2.5 for d in dashes]) if dashes else "-", label=series.name,
            )  # fmt: skip
            drawn_lines.append(line)
            by_name[series.name] = series
            if (below := style.get("custom.fillBelowTo")) in by_name:
                _band(plot, by_name[below], series, colour)
    _axis(plot, defaults["unit"], defaults.get("max"), is_log=custom["scaleDistribution"]["type"] == "log")
    if right is not None:
        style = next(style for style in styles if style.get("custom.axisPlacement") == "right")
        _axis(right, style.get("unit", defaults["unit"]), style.get("max"), is_log=False)
        right.grid(visible=False)
    _times(plot, span)
    for _, colour, starts in annotations:
        for at in starts:
            plot.axvline(at, color=colour, lw=1, ls=(0, (2, 2)))
    if drawn_lines:
        axes.legend(
            handles=drawn_lines, loc="lower left", fontsize=7.5, frameon=False, ncols=max(1, -(-len(drawn_lines) // rows)),
            handlelength=1.6, columnspacing=1.2, borderaxespad=0.2, labelcolor=INK,
        )  # fmt: skip


def _timeline(axes: Axes, one: Answered, wide: int, high: int, span: Span, annotations: Annotations) -> None:
    defaults = one.panel["fieldConfig"]["defaults"]
    found = one.answers[0]
    if not found:
        axes.text(wide / 2, high / 2, defaults["noValue"], fontsize=12, color=SOFT, ha="center", va="center")
        return
    longest = max(len(series.name) for series in found)
    left = 14 + 6.2 * longest
    plot = axes.inset_axes((left / wide, 26 / high, (wide - left - 14) / wide, (high - 54) / high))
    plot.set(xlim=(span.start, span.end), ylim=(len(found) - 0.5, -0.5), yticks=range(len(found)))
    plot.set_yticklabels([series.name for series in found], fontsize=8, color=INK)
    for row, series in enumerate(found):
        for start, end, value in _stretches(series.points, span.step):
            text, colour = _said(value, defaults)
            plot.broken_barh([(start, end - start)], (row - 0.4, 0.8), color=colour)
            if text and (end - start) / (span.end - span.start) * wide > 6.5 * len(text):
                plot.text((start + end) / 2, row, text, fontsize=8.5, color=_readable(colour), ha="center", va="center")
    _times(plot, span)
    plot.tick_params(axis="y", length=0)
    for spine in plot.spines.values():
        spine.set_visible(False)


def _table(axes: Axes, one: Answered, wide: int, high: int, span: Span, annotations: Annotations) -> None:
    defaults = one.panel["fieldConfig"]["defaults"]
    columns, rows = tabulated(one)
    if not rows:
        axes.text(wide / 2, high / 2, defaults["noValue"], fontsize=12, color=SOFT, ha="center", va="center")
        return
    styles = {over["matcher"]["options"]: _properties(over) for over in one.panel["fieldConfig"]["overrides"]}
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
            axes.text(left, y, text, fontsize=size, color=_readable(colour) if is_block else colour, va="center", clip_on=True)


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
    text, colour = _said(value, {"mappings": style.get("mappings", ()), "color": {}})
    if text is not None:
        return text, colour, True
    fixed = style.get("color", {}).get("fixedColor", INK)
    return written(value, style.get("unit", "none"), now=span.end, decimals=style.get("decimals")), fixed, False


def _said(value: float, defaults: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return a value's word, None without one, and its colour."""
    for mapping in defaults.get("mappings", ()):
        if (found := mapping["options"].get(f"{value:g}")) is not None:
            return found["text"], found["color"]
    if defaults["color"].get("mode") == "fixed":
        return None, defaults["color"]["fixedColor"]
    steps = defaults.get("thresholds", {}).get("steps", ())
    reached = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
    return None, reached[-1] if reached else SOFT


def _style(panel: Json, ref: str) -> dict[str, Any]:
    found = {"color": panel["fieldConfig"]["defaults"]["color"]}
    for over in panel["fieldConfig"]["overrides"]:
        if over["matcher"] == {"id": "byFrameRefID", "options": ref}:
            found.update(_properties(over))
    return found


def _properties(over: Json) -> dict[str, Any]:
    return {one["id"]: one["value"] for one in over["properties"]}


def _shade(colour: Mapping[str, str], position: int, count: int) -> str:
    if colour["mode"] != "shades" or count < 2:
        return colour["fixedColor"]
    towards = 0.55 * position / (count - 1)
    return colors.to_hex([(1 - towards) * part + towards for part in colors.to_rgb(colour["fixedColor"])])


def _readable(colour: str) -> str:
    red, green, blue = colors.to_rgb(colour)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else "#ffffff"


def _with_gaps(points: Sequence[tuple[float, float]], step: float) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for at, value in points:
        if found and at - found[-1][0] > 1.5 * step:
            found.append((at - step, float("nan")))
        found.append((at, value))
    return found


def _stretches(points: Sequence[tuple[float, float]], step: float) -> list[tuple[float, float, float]]:
    found: list[tuple[float, float, float]] = []
    for at, value in points:
        if found and found[-1][2] == value and at - found[-1][1] <= 0.6 * step:
            found[-1] = (found[-1][0], at + step, value)
        else:
            found.append((at, at + step, value))
    return found


def _band(plot: Axes, low: Series, high: Series, colour: str) -> None:
    under = dict(low.points)
    both = [(t, under[t], value) for t, value in high.points if t in under]
    if both:
        plot.fill_between(*zip(*both, strict=True), color=colour, alpha=0.25, lw=0)


def _legend_rows(names: Sequence[str], wide: int) -> int:
    return max(1, min(4, -(-int(sum(6 * len(name) + 40 for name in names)) // max(1, wide - 20))))


def _axis(plot: Axes, unit: str, highest: float | None, *, is_log: bool) -> None:
    decimals = 0 if highest or plot.get_ylim()[1] > 0.1 else 1
    plot.yaxis.set_major_formatter(FuncFormatter(lambda value, _: written(value, unit, decimals=decimals)))
    plot.yaxis.set_minor_formatter(NullFormatter())
    plot.grid(axis="y", color=EDGE, lw=0.7)
    plot.set_axisbelow(True)
    plot.tick_params(labelsize=7.5, colors=SOFT, length=0, which="both")
    for spine in plot.spines.values():
        spine.set_visible(False)
    if not is_log:
        plot.set_ylim(0, (highest or max(plot.get_ylim()[1], 1e-9)) * (1.02 if highest else 1.1))


def _times(plot: Axes, span: Span) -> None:
    plot.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{datetime.fromtimestamp(value, UTC):%H:%M}"))
    count = 6
    plot.set_xticks([span.start + (span.end - span.start) * i / count for i in range(1, count)])
    plot.tick_params(axis="x", labelsize=7.5, colors=SOFT, length=0)


_DRAWN = {"row": _row, "text": _text, "stat": _stat, "timeseries": _chart, "state-timeline": _timeline, "table": _table}
