"""The page: the families, labels and buckets of a recorded one, and what moves in them."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from prefixwatch.demo.config import EngineConfig
from prefixwatch.demo.engine import Engine
from prefixwatch.demo.metrics import Page
from prefixwatch.demo.releases import RELEASES
from prefixwatch.demo.request import Prompt

RECORDED = Path(__file__).parents[1] / "data" / "pages" / "recorded-0.32.prom"
CREATED = 1_800_000_000.0


def page_after(*prompts: Prompt, config: EngineConfig | None = None, release: str = "0.32.0", engines: int = 1) -> str:
    """Return the page of a server whose first engine served the prompts, a second apart."""
    config = config or EngineConfig()
    engine = Engine(config, seed=1)
    page = Page(config, started=CREATED - 20, created=CREATED, engines=engines, release=release)
    for index, prompt in enumerate(prompts):
        engine.submit(prompt, sent=float(index))
    for step in engine.advance(1000.0):
        page.record(step)
    return page.render().decode()


def samples(text: str) -> dict[str, float]:
    """Return the value of each series, by its text."""
    rows = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {series: float(value) for series, _, value in rows}


def names(text: str) -> set[str]:
    """Return the names of vLLM's families as declared."""
    return {name for name in re.findall(r"^# TYPE (vllm:\S+)", text, re.MULTILINE) if not name.endswith("_created")}


PROMPT = Prompt(tokens=list(range(3, 103)), max_tokens=8)


def test_the_whole_page_matches_a_recorded_one_series_by_series() -> None:
    generated, recorded = page_after(PROMPT), RECORDED.read_text()
    assert list(samples(generated)) == list(samples(recorded))


def test_help_and_type_match_a_recorded_page() -> None:
    def headers(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith("#")]

    assert headers(page_after(PROMPT)) == headers(RECORDED.read_text())


def test_the_page_parses_and_its_histograms_are_cumulative() -> None:
    for family in text_string_to_metric_families(page_after(PROMPT, PROMPT)):
        if family.type != "histogram":
            continue
        buckets = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
        counts = [sample.value for sample in family.samples if sample.name.endswith("_count")]
        assert buckets == sorted(buckets), family.name
        assert buckets[-1] == counts[0], family.name


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ('vllm:prefix_cache_queries_total{engine="0",model_name="tiny"}', 200),
        ('vllm:prefix_cache_hits_total{engine="0",model_name="tiny"}', 96),
        ('vllm:prompt_tokens_total{engine="0",model_name="tiny"}', 200),
        ('vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="local_compute"}', 104),
        ('vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="local_cache_hit"}', 96),
        ('vllm:prompt_tokens_cached_total{engine="0",model_name="tiny"}', 96),
        ('vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="tiny",source="device"}', 96),
        ('vllm:generation_tokens_total{engine="0",model_name="tiny"}', 16),
        ('vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}', 2),
        ('vllm:request_prompt_tokens_sum{engine="0",model_name="tiny"}', 200),
        ('vllm:request_prompt_tokens_bucket{engine="0",le="100.0",model_name="tiny"}', 2),
        ('vllm:request_prompt_tokens_bucket{engine="0",le="50.0",model_name="tiny"}', 0),
        ('vllm:request_prefill_kv_computed_tokens_sum{engine="0",model_name="tiny"}', 104),
        ('vllm:request_prefill_kv_computed_tokens_bucket{engine="0",le="5.0",model_name="tiny"}', 1),
        ('vllm:iteration_tokens_total_sum{engine="0",model_name="tiny"}', 120),
        ('vllm:time_to_first_token_seconds_count{engine="0",model_name="tiny"}', 2),
        ('vllm:inter_token_latency_seconds_count{engine="0",model_name="tiny"}', 14),
        ('vllm:kv_block_lifetime_seconds_count{engine="0",model_name="tiny"}', 1),
        ('vllm:prefix_cache_queries_created{engine="0",model_name="tiny"}', CREATED),
        ("process_start_time_seconds", CREATED - 20),
    ],
)
def test_two_equal_prompts_are_counted(series: str, expected: float) -> None:
    assert samples(page_after(PROMPT, PROMPT))[series] == expected


@pytest.mark.parametrize(
    ("max_model_len", "last_edge"),
    [pytest.param(4096, "2000.0", id="4096"), pytest.param(131072, "100000.0", id="131072")],
)
def test_the_edges_of_token_histograms_depend_on_the_longest_sequence(max_model_len: int, last_edge: str) -> None:
    text = page_after(config=EngineConfig(max_model_len=max_model_len))
    edges = re.findall(r'vllm:request_prompt_tokens_bucket\{engine="0",le="([^"]+)"', text)
    assert edges[-2:] == [last_edge, "+Inf"]


def test_residency_is_there_only_with_the_flag() -> None:
    assert "vllm:kv_block_" not in page_after(PROMPT, config=EngineConfig(kv_cache_metrics_sample=None))


def test_two_engines_share_a_page() -> None:
    text = page_after(PROMPT, engines=2)
    assert samples(text)['vllm:prompt_tokens_total{engine="0",model_name="tiny"}'] == 100
    assert samples(text)['vllm:prompt_tokens_total{engine="1",model_name="tiny"}'] == 0
    assert text.count("vllm:cache_config_info{") == 2


