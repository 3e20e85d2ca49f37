"""The recent pools come back as they were kept, whatever buckets they occupy and however many came after."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixwatch.figures.pools import Pools

WIDTH = 6
VECTORS = st.lists(st.lists(st.sampled_from((0.0, 0.0, 0.0, 1.0, 7.0)), min_size=WIDTH, max_size=WIDTH), max_size=60)


@given(vectors=VECTORS, size=st.integers(1, 20), begin=st.sampled_from((0, 5)))
def test_the_last_pools_are_kept(vectors: list[list[float]], size: int, begin: int) -> None:
    pools = Pools(size, WIDTH, 1, begin)
    kept: deque[tuple[list[float], float, bool]] = deque(maxlen=size)
    for number, vector in enumerate(vectors, start=begin):
        is_exact = number % 3 == 0
        assert pools.add(np.array(vector), is_exact=is_exact) == number
        pools.count(number, [float(number)])
        kept.append((vector, float(number), is_exact))
        numbers = np.arange(pools.oldest, pools.end)
        assert pools.vectors(numbers).tolist() == [vector for vector, _, _ in kept]
        assert pools.counted(numbers)[:, 0].tolist() == [counted for _, counted, _ in kept]
        assert pools.are_exact(numbers).tolist() == [is_exact for _, _, is_exact in kept]


@pytest.mark.parametrize("numbers", [[], [2], [2, 3]])
def test_some_of_them_can_be_asked_for(numbers: list[int]) -> None:
    pools = Pools(4, WIDTH, 1, 0)
    for number in range(4):
        pools.add(np.full(WIDTH, float(number)), is_exact=False)
    assert pools.vectors(np.array(numbers, dtype=np.intp)).tolist() == [[float(n)] * WIDTH for n in numbers]
