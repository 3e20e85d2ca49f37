"""A few simulated minutes of demo traffic with random faults; `make soak` takes an hour of it."""

import pytest

from faults.soaking import Soak


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_figure_is_wrong_whatever_fails(seed: int) -> None:
    soak = Soak(seed=seed, engines=1, period=2.0, quiet_seconds=15.0)
    await soak.run(seconds=400.0)
    assert soak.checks.wrong == []
    assert len(soak.faults) >= 5
    assert soak.kept > 80
    assert soak.checks.counts["token hit ratio"] > 100
    assert soak.checks.counts["request_hit_ratio"] > 100
