"""What a figure can be: a number, an estimate with its bounds, or absent for a reason."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Absent:
    """No value, and why. Never a zero."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure that the counters do not state exactly: the truth lies in [lower, upper].

    `method` says how it was come by: "exact", "pooled", "bounds_only"; None where there is one way.
    """

    estimate: float
    lower: float
    upper: float
    method: str | None = None


def ratio(part: float | Absent, whole: float | Absent, *, when_zero: str) -> float | Absent:
    """Return part / whole; `when_zero` is the reason where there is nothing to divide by."""
    if isinstance(part, Absent):
        return part
    if isinstance(whole, Absent):
        return whole
    return part / whole if whole > 0 else Absent(when_zero)
