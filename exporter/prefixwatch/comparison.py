"""Before and after: every figure of two windows side by side, and whether the difference is one.

A figure moves by itself. How much is seen by cutting each window into ten steps: the standard error
of the window's figure is that of the mean of its steps (batch means, which hold where requests in a
row resemble each other). A difference counts as a change from five standard errors on, since many
figures are compared at once and ten steps tell an error only roughly, and from a size on that
matters: two points of a ratio, a tenth of anything else. A peak is no mean of its steps, so peaks
are shown and not judged.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from prefixwatch.diagnosis import Diagnosis
from prefixwatch.figures.engine import WindowFigures
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.snapshot import EngineFigures
from prefixwatch.targetwatch import TargetWatch

STEPS = 10
MIN_STEPS = 4
STANDARD_ERRORS = 5.0
MIN_POINTS = 0.02
MIN_SHARE = 0.1

_Value = Callable[[WindowFigures], float | Estimate | Absent]

_RATIOS: dict[str, _Value] = {
    "token_hit_ratio": lambda f: f.token_hit_ratio,
    "external_hit_ratio": lambda f: f.external_hit_ratio,
    "cached_prompt_ratio": lambda f: f.cached_prompt_ratio,
    "hit_ratio_ceiling": lambda f: f.hit_ratio_ceiling,
    "request_hit_ratio": lambda f: f.request_hit_ratio,
    "mostly_cached_request_ratio": lambda f: f.mostly_cached_request_ratio,
    "full_request_ratio": lambda f: f.full_request_ratio,
    "cold_request_ratio": lambda f: f.cold_request_ratio,
    "hit_ratio_gap": lambda f: f.hit_ratio_gap,
    "prefill_share": lambda f: f.prefill_share,
}
_PEAKS: dict[str, _Value] = {"kv_usage_max": lambda f: f.kv_usage_max}
_AMOUNTS: dict[str, _Value] = {
    "requests_per_second": lambda f: _rate(f.requests, f),
    "preemptions_per_second": lambda f: _rate(f.preemptions, f),
    "prompt_tokens_per_request": lambda f: f.prompt_tokens_per_request,
    "output_per_prompt_token": lambda f: f.output_per_prompt_token,
    "turnover_seconds": lambda f: f.turnover_seconds,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One figure before and after. `standard_error` is the difference's own, None where too little says it.

    `is_change`: whether it is more than the traffic's own variation, None where that is not known.
    """

    before: float | Absent
    after: float | Absent
    standard_error: float | None
    is_change: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An engine before and after: its figures by name, and what they point to."""

    model_name: str
    engine: str
    differences: dict[str, Difference]
    before: EngineFigures
    after: EngineFigures

    @property
    def changes(self) -> list[str]:
        """The names of the figures that changed."""
        return [name for name, difference in self.differences.items() if difference.is_change]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; absent values are null, their reasons stand beside them."""
        figures: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        for name, one in self.differences.items():
            sides = {"before": one.before, "after": one.after}
            values = {side: None if isinstance(value, Absent) else value for side, value in sides.items()}
            reasons |= {f"{name}.{side}": v.reason for side, v in sides.items() if isinstance(v, Absent)}
            is_whole = values["before"] is not None and values["after"] is not None
            figures[name] = {
                **values,
                "difference": values["after"] - values["before"] if is_whole else None,  # type: ignore[operator]
                "standard_error": one.standard_error,
                "changed": one.is_change,
            }
        return {
            "model_name": self.model_name,
            "engine": self.engine,
            "changes": self.changes,
            "figures": figures,
            "reasons": reasons,
            "diagnosis": {"before": _cause(self.before), "after": _cause(self.after)},
        }


def compared(before: TargetWatch, after: TargetWatch, *, after_seconds: float | None = None) -> list[Comparison]:
    """Compare each engine that both watched; one engine a side is one pair, whatever it is called.

    `after_seconds`: only the last so many of `after`.
    """
    keys = [(key, key) for key in sorted(before.engines) if key in after.engines]
    if not keys and len(before.engines) == len(after.engines) == 1:
        keys = [(next(iter(before.engines)), next(iter(after.engines)))]
    return [_compared(before, after, old, new, after_seconds) for old, new in keys]


def _compared(
    before: TargetWatch, after: TargetWatch, old: tuple[str, str], new: tuple[str, str], seconds: float | None
) -> Comparison:
    sides = []
    for watch, key, span in ((before, old, None), (after, new, seconds)):
        engine, era = watch.engines[key], watch.era
        sides.append((engine.state((span,), era).figures(span), engine.steps(span, STEPS, era)))
    (old_figures, old_steps), (new_figures, new_steps) = sides
    differences = {
        name: _difference(value, old_figures, new_figures, old_steps, new_steps, is_ratio=name in _RATIOS)
        for name, value in (_RATIOS | _AMOUNTS).items()
    }
    for name, value in _PEAKS.items():
        old_peak, new_peak = _plain(value(old_figures)), _plain(value(new_figures))
        differences[name] = Difference(before=old_peak, after=new_peak, standard_error=None, is_change=None)
    return Comparison(model_name=new[0], engine=new[1], differences=differences, before=old_figures, after=new_figures)


def _difference(
    value: _Value,
    before: WindowFigures,
    after: WindowFigures,
    old_steps: Sequence[WindowFigures],
    new_steps: Sequence[WindowFigures],
    *,
    is_ratio: bool,
) -> Difference:
    old, new = _plain(value(before)), _plain(value(after))
    errors = [_standard_error([_plain(value(step)) for step in steps]) for steps in (old_steps, new_steps)]
    if isinstance(old, Absent) or isinstance(new, Absent) or None in errors:
        is_change = None if isinstance(old, Absent) == isinstance(new, Absent) else True
        return Difference(before=old, after=new, standard_error=None, is_change=is_change)
    error = math.hypot(*(part for part in errors if part is not None))
    matters = MIN_POINTS if is_ratio else MIN_SHARE * max(abs(old), abs(new))
    distance = abs(new - old)
    return Difference(
        before=old,
        after=new,
        standard_error=error,
        is_change=distance >= matters and distance > STANDARD_ERRORS * error,
    )


def _standard_error(values: Sequence[float | Absent]) -> float | None:
    known = [value for value in values if not isinstance(value, Absent)]
    return statistics.stdev(known) / math.sqrt(len(known)) if len(known) >= MIN_STEPS else None


def _plain(value: float | Estimate | Absent) -> float | Absent:
    return value.estimate if isinstance(value, Estimate) else value


def _rate(count: float | Absent, figures: WindowFigures) -> float | Absent:
    seconds = figures.window_seconds
    if isinstance(count, Absent):
        return count
    return seconds if isinstance(seconds, Absent) else count / seconds


def _cause(figures: EngineFigures) -> str | None:
    return figures.diagnosis.cause if isinstance(figures.diagnosis, Diagnosis) else None
