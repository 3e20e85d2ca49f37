"""Draw a board: panels where Grafana would put them. A preview, and it says so."""

import textwrap
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from PIL import Image

from drawing.answers import Answered, Json, Span
from drawing.card import CARD, EDGE, INK, PAPER, SOFT, Annotations, Card, readable, said
from drawing.charts import chart, timeline
from drawing.tables import table
from drawing.units import written

mpl.use("Agg")

DPI = 100
UNIT_WIDTH, UNIT_HEIGHT, GAP, HEAD = 66, 38, 8, 46
"""Pixels: of one unit of the grid, between panels, above all."""
NOTE = "preview drawn by prefixwatch from the panels' queries; Grafana looks different"


def drawn(board: Json, panels: Iterable[Answered], span: Span, annotations: Annotations, note: str = "") -> Figure:
    """Return the picture of a board."""
    placed = list(panels)
    rows = max(one.y + one.h for one in placed)
    width, height = 24 * UNIT_WIDTH + GAP, rows * UNIT_HEIGHT + HEAD + GAP
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAPER)
    until = datetime.fromtimestamp(span.end, UTC)
    figure.text(
        GAP / width, 1 - 18 / height, f"{board['title']}    {note}", fontsize=14, color=INK, va="center", weight="bold"
    )
    figure.text(
        1 - GAP / width, 1 - 18 / height, f"{NOTE}; {(span.end - span.start) / 60:.0f} min to {until:%H:%M} UTC",
        fontsize=9, color=SOFT, va="center", ha="right",
    )  # fmt: skip
    for one in placed:
        left, top = one.x * UNIT_WIDTH + GAP, one.y * UNIT_HEIGHT + HEAD
        wide, high = one.w * UNIT_WIDTH - GAP, one.h * UNIT_HEIGHT - GAP
        axes = figure.add_axes((left / width, 1 - (top + high) / height, wide / width, high / height))
        card = Card(axes=axes, one=one, wide=wide, high=high, span=span, annotations=annotations)
        _framed(card)
        _DRAWN[one.kind](card)
    return figure


def saved(figure: Figure, file: Path) -> int:
    """Write a PNG of few colours; return its size in bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)
    return file.stat().st_size


def _framed(card: Card) -> None:
    axes, one, wide, high = card.axes, card.one, card.wide, card.high
    axes.set(xlim=(0, wide), ylim=(high, 0), xticks=[], yticks=[], facecolor=PAPER if one.kind == "row" else CARD)
    for spine in axes.spines.values():
        spine.set(color=EDGE, visible=one.kind != "row")
    if one.kind != "row":
        axes.text(8, 12, one.title, fontsize=9, color=INK, va="center", weight="bold", clip_on=True)


def _row(card: Card) -> None:
    card.axes.text(2, card.high / 2 + 2, f"▾ {card.one.title}", fontsize=11, color=INK, va="center")


def _text(card: Card) -> None:
    content = card.one.panel["options"]["content"].replace("**", "").replace("`", "")
    lines = [line for part in content.split("\n") for line in textwrap.wrap(part, int(card.wide / 7.6)) or [""]]
    card.axes.text(10, 26, "\n".join(lines), fontsize=9, color=INK, va="top", linespacing=1.35)


def _stat(card: Card) -> None:
    axes, one, wide, high, span = card.axes, card.one, card.wide, card.high, card.span
    defaults = one.panel["fieldConfig"]["defaults"]
    series = one.answers[0]
    if not series:
        size = 14 if len(defaults["noValue"]) < 14 else 10
        axes.text(
            wide / 2,
            high / 2 + 8,
            "\n".join(textwrap.wrap(defaults["noValue"], max(8, int(wide / 8)))),
            fontsize=size,
            color=SOFT,
            va="center",
            ha="center",
        )
        return
    value = series[0].points[-1][1]
    text, colour = said(value, defaults)
    if text is None:
        text = written(value, defaults["unit"], now=span.end, decimals=defaults.get("decimals"))
    is_block = one.panel["options"]["colorMode"] == "background"
    if colour == "transparent":
        colour = SOFT
    elif is_block:
        axes.set_facecolor(colour)
        colour = readable(colour)
        axes.texts[0].set_color(colour)
    axes.text(
        wide / 2,
        high / 2 + 10,
        text,
        fontsize=min(26, 1.1 * (wide - 20) / max(len(text), 5)),
        color=colour,
        va="center",
        ha="center",
    )


_DRAWN = {"row": _row, "text": _text, "stat": _stat, "timeseries": chart, "state-timeline": timeline, "table": table}
