"""What a person reads at a terminal: whole texts, and nothing that a name could do to it."""

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

import recorded
from figures import diagnosed
from prefixwatch import report
from prefixwatch.comparison import Comparison, Difference, compared
from prefixwatch.diagnosis import diagnose
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.savings import Saving
from prefixwatch.figures.wording import duration, harmless, percent, span
from prefixwatch.snapshot import EngineFigures, TargetSnapshot


def shown(*targets: TargetSnapshot, width: int = 120) -> str:
    return _printed(lambda console: report.show(list(targets), console), width)


def shown_comparison(comparisons: Sequence[Comparison], width: int = 120) -> str:
    return _printed(lambda console: report.show_comparison(comparisons, console), width)


def _printed(show, width: int) -> str:
    out = io.StringIO()
    show(Console(file=out, width=width, force_terminal=False, color_system=None))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def engine(**changes: object) -> EngineFigures:
    figures = diagnosed.figures(**changes)
    return EngineFigures.of(figures, diagnose(figures))


def target(*engines: EngineFigures, **changes: object) -> TargetSnapshot:
    base = {"target": "localhost:8000", "is_up": True, "dialect": "vllm", "release": "0.32.0", "caveats": ()}
    return TargetSnapshot(**{**base, "engines": engines, **changes})


def of(value: float, lower: float, upper: float, method: str = "pooled") -> Estimate:
    return Estimate(estimate=value, lower=lower, upper=upper, method=method)


def test_a_recorded_trace() -> None:
    """Diverging prompts: whatever is said of its requests is exact."""
    snapshot = recorded.watched(recorded.pages("divergent")).state().snapshot()
    assert shown(replace(snapshot, release="0.32.0")) == (
        """\
tiny, engine 0 at localhost:8000 (vLLM 0.32.0): 63 s, 379 requests

  token hit ratio           0.0 %  of looked-up prompt tokens were in the cache; these prompt lengths allow 98 %
  request hit ratio         0.0 %  mean over requests (exact)
  mostly cached             0.0 %  of requests had at least half of their prompt cached (exact)
  fully cached              0.0 %  of requests computed at most one block (exact)
  cold requests           100.0 %  got nothing from the cache (exact)
  pool                    640,000  tokens, written over every 113 s; not filled yet since the start
  usage at most             0.2 %  of blocks held by running requests; cached blocks do not count
  prefill                  37.5 %  of the requests' inference time
  output                  0.00858  generated tokens per prompt token

  why: prompt_divergence (medium confidence)
    - the token hit ratio is 0.0 %, of 98.2 % that these prompt lengths allow
    - the pool never filled since the engine's start, so nothing had to be evicted: misses are first-time
  what to do
    - put what requests share first and what varies last: dates, ids and user data behind the system prompt
    - compare two rendered prompts: the chat template or the order of tools may vary at the front
    - if requests carry a cache_salt or a LoRA adapter each, that is the reason: counters cannot tell it from diverging
      prompts, cache events can
    - if the requests share nothing, nothing is wrong: there is nothing to reuse

  absent: external hit ratio: nothing was looked up in a KV connector
  absent: residency late reuse share: no evicted block had been used again more than once
  absent: residency evicted reuse share: nothing was found in the cache
  absent: avoidable miss ratio, working set ratio, whatif avoidable miss ratio, key split ratio, cache events: the
    engine's cache events are not watched
  absent: prefill seconds saved, prefill saved share: all requests computed about equally many tokens: what one of them
    costs cannot be told

"""
    )


