"""What an engine has counted: plain numbers that a page reads."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

from prefixwatch.demo.engine import Step
from prefixwatch.demo.request import Finished


class Histogram:
    """Count observations by bucket; ``le`` edges are inclusive."""

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add one observation."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by edge, +Inf last."""
        total = 0
        rows: list[tuple[str, float]] = []
        for edge, count in zip((*self.edges, float("inf")), self.counts, strict=True):
            total += count
            rows.append(("+Inf" if edge == float("inf") else str(float(edge)), total))
        return rows


class EngineTally:
    """The counters, gauges and histograms of one engine, under the names of the newest release.

    ``values`` is keyed by name and value of the family's extra label ("" without one).
    """

    def __init__(self, histograms: dict[str, Sequence[float]]) -> None:
        self.values: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.histograms = {name: Histogram(edges) for name, edges in histograms.items()}
        self.values["vllm:engine_sleep_state", "awake"] = 1

    def record(self, step: Step) -> None:
        """Add one step, in one update: admissions, first tokens, finishes, gauges."""
        self._record_scheduler(step)
        self._record_tokens(step)
        for finished in step.finished:
            self._record_finished(finished)

    def record_sleep(self, level: int) -> None:
        """Set the sleep state: 0 awake, 1 weights offloaded, 2 all discarded."""
        for state, at_level in (("awake", 0), ("weights_offloaded", 1), ("discard_all", 2)):
            self.values["vllm:engine_sleep_state", state] = float(level == at_level)

    def _add(self, name: str, amount: float, label: str = "") -> None:
        self.values[name, label] += amount

    def _observe(self, name: str, *values: float) -> None:
        histogram = self.histograms[name]
        for value in values:
            histogram.observe(value)

    def _record_scheduler(self, step: Step) -> None:
        values, batch = self.values, step.batch
        values["vllm:num_requests_running", ""] = step.running
        values["vllm:num_requests_waiting", ""] = step.waiting
        values["vllm:num_requests_waiting_by_reason", "capacity"] = step.waiting
        values["vllm:kv_cache_usage_perc", ""] = step.usage
        self._add("vllm:num_preemptions", batch.preempted)
        if batch.queries:
            self._add("vllm:prefix_cache_queries", batch.queries)
            self._add("vllm:prefix_cache_hits", batch.hits)
            self._add("query blocks", batch.query_blocks)
            self._add("hit blocks", batch.hit_blocks)
            self._add("vllm:prompt_tokens_cached_by_source", batch.hits, "device")
        for eviction in step.evictions:
            self._observe("vllm:kv_block_lifetime_seconds", eviction.lifetime)
            self._observe("vllm:kv_block_idle_before_evict_seconds", eviction.idle)
            self._observe("vllm:kv_block_reuse_gap_seconds", *eviction.gaps)

    def _record_tokens(self, step: Step) -> None:
        computed = step.prompt - step.cached
        self._observe("vllm:iteration_tokens_total", computed + step.generated)
        self._add("vllm:generation_tokens", step.generated)
        self._observe("vllm:inter_token_latency_seconds", *step.token_gaps)
        if step.first_tokens:
            self._add("vllm:prompt_tokens", step.prompt)
            self._add("vllm:prompt_tokens_cached", step.cached)
            self._add("vllm:prompt_tokens_by_source", computed, "local_compute")
            self._add("vllm:prompt_tokens_by_source", step.cached, "local_cache_hit")
            self._observe("vllm:time_to_first_token_seconds", *step.first_tokens)

    def _record_finished(self, request: Finished) -> None:
        self._add("vllm:request_success", 1, "length")
        for name, value in _finish_observations(request):
            self._observe(name, value)


def _finish_observations(request: Finished) -> Iterable[tuple[str, float]]:
    gaps = request.output - 1
    return (
        ("vllm:request_prompt_tokens", request.prompt),
        ("vllm:request_generation_tokens", request.output),
        ("vllm:request_max_num_generation_tokens", request.output),
        ("vllm:request_params_n", 1),
        ("vllm:request_params_max_tokens", request.max_tokens),
        ("vllm:request_time_per_output_token_seconds", request.decode / gaps if gaps else 0.0),
        ("vllm:e2e_request_latency_seconds", request.e2e),
        ("vllm:request_queue_time_seconds", request.queue),
        ("vllm:request_inference_time_seconds", request.inference),
        ("vllm:request_prefill_time_seconds", request.prefill),
        ("vllm:request_decode_time_seconds", request.decode),
        ("vllm:request_num_preemptions", request.preemptions),
        ("vllm:request_prefill_kv_computed_tokens", request.prompt - request.cached),
    )
