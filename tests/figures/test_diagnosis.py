"""Why it misses: one row a branch and both sides of every threshold, precedence, evidence, next steps, and holding."""

import dataclasses
import itertools
import re
from typing import Any

import pytest

from figures.diagnosed import UNKNOWN, estimate, events, figures, found, residency
from prefixwatch.diagnosis import CONFIDENCE, Cause, Confidence, Diagnosis, Hold, Thresholds, diagnose
from prefixwatch.figures.figure import Absent

NO_TRAFFIC, DISABLED, WARMING_UP, SHORT, EVICTION, SPLIT, DIVERGENCE, DECODE, HEALTHY, UNSURE = (
    Cause.NO_TRAFFIC, Cause.CACHING_DISABLED, Cause.WARMING_UP, Cause.SHORT_PROMPTS, Cause.EVICTION,
    Cause.CACHE_KEY_SPLIT, Cause.PROMPT_DIVERGENCE, Cause.DECODE_BOUND, Cause.HEALTHY, Cause.INSUFFICIENT_EVIDENCE,
)  # fmt: skip
LOW, MEDIUM, HIGH = Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH

ABSENT_RATIO = {"token_hit_ratio": Absent("nothing was looked up")}
PRESSED = {"kv_usage_max": 0.99, "preemptions": 3.0, "requests_waiting_max": 4.0}
EVICTING = {"residency": residency()}
UNFILLED = {"pool_filled": False}
GOOD = {"token_hit_ratio": 0.95}


