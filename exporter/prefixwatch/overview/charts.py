"""Small drawings as inline SVG. Each has its words in a text alternative; colours come from the style sheet."""

import itertools
from collections.abc import Iterator, Sequence

from prefixwatch.figures.figure import Estimate
from prefixwatch.figures.wording import percent
from prefixwatch.overview.markup import Content, Markup, tag

WIDTH, HEIGHT = 400.0, 100.0
_BAR_WIDTH, _BAR_HEIGHT = 100.0, 8.0


def sparkline(values: Sequence[float | None], *, label: str, ceiling: Estimate | None = None) -> Markup:
    """Draw ratios over time on a scale from 0 to 1, oldest first. None is a gap, never a zero."""
    step = WIDTH / max(1, len(values))
    points = [None if v is None else (step * (i + 0.5), _down(v)) for i, v in enumerate(values)]
    runs = [list(run) for known, run in itertools.groupby(points, key=lambda point: point is not None) if known]
    lines = [[point for point in run if point] for run in runs]
    # A line of no length, with round ends, is a dot: how a step between two gaps is seen.
    line = "".join(f"M{_path(run)}" + ("h0.01" if len(run) == 1 else "") for run in lines)
    area = "".join(f"M{run[0][0]:.1f} {HEIGHT:g}L{_path(run)}V{HEIGHT:g}Z" for run in lines if len(run) > 1)
    return _svg(
        WIDTH,
        HEIGHT,
        f"{label}: {_in_words(values)}",
        tag("path", class_="grid", d=f"M0 {HEIGHT / 2:g}H{WIDTH:g}"),
        _limit(ceiling) if ceiling else None,
        tag("path", class_="area", d=area) if area else None,
        tag("path", class_="line", d=line) if line else None,
        class_="spark",
    )


def bar(value: float, *, label: str, lower: float | None = None, upper: float | None = None) -> Markup:
    """Draw a share as a filled bar, and its bounds as a band with a mark at the estimate."""
    end = _clamped(value) * _BAR_WIDTH
    first, last = (_clamped(edge if edge is not None else value) * _BAR_WIDTH for edge in (lower, upper))
    is_exact = last - first < 0.5
    return _svg(
        _BAR_WIDTH,
        _BAR_HEIGHT,
        label,
        tag("rect", class_="fill", width=round(end if is_exact else first, 2), height=_BAR_HEIGHT),
        None if is_exact else tag("rect", class_="band", x=first, width=last - first, height=_BAR_HEIGHT),
        None if is_exact else tag("path", class_="mark", d=f"M{end:.2f} 0V{_BAR_HEIGHT:g}"),
        class_="bar",
    )


def stack(parts: Sequence[float], *, label: str) -> Markup:
    """Draw parts of a whole side by side, in their order."""
    whole = sum(parts)
    edges = itertools.accumulate(parts, initial=0.0)
    return _svg(
        _BAR_WIDTH,
        _BAR_HEIGHT,
        label,
        *(
            tag(
                "rect",
                class_=f"part{i}",
                x=_BAR_WIDTH * start / whole,
                width=_BAR_WIDTH * part / whole,
                height=_BAR_HEIGHT,
            )
            for i, (start, part) in enumerate(zip(edges, parts, strict=False))
            if part > 0
        ),
        class_="bar",
    )


def _svg(width: float, height: float, label: str, *content: Content, class_: str) -> Markup:
    return tag(
        "svg", *content, class_=class_, viewBox=f"0 0 {width:g} {height:g}", preserveAspectRatio="none",
        role="img", aria_label=label,
    )  # fmt: skip


def _limit(ceiling: Estimate) -> Iterator[Markup]:
    top, bottom = _down(ceiling.upper), _down(ceiling.lower)
    yield tag("rect", class_="between", y=top, width=WIDTH, height=bottom - top)
    yield tag("path", class_="limit", d=f"M0 {_down(ceiling.estimate):.1f}H{WIDTH:g}")


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _in_words(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "nothing known"
    gaps = len(values) - len(known)
    unknown = f"; unknown in {gaps} of {len(values)} steps" if gaps else ""
    return f"between {percent(min(known))} and {percent(max(known))}, last {percent(known[-1])}{unknown}"


def _down(ratio: float) -> float:
    return (1 - _clamped(ratio)) * HEIGHT


def _clamped(ratio: float) -> float:
    return min(1.0, max(0.0, ratio))
