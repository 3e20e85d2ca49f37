"""How a stand-in engine is set up: its flags, and what its steps cost."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Seconds that things take.

    Fitted to the mean prefill time, inter-token latency and time to first token over all the
    recorded traces together (a two-layer model on one CPU core), not to any one of them.
    """

    client: float = 0.0025
    front_end: float = 0.004
    step: float = 0.0022
    per_decode: float = 0.00025
    per_prefill: float = 0.0028
    per_prefill_token: float = 0.000007
    jitter: float = 0.12

    def step_seconds(self, *, prefills: int, prefill_tokens: int, decodes: int) -> float:
        """Return what one step takes, before jitter (a log-normal factor of that sigma)."""
        return (
            self.step
            + self.per_decode * decodes
            + self.per_prefill * prefills
            + self.per_prefill_token * prefill_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The flags that matter here, by vLLM's names.

    ``kv_cache_metrics_sample`` of None is an engine without ``--kv-cache-metrics``. The two
    ``counts_`` flags are how older releases filled the counter pair: a lookup that was not
    admitted (up to 0.25), and that of a preempted request (up to 0.10), counted too.
    """

    num_gpu_blocks: int = 20_000
    block_size: int = 32
    enable_prefix_caching: bool = True
    max_model_len: int = 4096
    max_num_seqs: int = 128
    max_num_batched_tokens: int = 2048
    kv_cache_metrics_sample: float | None = 1.0
    counts_retried_lookups: bool = False
    counts_preempted_lookups: bool = False
    cost: CostModel = field(default_factory=CostModel)