def test_all_there_is_to_say() -> None:
    full = engine(
        token_hit_ratio=0.768, external_hit_ratio=0.25, cached_prompt_ratio=0.8, hit_ratio_ceiling=of(0.95, 0.94, 0.96),
        request_hit_ratio=of(0.571, 0.55, 0.6), mostly_cached_request_ratio=of(0.6, 0.58, 0.62),
        full_request_ratio=of(0.1, 0.0, 0.2), cold_request_ratio=of(0.317, 0.31, 0.33), hit_ratio_gap=0.197,
        requests=1394.0, window_seconds=30.2, prefill_share=0.2, preemptions=3.0, turnover_seconds=2.3,
        prefill_seconds_saved=Saving(estimate=41.2, standard_error=3.4), prefill_saved_share=0.31, kv_usage_max=0.091,
        output_per_prompt_token=0.0204, residency=diagnosed.residency(),
    )  # fmt: skip
    assert shown(target(full, caveats=("retried: counted more than once",))).split("\n  absent:")[0] == (
        """\
m, engine 0 at localhost:8000 (vLLM 0.32.0): 30 s, 1,394 requests

  token hit ratio          76.8 %  of looked-up prompt tokens were in the cache; these prompt lengths allow 95 %
  external hit ratio       25.0 %  of what was looked up in the KV connector
  cached prompt ratio      80.0 %  of prompt tokens came from either cache
  request hit ratio        57.1 %  mean over requests (55.0 to 60.0 %): 20 points below the token level
  mostly cached            60.0 %  of requests had at least half of their prompt cached (58.0 to 62.0 %)
  fully cached             10.0 %  of requests computed at most one block (0.0 to 20.0 %)
  cold requests            31.7 %  got nothing from the cache (31.0 to 33.0 %)
  pool                      6,400  tokens, written over every 2.3 s; filled
  usage at most             9.1 %  of blocks held by running requests; cached blocks do not count
  preemptions                   3  requests lost their blocks and started over
  prefill                  20.0 %  of the requests' inference time; caching saved 41 s of it (± 3.4 s), 31.0 % of what
                                   it would be without
  output                   0.0204  generated tokens per prompt token

  why: eviction (high confidence)
    - the token hit ratio is 76.8 %, of 95.0 % that these prompt lengths allow
    - blocks are evicted after 2 s idle, and come back after 1.2 s (medians): 45.0 % of the reuses come in the second
      half of that time, so many come too late
    - 3 preemptions: running requests lost their blocks and started over
    - the pool is written over every 2.3 s: no untouched block survives longer
    - the usage gauge peaked at 9.1 %: it does not count cached blocks that no request holds
  what to do
    - more KV memory: raise --gpu-memory-utilization, use --kv-cache-dtype fp8, or add replicas with prefix-aware
      routing
    - less demand on it: lower --max-model-len or --max-num-seqs
    - to know how much: cache events give the ratio at 1.5, 2 and 4 times the pool
"""
    )
    assert shown(target(full, caveats=("retried: counted more than once",))).endswith(
        "\n  note: counted more than once\n"
    )


def test_long_lines_go_on_below_their_beginning() -> None:
    caveat = "retried: counted more than once because of what happened while nobody was looking"
    assert shown(target(engine(), caveats=(caveat,)), width=60).endswith(
        "  note: counted more than once because of what happened\n    while nobody was looking\n"
    )


def test_no_blanks_stand_at_the_end_of_a_line() -> None:
    out = io.StringIO()
    report.show([target(engine())], Console(file=out, width=120, force_terminal=False))
    assert [line for line in out.getvalue().splitlines() if line != line.rstrip()] == []


def test_absent_figures_are_left_out_and_named_with_their_reason_once() -> None:
    why = Absent("prefix caching is off")
    text = shown(target(engine(token_hit_ratio=why, caching_enabled=False, preemptions=0.0)))
    assert "  token hit ratio               -  prefix caching is off\n" in text
    assert "  absent: token hit ratio: prefix caching is off\n" in text
    assert text.count("not on this page\n") == 1
    for label in ("external hit ratio  ", "request hit ratio  ", "preemptions  "):
        assert label not in text


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        pytest.param({}, "m, engine 0 at localhost:8000 (vLLM 0.32.0): 300 s, 400 requests\n", id="all known"),
        pytest.param({"release": None}, "m, engine 0 at localhost:8000 (vLLM): 300 s, 400 requests\n", id="no release"),
        pytest.param(
            {"release": None, "dialect": "ray"}, "m, engine 0 at localhost:8000 (vLLM on Ray Serve)", id="ray"
        ),
        pytest.param({"window_seconds": Absent("one page")}, "(vLLM 0.32.0): since the engine's start, 400", id="page"),
        pytest.param({"requests": Absent("unknown")}, "(vLLM 0.32.0): 300 s\n", id="no count"),
        pytest.param({"model_name": ""}, "a model without a name, engine 0", id="no name"),
    ],
)
def test_headline(changes: dict[str, object], headline: str) -> None:
    of_target = {name: changes.pop(name) for name in ("release", "dialect") if name in changes}
    assert headline in shown(target(engine(**changes), **of_target))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("connection refused", "localhost:8000: connection refused\n"),
        (None, "localhost:8000: nothing was read\n"),
        ("line 1: <b>\x1b[2J\r[red]", "localhost:8000: line 1: <b>\\x1b[2J\\r[red]\n"),
    ],
)
def test_a_target_without_engines(error: str | None, expected: str) -> None:
    assert shown(target(error=error)) == expected


