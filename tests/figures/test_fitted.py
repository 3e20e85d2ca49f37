"""What is kept of a fit says of its pools what the fit itself does."""

import numpy as np
import pytest

from prefixwatch.figures.joint.bounds import Buckets
from prefixwatch.figures.joint.fitting import fit

EDGES = (10.0, 100.0, 1000.0)
BUCKETS = len(EDGES) + 1


def pools(count: int, each: int, seed: int) -> np.ndarray:
    """Return the vectors of pools of requests with prompts of any length, half of them partly cached."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(20, 3000, (count, each))
    computed = prompt - rng.integers(0, 2, prompt.shape) * (prompt // 2)
    counts = [np.apply_along_axis(np.bincount, 1, np.searchsorted(EDGES, x), None, BUCKETS) for x in (prompt, computed)]
    return np.column_stack((*counts, prompt.sum(axis=1), computed.sum(axis=1))).astype(float)


@pytest.mark.parametrize("each", [1, 2, 40])
def test_a_glance_is_as_good_as_the_fit(each: int) -> None:
    """The sum of hit ratios is that of the fit, pool by pool; the other figures are, over all pools."""
    buckets = Buckets.of(EDGES, limit=1e5)
    seen = pools(30, each, seed=each)
    fitted, read = fit(seen, buckets, buckets, block=16)
    glances = np.array([fitted.glance(pool, float(each)) for pool in seen.tolist()])
    np.testing.assert_allclose(glances[:, 0], read[:, 0], rtol=0.02)
    np.testing.assert_allclose(glances.sum(axis=0), read.sum(axis=0), rtol=0.02)


def test_requests_in_unknown_buckets_are_like_the_others() -> None:
    buckets = Buckets.of(EDGES, limit=1e5)
    seen = pools(30, 10, seed=0)
    fitted, read = fit(seen, buckets, buckets, block=16)
    unknown = [3.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 20.0, 20.0]
    assert not seen[:, 0].any()
    assert fitted.glance(unknown, 3.0) == pytest.approx((read.mean(axis=0) * 3 / 10).tolist(), rel=0.05)
