"""Overview: how much each model's cache finds, against what it could and did, and why."""

from lib.board import Board
from lib.layout import CHART, GLANCE, STRIP, Row, beside
from lib.metrics import MODEL, alerts, rate, ratio, raw, series, share
from lib.metrics import ranked as ranked_causes
from lib.palette import CAUSE_RANKS, CAUSE_WORDS, GOOD, LIMIT, MEMORY, PROMPTS, REQUESTS, TOKENS, WAITING
from lib.panels import NO_TRAFFIC, Column, Line, chart, number, table, timeline, told, verdict
from lib.runbooks import links as runbook_links
from lib.runbooks import with_runbook
from prefixwatch.catalog import PREFIX

BASELINE = f"model:{PREFIX}hit_tokens_per_queried_token:ratio_rate1d_offset1d"
CACHED = "observed_cached_tokens_per_observed_prompt_token"
REQUEST_RATIO = "request_hit_ratio_sum_per_observed_request"
TO_DIAGNOSIS = (
    "Why: the diagnosis of this model",
    (
        "/d/prefixwatch-diagnosis?${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}&${namespace:queryparam}"
        "&var-model_name=${__value.raw:percentencode}"
    ),
)

causes = ranked_causes(CAUSE_RANKS)

why = verdict(
    "Why", causes.max_by(), words=CAUSE_WORDS,
    about=told(
        "The diagnosis over the last 5 minutes that needs attention most, of all engines chosen.",
        "healthy, decode bound, or short prompts: nothing is lost.",
        "see which engine it is in the timeline below, then open the Diagnosis board for its evidence.",
    ),
)  # fmt: skip
token_ratio = number(
    "Token hit ratio", share("hit_tokens", "queried_tokens", "5m"), unit="percentunit", colour=TOKENS, decimals=1,
    about=told(
        "Of the prompt tokens looked up in the last 5 minutes, how many were in the cache: sums over all models chosen.",
        "near the ceiling that the prompt lengths allow, and near the day before.",
        "compare with the ceiling and the baseline below, per model.",
    ),
)  # fmt: skip
request_ratio = number(
    "Request hit ratio", share("request_hit_ratio_sum", "requests_observed", "5m", bound="estimate"),
    unit="percentunit", colour=REQUESTS, decimals=1,
    about=told(
        "The mean over the requests of the last 5 minutes of the share of their prompt that was cached; estimated.",
        "about the token ratio.",
        "far below it, the long prompts are the warm ones, and most users wait for a full prefill.",
    ),
)  # fmt: skip
cold_share = number(
    "Cold requests", share("cold_requests", "requests_observed", "5m", bound="estimate"),
    unit="percentunit", colour=PROMPTS, decimals=1,
    about=told(
        "The share of the requests of the last 5 minutes that got nothing from the cache; estimated.",
        "few: the first request of each prefix always misses.",
        "see in the diagnosis whether their blocks were evicted or their prompts share nothing.",
    ),
)  # fmt: skip
from_cache = number(
    "Tokens from the cache", rate("model", "hit_tokens", "5m").sum_by(), unit="cps", colour=GOOD, empty="none",
    about=told(
        "Prompt tokens a second that were found and need no prefill.", "as high as traffic and ceiling allow.",
        "0 with traffic: nothing is found; see Why.",
    ),
)  # fmt: skip
spent_seconds, saved_seconds = (
    rate("model", name, "5m").sum_by() for name in ("prefill_seconds", "prefill_saved_seconds")
)
known_savings = saved_seconds.where("> 0")  # the counter stands at 0 while a token's cost is not known
saved = number(
    "Prefill saved", known_savings.per(known_savings.plus(spent_seconds)), unit="percentunit", colour=GOOD, decimals=1,
    empty="not known",
    about=told(
        "Prefill time that cached tokens spared the requests of the last 5 minutes, as a share of what all prefill would have"
        " taken. Known only where what a token costs could be fitted on the engine's own intervals.",
        "as high as the hit ratio lets one hope.",
        "not known: too little traffic, or all requests compute about the same.",
    ),
)  # fmt: skip
engines_up = number(
    "Targets up", raw("up").max_by("cluster", "namespace", "target").where("== 1").count_by(), unit="none", colour=LIMIT,
    empty="none",
    about=told("Targets whose last poll gave a page.", "all of them.", "see Targets on the Fleet board."),
)  # fmt: skip
firing_count = number(
    "Alerts firing", alerts(alertstate="firing").count_by(), unit="none", colour=MEMORY, empty="none",
    about=told("Alerts of prefixwatch that fire now.", "none.", "each has a runbook: see the table below."),
)  # fmt: skip