HOSTILE = "[bold]x[/] [link=http://e]y[/link]\x1b[31m\x07\n\r\u202e\u2028\udc80"
WRITTEN_OUT = "[bold]x[/] [link=http://e]y[/link]\\x1b[31m\\x07\\n\\r\\u202e\\u2028\\udc80"


def test_a_hostile_name_is_shown_as_it_is() -> None:
    text = shown(target(engine(model_name=HOSTILE, engine=HOSTILE), target=HOSTILE), width=400)
    assert text.startswith(f"{WRITTEN_OUT}, engine {WRITTEN_OUT} at {WRITTEN_OUT} (vLLM 0.32.0): 300 s, 400 requests\n")
    assert all(character.isprintable() for character in text.replace("\n", ""))
    side = engine()
    one = Comparison(model_name=HOSTILE, engine="0", differences={}, before=side, after=side)
    assert shown_comparison([one], width=400).startswith(f"{WRITTEN_OUT}, engine 0\n")


@pytest.mark.parametrize(("text", "expected"), [("naïve 模型 ± [x]", "naïve 模型 ± [x]"), (HOSTILE, WRITTEN_OUT)])
def test_harmless(text: str, expected: str) -> None:
    assert harmless(text) == expected


def difference(before: float | Absent, after: float | Absent, *, is_change: bool | None) -> Difference:
    return Difference(before=before, after=after, standard_error=0.01, is_change=is_change)


def test_a_comparison() -> None:
    differences = {
        "token_hit_ratio": difference(0.85, 0.85, is_change=False),
        "external_hit_ratio": difference(Absent("no connector"), Absent("no connector"), is_change=None),
        "prefill_share": difference(0.1, Absent("idle"), is_change=True),
        "output_per_prompt_token": difference(Absent("idle"), 0.5, is_change=True),
        "turnover_seconds": difference(1234.5, 617.25, is_change=True),
        "kv_usage_max": difference(0.5, 0.9, is_change=None),
    }
    before, after = engine(token_hit_ratio=0.95), engine(pool_filled=False)
    one = Comparison(model_name="m", engine="0", differences=differences, before=before, after=after)
    assert shown_comparison([one]) == (
        """\
m, engine 0
  figure                   before   after
  prefill share            10.0 %       -  gone
  output per prompt token       -     0.5  appeared
  turnover seconds          1,234   617.2  changed
  token hit ratio          85.0 %  85.0 %
  kv usage max             50.0 %  90.0 %

  changed: turnover seconds; appeared: output per prompt token; gone: prefill share
  diagnosis: prompt_divergence, before it: healthy

"""
    )


def test_a_comparison_of_the_same() -> None:
    watch = recorded.watched(recorded.pages("healthy"))
    text = shown_comparison(compared(watch, watch))
    assert "\n  nothing changed by more than the traffic's own variation\n" in text
    assert "\n  diagnosis: healthy, as before\n" in text


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0712, "0.071 s"), (9.96, "10 s"), (10.4, "10 s"), (119.4, "119 s"), (120.0, "2 min"), (3599, "60 min"),
     (7200.0, "2.0 h"), (90_000, "25.0 h")],
)  # fmt: skip
def test_duration(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_shares() -> None:
    assert (percent(0.7684), percent(Absent("why"))) == ("76.8 %", "-")
    assert (span(of(0.5, 0.484, 0.556)), span(of(0.5, 0.5, 0.5, "exact"))) == ("48.4 to 55.6 %", "exact")
