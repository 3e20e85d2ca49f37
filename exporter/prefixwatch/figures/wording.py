"""Figures in a person's words."""

from prefixwatch.figures.figure import Absent, Estimate


def percent(value: float | Absent) -> str:
    """Return 0.768 as "76.8 %", an absent one as a dash."""
    return "-" if isinstance(value, Absent) else f"{value * 100:.1f} %"


def span(estimate: Estimate) -> str:
    """Return the bounds of a share as "55.0 to 60.3 %": as exact as the estimate between them is written."""
    if estimate.method == "exact":
        return "exact"
    return f"{estimate.lower * 100:.1f} to {estimate.upper * 100:.1f} %"


def duration(seconds: float) -> str:
    """Return seconds as a person would say them."""
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def harmless(text: str) -> str:
    """Return text with what a terminal would act on written out: control and direction characters, lone surrogates."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