def case(name: str, expected: tuple[Cause, Confidence], **changes: Any) -> Any:
    return pytest.param(changes, expected, id=name)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        case("frozen counters", (UNSURE, LOW), frozen="frozen counters: why"),
        case("the flag is off", (DISABLED, HIGH), caching_enabled=False, token_hit_ratio=Absent("off")),
        case("whether it is on is not stated", (UNSURE, LOW), caching_enabled=UNKNOWN),
        case("nothing looked up", (NO_TRAFFIC, HIGH), **ABSENT_RATIO, is_idle=True),
        case("no ratio for another reason", (UNSURE, LOW), **ABSENT_RATIO),
        case("nothing looked up, of short prompts", (NO_TRAFFIC, HIGH), **ABSENT_RATIO, is_idle=True,
             hit_ratio_ceiling=estimate(0.1)),
        # The ceiling, 0.25.
        case("a ceiling just below", (SHORT, MEDIUM), hit_ratio_ceiling=estimate(0.249), token_hit_ratio=0.0),
        case("a ceiling at the line", (UNSURE, LOW), hit_ratio_ceiling=estimate(0.25), token_hit_ratio=0.1),
        case("and prompts of a block", (SHORT, HIGH), hit_ratio_ceiling=estimate(0.1), prompt_tokens_per_request=32.0),
        case("a low ceiling and no means", (SHORT, MEDIUM), hit_ratio_ceiling=estimate(0.1), block_tokens=UNKNOWN),
        case("a low ceiling and no mean", (SHORT, MEDIUM), hit_ratio_ceiling=estimate(0.1),
             prompt_tokens_per_request=UNKNOWN),
        case("prompts of a block, no histogram", (SHORT, HIGH), hit_ratio_ceiling=UNKNOWN,
             prompt_tokens_per_request=32.0, token_hit_ratio=0.0),
        case("prompts above a block", (DIVERGENCE, MEDIUM), hit_ratio_ceiling=UNKNOWN, prompt_tokens_per_request=32.1,
             token_hit_ratio=0.0, **UNFILLED),
        case("prompts of a block that hit", (UNSURE, LOW), hit_ratio_ceiling=UNKNOWN, prompt_tokens_per_request=32.0,
             token_hit_ratio=0.05),
        case("and just do not", (SHORT, HIGH), hit_ratio_ceiling=UNKNOWN, prompt_tokens_per_request=32.0,
             token_hit_ratio=0.049),
        # All signs of pressure at once; 0.95 of the pool, 0.05 reused.
        case("all signs of pressure", (EVICTION, HIGH), **PRESSED),
        case("even near the ceiling", (EVICTION, MEDIUM), **PRESSED, **GOOD),
        case("and without any late reuse", (EVICTION, HIGH), **PRESSED, residency=residency(late_reuse_share=0.0)),
        case("usage at the line", (EVICTION, HIGH), **{**PRESSED, "kv_usage_max": 0.95}),
        case("usage below it", (UNSURE, LOW), **{**PRESSED, "kv_usage_max": 0.949}),
        case("nothing is reused", (UNSURE, LOW), **PRESSED, token_hit_ratio=0.049),
        case("hardly anything is", (EVICTION, HIGH), **PRESSED, token_hit_ratio=0.05),
        # Near the ceiling, 0.9 of it.
        case("near the ceiling", (HEALTHY, HIGH), token_hit_ratio=0.9),
        case("not near it", (UNSURE, LOW), token_hit_ratio=0.899),
        case("near a lower ceiling", (HEALTHY, HIGH), token_hit_ratio=0.45, hit_ratio_ceiling=estimate(0.5)),
        case("near it, whatever is stored again", (HEALTHY, HIGH), **GOOD, events=events(avoidable_miss_ratio=0.9)),
        case("not near a lower one", (UNSURE, LOW), token_hit_ratio=0.449, hit_ratio_ceiling=estimate(0.5)),
        case("above an estimate of it", (HEALTHY, HIGH), token_hit_ratio=0.6, hit_ratio_ceiling=estimate(0.5)),
        case("without a histogram it is 1", (HEALTHY, HIGH), token_hit_ratio=0.9, hit_ratio_ceiling=UNKNOWN),
        case("and not less", (UNSURE, LOW), token_hit_ratio=0.899, hit_ratio_ceiling=UNKNOWN),
        # Where decoding is what takes the time: 2 tokens a prompt token, 5 % of prefill.
        case("outputs twice the prompt", (DECODE, HIGH), **GOOD, output_per_prompt_token=2.0),
        case("outputs just shorter", (HEALTHY, HIGH), **GOOD, output_per_prompt_token=1.99),
        case("hardly any prefill", (DECODE, HIGH), **GOOD, prefill_share=0.05),
        case("just more prefill", (HEALTHY, HIGH), **GOOD, prefill_share=0.051),
        case("neither known", (HEALTHY, HIGH), **GOOD, prefill_share=UNKNOWN, output_per_prompt_token=UNKNOWN),
        # Cache events: 20 blocks, 0.2 avoidable, 0.2 of split keys.
        case("avoidable misses", (EVICTION, HIGH), events=events(avoidable_miss_ratio=0.2)),
        case("fewer of them", (DIVERGENCE, HIGH), events=events(avoidable_miss_ratio=0.199)),
        case("split keys", (SPLIT, HIGH), events=events(key_split_ratio=0.2)),
        case("fewer of them, too", (DIVERGENCE, HIGH), events=events(key_split_ratio=0.199)),
        case("avoidable misses come first", (EVICTION, HIGH),
             events=events(avoidable_miss_ratio=0.2, key_split_ratio=0.9)),
        case("enough events", (DIVERGENCE, HIGH), events=events(stored=20.0)),
        case("too few events", (UNSURE, LOW), events=events(stored=19.0)),
        case("events without a loss", (HEALTHY, MEDIUM), events=events(), token_hit_ratio=0.6),
        case("events speak before residency", (HEALTHY, MEDIUM), events=events(), token_hit_ratio=0.6, **EVICTING),
        case("and before some pressure", (HEALTHY, MEDIUM), events=events(), token_hit_ratio=0.6,
             **{**PRESSED, "preemptions": 0.0}),
        case("all misses of a cold cache are first-time", (WARMING_UP, MEDIUM), events=events(), age=29.0),
        case("and of a few requests", (UNSURE, LOW), events=events(), requests=19.0),
        case("an eviction is one in a cold cache, too", (EVICTION, HIGH), events=events(avoidable_miss_ratio=0.5),
             age=5.0),
        # Residency: 20 evictions, 0.2 of late reuses, 0.15 of all use.
        case("late reuses", (EVICTION, HIGH), **EVICTING),
        case("enough of them to be sure", (EVICTION, HIGH), residency=residency(late_reuse_share=0.301)),
        case("not enough to be sure", (EVICTION, MEDIUM), residency=residency(late_reuse_share=0.299)),
        case("the least of them", (EVICTION, MEDIUM), residency=residency(late_reuse_share=0.2)),
        case("too few of them", (UNSURE, LOW), residency=residency(late_reuse_share=0.199)),
        case("a pool that may not have filled", (EVICTION, MEDIUM), **EVICTING, pool_filled=UNKNOWN),
        case("blocks in use, just so", (EVICTION, HIGH), residency=residency(evicted_reuse_share=0.15)),
        case("blocks that nobody used", (UNSURE, LOW), residency=residency(evicted_reuse_share=0.149)),
        case("how much used is unknown", (UNSURE, LOW), residency=residency(evicted_reuse_share=UNKNOWN)),
        case("enough evictions", (EVICTION, HIGH), residency=residency(evictions=20.0)),
        case("too few evictions", (UNSURE, LOW), residency=residency(evictions=19.0)),
        case("evicted, and hardly anything reused", (EVICTION, HIGH), **EVICTING, token_hit_ratio=0.05),
        case("evicted, and nothing reused", (UNSURE, LOW), **EVICTING, token_hit_ratio=0.049),
        # What a request gets that finds anything: 0.6 of the ceiling.
        case("requests find all or nothing", (EVICTION, HIGH), **EVICTING, request_hit_ratio=estimate(0.45),
             cold_request_ratio=estimate(0.25)),
        case("requests find parts", (UNSURE, LOW), **EVICTING, request_hit_ratio=estimate(0.449),
             cold_request_ratio=estimate(0.25)),
        case("parts, of a lower ceiling", (EVICTION, HIGH), **EVICTING, request_hit_ratio=estimate(0.24),
             cold_request_ratio=estimate(0.25), hit_ratio_ceiling=estimate(0.5), token_hit_ratio=0.3),
        case("all requests are cold", (EVICTION, HIGH), **EVICTING, request_hit_ratio=estimate(0.0),
             cold_request_ratio=estimate(1.0)),
        case("how many are cold is unknown", (EVICTION, HIGH), **EVICTING, request_hit_ratio=estimate(0.1)),
        case("what requests get is unknown", (EVICTION, HIGH), **EVICTING, cold_request_ratio=estimate(0.1)),
        # Some pressure.
        case("preemptions and usage", (EVICTION, MEDIUM), **{**PRESSED, "requests_waiting_max": 0.0}),
        case("a queue and usage", (EVICTION, MEDIUM), **{**PRESSED, "preemptions": 0.0}),
        case("usage at the line, too", (EVICTION, MEDIUM), **{**PRESSED, "preemptions": 0.0, "kv_usage_max": 0.95}),
        case("usage alone", (UNSURE, LOW), kv_usage_max=1.0),
        case("preemptions and a queue", (UNSURE, LOW), **{**PRESSED, "kv_usage_max": 0.5}),
        case("some pressure, nothing reused", (UNSURE, LOW), **{**PRESSED, "preemptions": 0.0}, token_hit_ratio=0.04),
        case("some pressure, and residency shows no loss", (HEALTHY, MEDIUM), **{**PRESSED, "preemptions": 0.0},
             residency=residency(late_reuse_share=0.1), token_hit_ratio=0.6),
        case("some pressure, and too few evictions to tell", (EVICTION, MEDIUM), **{**PRESSED, "preemptions": 0.0},
             residency=residency(evictions=19.0)),
        # A young cache: 30 s. A handful of requests: 20.
        case("young and low", (WARMING_UP, MEDIUM), age=29.9, **UNFILLED),
        case("not so young", (DIVERGENCE, MEDIUM), age=30.0, **UNFILLED),
        case("age unknown", (DIVERGENCE, MEDIUM), age=None, **UNFILLED),
        case("young and not low", (HEALTHY, MEDIUM), age=1.0, token_hit_ratio=0.6, **UNFILLED),
        case("young, and evicting", (EVICTION, HIGH), age=1.0, **EVICTING),
        case("young, and under some pressure", (EVICTION, MEDIUM), age=1.0, **{**PRESSED, "preemptions": 0.0}),
        case("a handful of requests", (UNSURE, LOW), requests=19.0, **UNFILLED),
        case("enough requests", (DIVERGENCE, MEDIUM), requests=20.0, **UNFILLED),
        case("how many is unknown", (DIVERGENCE, MEDIUM), requests=UNKNOWN, **UNFILLED),
        case("a handful of good ones", (HEALTHY, MEDIUM), requests=3.0, token_hit_ratio=0.6, **UNFILLED),
        # Low: below 0.6 of the ceiling.
        case("low, never filled, and nothing reused", (DIVERGENCE, MEDIUM), **UNFILLED, token_hit_ratio=0.049),
        case("low, and the pool never filled", (DIVERGENCE, MEDIUM), token_hit_ratio=0.599, **UNFILLED),
        case("not low, and the pool never filled", (HEALTHY, MEDIUM), token_hit_ratio=0.6, **UNFILLED),
        case("low of a lower ceiling", (DIVERGENCE, MEDIUM), token_hit_ratio=0.299, hit_ratio_ceiling=estimate(0.5),
             **UNFILLED),
        case("not low of a lower ceiling", (HEALTHY, MEDIUM), token_hit_ratio=0.3, hit_ratio_ceiling=estimate(0.5),
             **UNFILLED),
        case("not low, little prefill", (DECODE, MEDIUM), token_hit_ratio=0.6, prefill_share=0.01, **UNFILLED),
        case("not low, and no late reuse", (HEALTHY, MEDIUM), token_hit_ratio=0.6,
             residency=residency(late_reuse_share=0.0)),
        case("not low, and too few evictions to tell", (UNSURE, LOW), token_hit_ratio=0.6,
             residency=residency(late_reuse_share=0.0, evictions=19.0)),
        case("not low, and enough", (HEALTHY, MEDIUM), token_hit_ratio=0.6,
             residency=residency(late_reuse_share=0.0, evictions=20.0)),
        case("not low, filled, nothing to tell", (UNSURE, LOW), token_hit_ratio=0.6),
        case("low, filled, nothing to tell", (UNSURE, LOW)),
        case("low, how full is unknown", (UNSURE, LOW), pool_filled=UNKNOWN),
    ],
)  # fmt: skip
def test_cause(changes: dict[str, Any], expected: tuple[Cause, Confidence]) -> None:
    diagnosis = found(**changes)
    assert (diagnosis.cause, diagnosis.confidence) == expected, diagnosis.evidence
    assert diagnosis.evidence
    assert diagnosis.next_steps or diagnosis.cause in (NO_TRAFFIC, HEALTHY, DECODE)


