"""The figures of one window in the words of the rules."""

from prefixwatch.diagnosis.terms import EventEvidence, Thresholds
from prefixwatch.figures.engine import WindowFigures
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.residency import Residency
from prefixwatch.figures.wording import percent


class Case:
    """The figures of one window in the words of the rules."""

    def __init__(
        self, figures: WindowFigures, thresholds: Thresholds, events: EventEvidence | None, age: float | None
    ) -> None:
        self.figures = figures
        self.limits = thresholds
        self.events = events
        self.age = age
        ratio, ceiling = figures.token_hit_ratio, figures.hit_ratio_ceiling
        self.ratio = None if isinstance(ratio, Absent) else ratio
        self.ceiling = ceiling.estimate if isinstance(ceiling, Estimate) else 1.0
        self.of_ceiling = None if self.ratio is None else min(1.0, self.ratio / max(self.ceiling, 1e-9))
        self.residency = figures.residency if isinstance(figures.residency, Residency) else None

    @property
    def is_near_ceiling(self) -> bool:
        """Whether there is next to nothing to win."""
        return self.of_ceiling is not None and self.of_ceiling >= self.limits.near_ceiling

    @property
    def is_low(self) -> bool:
        """Whether most of a working cache's gain is missing."""
        return self.of_ceiling is not None and self.of_ceiling < self.limits.low_of_ceiling

    @property
    def is_reused(self) -> bool:
        """Whether anything to speak of is found in the cache."""
        return self.ratio is not None and self.ratio >= self.limits.reused

    @property
    def has_events(self) -> bool:
        """Whether cache events say anything of this window."""
        return self.events is not None and self.events.stored >= self.limits.min_evictions

    @property
    def is_found_in_parts(self) -> bool:
        """Say whether even a request that finds something finds little: more memory gives none of them more."""
        ratio, cold = self.figures.request_hit_ratio, self.figures.cold_request_ratio
        if isinstance(ratio, Absent) or isinstance(cold, Absent) or cold.estimate >= 1:
            return False
        return ratio.estimate / (1 - cold.estimate) < self.limits.low_of_ceiling * self.ceiling

    def pressure(self) -> list[str]:
        """Name the signs that running requests crowd the cache out."""
        usage, preemptions = number(self.figures.kv_usage_max), number(self.figures.preemptions)
        waiting = number(self.figures.requests_waiting_max)
        signs = []
        if preemptions > 0:
            signs.append(f"{preemptions:,.0f} preemptions: running requests lost their blocks and started over")
        if usage >= self.limits.near_full:
            signs.append(f"running requests held up to {percent(usage)} of the pool")
        if waiting > 0:
            signs.append(f"up to {waiting:,.0f} requests waited")
        return signs

    def late(self) -> float | None:
        """Return the share of late reuses, where enough evictions say it."""
        if self.residency is None or self.residency.evictions < self.limits.min_evictions:
            return None
        return None if isinstance(self.residency.late_reuse_share, Absent) else self.residency.late_reuse_share


def is_prefill_small(case: Case) -> bool:
    """Say whether prefill is so small a share of the requests' time that the cache cannot move it."""
    share = case.figures.prefill_share
    return not isinstance(share, Absent) and share <= case.limits.small_prefill_share


def number(value: float | Absent) -> float:
    """Return a figure, 0 where it is absent."""
    return 0.0 if isinstance(value, Absent) else value
