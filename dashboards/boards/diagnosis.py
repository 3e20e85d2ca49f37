"""Diagnosis: the walk from traffic to decode, step by step, with the evidence for each step beside it."""

from boards.pool_numbers import LIMITS, NO_EVENTS, WINDOW, avoidable_misses, filled, late_reuses, turnover
from lib.board import Board
from lib.grafana import Panel
from lib.layout import GLANCE, HALF, Box, Row, beside, stack
from lib.metrics import TARGET, Expr, of_engine, ranked, rate, raw
from lib.palette import (
    CAUSE_RANKS,
    CAUSE_WORDS,
    CAUSES,
    CONFIDENCE_WORDS,
    DECODE,
    DESIGN,
    FLOOR,
    GOOD,
    LIMIT,
    MEMORY,
    OFF,
    PROMPTS,
    QUIET,
    REQUESTS,
    TOKENS,
    UNSURE,
)
from lib.panels import Column, Line, chart, number, table, timeline, told, verdict, words
from lib.runbooks import runbook
from prefixwatch.diagnosis import Cause

OF_ENGINE = "{{model_name}} {{target}} {{engine}}"
STEP = (4, 3, 11, 6)  # the answer, its numbers, the evidence, what it means
NOT_SAID = "the engine does not say"
NO_RESIDENCY = "no block was evicted, or --kv-cache-metrics is off"

causes = ranked(CAUSE_RANKS)


def this_is_it(*found: Cause, may_be: bool = False) -> Panel:
    """Return whether the diagnosis of an engine chosen is one of these; `may_be`: what too little evidence leaves open."""
    named, colour = " or ".join(CAUSES[one][0] for one in found), CAUSES[found[0]][1]
    query = raw("diagnosis", cause="|".join(found)).max_by()
    said = {"0": ("not this", QUIET), "1": ("this is it", colour)}
    if may_be:
        query = query.times(2).plus(raw("diagnosis", cause=Cause.INSUFFICIENT_EVIDENCE).max_by())
        said = {
            "0": ("not this", QUIET),
            "1": ("may be this", UNSURE),
            "2": ("this is it", colour),
            "3": ("this is it", colour),
        }
    return verdict(
        "This?", query, words=said, empty="no engine",
        about=told(
            f"Whether the diagnosis of an engine chosen is {named}.", "not this.", "read the evidence beside it, and what it means.",
        ),
    )  # fmt: skip


def share_of(requests: str) -> Expr:
    """Return the share of the observed requests that are such, over all engines chosen."""
    part = rate("engine", requests, "5m", bound="estimate").sum_by()
    return part.per(rate("engine", "requests_observed", "5m").sum_by())


def step(title: str, answer: Panel, numbers: tuple[Panel, Panel], evidence: Panel | Box, meaning: str) -> Row:
    """Return a step of the walk: the answer, its numbers, the evidence, and what it means."""
    halves = stack(*(beside(one, height=HALF) for one in numbers))
    boxes = [beside(answer, halves, evidence, words("", meaning), height=2 * HALF, shares=STEP)]
    return Row(title=title, boxes=boxes)


ratio = of_engine("token_hit_ratio", window=WINDOW)
ceiling = of_engine("hit_ratio_ceiling", window=WINDOW, bound="estimate")

cause = verdict(
    "Cause", causes.max_by(), words=CAUSE_WORDS,
    about=told(
        f"What the figures of the last {WINDOW} point to; of several engines the one that needs attention most.",
        "healthy, decode bound or short prompts.", 'go through the steps below: the one that says "this is it" is the cause, with its evidence beside it.',
    ),
)  # fmt: skip
confidence = table(
    "How sure",
    Column(name="Model", label="model_name"), Column(name="Target", label="target"), Column(name="Engine", label="engine"),
    Column(name="Confidence", query=of_engine("diagnosis_confidence"), words=CONFIDENCE_WORDS),
    empty="no engine",
    about=told(
        "How sure the diagnosis of each engine is.", "high.",
        "cache events or --kv-cache-metrics on the engine make it surer; `prefixwatch check URL` prints the evidence in words.",
    ),
)  # fmt: skip
over_time = timeline(
    "Cause over time", causes, OF_ENGINE, words=CAUSE_WORDS,
    about=told("The diagnosis of each engine chosen.", "one colour.", "note when it changed, and what else did then."),
)  # fmt: skip

