"""What one poll interval says about the requests that finished in it (or got their first token)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Increases of one poll interval: of the finish group, else of the first-token group.

    `requests`: observations in the interval. `prompt_tokens`, `computed_tokens`: their sums; computed is the prompt less
    what was cached, locally or externally. None: the release has no such counter. `prompt_counts`,
    `computed_counts`: requests per bucket, not cumulative, one more than the finite upper edges, the last one above
    them all; None where a group has no histogram.

    `surplus`: observations that are not requests of their own. A request with n > 1 samples is observed once a sample;
    the increase of the sum of `vllm:request_params_n` less that of its count says how many too many.
    `torn`: the page mixed moments (several API processes), so that the parts of this pool may belong to different
    requests.
    """

    requests: int
    prompt_tokens: float | None
    computed_tokens: float | None
    prompt_counts: tuple[int, ...] | None = None
    computed_counts: tuple[int, ...] | None = None
    prompt_edges: tuple[float, ...] = ()
    computed_edges: tuple[float, ...] = ()
    surplus: int = 0
    torn: bool = False

    @property
    def unavailable(self) -> str | None:
        """Why nothing can be said per request at all, or None."""
        if self.prompt_tokens is None or self.computed_tokens is None:
            return "this release does not count computed or cached tokens per request (vLLM 0.13 or later does)"
        return None

    @property
    def fault(self) -> str | None:
        """Why the parts of this pool cannot be taken together, or None."""
        if self.torn:
            return "torn page: its parts belong to different requests"
        prompt, computed = self.prompt_tokens, self.computed_tokens
        if prompt is None or computed is None or not (math.isfinite(prompt) and math.isfinite(computed)):
            return "sums are not numbers"
        if not 0 <= computed <= prompt:
            return "more computed than prompt tokens, or fewer than none"
        for name, counts, edges, total in (
            ("prompt", self.prompt_counts, self.prompt_edges, prompt),
            ("computed", self.computed_counts, self.computed_edges, computed),
        ):
            if counts is None:
                continue
            if len(counts) != len(edges) + 1 or list(edges) != sorted(edges):
                return f"{name} buckets do not match their edges"
            if min(counts) < 0 or sum(counts) != self.requests:
                return f"{name} buckets do not add up to the requests"
            if not sum_fits(counts, edges, total):
                return f"{name} sum does not fit its buckets"
        return None

    def vector(self) -> Array:
        """Return prompt counts, computed counts, prompt sum, computed sum; a missing histogram is one bucket."""
        prompt = self.prompt_counts or (self.requests,)
        computed = self.computed_counts or (self.requests,)
        return np.array((*prompt, *computed, self.prompt_tokens, self.computed_tokens), dtype=np.float64)

    @property
    def edges(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Finite upper edges of both histograms; empty for a missing one."""
        return (
            self.prompt_edges if self.prompt_counts else (),
            self.computed_edges if self.computed_counts else (),
        )


def sum_fits(counts: Sequence[float], edges: Sequence[float], total: float) -> bool:
    """Whether whole numbers in these buckets (lower, upper], counts not cumulative, can have this sum."""
    least = most = 0.0
    for count, (low, high) in zip(counts, _whole_numbers(tuple(edges)), strict=True):
        if count:
            if low > high:
                return False
            least += count * low
            most += count * high
    return least <= total <= most


@lru_cache(maxsize=64)
def _whole_numbers(edges: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
    """Return the least and the greatest whole number of each bucket."""
    lows = (0.0, *(math.floor(edge) + 1.0 for edge in edges))
    highs = (*(float(math.floor(edge)) for edge in edges), math.inf)
    return tuple(zip(lows, highs, strict=True))
