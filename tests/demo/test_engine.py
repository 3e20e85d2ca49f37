"""The engine in simulated time: what is found, what is computed, and when it is counted."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixwatch.demo.config import CostModel, EngineConfig
from prefixwatch.demo.engine import Engine, Step
from prefixwatch.demo.errors import DemoError
from prefixwatch.demo.request import Finished, Prompt, Request

SMALL = EngineConfig(num_gpu_blocks=101, block_size=4, max_model_len=256, max_num_batched_tokens=64)


def prompt(
    length: int, *, first: int = 0, max_tokens: int = 2, salt: str | None = None, adapter: str | None = None
) -> Prompt:
    """Return a prompt of counting tokens; prompts with the same ``first`` share a prefix."""
    return Prompt(
        tokens=[first + token for token in range(length)],
        max_tokens=max_tokens,
        salt=salt,
        adapter=adapter,
    )


def run(engine: Engine, *prompts: Prompt, apart: float = 1.0, until: float = 1000.0) -> list[Step]:
    """Send prompts one after the other and run."""
    for index, one in enumerate(prompts):
        engine.submit(one, sent=index * apart)
    return engine.advance(until)


def finished(steps: list[Step]) -> list[Finished]:
    """Return the finished requests in order of their sending."""
    return sorted((done for step in steps for done in step.finished), key=lambda done: done.sent)


@pytest.mark.parametrize(
    ("length", "cached"),
    [
        pytest.param(1, 0, id="one token is always computed"),
        pytest.param(4, 0, id="a prompt of exactly one block never hits"),
        pytest.param(5, 4, id="one token more and the block hits"),
        pytest.param(8, 4, id="two whole blocks: the last is computed for its last token"),
        pytest.param(9, 8, id="two whole blocks and a token"),
        pytest.param(23, 20, id="whole blocks only"),
    ],
)
def test_a_repeated_prompt_finds_whole_blocks_but_never_its_last_token(length: int, cached: int) -> None:
    done = finished(run(Engine(SMALL, seed=1), prompt(length), prompt(length)))
    assert [request.cached for request in done] == [0, cached]
    assert cached == (length - 1) // SMALL.block_size * SMALL.block_size


def test_requests_admitted_in_the_same_step_share_blocks() -> None:
    steps = run(Engine(SMALL, seed=1), prompt(20), prompt(20), apart=0.0)
    assert steps[0].batch.hits == 16
    assert [len(step.first_tokens) for step in steps[:1]] == [2]


@pytest.mark.parametrize(
    ("first", "second", "cached"),
    [
        pytest.param((None, None), (None, None), 16, id="neither"),
        pytest.param(("a", None), ("a", None), 16, id="the same salt"),
        pytest.param(("a", None), ("b", None), 0, id="another salt"),
        pytest.param((None, "a"), (None, None), 0, id="with and without an adapter"),
    ],
)
def test_salts_and_adapters_split_the_cache(
    first: tuple[str | None, str | None], second: tuple[str | None, str | None], cached: int
) -> None:
    one, other = (prompt(20, salt=salt, adapter=adapter) for salt, adapter in (first, second))
    assert finished(run(Engine(SMALL, seed=1), one, other))[1].cached == cached


def test_generated_tokens_enter_the_cache() -> None:
    engine = Engine(SMALL, seed=1)
    run(engine, prompt(4, max_tokens=9))
    tokens = [*range(4), *engine_output(4, 9)]
    engine.submit(Prompt(tokens=[*tokens, 1], max_tokens=1), sent=2000.0)
    # Of 13 tokens 12 were computed: the last one sampled is never fed back.
    assert finished(engine.advance(3000.0))[0].cached == 12


def engine_output(length: int, count: int) -> list[int]:
    """Return what the greedy stand-in answers to ``prompt(length)``."""
    request = Request(prompt(length), 0.0, 0.0, 0.0, block_size=4)
    for _ in range(count):
        request.generate(0.0)
    return request.tokens[length:]


def test_the_least_recently_used_prefix_is_evicted() -> None:
    engine = Engine(replace(SMALL, num_gpu_blocks=10), seed=1)
    order = [0, 100, 0, 200, 0, 100]
    done = finished(run(engine, *(prompt(17, first=first) for first in order)))
    # Room for two cached prompts and one block more: 100 goes, 0 was used in between.
    assert [request.cached for request in done] == [0, 0, 16, 0, 16, 0]


def test_long_prompts_are_prefilled_in_chunks() -> None:
    steps = run(Engine(SMALL, seed=1), prompt(150))
    assert [tokens for step in steps[:3] for _, tokens in step.batch.work] == [64, 64, 22]
    assert [step.prompt for step in steps[:3]] == [0, 0, 150]
    assert [step.batch.queries for step in steps[:3]] == [150, 0, 0]


def test_the_groups_of_counters_move_at_admission_first_token_and_finish() -> None:
    steps = run(Engine(SMALL, seed=1), prompt(100, max_tokens=3))
    assert [step.batch.queries for step in steps] == [100, 0, 0, 0]
    assert [step.prompt for step in steps] == [0, 100, 0, 0]
    assert [step.generated for step in steps] == [0, 1, 1, 1]
    assert [len(step.finished) for step in steps] == [0, 0, 0, 1]


def test_the_token_budget_and_the_number_of_sequences_bound_a_step() -> None:
    config = replace(SMALL, max_num_seqs=2)
    steps = run(Engine(config, seed=1), *(prompt(30, first=100 * n) for n in range(4)), apart=0.0)
    for step in steps:
        assert sum(tokens for _, tokens in step.batch.work) <= config.max_num_batched_tokens
        assert len(step.batch.work) <= config.max_num_seqs
    assert len(finished(steps)) == 4
    assert steps[0].waiting == 2


@pytest.fixture
def pressed() -> list[Step]:
    """Return the steps of six requests whose outputs outgrow the pool."""
    config = replace(SMALL, num_gpu_blocks=25, max_model_len=128)
    prompts = [prompt(12, first=100 * n, max_tokens=40) for n in range(6)]
    return run(Engine(config, seed=1), *prompts, apart=0.0)


def test_without_blocks_the_youngest_is_preempted_and_computed_again(pressed: list[Step]) -> None:
    done = finished(pressed)
    assert len(done) == 6
    assert all(request.output == 40 for request in done)
    preemptions = sum(step.batch.preempted for step in pressed)
    assert preemptions == sum(request.preemptions for request in done) > 0
    assert max(step.usage for step in pressed) > 0.9


def test_the_lookup_of_a_preempted_request_is_not_counted_again(pressed: list[Step]) -> None:
    assert sum(step.batch.queries for step in pressed) == sum(done.prompt for done in finished(pressed))


def test_up_to_0_10_the_lookup_of_a_preempted_request_was_counted_again() -> None:
    config = replace(SMALL, num_gpu_blocks=25, max_model_len=128, counts_preempted_lookups=True)
    prompts = [prompt(12, first=100 * n, max_tokens=40) for n in range(6)]
    steps = run(Engine(config, seed=1), *prompts, apart=0.0)
    assert sum(step.batch.queries for step in steps) > sum(step.prompt for step in steps) == 72


@pytest.mark.parametrize(
    ("counts_retried", "queries"),
    [pytest.param(False, 180, id="from 0.28"), pytest.param(True, 180 + 4 * 60 * 2, id="up to 0.25")],
)
def test_a_lookup_that_is_not_admitted_was_counted_at_each_step(*, counts_retried: bool, queries: int) -> None:
    # Room for one of three prompts at a time: in each of its four steps the next in line is
    # looked up in vain.
    config = replace(SMALL, num_gpu_blocks=20, counts_retried_lookups=counts_retried)
    steps = run(Engine(config, seed=1), *(prompt(60, first=100 * n, max_tokens=4) for n in range(3)), apart=0.0)
    assert sum(step.batch.queries for step in steps) == queries


def test_caching_off_looks_nothing_up() -> None:
    config = replace(SMALL, enable_prefix_caching=False)
    steps = run(Engine(config, seed=1), prompt(20), prompt(20))
    assert sum(step.batch.queries for step in steps) == 0
    assert sum(step.prompt for step in steps) == 40
    assert [done.cached for done in finished(steps)] == [0, 0]


def test_a_reset_fails_while_a_request_runs_unless_it_is_preempted() -> None:
    engine = Engine(SMALL, seed=1)
    engine.submit(prompt(20, max_tokens=100), sent=0.0)
    engine.advance(0.05)
    assert engine.running == 1
    assert not engine.reset_prefix_cache()
    assert engine.reset_prefix_cache(reset_running_requests=True)
    (done,) = finished(engine.advance(100.0))
    assert (done.output, done.preemptions) == (100, 1)
    assert engine.reset_prefix_cache()


def test_a_sleeping_engine_serves_nothing_and_wakes_with_an_empty_cache() -> None:
    engine = Engine(SMALL, seed=1)
    run(engine, prompt(20), until=1.0)
    engine.sleep(1)
    engine.submit(prompt(20), sent=2.0)
    assert engine.advance(10.0) == []
    engine.wake_up()
    assert [done.cached for done in finished(engine.advance(20.0))] == [0]


def test_advancing_in_small_steps_changes_nothing() -> None:
    whole, sliced = Engine(SMALL, seed=3), Engine(SMALL, seed=3)
    for engine in (whole, sliced):
        for index in range(20):
            engine.submit(prompt(40, first=index % 3 * 50), sent=index * 0.01)
    in_one = finished(whole.advance(5.0))
    in_many = finished([step for tick in range(500) for step in sliced.advance(tick * 0.01)])
    assert in_one == in_many


def test_times_of_a_request_add_up() -> None:
    cost = CostModel(jitter=0.0)
    (done,) = finished(run(Engine(replace(SMALL, cost=cost), seed=1), prompt(20, max_tokens=5)))
    assert done.ttft == pytest.approx(2 * cost.client + cost.front_end + done.prefill)
    assert done.latency == pytest.approx(done.ttft + done.decode)
    assert done.inference == pytest.approx(done.prefill + done.decode)
    assert done.decode == pytest.approx(4 * (cost.step + cost.per_decode))


@pytest.mark.parametrize(
    ("length", "max_tokens", "message"),
    [
        pytest.param(0, 1, "prompt of 0 tokens", id="empty"),
        pytest.param(256, 1, "must be 1 to 255", id="too long for the model"),
        pytest.param(200, 300, "request needs 125 blocks; the pool has 100", id="too long for the pool"),
    ],
)
def test_a_request_that_can_never_be_served_is_refused(length: int, max_tokens: int, message: str) -> None:
    with pytest.raises(DemoError, match=message):
        Engine(SMALL, seed=1).submit(prompt(length, max_tokens=max_tokens), sent=0.0)


@settings(max_examples=30, deadline=None)
@given(
    requests=st.lists(
        st.tuples(st.integers(1, 60), st.integers(0, 3), st.integers(1, 20), st.floats(0.001, 0.5)),
        max_size=25,
    ),
    blocks=st.integers(22, 80),
)
def test_every_request_finishes_and_every_block_comes_back(
    requests: list[tuple[int, int, int, float]], blocks: int
) -> None:
    engine = Engine(replace(SMALL, num_gpu_blocks=blocks), seed=1)
    sent = 0.0
    for length, group, max_tokens, gap in requests:
        sent += gap
        engine.submit(prompt(length, first=group * 100, max_tokens=max_tokens), sent=sent)
    steps = engine.advance(10_000.0)
    done = finished(steps)
    assert [request.output for request in done] == [max_tokens for _, _, max_tokens, _ in requests]
    assert engine.pool.free_blocks == blocks - 1
    assert all(request.cached <= (request.prompt - 1) // 4 * 4 for request in done)
    assert sum(step.batch.hits for step in steps) == sum(request.cached for request in done)
    assert all(0.0 <= step.usage <= 1.0 for step in steps)