looked_up = number(
    "Looked up", rate("engine", "queried_tokens", "5m").sum_by(), unit="cps", colour=LIMIT, empty="nothing",
    about=told(
        "Prompt tokens a second that are looked up in the cache.", "above 0.",
        "0 or nothing: there is nothing to diagnose. Requests without lookups: step 2.",
    ),
)  # fmt: skip
finished = number(
    "Requests", rate("engine", "requests_finished", "5m").sum_by(), unit="reqps", colour=LIMIT, empty="none", decimals=1,
    about=told("Requests that finish, a second.", "above 0.", "with few, single requests decide every ratio."),
)  # fmt: skip
traffic = chart(
    "Looked-up and found tokens",
    Line(query=rate("engine", "queried_tokens", "5m").sum_by(), name="looked up", colour=TOKENS),
    Line(query=rate("engine", "hit_tokens", "5m").sum_by(), name="found", colour=GOOD),
    unit="cps",
    about=told("Prompt tokens a second, looked up and found.", "found follows looked up.", "the space between is what is computed."),
)  # fmt: skip

caching = verdict(
    "Prefix caching", of_engine("prefix_caching_enabled").min_by(), words={"1": ("on", QUIET), "0": ("off", OFF)}, empty=NOT_SAID,
    about=told("The engine's own flag.", "on.", "start vLLM with --enable-prefix-caching, or leave it off if that was meant."),
)  # fmt: skip
counters = verdict(
    "Counters", of_engine("counters_frozen").max_by(), words={"0": ("moving", QUIET), "1": ("standing still", MEMORY)}, empty=NOT_SAID,
    about=told(
        "Whether the counters move while requests are served.", "moving.",
        "standing still: every ratio is wrong; see whether /metrics is served by the process that serves requests.",
    ),
)  # fmt: skip
sources = table(
    "What speaks here",
    Column(name="Target", label="target"), Column(name="Dialect", label="dialect"), Column(name="Release", label="release"),
    Column(name="Known", query=raw("source_info").max_by(*TARGET, "dialect", "release"), is_hidden=True),
    about=told("Which dialect and release the exporter found.", "one line per target.", "another engine than expected: check the address."),
    empty="no target answers",
)  # fmt: skip
caveats = table(
    "What skews the figures",
    Column(name="Target", label="target"), Column(name="Caveat", label="caveat"),
    Column(name="Known", query=raw("caveat").max_by(*TARGET, "caveat"), is_hidden=True),
    about=told(
        "What is known to be wrong with the counting of this release.", "empty.",
        "read the figures that it names with it in mind; a later vLLM may count right.",
    ),
    empty="nothing known",
)  # fmt: skip

allowed = number(
    "Ceiling", ceiling.min_by(), unit="percentunit", colour=FLOOR, steps=((LIMITS.short_ceiling, GOOD),), decimals=1,
    about=told(
        f"The most that these prompt lengths allow over {WINDOW}: only whole blocks are found, and the last token is computed.",
        f"above {LIMITS.short_ceiling:.0%}.", "prompts of at most a block: nothing to gain, or a smaller --block-size.",
    ),
)  # fmt: skip
of_ceiling = number(
    "Of the ceiling", ratio.per(ceiling).min_by(), unit="percentunit", colour=PROMPTS, decimals=1,
    steps=((LIMITS.low_of_ceiling, LIMIT), (LIMITS.near_ceiling, GOOD)),
    about=told(
        "The token hit ratio as a share of its ceiling; of several engines the lowest.",
        f"above {LIMITS.near_ceiling:.0%}: nothing worth a look is lost.",
        f"below {LIMITS.low_of_ceiling:.0%} most of the gain is missing: steps 4 to 6 say why.",
    ),
)  # fmt: skip
floor = chart(
    "Hit ratio under its ceiling",
    Line(query=ratio, name=f"token hit ratio {OF_ENGINE}", colour=TOKENS, many=True),
    Line(query=ceiling, name=f"ceiling {OF_ENGINE}", colour=LIMIT, dashed=True),
    unit="percentunit", highest=1,
    about=told(f"The token hit ratio over {WINDOW}, and its ceiling.", "just below it.", "the gap is what steps 4 to 6 explain."),
)  # fmt: skip

