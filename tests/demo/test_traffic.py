"""Traffic: the same seed gives the same, and each scenario what its name says."""

from random import Random

import pytest

from prefixwatch.demo.errors import DemoError
from prefixwatch.demo.releases import version_of
from prefixwatch.demo.scenarios import SCENARIOS, TOUR, scenario_named
from prefixwatch.demo.traffic import Shape, Traffic


def traffic(name: str, *, seed: int = 11, shape: Shape | None = None) -> Traffic:
    """Return a scenario's traffic."""
    return Traffic(scenario_named(name), seed=seed, shape=shape or Shape())


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_seed_gives_the_same_traffic(name: str) -> None:
    one, other = traffic(name), traffic(name)
    assert [one.next_prompt() for _ in range(20)] == [other.next_prompt() for _ in range(20)]
    assert [one.next_gap() for _ in range(20)] == [other.next_gap() for _ in range(20)]


def test_another_seed_shares_nothing() -> None:
    assert traffic("healthy", seed=1).next_prompt() != traffic("healthy", seed=2).next_prompt()


def test_the_draws_are_those_of_choice_in_the_recorders_order() -> None:
    random = Random(11)
    prefix, question = random.choice([320, 512, 640, 800]), random.choice([48, 96, 128])
    groups = [[random.choice(range(3, 500)) for _ in range(prefix)] for _ in range(random.choice([4, 6, 8]))]
    made = traffic("healthy")
    assert (made.prefix, made.question, made.groups) == (prefix, question, groups)


def test_a_stated_shape_goes_before_the_seed() -> None:
    shape = Shape(prefix=100, question=10, groups=3, prefixes=7, rate=2.5)
    made = traffic("healthy", shape=shape)
    assert (made.prefix, made.question, len(made.groups), len(made.many)) == (100, 10, 3, 7)
    assert made.rate == 2.5
    assert len(made.next_prompt().tokens) == 110


def test_gaps_have_the_mean_of_the_rate() -> None:
    made = traffic("healthy")
    assert sum(made.next_gap() for _ in range(4000)) / 4000 == pytest.approx(1 / made.rate, rel=0.05)


def test_idle_traffic_never_comes() -> None:
    assert traffic("idle").next_gap() == float("inf")


def common_prefix(name: str, *, is_late: bool = False) -> int:
    """Return how many of a prompt's first tokens some group's prefix explains."""
    made = traffic(name)
    tokens = made.next_prompt(is_late=is_late).tokens
    lengths = []
    for group in (*made.groups, *made.many):
        pairs = zip(tokens, group, strict=False)
        lengths.append(next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(tokens), len(group))))
    return max(lengths)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        pytest.param("healthy", 800, 800, id="shared prefix"),
        pytest.param("divergent", 0, 4, id="varies at the front"),
        pytest.param("mid_variable", 266, 270, id="varies a third in"),
        pytest.param("thrash_low_usage", 800, 800, id="one of many prefixes"),
        pytest.param("decode_bound", 160, 162, id="short prefix"),
        pytest.param("short_prompts", 14, 31, id="shorter than a block"),
    ],
)
def test_where_prompts_part(name: str, least: int, most: int) -> None:
    assert least <= common_prefix(name) <= most


def test_the_template_changes_late() -> None:
    assert common_prefix("template_change") == 800
    assert common_prefix("template_change", is_late=True) <= 4


def test_each_request_has_its_own_salt() -> None:
    made = traffic("salted")
    salts = {made.next_prompt().salt for _ in range(50)}
    assert len(salts) == 50
    assert None not in salts


def test_the_tour_goes_through_known_scenarios_once() -> None:
    assert len(set(TOUR)) == len(TOUR)
    assert set(TOUR) <= set(SCENARIOS)
    assert {SCENARIOS[name].cause for name in TOUR} == {one.cause for one in SCENARIOS.values()}


@pytest.mark.parametrize("call", [lambda: scenario_named("thrash"), lambda: version_of("0.33.0")])
def test_an_unknown_name_lists_the_known_ones(call: object) -> None:
    assert callable(call)
    with pytest.raises(DemoError, match=r"use one of .*(healthy|0\.32\.0)"):
        call()