# The conditions of the rules in order of precedence: of all that hold, the first decides.
_CONDITIONS: list[tuple[Cause, dict[str, Any]]] = [
    (UNSURE, {"frozen": "frozen counters: why"}),
    (DISABLED, {"caching_enabled": False}),
    (SHORT, {"hit_ratio_ceiling": estimate(0.2), "token_hit_ratio": 0.1, "prompt_tokens_per_request": 30.0}),
    (EVICTION, PRESSED),
    (SPLIT, {"events": events(key_split_ratio=0.5)}),
    (EVICTION, EVICTING),
    (WARMING_UP, {"age": 5.0}),
    (UNSURE, {"requests": 5.0}),
    (DIVERGENCE, UNFILLED),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(range(len(_CONDITIONS)), 2)))
def test_precedence(first: int, second: int) -> None:
    (cause, changes), (_, others) = _CONDITIONS[first], _CONDITIONS[second]
    assert found(**{**others, **changes}).cause is cause


@pytest.mark.parametrize("name", Thresholds.__struct_fields__)
def test_every_threshold_is_configurable(name: str) -> None:
    assert getattr(Thresholds(**{name: 1}), name) == 1


def test_other_thresholds_decide_otherwise() -> None:
    one = figures(token_hit_ratio=0.7)
    assert diagnose(one, thresholds=Thresholds(near_ceiling=0.7)).cause is HEALTHY
    assert diagnose(one).cause is UNSURE


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        case("frozen", ["frozen counters: why"], frozen="frozen counters: why"),
        case("no ratio", ["there is no token hit ratio: nothing was looked up"], **ABSENT_RATIO),
        case(
            "short prompts",
            ["these prompt lengths allow a hit ratio of 10.0 % at most",
             "prompts have 30 tokens on average, and only whole blocks of 32 can be found"],
            hit_ratio_ceiling=estimate(0.1), prompt_tokens_per_request=30.0,
        ),
        case(
            "short prompts without a histogram",
            ["prompts have 30 tokens on average, and only whole blocks of 32 can be found"],
            hit_ratio_ceiling=UNKNOWN, prompt_tokens_per_request=30.0, token_hit_ratio=0.0,
        ),
        case(
            "pressure",
            ["the token hit ratio is 50.0 %, of 90.0 % that these prompt lengths allow",
             "3 preemptions: running requests lost their blocks and started over",
             "running requests held up to 99.0 % of the pool", "up to 4 requests waited",
             "the pool is written over every 3 s: no untouched block survives longer"],
            **PRESSED, hit_ratio_ceiling=estimate(0.9),
        ),
        case(
            "residency",
            ["the token hit ratio is 50.0 %",
             ("blocks are evicted after 2 s idle, and come back after 1.2 s (medians): 45.0 % of the reuses come in the"
             " second half of that time, so many come too late"),
             "the pool is written over every 3 s: no untouched block survives longer",
             "the usage gauge peaked at 9.0 %: it does not count cached blocks that no request holds"],
            **EVICTING, kv_usage_max=0.09,
        ),
        case(
            "avoidable misses",
            ["the token hit ratio is 50.0 %",
             "40.0 % of the stored blocks had been in the pool before and were evicted"],
            events=events(avoidable_miss_ratio=0.4), turnover_seconds=UNKNOWN,
        ),
        case(
            "avoidable misses, usage unknown",
            ["the token hit ratio is 50.0 %",
             "40.0 % of the stored blocks had been in the pool before and were evicted"],
            events=events(avoidable_miss_ratio=0.4), turnover_seconds=UNKNOWN, kv_usage_max=UNKNOWN,
        ),
        case(
            "avoidable misses, half the pool held",
            ["the token hit ratio is 50.0 %",
             "40.0 % of the stored blocks had been in the pool before and were evicted"],
            events=events(avoidable_miss_ratio=0.4), turnover_seconds=UNKNOWN, kv_usage_max=0.5,
        ),
        case(
            "avoidable misses, nearly half the pool held",
            ["the token hit ratio is 50.0 %",
             "40.0 % of the stored blocks had been in the pool before and were evicted",
             "the usage gauge peaked at 49.0 %: it does not count cached blocks that no request holds"],
            events=events(avoidable_miss_ratio=0.4), turnover_seconds=UNKNOWN, kv_usage_max=0.49,
        ),
        case(
            "split keys",
            ["30.0 % of the stored blocks hold the same tokens at the same place as others, under another salt or adapter"],
            events=events(key_split_ratio=0.3),
        ),
        case(
            "first-time misses",
            ["the token hit ratio is 50.0 %",
             "only 3.0 % of the stored blocks had been in the pool before: misses are first-time"],
            events=events(avoidable_miss_ratio=0.03),
        ),
        case("warming up", ["the engine started 5 s ago, with an empty cache"], age=5.0),
        case(
            "a handful", ["the token hit ratio is 50.0 %",
                          "only 4 requests finished: the first request of each prefix always misses"], requests=4.0,
        ),
        case(
            "divergence, and the long prompts are cold",
            ["the token hit ratio is 50.0 %",
             "the pool never filled since the engine's start, so nothing had to be evicted: misses are first-time",
             "50.0 % of the requests get most of their prompt: the cold ones are the longer ones"],
            **UNFILLED, mostly_cached_request_ratio=estimate(0.5), cold_request_ratio=estimate(0.5),
        ),
        case(
            "divergence, and most requests get little",
            ["the token hit ratio is 50.0 %",
             "the pool never filled since the engine's start, so nothing had to be evicted: misses are first-time"],
            **UNFILLED, mostly_cached_request_ratio=estimate(0.49),
        ),
        case(
            "healthy, and the short prompts are cold",
            ["the token hit ratio is 95.0 %",
             "yet 25.0 % of the requests get nothing from the cache: their prompts are the shorter ones"],
            **GOOD, cold_request_ratio=estimate(0.25), mostly_cached_request_ratio=estimate(0.75),
        ),
        case(
            "healthy, hardly any is cold", ["the token hit ratio is 95.0 %"], **GOOD,
            cold_request_ratio=estimate(0.249), mostly_cached_request_ratio=estimate(0.75),
        ),
        case(
            "healthy below the ceiling",
            ["the token hit ratio is 60.0 %",
             "what is missing to the ceiling shows no loss that memory or prompt order would win back"],
            **UNFILLED, token_hit_ratio=0.6,
        ),
        case(
            "decode bound",
            ["the token hit ratio is 95.0 %", "4.5 tokens are generated per prompt token",
             "prefill is 1.0 % of the requests' time"],
            **GOOD, output_per_prompt_token=4.5, prefill_share=0.01,
        ),
        case(
            "nothing to tell",
            ["the token hit ratio is 50.0 %",
             ("the pool has filled since the start: blocks may be evicted before they are used again, or prompts may share"
             " too little; counters do not tell")],
        ),
        case(
            "nothing to tell, no reuse was seen",
            ["the token hit ratio is 50.0 %",
             ("how full the pool is cannot be told: blocks may be evicted before they are used again, or prompts may share"
             " too little; counters do not tell"),
             "no reuse: so it is under eviction and diverging prompts alike"],
            pool_filled=UNKNOWN, residency=residency(late_reuse_share=Absent("no reuse")),
        ),
        case(
            "nothing to tell, though reuses were in time",
            ["the token hit ratio is 50.0 %",
             ("the pool has filled since the start: blocks may be evicted before they are used again, or prompts may share"
             " too little; counters do not tell")],
            residency=residency(late_reuse_share=0.0),
        ),
    ],
)  # fmt: skip
def test_evidence_is_the_figures_that_decided(changes: dict[str, Any], sentences: list[str]) -> None:
    assert list(found(**changes).evidence) == sentences


