"""Fleet: replica by replica, whether requests go to where their prefix is, and whether the exporter itself is well."""

from lib.board import Board
from lib.layout import CHART, GLANCE, STRIP, TALL, Row, beside
from lib.metrics import ENGINE, MODEL, TARGET, of_engine, ranked, rate, ratio, raw, series
from lib.palette import CAUSE_RANKS, CAUSE_WORDS, DESIGN, GOOD, LIMIT, MEMORY, OFF, REQUESTS, TOKENS, UNSURE, WAITING
from lib.panels import NO_TRAFFIC, Column, Line, chart, number, table, told
from lib.rulefile import settings
from prefixwatch.catalog import PREFIX
from prefixwatch.config import Config

WINDOW = str(Config().diagnosis_window)
OF_ENGINE = "{{model_name}} {{target}} {{engine}}"
IMBALANCE = float(settings()["alerts"]["PrefixCacheReplicaImbalance"]["deviation"]["value"])
DEVIATION, COMMON = (
    f"model:{PREFIX}replica_hit_ratio_deviation:rate",
    f"model:{PREFIX}replica_hit_tokens_per_replica_queried_token:ratio_rate5m",
)
TO_DIAGNOSIS = (
    "Why: the diagnosis of this target",
    (
        "/d/prefixwatch-diagnosis?${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}&${namespace:queryparam}"
        "&var-target=${__value.raw:percentencode}"
    ),
)
UP_WORDS = {"1": ("up", GOOD), "0": ("down", MEMORY)}

up = raw("up").max_by(*TARGET)
hits, queried = rate("engine", "hit_tokens", "5m"), rate("engine", "queried_tokens", "5m")

targets_up = number(
    "Targets up", up.where("== 1").count_by(), unit="none", colour=GOOD, empty="none",
    about=told("Targets whose last poll gave a page.", "all.", "see Targets below."),
)  # fmt: skip
targets_down = number(
    "Targets down", up.where("== 0").count_by(), unit="none", colour=MEMORY, empty="none",
    about=told("Targets whose last poll gave nothing.", "none.", "see the reasons under the exporter's own health."),
)  # fmt: skip
engines = number(
    "Engines", of_engine("counters_frozen").count_by(), unit="none", colour=LIMIT, empty="none",
    about=told("Engines that are watched; data-parallel ranks count one by one.", "as many as run.", "fewer: a target is down or not configured."),
)  # fmt: skip
imbalance = number(
    "Imbalance, hour", series(f"{DEVIATION}1h").max_by(), unit="percentunit", colour=GOOD, steps=((IMBALANCE, MEMORY),),
    empty="one replica, or not settled", decimals=1,
    about=told(
        "How far the warm replicas of a model are from their common hit ratio, weighted by tokens; of several models the highest.",
        f"below {IMBALANCE:.0%}.", "route requests of one prefix to one replica.",
    ),
)  # fmt: skip
spread = number(
    "Spread", of_engine("token_hit_ratio", window=WINDOW).max_by(*MODEL).minus(of_engine("token_hit_ratio", window=WINDOW).min_by(*MODEL)).max_by(),
    unit="percentunit", colour=TOKENS, decimals=1,
    about=told("The best replica's ratio less the worst one's, within a model.", "small.", "one stands out below: see which."),
)  # fmt: skip
restarts = number(
    "Restarts seen", raw("engine_restarts_total").changes("1h").max_by(*ENGINE).sum_by(), unit="none", colour=LIMIT, steps=((1, DESIGN),), empty="none",
    about=told("Restarts of engines within an hour.", "0, or as many as you made.", "each empties a cache: ratios dip until it is warm again."),
)  # fmt: skip

replicas = table(
    "Replicas",
    Column(name="Target", label="target", links=(TO_DIAGNOSIS,)), Column(name="Engine", label="engine"), Column(name="Model", label="model_name"),
    Column(name="Cause", query=ranked(CAUSE_RANKS), words=CAUSE_WORDS),
    Column(name="5 min", query=ratio("engine", "hit_tokens_per_queried_token", "5m"), unit="percentunit", colour=TOKENS, decimals=1),
    Column(name="Hour", query=ratio("engine", "hit_tokens_per_queried_token", "1h"), unit="percentunit", colour=TOKENS, decimals=1),
    Column(
        name="Request ratio", query=of_engine("request_hit_ratio", window=WINDOW, bound="estimate"), unit="percentunit",
        colour=REQUESTS, decimals=1,
    ),
    Column(name="Looked up", query=queried, unit="cps", decimals=0),
    Column(name="Turnover", query=of_engine("turnover_seconds", window=WINDOW), unit="s"),
    Column(name="Usage", query=of_engine("kv_usage_max_ratio", window=WINDOW), unit="percentunit", decimals=1),
    about=told(
        "Each engine now: cause, hit ratios, request level, lookups, how fast its pool is written over, usage.",
        "rows alike.", "the target links to its diagnosis.",
    ),
    empty=NO_TRAFFIC, sort="5 min", descending=False,
)  # fmt: skip
by_replica = chart(
    "Hit ratio by replica",
    Line(query=ratio("engine", "hit_tokens_per_queried_token", "5m"), name=OF_ENGINE, colour=TOKENS, many=True),
    Line(query=series(COMMON), name="all of {{model_name}}", colour=LIMIT, dashed=True),
    unit="percentunit", highest=1,
    about=told(
        "The token hit ratio of each replica over 5 minutes, and the one that they have together.", "close together.",
        "one below the others: its pool, its traffic, or a cold start.",
    ),
)  # fmt: skip
deviation = chart(
    "Imbalance",
    Line(query=series(f"{DEVIATION}5m"), name="5 minutes {{model_name}}", colour=TOKENS),
    Line(query=series(f"{DEVIATION}1h"), name="hour {{model_name}}", colour=TOKENS, dashed=True),
    unit="percentunit", empty="one replica, or not settled",
    about=told(
        "Mean distance of the warm replicas from their model's ratio, weighted by tokens; absent with one replica.",
        f"below {IMBALANCE:.0%}.", "prefix-aware or session-sticky routing.",
    ),
)  # fmt: skip
shares = chart(
    "Lookups by replica",
    Line(query=queried, name=OF_ENGINE, colour=TOKENS, many=True),
    unit="cps", stacked=True,
    about=told("Looked-up prompt tokens a second.", "even, or by prefix.", "one replica with most of the traffic has most of the cache too."),
)  # fmt: skip
ranks = chart(
    "Hit ratio by data-parallel rank",
    Line(
        query=hits.sum_by("model_name", "engine").per(queried.sum_by("model_name", "engine")), name="{{model_name}} rank {{engine}}",
        colour=TOKENS, many=True,
    ),
    unit="percentunit", highest=1,
    about=told(
        "The token hit ratio of each rank, over all targets. Each rank has a cache of its own.", "alike.",
        "ranks far apart: the balancer in front of them does not know prefixes.",
    ),
)  # fmt: skip