causes_over_time = timeline(
    "Causes over time", causes, "{{model_name}} {{target}} {{engine}}", words=CAUSE_WORDS,
    about=told(
        "What the diagnosis of each engine points to. It changes only after a new cause has lasted a minute.",
        "one colour throughout.",
        "look at what happened when it changed: a deployment, a restart (marked), another mix of prompts.",
    ),
)  # fmt: skip
firing = table(
    "Firing alerts",
    Column(name="Alert", label="alertname"), Column(name="Severity", label="severity"),
    Column(name="Model", label="model_name"), Column(name="Target", label="target"),
    Column(name="Runbook", label="runbook", links=runbook_links()),
    Column(name="Firing", query=with_runbook(alerts(alertstate="firing")), is_hidden=True),
    about=told(
        "What fires now, from Prometheus's own record of its rules.", "empty.",
        "follow the runbook; where no address is configured it is a path in the repository.",
    ),
    empty="nothing fires",
)  # fmt: skip

models = table(
    "Models",
    Column(name="Model", label="model_name", links=(TO_DIAGNOSIS,)),
    Column(name="Namespace", label="namespace"), Column(name="Cluster", label="cluster"),
    Column(name="Worst cause", query=causes.max_by(*MODEL), words=CAUSE_WORDS),
    Column(name="5 min", query=ratio("model", "hit_tokens_per_queried_token", "5m"), unit="percentunit", colour=TOKENS, decimals=1),
    Column(name="Hour", query=ratio("model", "hit_tokens_per_queried_token", "1h"), unit="percentunit", colour=TOKENS, decimals=1),
    Column(name="Day", query=ratio("model", "hit_tokens_per_queried_token", "1d"), unit="percentunit", colour=TOKENS, decimals=1),
    Column(name="Day before", query=series(BASELINE), unit="percentunit", colour=LIMIT, decimals=1),
    Column(
        name="Ceiling", query=ratio("model", "cacheable_tokens_per_observed_prompt_token", "1h", bound="estimate").max_by(*MODEL),
        unit="percentunit", colour=LIMIT, decimals=1,
    ),
    Column(
        name="Request ratio", query=ratio("model", REQUEST_RATIO, "1h", bound="estimate").max_by(*MODEL),
        unit="percentunit", colour=REQUESTS, decimals=1,
    ),
    Column(
        name="Cold requests", query=ratio("model", "cold_requests_per_observed_request", "1h", bound="estimate").max_by(*MODEL),
        unit="percentunit", colour=PROMPTS, decimals=1,
    ),
    Column(name="First token", query=ratio("model", "first_token_seconds_per_first_token", "5m"), unit="s", decimals=3),
    Column(name="Requests", query=rate("model", "requests_finished", "5m"), unit="reqps", decimals=1),
    about=told(
        "Each model: token hit ratio over three windows beside its own day before and its ceiling; request level, first token.",
        "the three windows agree, and are near the ceiling.",
        "5 minutes below the hour is recent; all below the day before is a change that stayed. The model links to its diagnosis.",
    ),
    empty=NO_TRAFFIC, sort="Requests",
)  # fmt: skip

