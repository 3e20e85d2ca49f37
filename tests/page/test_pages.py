"""Pages as people meet them in the field, and what is right to read from each."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixwatch.page.dialects import NAMES, PREFIXES, is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.page.interpreter import Interpreter
from prefixwatch.page.lines import PageError
from prefixwatch.replaying import read_page
from prefixwatch.snapshot import encoded
from prefixwatch.targetwatch import Refused, TargetWatch
from writing import ENGINE, config_line, figures, line, page, read, watched

PAGES = Path(__file__).parents[1] / "data" / "pages"


def json_of(text: str | bytes) -> dict[str, object]:
    return read_page(text if isinstance(text, bytes) else text.encode(), "page").to_json()


def check(engine: dict, expected: dict[str, object]) -> None:
    """Compare the named figures; a text is part of the reason of an absent one."""
    for name, value in expected.items():
        if isinstance(value, str) and name not in ("model_name", "engine"):
            assert engine[name] is None, name
            assert value in engine["reasons"][name]
        elif isinstance(value, float):
            assert engine[name] == pytest.approx(value, abs=5e-5), name
        else:
            assert engine[name] == value, name


NO_LOOKUPS = "no usable lookup counters on this page"


@pytest.mark.parametrize(
    ("name", "engines", "caveats"),
    [
        pytest.param(
            "both-eras-0.10",
            [{"token_hit_ratio": 0, "kv_usage_max": 9.75010481363281e-06, "engine": "0", "model_name": "zai-org/GLM-4.5"}],
            ["lookups_retried", "no_request_level", "alignment_unstated"],
            id="both eras: the older hits, never both added",
        ),
        pytest.param(
            "blocks-unit-cut-0.8",
            [{"token_hit_ratio": NO_LOOKUPS, "requests_running": 0, "kv_usage_max": 0}],
            ["lookups_in_blocks"],
            id="cut before a sample: absent, the unit is noted",
        ),
        pytest.param(
            "gpu-names-no-types",
            [{"token_hit_ratio": 0.83, "kv_usage_max": 0.412, "requests_running": 3, "requests_waiting": 7}],
            ["lookup_unit_unknown", "no_request_level", "alignment_unstated"],
            id="old names alone: the ratio holds, the unit is unknown",
        ),
        pytest.param(
            "without-total",
            [{"token_hit_ratio": 371460 / 906000, "requests": 2000, "model_name": "m", "preemptions": "no preemptions"}],
            [],
            id="counters without _total, requests under an adapter's name",
        ),
        pytest.param(
            "underscore-names",
            [{"kv_usage_max": 0.75, "requests_running": 2, "requests_waiting": 3, "token_hit_ratio": NO_LOOKUPS}],
            [],
            id="colons rewritten, a gauge without labels",
        ),
        pytest.param(
            "v0-caching-off-0.7",
            [{"token_hit_ratio": "prefix caching is off", "caching_enabled": False, "pool_tokens": 81767 * 16,
              "kv_usage_max": 0, "requests": 4, "output_per_prompt_token": 955 / 148}],
            ["lifetime_gauge_only", "preempted_counted_again", "no_request_level", "alignment_unstated"],
            id="V0, the gauge is -1",
        ),
        pytest.param("types-without-samples", [], [], id="declarations without samples"),
        pytest.param(
            "fresh-start",
            [{"token_hit_ratio": "nothing was looked up", "cached_prompt_ratio": "", "kv_usage_max": 0, "preemptions": 0}],
            [],
            id="before the first request",
        ),
        pytest.param(
            "caching-off-two-engines-0.30",
            [
                {"engine": "0", "token_hit_ratio": "prefix caching is off", "kv_usage_max": 0.25, "preemptions": 2,
                 "caching_enabled": False, "requests_running": 12, "requests_waiting": 3, "requests": 100},
                {"engine": "1", "token_hit_ratio": "prefix caching is off", "kv_usage_max": 0.5, "preemptions": 1,
                 "caching_enabled": False, "requests_running": 9, "requests_waiting": 0, "requests": 51},
            ],
            [],
            id="caching off, two engines",
        ),
        pytest.param(
            "usage-per-pid-0.11",
            [{"kv_usage_max": 0.6530455880475035, "engine": "0", "token_hit_ratio": NO_LOOKUPS}],
            ["several_api_processes"],
            id="one usage a pid: the largest, one engine",
        ),
        pytest.param(
            "external-only",
            [{"external_hit_ratio": 0.30, "token_hit_ratio": NO_LOOKUPS, "cached_prompt_ratio": 15360 / 16260,
              "prompt_tokens_by_source": {"new_compute": 900, "external": 15360}}],
            [],
            id="a connector alone, and a source nobody documents",
        ),
        pytest.param(
            "histogram-named-total",
            [{"cached_prompt_ratio": 55909376 / (55909376 + 660051), "token_hit_ratio": NO_LOOKUPS, "kv_usage_max": 0.0012,
              "output_per_prompt_token": 128350 / 5.6e7}],
            [],
            id="by source, not by the rounded total",
        ),
        pytest.param(
            "nan-inf-timestamp",
            [{"model_name": "a}b,c", "token_hit_ratio": NO_LOOKUPS, "prompt_tokens_by_source": {"external": 9}}],
            [],
            id="hostile and legal",
        ),
        pytest.param(
            "openmetrics-0.30",
            [{"token_hit_ratio": 5760 / 1394703, "cached_prompt_ratio": 5760 / 1394703, "kv_usage_max": 0,
              "preemptions": 0}],
            [],
            id="OpenMetrics",
        ),
        pytest.param(
            "pair-t0",
            [{"token_hit_ratio": 0.5, "external_hit_ratio": 0.5, "cached_prompt_ratio": 0.6, "kv_usage_max": 0.25}],
            [],
            id="the first of a pair",
        ),
        pytest.param(
            "recorded-0.32",
            [{"token_hit_ratio": 178400 / 212552, "pool_tokens": 640000, "pool_filled": False, "requests": 230,
              "external_hit_ratio": "nothing was looked up in a KV connector", "caching_enabled": True}],
            [],
            id="a recorded page",
        ),
    ],
)  # fmt: skip
def test_a_page_has_its_right_reading(name, engines, caveats):
    target = json_of((PAGES / f"{name}.prom").read_bytes())
    assert target["dialect"] == "vllm"
    assert [caveat.partition(":")[0] for caveat in target["caveats"]] == caveats
    assert len(target["engines"]) == len(engines)
    for engine, expected in zip(target["engines"], engines, strict=True):
        check(engine, {"window_seconds": "one page does not say how long it covers", **expected})


def test_a_page_of_declarations_says_why_it_has_no_engine():
    target = json_of((PAGES / "types-without-samples.prom").read_bytes())
    assert (target["engines"], target["error"]) == ([], "no samples: are statistics switched off?")


def test_the_lookups_of_both_eras_are_not_added():
    reading = read((PAGES / "both-eras-0.10.prom").read_text()).engines[0]
    assert {key: value for key, value in reading.counters.items() if "tokens" in key} == {
        "queried_tokens": 32, "hit_tokens": 0,
    }  # fmt: skip


def test_values_that_are_not_finite_are_absent():
    reading = read(page({"prefix_cache_queries_total": "NaN", "prompt_tokens_total": "+Inf", "generation_tokens_total": -1,
                         "kv_cache_usage_perc": "NaN", "num_requests_running": 1,
                         "prefix_cache_queries_created": "NaN"})).engines[0]  # fmt: skip
    assert (reading.counters, reading.gauges, reading.created) == ({}, {"requests_running": 1}, {})


def test_the_pair_gives_the_ratios_between_its_pages():
    texts = [(1000.0 + 15 * n, (PAGES / f"pair-t{n}.prom").read_text()) for n in (0, 1)]
    (engine,) = figures(watched(texts))
    check(engine.to_json(), {
        "token_hit_ratio": 0.5, "external_hit_ratio": 0.5, "cached_prompt_ratio": 0.6, "window_seconds": 15.0,
        "output_per_prompt_token": 0.2, "kv_usage_max": 0.5, "requests_running": 3, "requests_waiting": 0,
        "prompt_tokens_by_source": {"computed": 80, "local_cache": 100, "external": 20},
    })  # fmt: skip


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.prom")), ids=lambda path: path.stem)
def test_every_null_has_its_reason(path):
    for engine in json_of(path.read_bytes())["engines"]:
        for name, value in engine.items():
            if value is None and name != "diagnosis":
                assert engine["reasons"][name], name


# --- Counters over time, as people reported them -------------------------------------------------


def lookups(
    *pairs: tuple[float, float], extra: dict[str, float] | None = None, step: float = 5.0
) -> list[tuple[float, str]]:
    """Pages of running totals from (queries, hits) added at each step, the first page before any."""
    queries = hits = 0.0
    texts = []
    for position, (more_queries, more_hits) in enumerate(((0.0, 0.0), *pairs)):
        queries, hits = queries + more_queries, hits + more_hits
        values = {"prefix_cache_queries_total": queries, "prefix_cache_hits_total": hits, **(extra or {})}
        texts.append((1000.0 + step * position, page(values)))
    return texts


@pytest.mark.parametrize(
    ("pairs", "ratios"),
    [
        pytest.param(
            [(2015, 0), (8015, 7168), (32015, 28672), (47074, 46592)], [0, 0.8943, 0.8956, 0.9898], id="block of 3584"
        ),
        pytest.param(
            [(1024, 0), (1025, 1024), (2047, 1024), (4096, 3072)], [0, 0.9990, 0.5002, 0.75], id="block of 1024"
        ),
    ],
)
def test_large_blocks(pairs, ratios):
    texts = lookups(*pairs)
    steps = [figures(watched(texts[n : n + 2]))[0].token_hit_ratio for n in range(len(pairs))]
    assert steps == pytest.approx(ratios, abs=5e-5)
    pooled = sum(hits for _, hits in pairs) / sum(queries for queries, _ in pairs)
    assert figures(watched(texts))[0].token_hit_ratio == pytest.approx(pooled)


def test_hits_of_zero_below_one_block_are_zero_and_not_absent():
    assert figures(watched(lookups((2015, 0))))[0].token_hit_ratio == 0


CUT_SCRAPES = [
    pytest.param(
        f"vllm:num_requests_running{{}} 1\n{line('vllm:prefix_cache_queries_total', 120)}\n", id="at a line end"
    ),
    pytest.param(f"{line('vllm:prefix_cache_queries_total', 120)}\nvllm:prefix_ca", id="in a name"),
    pytest.param(page({"prefix_cache_queries_total": 120}) + line("vllm:prefix_cache_hits_total", 6), id="in a value"),
    pytest.param("", id="empty"),
]


@pytest.mark.parametrize("cut", CUT_SCRAPES)
def test_a_cut_page_moves_no_baseline(cut, tmp_path):
    from prefixwatch.replaying import replay

    (_, first), (_, last) = lookups((100, 25), extra={})[1], lookups((200, 95))[1]
    trace = tmp_path / "scrapes.txt"
    trace.write_text(f"# SCRAPE 1000\n{first}# SCRAPE 1005\n{cut}# SCRAPE 1010\n{last}")
    done = replay(trace)
    assert (done.used, done.unused) == (2, 1)
    assert figures(done.watch)[0].token_hit_ratio == pytest.approx(70 / 100)


def test_a_restart_counts_the_new_values():
    texts = lookups((900_000, 700_000))[1:]
    texts.append((1010.0, page({"prefix_cache_queries_total": 57, "prefix_cache_hits_total": 0})))
    watch = watched(texts)
    window = watch.state((None,)).engines[0].past.window()
    assert (window.increases["queried_tokens"], window.increases["hit_tokens"]) == (57, 0)
    assert watch.state((None,)).engines[0].restarts == 1


def test_two_engines_are_never_added_or_averaged():
    def both(a: dict[str, float], b: dict[str, float]) -> str:
        return page(a, {"engine": "0", "model_name": "m"}) + page(b, {"engine": "1", "model_name": "m"})

    names = ("prefix_cache_queries_total", "prefix_cache_hits_total", "kv_cache_usage_perc")
    start = both(dict.fromkeys(names, 0), dict.fromkeys(names, 0))
    end = both(dict(zip(names, (1000, 900, 0.4), strict=True)), dict(zip(names, (500, 300, 0.6), strict=True)))
    found = figures(watched([(1000, start), (1005, end)]))
    assert [(one.engine, one.token_hit_ratio, one.kv_usage_max) for one in found] == [("0", 0.9, 0.4), ("1", 0.6, 0.6)]


RETRIED = {  # a saturated queue: queries grow ten times as fast as prompt tokens
    "prefix_cache_queries_total": 100_000, "prefix_cache_hits_total": 90_000, "prompt_tokens_total": 10_000,
    "time_to_first_token_seconds_count": 10, "num_requests_running": 1,
    "prompt_tokens_by_source_total source=local_compute": 7000,
    "prompt_tokens_by_source_total source=local_cache_hit": 3000,
}  # fmt: skip
OLD = {name: value for name, value in RETRIED.items() if "by_source" not in name}


@pytest.mark.parametrize(
    ("values", "release", "ratio", "has_caveat"),
    [
        pytest.param(RETRIED, "0.20.2", 0.3, True, id="the first-token group gives the ratio"),
        pytest.param(RETRIED, None, 0.3, True, id="also where the release is unknown"),
        pytest.param(OLD, "0.10.2", 0.9, True, id="before 0.16 there is no such group"),
        pytest.param(RETRIED, "0.28.0", 0.9, False, id="a release that counts each lookup once"),
    ],
)
def test_retried_lookups(values, release, ratio, has_caveat):
    texts = [(1000, page(dict.fromkeys(values, 0))), (1060, page(values))]
    watch = watched(texts, release=release)
    target = watch.state((None,)).snapshot(None)
    assert target.engines[0].token_hit_ratio == pytest.approx(ratio)
    counted = [caveat for caveat in target.engines[0].caveats if caveat.startswith("lookups_retried")]
    assert bool(counted) == has_caveat


@pytest.mark.parametrize(
    ("moving", "seconds", "is_frozen"),
    [
        pytest.param((), 180, True, id="requests run and nothing moves"),
        pytest.param((), 60, False, id="a long prefill may take as long"),
        pytest.param(
            ("prompt_tokens_total", "time_to_first_token_seconds_count"), 90, True, id="first tokens, no lookups"
        ),
        pytest.param(("prefix_cache_queries_total",), 180, False, id="lookups move"),
        pytest.param(("generation_tokens_total",), 180, False, id="a long decode"),
    ],
)
def test_frozen_counters(moving, seconds, is_frozen):
    still = {"prefix_cache_queries_total": 5000, "prefix_cache_hits_total": 4000, "prompt_tokens_total": 5000,
             "generation_tokens_total": 10, "time_to_first_token_seconds_count": 5, "num_requests_running": 3}  # fmt: skip
    texts = []
    for step in range(0, seconds + 1, 5):
        values = {name: value + step * (name in moving) for name, value in still.items()}
        texts.append((1000.0 + step, page(values)))
    texts.insert(0, (995.0, page({**still, "prefix_cache_queries_total": 4000, "prefix_cache_hits_total": 3500})))
    (engine,) = figures(watched(texts))
    ratio, reason = engine.token_hit_ratio, engine.to_json()["reasons"].get("token_hit_ratio", "")
    assert ("frozen counters" in reason) == is_frozen
    assert isinstance(ratio, float) == (not is_frozen)


# --- Other pages of the same kinds -----------------------------------------------------------------

PAIR = {"prefix_cache_queries_total": 1000, "prefix_cache_hits_total": 830}
OLD_PAIR = {"gpu_prefix_cache_queries_total": 1000, "gpu_prefix_cache_hits_total": 830}


@pytest.mark.parametrize(("spelling", "dialect"), PREFIXES.items())
def test_every_spelling_is_read_alike(spelling, dialect):
    text = page({**PAIR, "kv_cache_usage_perc": 0.5, "num_requests_running": 2}, spelling=spelling)
    found = read(text + config_line({"engine": "0", "block_size": "16", "num_gpu_blocks": "100"}, spelling=spelling))
    (engine,) = found.engines
    assert (found.dialect, engine.counters["queried_tokens"], engine.counters["hit_tokens"]) == (dialect, 1000, 830)
    assert (engine.gauges["kv_usage"], engine.config.pool_tokens, engine.engine) == (0.5, 1600, "0")
    assert found.caveats == read(text.replace(spelling, "vllm:") + config_line(
        {"engine": "0", "block_size": "16", "num_gpu_blocks": "100"})).caveats  # fmt: skip


def test_two_spellings_on_one_page_are_read_once():
    found = read(page(PAIR | {"num_requests_running": 1}) + page(PAIR, spelling="ray_vllm:"))
    assert [caveat.name for caveat in found.caveats] == ["mixed_spellings"]
    assert (found.dialect, found.engines[0].counters) == ("vllm", {"queried_tokens": 1000, "hit_tokens": 830})


@pytest.mark.parametrize(
    ("values", "counters"),
    [
        pytest.param(PAIR | OLD_PAIR, {"queried_tokens": 1000, "hit_tokens": 830}, id="both twins"),
        pytest.param(
            PAIR | {"gpu_prefix_cache_queries_total": 7, "gpu_prefix_cache_hits_total": 5},
            {"queried_tokens": 1000, "hit_tokens": 830}, id="twins that differ: the newer name",
        ),
        pytest.param(
            {"prefix_cache_queries_total": 10, "gpu_prefix_cache_queries_total": 10, "gpu_prefix_cache_hits_total": 4},
            {"queried_tokens": 10, "hit_tokens": 4}, id="hits under the old name alone",
        ),
        pytest.param({"prefix_cache_queries_total": 10}, {"queried_tokens": 10}, id="queries and no hits"),
        pytest.param({"prefix_cache_hits_total": 10}, {"hit_tokens": 10}, id="hits and no queries"),
        pytest.param(
            PAIR | {"prefix_cache_queries": 1000, "prefix_cache_hits": 830}, {"queried_tokens": 1000, "hit_tokens": 830},
            id="with and without _total",
        ),
        pytest.param(PAIR | {"prefix_cache_hits_total": -5}, {"queried_tokens": 1000}, id="a negative counter"),
        pytest.param(
            {"prompt_tokens_total": 5, "request_prompt_tokens_sum": 7, "request_prompt_tokens_count": 2},
            {"prompt_tokens": 5, "request_prompt_tokens/sum": 7, "request_prompt_tokens/count": 2},
            id="prompt tokens and the histogram of a like name",
        ),
        pytest.param(
            {"request_prompt_tokens_bucket le=10": 1, "request_prompt_tokens_bucket le=+Inf": 3,
             "request_prompt_tokens_bucket le=x": 5},
            {"request_prompt_tokens/le/10.0": 1, "request_prompt_tokens/le/inf": 3}, id="buckets, one with a broken edge",
        ),
        pytest.param(
            {"prompt_tokens_by_source_total source=local_compute": 1, "prompt_tokens_by_source_total source=warp": 2},
            {"prompt_tokens_by_source/computed": 1, "prompt_tokens_by_source/warp": 2}, id="an unknown source is kept",
        ),
    ],
)  # fmt: skip
def test_names_and_twins(values, counters):
    (engine,) = read(page(values | {"num_requests_running": 0})).engines
    assert engine.counters == counters


@pytest.mark.parametrize("hits", [{}, *({"prefix_cache_hits_total": value} for value in ("NaN", "+Inf", -1))])
def test_a_pair_with_one_half_missing_or_not_usable_is_absent_with_its_reason(hits):
    (engine,) = json_of(page({"prefix_cache_queries_total": 10, **hits}))["engines"]
    check(engine, {"token_hit_ratio": "no usable hits counter on this page"})


BLOCKS = "GPU prefix cache queries, in terms of number of queried blocks."
TOKENS = (
    "GPU prefix cache queries, in terms of number of queriedtokens. DEPRECATED: Use vllm:prefix_cache_queries instead."
)
NO_ENGINE = {"model_name": "m"}
CONFIG = config_line({"block_size": "16", "num_gpu_blocks": "100", "enable_prefix_caching": "True"})


@pytest.mark.parametrize(
    ("text", "release", "counters", "caveat"),
    [
        pytest.param(f"# HELP vllm:gpu_prefix_cache_queries_total {BLOCKS}\n" + page(OLD_PAIR, NO_ENGINE) + CONFIG, None,
                     {"queried_tokens": 16000, "hit_tokens": 13280}, "lookups_in_blocks", id="0.8: blocks of 16"),
        pytest.param(f"# HELP vllm:gpu_prefix_cache_queries {BLOCKS}\n" + page(OLD_PAIR, NO_ENGINE), None,
                     {"queried_blocks": 1000, "hit_blocks": 830}, "lookups_in_blocks", id="0.8: the size is not stated"),
        pytest.param(page(OLD_PAIR, NO_ENGINE) + CONFIG, "0.8.5", {"queried_tokens": 16000, "hit_tokens": 13280},
                     "lookups_in_blocks", id="0.8 by its release"),
        pytest.param(page(OLD_PAIR, NO_ENGINE) + CONFIG, None, {"queried_units": 1000, "hit_units": 830},
                     "lookup_unit_unknown", id="nothing says which"),
        pytest.param(page(OLD_PAIR), None, {"queried_tokens": 1000, "hit_tokens": 830}, None, id="an engine label: 0.9 on"),
        pytest.param(page(OLD_PAIR, NO_ENGINE), "0.10.2", {"queried_tokens": 1000, "hit_tokens": 830}, None,
                     id="0.10 by its release"),
        pytest.param(f"# HELP vllm:gpu_prefix_cache_queries_total {TOKENS}\n" + page(OLD_PAIR, NO_ENGINE), None,
                     {"queried_tokens": 1000, "hit_tokens": 830}, None, id="HELP says tokens"),
        pytest.param("# TYPE vllm:prefix_cache_queries counter\n" + page(OLD_PAIR, NO_ENGINE), None,
                     {"queried_tokens": 1000, "hit_tokens": 830}, None, id="the new name is declared beside it"),
    ],
)  # fmt: skip
def test_the_unit_of_lookups(text, release, counters, caveat):
    found = read(text, release=release)
    assert {key: value for key, value in found.engines[0].counters.items() if key[:3] in ("que", "hit")} == counters
    names = {one.name for one in found.caveats} & {"lookups_in_blocks", "lookup_unit_unknown"}
    assert names == ({caveat} if caveat else set())


@pytest.mark.parametrize("unit", [f"# HELP vllm:gpu_prefix_cache_queries_total {BLOCKS}\n", ""])
def test_the_ratio_of_blocks_is_that_of_tokens(unit):
    (engine,) = json_of(unit + page(OLD_PAIR, NO_ENGINE))["engines"]
    check(engine, {"token_hit_ratio": 0.83})


def test_a_v0_gauge_makes_no_window():
    text = page(
        {"gpu_prefix_cache_hit_rate": 0.71, "cpu_prefix_cache_hit_rate": -1, "prompt_tokens_total": 5}, NO_ENGINE
    )
    target = json_of(text)
    check(target["engines"][0], {"token_hit_ratio": "hit rate since the start (0.710)"})
    assert target["caveats"][0].startswith("lifetime_gauge_only: ")


def test_a_v0_gauge_of_minus_one_is_caching_off():
    (engine,) = json_of(page({"gpu_prefix_cache_hit_rate": -1, "num_requests_running": 0}, NO_ENGINE))["engines"]
    check(engine, {"token_hit_ratio": "prefix caching is off", "caching_enabled": False})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "the page is empty", id="empty"),
        pytest.param("\n\n# a comment\n", "the page is empty", id="comments"),
        pytest.param('sglang:cache_hit_rate{model_name="m"} 0.5\n', "it looks like SGLang", id="SGLang"),
        pytest.param(
            "process_start_time_seconds 17\nsglang:x 1\n", "it looks like SGLang", id="SGLang and its process"
        ),
        pytest.param("tgi_request_count 5\n", "it looks like Text Generation Inference", id="TGI"),
        pytest.param("llamacpp:prompt_tokens_total 5\n", "it looks like llama.cpp", id="llama.cpp"),
        pytest.param("prefixwatch_up 1\n", "it looks like prefixwatch itself", id="ourselves"),
        pytest.param("process_start_time_seconds 17\ngo_goroutines 5\n", "it begins with go_goroutines", id="Go"),
        pytest.param("Not Found\n", "it begins with Not", id="prose"),
        pytest.param("process_start_time_seconds 17\n", "no vLLM metrics on this page", id="a process and no more"),
    ],
)
def test_a_page_of_no_known_engine_is_said_to_be_so(text, why):
    found = read(text)
    assert (found.dialect, found.engines) == ("unknown", ())
    assert why in found.why_empty
    target = json_of(text)
    assert (target["dialect"], target["engines"], target["error"]) == ("unknown", [], found.why_empty)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        pytest.param(b"Not Found", "line 1: not one whole line of metrics", id="prose"),
        pytest.param(b"\xff\xfe", "line 1: not one whole line of metrics", id="noise"),
        pytest.param(b"vllm:prompt_tokens_total 5", "line 1: not one whole line of metrics", id="half a line"),
        pytest.param(
            b"# SCRAPE 1000\nvllm:prompt_tokens_total 5\n", "line 1: this is a recorded trace: use", id="a trace"
        ),
        pytest.param(b"<html>", "line 1: this is HTML", id="HTML"),
    ],
)
def test_what_is_no_page_is_an_error(content, fault):
    with pytest.raises(PageError, match=fault):
        read_page(content, "page")


def test_a_file_whose_name_is_not_utf8_can_be_shown():
    target = read_page(page(PAIR).encode(), "na\udcffme")
    assert b'"na?me"' in encoded([target])


def test_a_vllm_page_of_other_families_is_vllms():
    found = read('vllm:nixl_num_failed_transfers_total{engine="0"} 1\n')
    assert (found.dialect, found.engines) == ("vllm", ())
    assert "a page of vLLM with only others" in found.why_empty


def place(engine: str = "", model: str = "", **others: str) -> dict[str, str]:
    return {label: text for label, text in {"engine": engine, "model_name": model, **others}.items() if text}


@pytest.mark.parametrize(
    ("text", "expected", "caveats"),
    [
        pytest.param(
            page(PAIR, place("0", "m")) + page({"request_success_total finished_reason=stop": 3}, place("0", "m"))
            + page({"request_success_total finished_reason=stop": 4}, place("0", "adapter"))
            + page({"request_success_total finished_reason=stop": 5}, place("0", "other-adapter")),
            [("m", "0", {"requests_finished/stop": 12, "queried_tokens": 1000})], [], id="adapters of one engine",
        ),
        pytest.param(
            page(PAIR, place("0", "m")) + page(PAIR, place("1", "m"))
            + page({"request_success_total finished_reason=stop": 4}, place("1", "adapter")),
            [("m", "0", {"queried_tokens": 1000}), ("m", "1", {"requests_finished/stop": 4})], [],
            id="an adapter of the second engine",
        ),
        pytest.param(
            page(PAIR, place("0", "a")) + page(PAIR, place("0", "b"))
            + page({"request_success_total finished_reason=stop": 4}, place("0", "adapter")),
            [("a", "0", {"queried_tokens": 1000}), ("b", "0", {"queried_tokens": 1000})], ["unassigned_series"],
            id="an adapter of one of two models",
        ),
        pytest.param(
            page(PAIR, place("", "a")) + page({**PAIR, "prefix_cache_queries_total": 2000}, place("", "b")),
            [("a", "0", {"queried_tokens": 1000}), ("b", "0", {"queried_tokens": 2000})], [], id="two models, no engine label",
        ),
        pytest.param(page(PAIR, place("", "m")), [("m", "0", {"queried_tokens": 1000})], [], id="no engine label"),
        pytest.param(
            page({"kv_cache_usage_perc": 0.5, "prompt_tokens_total": 7}, {}) + page(PAIR, place("0", "")),
            [("", "0", {"queried_tokens": 1000, "prompt_tokens": 7})], [], id="no model name anywhere",
        ),
        pytest.param(page(PAIR, {}), [("", "0", {"queried_tokens": 1000})], [], id="no labels at all"),
        pytest.param(
            page(PAIR, place("0", "m")) + page({"prompt_tokens_total": 7}, place("", "m"))
            + page({"generation_tokens_total": 8}, {}) + page({"num_preemptions_total": 9}, place("0", "")),
            [("m", "0", {"queried_tokens": 1000, "prompt_tokens": 7, "generation_tokens": 8, "preemptions": 9})], [],
            id="labels missing here and there",
        ),
        pytest.param(
            page({"num_requests_running": 1, "prompt_tokens_total": 7}, place("", "m")) + page(PAIR, place("0", "m")),
            [("m", "0", {"queried_tokens": 1000, "prompt_tokens": 7})], [], id="gauges without the engine label",
        ),
        pytest.param(
            page(PAIR, place("", "m")) + page(PAIR, place("0", "m")),
            [("m", "0", {"queried_tokens": 1000, "hit_tokens": 830})], [], id="the same with and without the engine label",
        ),
        pytest.param(
            page(PAIR, place("0", "m")) + page(PAIR, place("1", "m")) + page({"prompt_tokens_total": 7}, place("", "m")),
            [("m", "0", {"queried_tokens": 1000}), ("m", "1", {"queried_tokens": 1000})], ["unassigned_series"],
            id="which of two engines is not said",
        ),
        pytest.param(
            page({"prompt_tokens_total": 7}, place("", "m")) + page({"generation_tokens_total": 8}, {}),
            [("m", "0", {"prompt_tokens": 7, "generation_tokens": 8})], [], id="nothing but token counters",
        ),
        pytest.param(
            "".join(page(PAIR, place("0", "m", pid=pid)) for pid in ("7", "8")),
            [("m", "0", {"queried_tokens": 2000, "hit_tokens": 1660})], ["several_api_processes"], id="counters of two pids",
        ),
        pytest.param(
            page(PAIR, place("0", "m", pid="7")) + page(PAIR | {"prefix_cache_hits_total": "NaN"}, place("0", "m", pid="8")),
            [("m", "0", {"queried_tokens": 2000})], ["several_api_processes"], id="a pid whose counter is not a number",
        ),
        pytest.param(
            page(PAIR, place("0", "m", ReplicaId="x", WorkerId="w1"), spelling="ray_vllm:")
            + page({**PAIR, "prefix_cache_hits_total": 1}, place("0", "m", ReplicaId="y", WorkerId="w2"), spelling="ray_vllm:"),
            [("m", "0/x", {"hit_tokens": 830}), ("m", "0/y", {"hit_tokens": 1})], [], id="two replicas on a Ray node",
        ),
        pytest.param(
            page(PAIR, place("0", "m", ReplicaId="x", WorkerId="w1"), spelling="ray_vllm:"),
            [("m", "0", {"hit_tokens": 830})], [], id="one replica on a Ray node",
        ),
        pytest.param(
            page(PAIR, place("0", "m", WorkerId="w1"), spelling="ray_vllm_")
            + page(PAIR, place("0", "m", WorkerId="w2"), spelling="ray_vllm_"),
            [("m", "0/w1", {"hit_tokens": 830}), ("m", "0/w2", {"hit_tokens": 830})], [], id="workers alone",
        ),
        pytest.param(
            page({"prefix_cache_hits_total": 5}, place("", "m")) + page({"prompt_tokens_total": 7}, place("0", "m")),
            [("m", "0", {"hit_tokens": 5, "prompt_tokens": 7})], [], id="engine 0 under two label sets",
        ),
        pytest.param(
            page({"prefix_cache_hits_total": 5}, place("", "m"))
            + page({"prompt_tokens_total": 7}, place("0", "m")) + page({"prompt_tokens_total": 8}, place("1", "m")),
            [("m", "0", {"prompt_tokens": 7}), ("m", "1", {"prompt_tokens": 8})], ["unassigned_series"],
            id="of which of two engines is not said",
        ),
        pytest.param(
            page(PAIR, place("0/a", "m")) + page({"prompt_tokens_total": 7}, place("0", "m", pod="a")),
            [("m", "0/a", {"prompt_tokens": 7})], ["unassigned_series"], id="one called as another would be shown",
        ),
    ],
)  # fmt: skip
def test_whose_a_series_is(text, expected, caveats):
    found = read(text)
    assert [(one.model_name, one.engine) for one in found.engines] == [(name, engine) for name, engine, _ in expected]
    for engine, (_, _, counters) in zip(found.engines, expected, strict=True):
        assert {key: engine.counters.get(key) for key in counters} == counters
    assert [caveat.name for caveat in found.caveats] == caveats


def test_pids_and_adapters_of_many_kinds_make_one_engine():
    text = "".join(
        page({"kv_cache_usage_perc": usage}, place("0", "m", pid=str(n))) for n, usage in enumerate((0, 0.6, 0))
    )
    (engine,) = read(text + page({"num_requests_running": 4}, place("0", "m", pid="1"))).engines
    assert engine.gauges == {"kv_usage": 0.6, "requests_running": 4}


def config_of(labels: dict[str, str], engine: dict[str, str] = ENGINE):
    return read(page(PAIR, engine) + config_line(labels)).engines[0].config


@pytest.mark.parametrize(
    ("labels", "block", "pool", "enabled"),
    [
        pytest.param({"block_size": "16", "num_gpu_blocks": "100", "enable_prefix_caching": "True"}, 16, 1600, True, id="0.9"),
        pytest.param({"block_size": "16", "num_gpu_blocks": "100"}, 16, 1600, None, id="without the flag"),
        pytest.param({"block_size": "16", "enable_prefix_caching": "None"}, 16, None, None, id="a flag of None"),
        pytest.param({"enable_prefix_caching": "False"}, None, None, False, id="off"),
        pytest.param({"block_size": "16", "num_gpu_blocks": "None"}, 16, None, None, id="blocks of None"),
        pytest.param({"block_size": "-16", "num_gpu_blocks": "1e3"}, None, None, None, id="no sizes"),
        pytest.param({"block_size": "9" * 5000, "num_gpu_blocks": "0"}, None, None, None, id="impossible sizes"),
        pytest.param({"block_size": "8", "num_gpu_blocks": "320", "kv_cache_size_tokens": "463459"}, 8, 463459, None,
                     id="the pool as stated, not computed"),
        pytest.param({"block_size": "16", "num_gpu_blocks": "100", "effective_attention_block_size": "528"}, 528, None, None,
                     id="hybrid: the pool is unknown"),
        pytest.param({"block_size": "16", "num_gpu_blocks": "100", "mamba_block_size": "1024"}, 16, None, None,
                     id="state-space layers: the pool is unknown"),
        pytest.param({"block_size": "16", "num_gpu_blocks": "100", "mamba_block_size": "None"}, 16, 1600, None,
                     id="none of them"),
        pytest.param({"block_size": "16", "effective_attention_block_size": "528", "cache_hit_alignment_tokens": "1056",
                      "kv_cache_size_tokens": "50000"}, 1056, 50000, None, id="what a hit is aligned to"),
        pytest.param({"block_size": "16", "num_gpu_blocks": "100", "effective_attention_block_size": "16",
                      "cache_hit_alignment_tokens": "None"}, 16, 1600, None, id="an alignment of None"),
    ],
)  # fmt: skip
def test_what_the_configuration_states(labels, block, pool, enabled):
    config = config_of({"engine": "0", **labels})
    assert (config.effective_block, config.pool_tokens, config.enable_prefix_caching) == (block, pool, enabled)


SIZES = {"block_size": "16", "num_gpu_blocks": "100"}


@pytest.mark.parametrize(
    ("text", "pools"),
    [
        pytest.param(
            page(PAIR, place("0", "m")) + page(PAIR, place("1", "m")) + config_line({"engine": "0", **SIZES})
            + config_line({"engine": "1", **SIZES, "num_gpu_blocks": "200"}), [1600, 3200], id="one for each engine",
        ),
        pytest.param(page(PAIR, place("", "m")) + config_line(SIZES), [1600], id="no engine label on either"),
        pytest.param(page(PAIR, place("0", "m")) + config_line(SIZES), [1600], id="an engine label on the counters alone"),
        pytest.param(page(PAIR, place("", "m")) + config_line({"engine": "0", **SIZES}), [1600], id="on the config alone"),
        pytest.param(
            page(PAIR, place("", "a")) + page(PAIR, place("", "b")) + config_line(SIZES)
            + config_line({**SIZES, "num_gpu_blocks": "200"}), [None, None], id="two models, and nothing says whose",
        ),
        pytest.param(
            page(PAIR, place("0", "m")) + config_line({"engine": "0", **SIZES, "num_gpu_blocks": "None"})
            + config_line({"engine": "0", **SIZES}), [1600], id="stated once it was known",
        ),
        pytest.param(
            page(PAIR, place("0", "m", ReplicaId="x")) + page(PAIR, place("0", "m", ReplicaId="y"))
            + config_line({"engine": "0", "ReplicaId": "y", **SIZES, "num_gpu_blocks": "200"})
            + config_line({"engine": "0", "ReplicaId": "x", **SIZES}), [1600, 3200], id="one for each replica",
        ),
    ],
)  # fmt: skip
def test_whose_the_configuration_is(text, pools):
    assert [engine.config.pool_tokens for engine in read(text).engines] == pools


def test_off_by_the_flag_is_off_whatever_the_counters_say():
    config = config_line({"engine": "0", "enable_prefix_caching": "False"})
    (engine,) = json_of(page({"prefix_cache_queries_total": 0, "prefix_cache_hits_total": 0}) + config)["engines"]
    check(engine, {"token_hit_ratio": "prefix caching is off", "caching_enabled": False})


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        pytest.param(page(PAIR | {"prefix_cache_queries_created": 50, "prefix_cache_hits_created": 51})
                     + "process_start_time_seconds 40\n", (50, 40), id="the first of its counters, and its start"),
        pytest.param(page(PAIR), (None, None), id="neither"),
        pytest.param(page(PAIR | {"prefix_cache_queries_created": "NaN"}) + "process_start_time_seconds NaN\n",
                     (None, None), id="not numbers"),
        pytest.param(
            "".join(page(PAIR | {"prefix_cache_queries_created": n}, place("0", "m", ReplicaId=str(n))) for n in (50, 60)),
            (None, None), id="several processes on one page",
        ),
    ],
)  # fmt: skip
def test_the_epoch_of_a_page(text, epoch):
    assert read(text).epoch == epoch


def test_engines_in_turn_on_one_address_are_named_and_nothing_is_derived():
    def of(created: float, queries: float) -> str:
        values = {"prefix_cache_queries_total": queries, "prefix_cache_hits_total": queries / 2,
                  "prefix_cache_queries_created": created, "prefix_cache_hits_created": created}  # fmt: skip
        return page(values)

    texts = [(1000, of(10, 5000)), (1005, of(20, 100)), (1010, of(10, 5100))]
    watch = watched(texts[:2])
    with pytest.raises(Refused, match="several engines answer on this address in turn") as caught:
        watch.add(read(texts[2][1], time=1010))
    assert caught.value.kind == "several_engines"
    assert figures(watch) == []


def test_a_page_with_label_sets_without_bound_takes_no_time():
    text = "".join(page({"request_success_total finished_reason=stop": 1}, place("0", f"m{n}")) for n in range(5000))
    found = read(text + page(PAIR, place("0", "m")))
    assert [(one.model_name, len(one.counters)) for one in found.engines] == [("m", 2)]
    assert "unassigned_series" in {caveat.name for caveat in found.caveats}


# --- What must always hold -------------------------------------------------------------------------

SAMPLE_NAMES = sorted(name for name in NAMES if name.startswith(("vllm:", "process_start")))
WORDS = st.sampled_from(["", "0", "1", "m", "a", "True", "None", "16", "9" * 400, "+Inf", "x", "local_compute"])
LABELS = st.dictionaries(
    st.sampled_from(["engine", "model_name", "pid", "le", "source", "block_size", "ReplicaId", "pod", "num_gpu_blocks",
                     "finished_reason", "enable_prefix_caching"]), WORDS, max_size=6)  # fmt: skip
VALUES = st.sampled_from(["0", "1", "16", "1e308", "-1e308", "-1", "NaN", "+Inf", "-Inf", "1.79e9"])


@given(
    st.lists(
        st.tuples(st.sampled_from(SAMPLE_NAMES), LABELS, VALUES), max_size=40,
        unique_by=lambda one: (one[0], tuple(sorted(one[1].items()))),
    ),
    st.sampled_from([None, "0.32.0", "0.8.5", "0.1.dev1", "x"]),
)  # fmt: skip
def test_any_samples_give_a_reading(found, release):
    text = "".join(line(*one) + "\n" for one in ((name, value, labels) for name, labels, value in found))
    result = read(text, release=release)
    keys = [(engine.model_name, engine.engine) for engine in result.engines]
    assert len(set(keys)) == len(keys)
    for engine in result.engines:
        assert all(0 <= value < float("inf") for value in engine.counters.values())
        assert all(abs(value) < float("inf") for value in (*engine.gauges.values(), *engine.created.values()))
    assert json_of(text)["engines"] is not None


def test_a_page_read_again_means_the_same():
    """The plan of a page is remembered: with other values, labels, releases, declarations."""
    interpreter, reader = Interpreter(), PageReader(is_wanted)
    texts = [page(PAIR), page(PAIR | {"prefix_cache_hits_total": 1}), page(OLD_PAIR, NO_ENGINE), page(PAIR),
             f"# HELP vllm:gpu_prefix_cache_queries {BLOCKS}\n" + page(OLD_PAIR, NO_ENGINE), "", "sglang:x 1\n",
             "tgi_x 1\n", "# TYPE vllm:prompt_tokens counter\n"]  # fmt: skip
    for text in texts * 2:
        for release in (None, "0.10.2"):
            shared = interpreter.interpret(reader.read(text.encode()), time=1000.0, release=release)
            assert shared == read(text, release=release)


def test_a_watch_starts_empty():
    assert TargetWatch("localhost:8000").state((None,)).engines == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("kv_cache_usage_perc", -0.25, id="a negative share"),
        pytest.param("kv_cache_usage_perc", 1.5, id="more than all of it"),
        pytest.param("num_requests_running", -3, id="fewer than no request"),
        pytest.param("prompt_tokens_total", 1e308, id="more tokens than there can be"),
    ],
)
def test_a_value_that_cannot_be_is_absent(name: str, value: float) -> None:
    reading = read(page({name: value, "generation_tokens_total": 7})).engines[0]
    assert reading.counters == {"generation_tokens": 7.0}
    assert reading.gauges == {}
