"""What the shares of requests in one window have to do with each other, whatever the traffic."""

from prefixwatch.figures.figure import Absent
from prefixwatch.snapshot import EngineFigures

_ROUNDING = 1e-9


def contradictions(figures: EngineFigures) -> list[str]:
    """Return which of the estimates contradict each other, in words."""
    shares = (
        figures.request_hit_ratio,
        figures.mostly_cached_request_ratio,
        figures.full_request_ratio,
        figures.cold_request_ratio,
    )
    ratio, mostly, full, cold = (0.0 if isinstance(share, Absent) else share.estimate for share in shares)
    if isinstance(shares[0], Absent):
        return []
    rules = {
        f"cold {cold} and mostly cached {mostly} are more than all": cold + mostly <= 1 + _ROUNDING,
        f"cold {cold} and fully cached {full} are more than all": cold + full <= 1 + _ROUNDING,
        f"hit ratio {ratio} below half of mostly cached {mostly}": mostly / 2 <= ratio + _ROUNDING,
        f"hit ratio {ratio} above what cold {cold}, mostly cached {mostly} allow": (
            ratio <= (1 - cold + mostly) / 2 + _ROUNDING
        ),
    }
    return [words for words, holds in rules.items() if not holds]