usage = number(
    "Usage, highest", of_engine("kv_usage_max_ratio", window=WINDOW).max_by(), unit="percentunit", colour=GOOD,
    steps=((LIMITS.near_full, MEMORY),), empty=NOT_SAID, decimals=1,
    about=told(
        f"The highest share of blocks that running requests held within {WINDOW}. Cached blocks that none holds do not count:"
        " it can be 0 while the cache thrashes.",
        f"below {LIMITS.near_full:.0%}.", "near 1 with a queue: running requests crowd the pool.",
    ),
)  # fmt: skip
pool = chart(
    "Usage and preemptions",
    Line(query=of_engine("kv_usage_max_ratio", window="1m"), name=f"usage {OF_ENGINE}", colour=MEMORY, many=True),
    Line(
        query=rate("engine", "preemptions", "5m"), name=f"preemptions {OF_ENGINE}", colour=LIMIT, dashed=True,
        unit="cps", right=True,
    ),
    unit="percentunit", highest=1,
    about=told(
        "Blocks that running requests hold, and preemptions a second on the right axis.", "no preemptions.",
        "preempted requests start over: more KV memory, or fewer requests at once.",
    ),
)  # fmt: skip

# Blocks that nobody came back for may wait as long or short as they like: only beside reuses does the wait say something.
idle_before_eviction = of_engine("block_idle_before_evict_seconds", window=WINDOW, quantile="0.5").beside(
    of_engine("late_reuse_ratio", window=WINDOW)
)
eviction = chart(
    "How long blocks survive, and when they come back",
    Line(query=idle_before_eviction, name=f"idle before eviction {OF_ENGINE}", colour=MEMORY, many=True),
    Line(query=of_engine("block_reuse_gap_seconds", window=WINDOW, quantile="0.5"), name=f"back after {OF_ENGINE}", colour=GOOD, many=True),
    Line(query=of_engine("turnover_seconds", window=WINDOW), name=f"pool written over {OF_ENGINE}", colour=LIMIT, dashed=True),
    unit="s", logarithmic=True, empty=NO_RESIDENCY,
    about=told(
        "Where evicted blocks had been used again: medians of how long they were idle, and of the time between two uses. How long"
        " writing the pool over takes.",
        "blocks come back long before they are evicted.", "lines close together: many come back too late.",
    ),
)  # fmt: skip

cold = number(
    "Cold requests", share_of("cold_requests"), unit="percentunit", colour=LIMIT, decimals=1,
    about=told(
        "Requests that got nothing at all; estimated.", "few.",
        "with a pool that never filled they share nothing at the front: what varies must go last.",
    ),
)  # fmt: skip
split = number(
    "Split by key", of_engine("key_split_ratio", window=WINDOW).max_by(), unit="percentunit", colour=GOOD, decimals=1,
    steps=((LIMITS.split, DESIGN),), empty=NO_EVENTS,
    about=told(
        "Stored blocks whose tokens had been stored at the same place under another salt or adapter.",
        f"below {LIMITS.split:.0%}, or meant so.", "fewer cache_salt values or adapters, unless tenants must not share a cache.",
    ),
)  # fmt: skip
prompts = chart(
    "Requests by what they got",
    Line(query=share_of("cold_requests"), name="cold: nothing", colour=PROMPTS),
    Line(query=share_of("mostly_cached_requests"), name="mostly cached: half or more", colour=REQUESTS),
    Line(query=share_of("full_requests"), name="fully cached: all but a block", colour=GOOD),
    unit="percentunit", highest=1,
    about=told(
        "Shares of the requests of 5 minutes; estimates.", "few cold ones.",
        "all cold: the very first block differs. Neither cold nor mostly cached: the prompts part ways in the middle.",
    ),
)  # fmt: skip