@pytest.mark.parametrize(
    ("release", "there", "absent"),
    [
        pytest.param(
            "0.7.3",
            ["vllm:gpu_prefix_cache_hit_rate", "vllm:cpu_prefix_cache_hit_rate", "vllm:gpu_cache_usage_perc"],
            ["vllm:gpu_prefix_cache_queries_total", "vllm:kv_cache_usage_perc"],
            id="0.7: hit rates only",
        ),
        pytest.param(
            "0.8.5",
            [
                "vllm:gpu_prefix_cache_queries_total",
                "vllm:gpu_prefix_cache_hits_total",
                "vllm:gpu_cache_usage_perc",
            ],
            ["vllm:prefix_cache_queries_total", "vllm:kv_cache_usage_perc", "vllm:gpu_prefix_cache_hit_rate"],
            id="0.8: gpu names",
        ),
        pytest.param(
            "0.9.2",
            [
                "vllm:gpu_prefix_cache_queries_total",
                "vllm:prefix_cache_queries_total",
                "vllm:kv_cache_usage_perc",
            ],
            ["vllm:external_prefix_cache_queries_total"],
            id="0.9: twins",
        ),
        pytest.param(
            "0.11.2",
            ["vllm:external_prefix_cache_queries_total", "vllm:mm_cache_hits_total"],
            ["vllm:kv_block_lifetime_seconds"],
            id="0.11: external and multimodal",
        ),
        pytest.param(
            "0.12.0",
            ["vllm:prefix_cache_queries_total", "vllm:kv_block_reuse_gap_seconds"],
            ["vllm:gpu_prefix_cache_queries_total", "vllm:request_prefill_kv_computed_tokens"],
            id="0.12: no twins, residency",
        ),
        pytest.param(
            "0.13.0",
            ["vllm:request_prefill_kv_computed_tokens"],
            ["vllm:prompt_tokens_cached_total"],
            id="0.13: computed tokens",
        ),
        pytest.param(
            "0.16.0",
            ["vllm:prompt_tokens_cached_total", "vllm:prompt_tokens_by_source_total"],
            ["vllm:prompt_tokens_cached_by_source_total"],
            id="0.16: sources",
        ),
        pytest.param(
            "0.25.0",
            ["vllm:prompt_tokens_by_source_total"],
            ["vllm:prompt_tokens_recomputed_total", "vllm:prompt_tokens_cached_by_source_total"],
            id="0.25: no recomputed",
        ),
    ],
)
def test_a_release_has_its_own_families(release: str, there: list[str], absent: list[str]) -> None:
    present = names(page_after(PROMPT, release=release))
    assert set(there) <= present
    assert not set(absent) & present


@pytest.mark.parametrize("release", list(RELEASES))
def test_every_release_states_what_all_have(release: str) -> None:
    assert {
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:num_preemptions_total",
        "vllm:request_prompt_tokens",
        "vllm:time_to_first_token_seconds",
        "vllm:request_prefill_time_seconds",
        "vllm:cache_config_info",
    } <= names(page_after(PROMPT, release=release))


def test_0_8_counts_blocks_and_has_no_engine_label() -> None:
    values = samples(page_after(PROMPT, PROMPT, release="0.8.5"))
    assert values['vllm:gpu_prefix_cache_queries_total{model_name="tiny"}'] == 6
    assert values['vllm:gpu_prefix_cache_hits_total{model_name="tiny"}'] == 3


def test_twins_are_the_same_count() -> None:
    values = samples(page_after(PROMPT, PROMPT, release="0.10.2"))
    labels = '{engine="0",model_name="tiny"}'
    for name in ("prefix_cache_queries_total", "prefix_cache_hits_total"):
        assert values[f"vllm:gpu_{name}{labels}"] == values[f"vllm:{name}{labels}"] > 0


@pytest.mark.parametrize(("caching", "rate"), [pytest.param(True, 0.5, id="on"), pytest.param(False, -1.0, id="off")])
def test_the_v0_engine_states_a_rate(*, caching: bool, rate: float) -> None:
    config = EngineConfig(enable_prefix_caching=caching)
    values = samples(page_after(PROMPT, PROMPT, config=config, release="0.7.3"))
    assert values['vllm:gpu_prefix_cache_hit_rate{model_name="tiny"}'] == rate


@pytest.mark.parametrize(
    ("release", "label", "is_there"),
    [
        pytest.param("0.16.0", "kv_cache_size_tokens", False, id="0.16"),
        pytest.param("0.25.0", "kv_cache_size_tokens", True, id="0.25"),
        pytest.param("0.25.0", "effective_attention_block_size", False, id="0.25 effective"),
        pytest.param("0.32.0", "effective_attention_block_size", True, id="0.32 effective"),
        pytest.param("0.8.5", "engine", False, id="0.8 engine"),
    ],
)
def test_cache_config_labels_by_release(*, release: str, label: str, is_there: bool) -> None:
    line = re.search(r"^vllm:cache_config_info\{.*$", page_after(release=release), re.MULTILINE)
    assert line is not None
    assert (f'{label}="' in re.sub(r"[a-z]+_engine", "", line[0])) == is_there
    assert 'num_gpu_blocks="20000"' in line[0]


def test_sleep_states() -> None:
    page = Page(EngineConfig(), started=CREATED, created=CREATED)
    for level, state in ((0, "awake"), (1, "weights_offloaded"), (2, "discard_all")):
        page.record_sleep(level)
        values = samples(page.render().decode())
        on = [name for name, value in values.items() if "engine_sleep_state{" in name and value == 1]
        assert on == [f'vllm:engine_sleep_state{{engine="0",model_name="tiny",sleep_state="{state}"}}']