@pytest.mark.parametrize(
    ("cause", "changes"),
    [
        (DISABLED, {"caching_enabled": False}),
        (EVICTION, EVICTING),
        (DIVERGENCE, UNFILLED),
        (UNSURE, {}),
    ],
)
@pytest.mark.parametrize(("share", "is_said"), [(0.05, True), (0.051, False), (UNKNOWN, False)])
def test_where_prefill_is_small_every_diagnosis_says_so(
    cause: Cause, changes: dict[str, Any], share: float | Absent, is_said: bool
) -> None:
    diagnosis = found(**changes, prefill_share=share)
    assert diagnosis.cause is cause
    note = "prefill is only 5.0 % of the requests' time: fixing this will not move latency much"
    assert (note in diagnosis.evidence) is is_said


def test_no_traffic_has_no_latency_to_move() -> None:
    assert found(**ABSENT_RATIO, is_idle=True, prefill_share=0.01).evidence == ("nothing was looked up in the window",)


# As vllm/engine/arg_utils.py of 0.32.0 declares them.
FLAGS = {
    "--enable-prefix-caching", "--gpu-memory-utilization", "--kv-cache-dtype", "--max-model-len", "--max-num-seqs",
    "--block-size", "--kv-cache-metrics", "--kv-events-config",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        case("disabled", {"--enable-prefix-caching"}, caching_enabled=False),
        case("short", {"--block-size"}, hit_ratio_ceiling=estimate(0.1), token_hit_ratio=0.0),
        case(
            "eviction",
            {"--gpu-memory-utilization", "--kv-cache-dtype", "--max-model-len", "--max-num-seqs"},
            **EVICTING,
        ),
        case("nothing to tell", {"--kv-cache-metrics", "--kv-events-config"}),
        case("nothing to tell, residency is on", {"--kv-events-config"}, residency=residency(late_reuse_share=0.0)),
        case("divergence", set(), **UNFILLED),
    ],
)
def test_next_steps_name_flags_that_vllm_has(changes: dict[str, Any], named: set[str]) -> None:
    flags = set(re.findall(r"--[a-z-]+", " ".join(found(**changes).next_steps)))
    assert flags == named
    assert flags <= FLAGS