against = chart(
    "Hit ratio against ceiling and baseline",
    Line(query=ratio("model", "hit_tokens_per_queried_token", "5m"), name="5 minutes", colour=TOKENS),
    Line(query=ratio("model", "hit_tokens_per_queried_token", "1h"), name="hour", colour=TOKENS, dashed=True),
    Line(query=ratio("model", "hit_tokens_per_queried_token", "1d"), name="day", colour=TOKENS, faint=True),
    Line(query=series(BASELINE), name="day before", colour=LIMIT, dotted=True),
    Line(
        query=ratio("model", "cacheable_tokens_per_observed_prompt_token", "5m", bound="estimate"),
        name="ceiling", colour=LIMIT, dashed=True,
    ),
    unit="percentunit", highest=1,
    about=told(
        "The token hit ratio over 5 minutes, an hour and a day; the most that these prompt lengths allow; and the same"
        " model's ratio a day before.",
        "the windows lie on each other, near the ceiling.",
        "a fall of all engines at once is the prompts (a template, a deployment); of one, its pool.",
    ),
)  # fmt: skip
levels = chart(
    "Token level beside request level",
    Line(query=ratio("model", CACHED, "5m"), name="tokens", colour=TOKENS),
    Line(query=ratio("model", REQUEST_RATIO, "5m", bound="estimate"), name="requests", colour=REQUESTS),
    Line(query=ratio("model", REQUEST_RATIO, "5m", bound="lower"), name="at least", colour=REQUESTS, faint=True),
    Line(query=ratio("model", REQUEST_RATIO, "5m", bound="upper"), name="at most", colour=REQUESTS, faint=True, below="at least"),
    unit="percentunit", highest=1,
    about=told(
        "Over the same requests: the cached share of their tokens, and the mean of each request's cached share with its bounds;"
        " the truth lies between them.",
        "both together.",
        "tokens far above requests: long prompts are warm, most requests are not. Below: the long prompts are the cold ones.",
    ),
)  # fmt: skip
latency = chart(
    "First token and queue beside the ratio",
    Line(query=ratio("model", "first_token_seconds_per_first_token", "5m"), name="to first token", colour=WAITING),
    Line(query=ratio("model", "queue_seconds_per_finished_request", "5m"), name="in the queue", colour=WAITING, dashed=True),
    Line(
        query=ratio("model", "hit_tokens_per_queried_token", "5m"), name="token hit ratio", colour=TOKENS,
        unit="percentunit", right=True,
    ),
    unit="s",
    about=told(
        "Mean time to first token and in the queue over 5 minutes, with the token hit ratio on the right axis.",
        "flat.",
        "time goes up as the ratio goes down: the cache is what users wait for. Up with a steady ratio: look at load, not at the cache.",
    ),
)  # fmt: skip
sources = chart(
    "Prompt tokens by where they came from",
    Line(query=rate("model", "computed_prompt_tokens", "5m"), name="computed", colour=PROMPTS),
    Line(query=rate("model", "cached_prompt_tokens", "5m"), name="from a cache", colour=GOOD),
    unit="cps", stacked=True,
    about=told(
        "Prompt tokens a second at first token: computed, or from the prefix cache or a KV connector.",
        "computed is the small part.",
        "the sum says whether a change is one of traffic or of reuse.",
    ),
)  # fmt: skip
prefill = chart(
    "Prefill: spent and saved",
    Line(query=rate("model", "prefill_seconds", "5m"), name="spent", colour=PROMPTS),
    Line(query=rate("model", "prefill_saved_seconds", "5m").where("> 0"), name="saved by the cache", colour=GOOD),
    unit="s", stacked=True,
    about=told(
        "Request-seconds of prefill each second: what requests spent, and what cached tokens spared them.",
        "saved is a good part of both together.",
        "saved is absent where a token's cost cannot be fitted: little traffic, or requests that all compute the same.",
    ),
)  # fmt: skip
kinds = chart(
    "Requests by what they got",
    Line(query=ratio("model", "cold_requests_per_observed_request", "5m", bound="estimate"), name="cold: nothing", colour=PROMPTS),
    Line(
        query=ratio("model", "mostly_cached_requests_per_observed_request", "5m", bound="estimate"),
        name="mostly cached: half or more", colour=REQUESTS,
    ),
    Line(
        query=ratio("model", "full_requests_per_observed_request", "5m", bound="estimate"),
        name="fully cached: all but a block", colour=GOOD,
    ),
    unit="percentunit", highest=1,
    about=told(
        "Shares of the requests of 5 minutes that got nothing, half or more, or all but a block of their prompt; estimates.",
        "few cold ones.",
        "cold ones under eviction come and go with the load; under diverging prompts they are the rule.",
    ),
)  # fmt: skip

BOARD = Board(
    uid="prefixwatch-overview",
    title="Overview",
    summary="How much each model's prefix cache finds, against what it could and what it did, and why.",
    rows=[
        Row(
            title="Now",
            boxes=[
                beside(why, token_ratio, request_ratio, cold_share, from_cache, saved, engines_up, firing_count, height=GLANCE,
                       shares=(5, 3, 3, 3, 3, 3, 2, 2)),
                beside(causes_over_time, firing, height=STRIP, shares=(14, 10)),
                beside(models, height=STRIP),
            ],
        ),
        Row(
            title="Model $model_name",
            repeat="model_name",
            boxes=[beside(against, levels, latency, height=CHART), beside(sources, prefill, kinds, height=CHART)],
        ),
    ],
)  # fmt: skip
