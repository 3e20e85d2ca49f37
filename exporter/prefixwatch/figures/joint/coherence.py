"""The four figures of one set of requests belong together: bounds and estimates that keep to it.

With n requests, the sum h of their hit ratios, m mostly cached, f fully cached and c cold ones:

- a cold request is neither mostly nor fully cached: c + m <= n, c + f <= n;
- a mostly cached one has a hit ratio of 1/2 to 1, any other warm one of less than 1/2, a cold one 0:
  m / 2 <= h <= m + (n - c - m) / 2;
- where a warm request has at least a block cached, a fully cached one is mostly cached, too: f <= m.

All of it is linear, so what holds of every pool holds of their sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_ROUNDING = 1e-6


Four = Sequence[float]  # hit ratio, mostly, fully cached, cold


def tightened(lower: Four, upper: Four, requests: float, *, is_full_mostly: bool) -> tuple[list[float], list[float]]:
    """Return lower and upper bounds of one pool, tightened by each other; counts are whole.

    Where a lower bound then exceeds its upper one, no requests can be in them. `is_full_mostly`: f <= m holds. The
    order matters: it leaves `coherent` room at every step.
    """
    n = requests
    low_h, high_h = max(lower[0], 0.0), min(upper[0], n)
    low_m, low_f, low_c = (float(max(math.ceil(bound - _ROUNDING), 0)) for bound in lower[1:])
    high_m, high_f, high_c = (float(min(math.floor(bound + _ROUNDING), n)) for bound in upper[1:])
    if is_full_mostly:
        low_m = max(low_m, low_f)
    high_m = float(min(high_m, n - low_c, math.floor(2 * high_h + _ROUNDING)))
    low_h = max(low_h, low_m / 2)
    low_m = float(max(low_m, math.ceil(2 * low_h - n + low_c - _ROUNDING)))
    most = math.floor(min(n - low_h, n + high_m - 2 * low_h) + _ROUNDING)
    high_c = float(min(high_c, n - low_m, n - low_f, most))
    high_h = min(high_h, (n - low_c + high_m) / 2)
    high_f = min(high_f, n - low_c, high_m if is_full_mostly else n)
    return [low_h, low_m, low_f, low_c], [high_h, high_m, high_f, high_c]


def coherent(estimates: Four, lower: Four, upper: Four, requests: float, *, is_full_mostly: bool) -> list[float]:
    """Return estimates of one pool moved into tightened bounds and together.

    The sum of hit ratios is the surest, since the pool's sums state much of it: cold, then mostly, then fully cached
    requests give way to what stands before.
    """
    ratio, mostly, full, cold = (value if math.isfinite(value) else 0.0 for value in estimates)
    ratio = _within(ratio, lower[0], upper[0])
    cold = _within(cold, lower[3], min(upper[3], requests - ratio, requests + upper[1] - 2 * ratio))
    least = max(lower[1], 2 * ratio - requests + cold)
    mostly = _within(mostly, least, min(upper[1], 2 * ratio, requests - cold))
    full = _within(full, lower[2], min(upper[2], requests - cold, mostly if is_full_mostly else requests))
    return [ratio, mostly, full, cold]


def _within(value: float, lower: float, upper: float) -> float:
    return max(min(value, upper), lower)