def test_confidence_has_an_order() -> None:
    assert CONFIDENCE[LOW] < CONFIDENCE[MEDIUM] < CONFIDENCE[HIGH] == 1.0


def of(cause: Cause, sentence: str = "") -> Diagnosis:
    return Diagnosis(cause=cause, confidence=HIGH, evidence=(sentence,), next_steps=())


@pytest.mark.parametrize(
    ("seconds", "seen", "expected"),
    [
        pytest.param(60, [(0, HEALTHY)], [HEALTHY], id="the first counts at once"),
        pytest.param(60, [(0, HEALTHY), (5, EVICTION), (64, EVICTION), (65, EVICTION)],
                     [HEALTHY, HEALTHY, HEALTHY, EVICTION], id="another must last"),
        pytest.param(60, [(0, HEALTHY), (5, EVICTION), (60, HEALTHY), (65, EVICTION), (124, EVICTION), (125, EVICTION)],
                     [HEALTHY] * 5 + [EVICTION], id="a relapse starts over"),
        pytest.param(60, [(0, HEALTHY), (5, EVICTION), (40, DIVERGENCE), (99, DIVERGENCE), (100, DIVERGENCE)],
                     [HEALTHY] * 4 + [DIVERGENCE], id="a third starts over, too"),
        pytest.param(60, [(0, HEALTHY), (5, EVICTION), (65, EVICTION), (70, HEALTHY), (130, HEALTHY)],
                     [HEALTHY, HEALTHY, EVICTION, EVICTION, HEALTHY], id="and back"),
        pytest.param(0, [(0, HEALTHY), (1, EVICTION), (2, HEALTHY)], [HEALTHY, EVICTION, HEALTHY], id="no holding"),
    ],
)  # fmt: skip
def test_hold(seconds: float, seen: list[tuple[float, Cause]], expected: list[Cause]) -> None:
    hold = Hold(seconds)
    assert [hold.update(time, of(cause)).cause for time, cause in seen] == expected


