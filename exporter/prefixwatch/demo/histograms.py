"""The histogram families of vLLM's /metrics, in the page's order."""

from prefixwatch.demo.buckets import (
    FIRST_TOKEN,
    PREEMPTIONS,
    REQUEST_LATENCY,
    REQUEST_TOKENS,
    RESIDENCY,
    SAMPLES,
    STEP_TOKENS,
    TOKEN_GAP,
)
from prefixwatch.demo.family import Family, histogram

_COUNTS = (
    histogram("request_prompt_tokens", "Number of prefill tokens processed.", REQUEST_TOKENS),
    histogram("request_generation_tokens", "Number of generation tokens processed.", REQUEST_TOKENS),
    histogram("iteration_tokens_total", "Histogram of number of tokens per engine_step.", STEP_TOKENS),
    histogram(
        "request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        REQUEST_TOKENS,
    ),
    histogram("request_params_n", "Histogram of the n request parameter.", SAMPLES),
    histogram("request_params_max_tokens", "Histogram of the max_tokens request parameter.", REQUEST_TOKENS),
)

_TIMES = (
    histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.", FIRST_TOKEN),
    histogram(
        "time_per_output_token_seconds",
        "Histogram of time per output token in seconds.",
        TOKEN_GAP,
        reads="vllm:inter_token_latency_seconds",
        until=(0, 12, 0),
    ),
    histogram(
        "inter_token_latency_seconds",
        "Histogram of inter-token latency in seconds.",
        TOKEN_GAP,
        since=(0, 11, 0),
    ),
    histogram(
        "request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        TOKEN_GAP,
        since=(0, 11, 0),
    ),
    histogram("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", REQUEST_LATENCY),
    histogram(
        "request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
        REQUEST_LATENCY,
    ),
    histogram(
        "request_inference_time_seconds",
        "Histogram of time spent in RUNNING phase for request.",
        REQUEST_LATENCY,
    ),
    histogram(
        "request_prefill_time_seconds",
        "Histogram of time spent in PREFILL phase for request.",
        REQUEST_LATENCY,
    ),
    histogram(
        "request_decode_time_seconds",
        "Histogram of time spent in DECODE phase for request.",
        REQUEST_LATENCY,
    ),
    histogram(
        "request_num_preemptions",
        "Histogram of the number of times a request was preempted.",
        PREEMPTIONS,
        since=(0, 32, 0),
    ),
    histogram(
        "request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        REQUEST_TOKENS,
        since=(0, 13, 0),
    ),
)

_SAMPLED = "Sampled metrics (controlled by --kv-cache-metrics-sample)."
_RESIDENCIES = (
    histogram(
        "kv_block_lifetime_seconds",
        f"Histogram of KV cache block lifetime from allocation to eviction. {_SAMPLED}",
        RESIDENCY,
        needs_residency=True,
        since=(0, 12, 0),
    ),
    histogram(
        "kv_block_idle_before_evict_seconds",
        f"Histogram of idle time before KV cache block eviction. {_SAMPLED}",
        RESIDENCY,
        needs_residency=True,
        since=(0, 12, 0),
    ),
    histogram(
        "kv_block_reuse_gap_seconds",
        "Histogram of time gaps between consecutive KV cache block accesses. "
        f"Only the most recent accesses are recorded (ring buffer). {_SAMPLED}",
        RESIDENCY,
        needs_residency=True,
        since=(0, 12, 0),
    ),
)

HISTOGRAMS: tuple[Family, ...] = (*_COUNTS, *_TIMES, *_RESIDENCIES)