prefill_share = number(
    "Prefill share", of_engine("prefill_share_ratio", window=WINDOW).min_by(), unit="percentunit", colour=DECODE,
    steps=((LIMITS.small_prefill_share, GOOD),), decimals=1, empty=NOT_SAID,
    about=told(
        "Prefill's share of the requests' inference time.", f"above {LIMITS.small_prefill_share:.0%}, if caching is to matter.",
        "below: no cache can move latency much; look at decoding.",
    ),
)  # fmt: skip
output = number(
    "Output per prompt", of_engine("output_per_prompt_token", window=WINDOW).max_by(), unit="none", colour=GOOD,
    steps=((LIMITS.output_dwarfs_prompt, DECODE),), decimals=2,
    about=told(
        "Generated tokens per prompt token.", f"below {LIMITS.output_dwarfs_prompt:g}, if caching is to matter.",
        "above: decoding is where the time goes.",
    ),
)  # fmt: skip
decode = chart(
    "Where the time of requests goes",
    Line(query=rate("engine", "prefill_seconds", "5m").sum_by(), name="prefill", colour=PROMPTS),
    Line(query=rate("engine", "inference_seconds", "5m").sum_by().minus(rate("engine", "prefill_seconds", "5m").sum_by()), name="decode", colour=DECODE),
    unit="s", stacked=True,
    about=told(
        "Request-seconds of prefill and of decoding, each second.", "prefill is worth saving.",
        "all decode: batch size, speculative decoding, quantisation.",
    ),
)  # fmt: skip

BOARD = Board(
    uid="prefixwatch-diagnosis",
    title="Diagnosis",
    summary="Why the cache of one engine misses: a walk from traffic to decode, with the evidence for each step.",
    rows=[
        Row(
            title="Why",
            boxes=[beside(
                stack(beside(cause, height=GLANCE), beside(confidence, height=GLANCE)), beside(over_time, height=2 * GLANCE),
                shares=(7, 17),
            )],
        ),
        step(
            "1. Is there traffic?", this_is_it(Cause.NO_TRAFFIC), (looked_up, finished), traffic,
            "**No lookups, no diagnosis.** Nothing at all: no traffic. Requests but no lookups: caching is off, or the counters"
            f" stand still (step 2, {runbook('PrefixCacheCountersFrozen')}).",
        ),
        step(
            "2. Is it on, and do its counters tell the truth?", this_is_it(Cause.CACHING_DISABLED), (caching, counters),
            beside(sources, caveats, height=2 * HALF),
            f"**Off** is a decision, or a flag that a template lost: {runbook('PrefixCacheDisabled')}.\n\n"
            "A **caveat** names what this release counts wrong.",
        ),
        step(
            "3. Do the prompt lengths allow more?", this_is_it(Cause.SHORT_PROMPTS), (allowed, of_ceiling), floor,
            "**A low ceiling** is no fault of the cache: prompts of at most a block cannot be found.\n\n"
            f"**Near the ceiling** nothing is lost: stop here. Far below, go on ({runbook('PrefixCacheHitRatioDropped')}).",
        ),
        step(
            "4. Is the pool short?", filled(), (usage, turnover()), pool,
            "**Never filled**: nothing was evicted; go to step 6.\n\n**Usage near 1, preemptions, a queue**: running requests"
            f" crowd the pool ({runbook('PrefixCacheKvPressure')}). Low usage says nothing about the cache.",
        ),
        step(
            "5. Is it evicted before it is needed again?", this_is_it(Cause.EVICTION, may_be=True), (avoidable_misses(), late_reuses()), eviction,
            "**May be this**: the pool has filled, and nothing tells this from step 6; cache events would.\n\n"
            "**Avoidable misses or late reuses**: eviction. More KV memory, or less demand on it"
            f" ({runbook('PrefixCacheEvictingReusedBlocks')}).\n\n**Neither**: evicted blocks were not needed again; step 6.",
        ),
        step(
            "6. Do the prompts share their beginning?", this_is_it(Cause.PROMPT_DIVERGENCE, Cause.CACHE_KEY_SPLIT, may_be=True), (cold, split), prompts,
            "**Cold requests without eviction**: the prompts differ at the front, are salted apart, or share nothing. Put what is"
            f" shared first; compare two rendered prompts ({runbook('PrefixCacheNoReuse')}, {runbook('PrefixCacheTokenRequestGap')}).",
        ),
        step(
            "7. Would it matter?", this_is_it(Cause.DECODE_BOUND), (prefill_share, output), decode,
            "**Prefill a small share of the time**: whatever the cache does, latency is made in decoding.",
        ),
    ],
)  # fmt: skip
