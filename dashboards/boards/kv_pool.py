"""KV pool: how long blocks stay, whether that is long enough, and what a larger pool would give."""

from boards.pool_numbers import LIMITS, NO_EVENTS, WINDOW, avoidable_misses, filled, late_reuses, turnover
from lib.board import Board
from lib.layout import CHART, GLANCE, Row, beside
from lib.metrics import of_engine, rate, ratio
from lib.palette import DESIGN, GOOD, LIMIT, MEMORY, PROMPTS, TOKENS, WAITING
from lib.panels import Line, chart, number, told

OF_ENGINE = "{{model_name}} {{target}} {{engine}}"
UNKNOWN = "the engine does not say"

size = number(
    "Pool", of_engine("pool_tokens").sum_by(), unit="locale", colour=LIMIT, empty=UNKNOWN,
    about=told("Tokens that the KV pools of the engines chosen hold.", "several times the working set.", "see what-if below."),
)  # fmt: skip
working_set = number(
    "Working set", of_engine("working_set_ratio", window=WINDOW).max_by(), unit="percentunit", colour=LIMIT, empty=NO_EVENTS, decimals=0,
    about=told(
        f"Distinct blocks stored within {WINDOW}, as a share of the pool.", "below 100 %.",
        "above: what is in use does not fit. Whether it is needed again, avoidable misses say.",
    ),
)  # fmt: skip

# Blocks that nobody came back for may wait as long or short as they like: only beside reuses does the wait say something.
idle_before_eviction = of_engine("block_idle_before_evict_seconds", window=WINDOW, quantile="0.5").beside(
    of_engine("late_reuse_ratio", window=WINDOW)
)
survival = chart(
    "Turnover against residency and reuse",
    Line(query=of_engine("turnover_seconds", window=WINDOW), name=f"pool written over {OF_ENGINE}", colour=LIMIT, dashed=True),
    Line(query=of_engine("block_lifetime_seconds", window=WINDOW, quantile="0.5"), name=f"lifetime {OF_ENGINE}", colour=LIMIT, many=True),
    Line(query=idle_before_eviction, name=f"idle before eviction {OF_ENGINE}", colour=MEMORY, many=True),
    Line(query=of_engine("block_reuse_gap_seconds", window=WINDOW, quantile="0.5"), name=f"back after {OF_ENGINE}", colour=GOOD, many=True),
    Line(query=of_engine("block_reuse_gap_seconds", window=WINDOW, quantile="0.9"), name=f"nine tenths back after {OF_ENGINE}", colour=GOOD, dashed=True),
    unit="s", logarithmic=True, empty="nothing written",
    about=told(
        "How long blocks live (median) and, where they had been used again, wait before eviction; when they come back; the time to write the"
        " pool over. From --kv-cache-metrics; blocks are sampled.",
        "the green lines far below the others.", "where they meet, blocks are evicted about when they are needed again.",
    ),
)  # fmt: skip
written = chart(
    "Written into the pool",
    Line(query=rate("engine", "written_tokens", "5m"), name=f"written {OF_ENGINE}", colour=PROMPTS, many=True),
    Line(query=rate("engine", "hit_tokens", "5m"), name=f"found instead {OF_ENGINE}", colour=GOOD, many=True),
    unit="cps",
    about=told(
        "Tokens a second that are written (computed, loaded, generated), and those that the cache spared.",
        "found above written.", "what is written pushes out what is cached.",
    ),
)  # fmt: skip

evictions = chart(
    "Blocks stored and removed",
    Line(query=rate("engine", "blocks_stored", "5m").sum_by(), name="stored", colour=LIMIT),
    Line(query=rate("engine", "blocks_removed", "5m").sum_by(), name="removed", colour=PROMPTS, dashed=True),
    Line(query=rate("engine", "blocks_stored_again", "5m").sum_by(), name="stored again: avoidable", colour=MEMORY),
    unit="cps", empty=NO_EVENTS,
    about=told(
        "Blocks a second by the engine's cache events. Stored again: had been there before, and was evicted.",
        "stored again near 0.", "removals alone are no loss: only what comes back is.",
    ),
)  # fmt: skip
avoidable_over_time = chart(
    "Avoidable misses over time",
    Line(query=ratio("engine", "blocks_stored_again_per_stored_block", "5m"), name=f"5 minutes {OF_ENGINE}", colour=MEMORY, many=True),
    Line(query=ratio("engine", "blocks_stored_again_per_stored_block", "1h"), name=f"hour {OF_ENGINE}", colour=MEMORY, dashed=True),
    unit="percentunit", highest=1, empty=NO_EVENTS,
    about=told(
        "Stored blocks that had been in the pool before, over 5 minutes and an hour.", f"below {LIMITS.avoidable:.0%}.",
        "steady and high: more KV memory. In bursts: the load's own.",
    ),
)  # fmt: skip
what_if = chart(
    "What if the pool were larger",
    Line(query=of_engine("avoidable_miss_ratio", window=WINDOW).max_by(), name="as it is", colour=MEMORY),
    Line(query=of_engine("whatif_avoidable_miss_ratio", window=WINDOW, pool="1.5x").max_by(), name="1.5 times", colour=DESIGN),
    Line(query=of_engine("whatif_avoidable_miss_ratio", window=WINDOW, pool="2x").max_by(), name="2 times", colour=DESIGN, dashed=True),
    Line(query=of_engine("whatif_avoidable_miss_ratio", window=WINDOW, pool="4x").max_by(), name="4 times", colour=DESIGN, dotted=True),
    unit="percentunit", highest=1, empty=NO_EVENTS,
    about=told(
        "The avoidable misses to expect of 1.5, 2 and 4 times the pool on the same requests, from the cache events. More requests"
        " running at once, and hits, are not in it.",
        "a line near 0 that costs little.", "the smallest pool whose line is low is enough; none is: much more memory, or less demand.",
    ),
)  # fmt: skip

