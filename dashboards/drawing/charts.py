"""Draw series over time."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from drawing.answers import Json, Series, Span
from drawing.card import CARD, EDGE, INK, SOFT, Card, properties, readable, said
from drawing.units import written


def chart(card: Card) -> None:
    axes, one, wide, high, span = card.axes, card.one, card.wide, card.high, card.span
    defaults = one.panel["fieldConfig"]["defaults"]
    custom = defaults["custom"]
    drawn_lines, right = [], None
    styles = [_style(one.panel, target["refId"]) for target in one.panel["targets"]]
    has_right = any(
        style.get("custom.axisPlacement") == "right" for style, found in zip(styles, one.answers, strict=True) if found
    )
    names = sorted({series.name for found in one.answers for series in found})
    rows = _legend_rows(names, wide)
    bottom, top = 26 + 15 * rows, 26
    plot = axes.inset_axes(
        (58 / wide, bottom / high, (wide - 58 - (58 if has_right else 14)) / wide, (high - bottom - top) / high)
    )
    plot.set(xlim=(span.start, span.end), facecolor=CARD)
    if custom["scaleDistribution"]["type"] == "log":
        plot.set_yscale("log")
    if not names:
        plot.text(
            0.5, 0.5, defaults["noValue"], fontsize=11, color=SOFT, ha="center", va="center", transform=plot.transAxes
        )
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
    for _, colour, starts in card.annotations:
        for at in starts:
            plot.axvline(at, color=colour, lw=1, ls=(0, (2, 2)))
    if drawn_lines:
        axes.legend(
            handles=drawn_lines, loc="lower left", fontsize=7.5, frameon=False, ncols=max(1, -(-len(drawn_lines) // rows)),
            handlelength=1.6, columnspacing=1.2, borderaxespad=0.2, labelcolor=INK,
        )  # fmt: skip


def timeline(card: Card) -> None:
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


def _style(panel: Json, ref: str) -> dict[str, Any]:
    found = {"color": panel["fieldConfig"]["defaults"]["color"]}
    for over in panel["fieldConfig"]["overrides"]:
        if over["matcher"] == {"id": "byFrameRefID", "options": ref}:
            found.update(properties(over))
    return found


def _shade(colour: Mapping[str, str], position: int, count: int) -> str:
    if colour["mode"] != "shades" or count < 2:
        return colour["fixedColor"]
    towards = 0.55 * position / (count - 1)
    return colors.to_hex([(1 - towards) * part + towards for part in colors.to_rgb(colour["fixedColor"])])


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
        times, lows, highs = (list(part) for part in zip(*both, strict=True))
        plot.fill_between(times, lows, highs, color=colour, alpha=0.25, lw=0)


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
