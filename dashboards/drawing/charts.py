"""Draw series over time."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from drawing.answers import Json, Series, Span
from drawing.card import CARD, EDGE, INK, SOFT, Card, properties, readable, said
from drawing.units import written

Style = dict[str, Any]
"""What a query's override sets, and its colour."""


def chart(card: Card) -> None:
    """Draw lines over time, stacked or not, a second axis on the right where a line wants one."""
    defaults = card.one.panel["fieldConfig"]["defaults"]
    styles = [_style(card.one.panel, target["refId"]) for target in card.one.panel["targets"]]
    drawn = [(style, found) for style, found in zip(styles, card.one.answers, strict=True) if found]
    if not drawn:
        card.axes.text(
            card.wide / 2, card.high / 2, defaults["noValue"], fontsize=11, color=SOFT, ha="center", va="center"
        )
        return
    has_right = any(_is_right(style) for style, _ in drawn)
    names = sorted({series.name for _, found in drawn for series in found})
    rows = max(1, min(4, -(-int(sum(6 * len(name) + 40 for name in names)) // max(1, card.wide - 20))))
    left, right, bottom, top = 58, 58 if has_right else 14, 26 + 15 * rows, 26
    plot = card.axes.inset_axes(
        (
            left / card.wide,
            bottom / card.high,
            (card.wide - left - right) / card.wide,
            (card.high - bottom - top) / card.high,
        )
    )
    plot.set(xlim=(card.span.start, card.span.end), facecolor=CARD)
    is_log = defaults["custom"]["scaleDistribution"]["type"] == "log"
    if is_log:
        plot.set_yscale("log")
    other = plot.twinx() if has_right else plot
    lines = _lines(plot, other, drawn, card.span.step, is_stacked=defaults["custom"]["stacking"]["mode"] == "normal")
    _axis(plot, defaults["unit"], defaults.get("max"), is_log=is_log)
    if has_right:
        style = next(style for style, _ in drawn if _is_right(style))
        other.patch.set_visible(False)
        _axis(other, style.get("unit", defaults["unit"]), style.get("max"), is_log=False)
        other.grid(visible=False)
    _times(plot, card.span)
    for _, colour, starts in card.annotations:
        for at in starts:
            plot.axvline(at, color=colour, lw=1, ls=(0, (2, 2)))
    card.axes.legend(
        handles=lines, loc="lower left", fontsize=7.5, frameon=False, ncols=max(1, -(-len(lines) // rows)),
        handlelength=1.6, columnspacing=1.2, borderaxespad=0.2, labelcolor=INK,
    )  # fmt: skip


def _lines(
    plot: Axes, other: Axes, drawn: Sequence[tuple[Style, Sequence[Series]]], step: float, *, is_stacked: bool
) -> list[Line2D]:
    """Draw the series, each query in its style; return their lines."""
    lines: list[Line2D] = []
    base: dict[float, float] = {}
    by_name: dict[str, Series] = {}
    for style, found in drawn:
        where = other if _is_right(style) else plot
        for position, series in enumerate(found):
            colour = _shade(style["color"], position, len(found))
            times, values = _with_gaps(series.points, step)
            if is_stacked:
                floor = [base.get(at, 0.0) for at in times]
                values = [low + value for low, value in zip(floor, values, strict=True)]
                base.update(zip(times, values, strict=True))
                where.fill_between(times, floor, values, color=colour, alpha=0.45, lw=0)
            dashes = [dash / 2.5 for dash in style.get("custom.lineStyle", {}).get("dash", ())]
            width = 0.7 * style.get("custom.lineWidth", 2)
            lines += where.plot(
                times, values, color=colour, lw=width, ls=(0, dashes) if dashes else "-", label=series.name
            )
            by_name[series.name] = series
            if (below := style.get("custom.fillBelowTo")) in by_name:
                _band(plot, by_name[below], series, colour)
    return lines


def timeline(card: Card) -> None:
    """Draw states over time, a row per series, their words where they fit."""
    axes, one, wide, high, span = card.axes, card.one, card.wide, card.high, card.span
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
            text, colour = said(value, defaults)
            plot.broken_barh([(start, end - start)], (row - 0.4, 0.8), color=colour)
            if text and (end - start) / (span.end - span.start) * wide > 6.5 * len(text):
                plot.text((start + end) / 2, row, text, fontsize=8.5, color=readable(colour), ha="center", va="center")
    _times(plot, span)
    plot.tick_params(axis="y", length=0)
    for spine in plot.spines.values():
        spine.set_visible(False)


def _style(panel: Json, ref: str) -> Style:
    found = {"color": panel["fieldConfig"]["defaults"]["color"]}
    for over in panel["fieldConfig"]["overrides"]:
        if over["matcher"] == {"id": "byFrameRefID", "options": ref}:
            found.update(properties(over))
    return found


def _shade(colour: Mapping[str, str], position: int, count: int) -> str:
    if colour["mode"] != "shades" or count < 2:
        return colour["fixedColor"]
    towards = 0.55 * position / (count - 1)
    red, green, blue = ((1 - towards) * part + towards for part in colors.to_rgb(colour["fixedColor"]))
    return colors.to_hex((red, green, blue))


def _is_right(style: Style) -> bool:
    return bool(style.get("custom.axisPlacement") == "right")


def _with_gaps(points: Sequence[tuple[float, float]], step: float) -> tuple[list[float], list[float]]:
    """Return times and values, with nothing where a step was left out."""
    times, values = list[float](), list[float]()
    for at, value in points:
        if times and at - times[-1] > 1.5 * step:
            times.append(at - step)
            values.append(float("nan"))
        times.append(at)
        values.append(value)
    return times, values


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
        times, lows, highs = (list(part) for part in zip(*both, strict=True))
        plot.fill_between(times, lows, highs, color=colour, alpha=0.25, lw=0)


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