def test_what_holds_has_the_newest_evidence_of_its_cause() -> None:
    hold = Hold(60)
    hold.update(0, of(HEALTHY, "old"))
    assert hold.update(5, of(HEALTHY, "new")).evidence == ("new",)
    note, *rest = hold.update(10, of(EVICTION, "rival")).evidence
    assert rest == ["new"]
    assert note == "for 0 s the figures have pointed to eviction, which counts from 60 s on; what follows was so before"
    assert "for 30 s the figures have pointed to eviction" in hold.update(40, of(EVICTION, "rival")).evidence[0]
    assert hold.update(70, of(EVICTION, "rival")).evidence == ("rival",)


@pytest.mark.parametrize(
    ("seconds", "seen", "time", "signs", "due"),
    [
        pytest.param(60, [], 0, "same", True, id="the first"),
        pytest.param(60, [(0, HEALTHY)], 14, "same", False, id="soon after"),
        pytest.param(60, [(0, HEALTHY)], 15, "same", True, id="a quarter of the hold later"),
        pytest.param(60, [(0, HEALTHY)], 1, "others", True, id="what decides at once has changed"),
        pytest.param(60, [(0, HEALTHY), (20, EVICTION), (70, EVICTION)], 79, "same", False, id="a rival still waits"),
        pytest.param(60, [(0, HEALTHY), (20, EVICTION), (70, EVICTION)], 80, "same", True, id="a rival has lasted"),
        pytest.param(0, [(0, HEALTHY)], 0, "same", True, id="no holding"),
    ],
)
def test_when_figures_are_looked_at(
    seconds: float, seen: list[tuple[float, Cause]], time: float, signs: str, due: bool
) -> None:
    hold = Hold(seconds)
    for moment, cause in seen:
        assert hold.update(moment, of(cause), "same") is hold.answer
    assert hold.is_due(time, signs) is due