usage = chart(
    "Usage by running requests",
    Line(query=of_engine("kv_usage_max_ratio", window="1m"), name=OF_ENGINE, colour=MEMORY, many=True),
    unit="percentunit", highest=1,
    about=told(
        "The highest share of blocks that running requests held within a minute. Cached blocks that none holds do not count.",
        f"below {LIMITS.near_full:.0%}.", "low usage says nothing about how full the cache is; near 1 the pool is crowded.",
    ),
)  # fmt: skip
waiting = chart(
    "The queue",
    Line(query=ratio("engine", "queue_seconds_per_finished_request", "5m"), name=f"time in it {OF_ENGINE}", colour=WAITING, many=True),
    Line(
        query=of_engine("requests_waiting"), name=f"requests in it {OF_ENGINE}", colour=LIMIT, dashed=True, unit="none", right=True,
    ),
    unit="s",
    about=told(
        "Mean time in the queue of the requests that finished within 5 minutes, and how many wait now (right axis).",
        "next to nothing.",
        "with usage near 1: the pool is full. With low usage: --max-num-seqs, or more load than the engine can take.",
    ),
)  # fmt: skip
preemptions = chart(
    "Preemptions",
    Line(query=rate("engine", "preemptions", "5m").times(60), name=OF_ENGINE, colour=MEMORY, many=True),
    unit="cpm",
    about=told("Requests a minute that lost their blocks and started over.", "0.", "fewer requests at once, or more KV memory."),
)  # fmt: skip

connector = chart(
    "Found in a KV connector",
    Line(query=ratio("engine", "external_hit_tokens_per_external_queried_token", "5m"), name=f"external {OF_ENGINE}", colour=GOOD, dashed=True),
    Line(query=ratio("engine", "hit_tokens_per_queried_token", "5m"), name=f"prefix cache {OF_ENGINE}", colour=TOKENS, many=True),
    unit="percentunit", highest=1,
    about=told(
        "Of the tokens that the prefix cache did not have and that were looked up in a KV connector, how many were found there,"
        " beside the prefix cache's own ratio. Without a connector only the latter.",
        "what the pool evicts is found here.", "near 0: the connector holds something else, or less than the pool.",
    ),
)  # fmt: skip
loaded = chart(
    "Tokens loaded from a KV connector",
    Line(query=rate("engine", "external_hit_tokens", "5m"), name=OF_ENGINE, colour=GOOD, many=True),
    unit="cps", empty="no KV connector",
    about=told(
        "Prompt tokens a second that a connector gave instead of prefill; they are written into the pool.",
        "cheaper than computing them.", "compare time to first token on the Overview board.",
    ),
)  # fmt: skip

BOARD = Board(
    uid="prefixwatch-kv-pool",
    title="KV pool",
    summary="How long blocks stay in the KV pool, whether that is long enough, and what a larger pool would give.",
    rows=[
        Row(title="Now", boxes=[beside(size, filled(), turnover(), avoidable_misses(), late_reuses(), working_set, height=GLANCE)]),
        Row(title="Do blocks survive until they are needed?", boxes=[beside(survival, written, height=CHART, shares=(15, 9))]),
        Row(title="Evictions: avoidable or not", boxes=[beside(evictions, avoidable_over_time, what_if, height=CHART)]),
        Row(title="Pressure by running requests", boxes=[beside(usage, waiting, preemptions, height=CHART)]),
        Row(title="Beyond the pool", boxes=[beside(connector, loaded, height=CHART)]),
    ],
)  # fmt: skip