state = table(
    "Targets",
    Column(name="Target", label="target"), Column(name="Namespace", label="namespace"),
    Column(name="State", query=up, words=UP_WORDS),
    Column(name="Loading", query=raw("target_loading").max_by(*TARGET), words={"1": ("loading", WAITING), "0": ("no", UNSURE)}),
    Column(name="Last page", query=raw("last_success_timestamp_seconds").max_by(*TARGET).times(1000), unit="dateTimeFromNow"),
    Column(name="Last poll", query=raw("poll_duration_seconds").max_by(*TARGET), unit="s"),
    about=told(
        "Each target: whether its last poll gave a page, when one last did, how long the poll took.", "all up.",
        "down: is the engine there, and may the exporter reach it?",
    ),
    empty="no exporter", sort="State", descending=False,
)  # fmt: skip
errors = chart(
    "Polls and cache events that failed, by reason",
    Line(query=raw("poll_errors_total").rate().max_by(*TARGET, "reason").sum_by("reason"), name="{{reason}}", colour=MEMORY, many=True),
    Line(
        query=raw("events_errors_total").rate().max_by(*TARGET, "rank", "reason").sum_by("reason"), name="cache events: {{reason}}",
        colour=WAITING, many=True,
    ),
    unit="cps", empty="none failed",
    about=told("Polls a second that gave nothing to use, and faults of the cache event channels.", "none.", "the reason says what to look at; several_engines: use a headless Service."),
)  # fmt: skip
durations = chart(
    "How long polls take",
    Line(query=raw("poll_duration_seconds").max_by(*TARGET), name="{{target}}", colour=LIMIT, many=True),
    unit="s",
    about=told("Duration of the last poll of each target.", "far below the poll interval.", "slow pages: an engine under load, or a long way."),
)  # fmt: skip
channels = table(
    "Cache events",
    Column(name="Target", label="target"), Column(name="Rank", label="rank"),
    Column(name="State", query=raw("events_connected").max_by(*TARGET, "rank"), words={"1": ("connected", GOOD), "0": ("not connected", MEMORY)}),
    Column(name="Behind", query=raw("events_lag_seconds").min_by(*TARGET, "rank"), unit="s"),
    Column(name="Lost batches", query=raw("events_missed_batches_total").rate().max_by(*TARGET, "rank"), unit="cps"),
    about=told(
        "The channels on which engines publish their cache events: connected, how far behind, batches lost.",
        "connected, seconds behind, nothing lost.", "lost batches make avoidable misses wrong for a while: a shorter way, or sampling.",
    ),
    empty="no channel for cache events",
)  # fmt: skip
exporters = table(
    "Exporters",
    Column(name="Exporter", label="instance"), Column(name="Version", label="version"),
    Column(name="Running", query=raw("build_info").max_by("instance", "version"), words={"1": ("yes", GOOD), "0": ("no", OFF)}),
    about=told("Each exporter and its version.", "one version.", "PrefixCacheExporterDown says when one is gone."),
    empty="no exporter",
)  # fmt: skip
file_state = table(
    "Targets file",
    Column(name="Exporter", label="instance"),
    Column(
        name="Last reading", query=raw("targets_file_last_reload_success").max_by("instance"),
        words={"1": ("good", GOOD), "0": ("faulty", MEMORY)},
    ),
    about=told("Whether the targets file was good when it last changed.", "good.", "the exporter goes on with the last good one; its log says what is wrong, and PrefixCacheEngineUnreachable tells of it."),
    empty="no targets file",
)  # fmt: skip

BOARD = Board(
    uid="prefixwatch-fleet",
    title="Fleet",
    summary="Replica by replica: whether requests go to where their prefix is, and whether the exporter itself is well.",
    rows=[
        Row(title="Now", boxes=[beside(targets_up, targets_down, engines, imbalance, spread, restarts, height=GLANCE)]),
        Row(title="Replicas", boxes=[beside(replicas, height=TALL - 2), beside(by_replica, deviation, height=CHART), beside(shares, ranks, height=CHART)]),
        Row(title="The exporter's own health", boxes=[
            beside(state, channels, height=STRIP, shares=(13, 11)), beside(errors, durations, exporters, file_state, height=STRIP, shares=(8, 7, 5, 4)),
        ]),
    ],
)  # fmt: skip