def test_a_diagnosis_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        of(HEALTHY).cause = EVICTION  # type: ignore[misc]


def test_requests_that_stand_still_are_no_idleness() -> None:
    idle = {"token_hit_ratio": Absent("nothing was looked up"), "is_idle": True}
    stuck = found(**idle, is_still=True, requests_running=5.0, requests_waiting=9.0)
    assert (stuck.cause, stuck.confidence) == (UNSURE, LOW)
    assert "14 requests are in the engine, and no counter moved" in stuck.evidence[0]
    served = found(**idle, is_still=False, requests_running=5.0, requests_waiting=0.0)
    assert served.cause is NO_TRAFFIC
    assert "5 requests that came before are still served" in served.evidence
    assert found(**idle, is_still=True, requests_running=0.0, requests_waiting=0.0).evidence == (
        "nothing was looked up in the window",
    )


def test_a_queue_or_preemptions_are_not_waved_aside() -> None:
    said = "will not move latency much"
    for crowd, is_said in (({}, True), ({"preemptions": 1.0}, False), ({"requests_waiting_max": 1.0}, False)):
        evidence = found(**UNFILLED, prefill_share=0.01, **crowd).evidence
        assert any(said in sentence for sentence in evidence) is is_said


def test_with_events_nothing_is_left_to_tell() -> None:
    told = found(events=events(avoidable_miss_ratio=0.5))
    assert not any("cache events give" in step for step in told.next_steps)
    assert any("cache_salt" in step for step in found(**UNFILLED).next_steps)
    assert not any("cache_salt" in step for step in found(events=events(avoidable_miss_ratio=0.0)).next_steps)
