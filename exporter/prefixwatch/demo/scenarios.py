"""The scenarios: traffic and flags whose cause is known, and a tour through them."""

from dataclasses import dataclass
from typing import Literal

from prefixwatch.demo.config import EngineConfig
from prefixwatch.demo.errors import DemoError
from prefixwatch.demo.releases import counts_preempted_lookups, counts_retried_lookups, version_of

Mix = Literal[
    "shared", "short_turns", "divergent", "mid_variable", "many_prefixes", "short_prompts", "salted",
    "long_warm", "short_warm", "template_change",
]  # fmt: skip
HalfTime = Literal["restart", "reset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of traffic and the engine it meets.

    ``cause`` is what a right diagnosis says, ``sees`` what a reader of the figures can see.
    ``rate`` is requests a second before the seed's factor of 0.7 to 1.4. ``clients`` bounds the
    requests in flight: an arrival that finds all clients busy does not happen. ``half_time``
    happens half way through.
    """

    name: str
    cause: str
    mix: Mix
    rate: float
    sees: str
    blocks: int = 20_000
    max_tokens: int = 8
    engines: int = 1
    enable_prefix_caching: bool = True
    clients: int | None = None
    half_time: HalfTime | None = None

    def config(self, release: str, *, kv_cache_metrics_sample: float | None = 1.0) -> EngineConfig:
        """Return the engine's flags, with lookups counted as that release counts them."""
        version = version_of(release)
        return EngineConfig(
            num_gpu_blocks=self.blocks,
            enable_prefix_caching=self.enable_prefix_caching,
            kv_cache_metrics_sample=kv_cache_metrics_sample,
            counts_retried_lookups=counts_retried_lookups(version),
            counts_preempted_lookups=counts_preempted_lookups(version),
        )


_ALL = (
    Scenario(
        name="healthy", cause="healthy", mix="shared", rate=8,
        sees="A few long system prompts, shared by everyone: most prompt tokens come from the cache.",
    ),
    Scenario(
        name="divergent", cause="prompt_divergence", mix="divergent", rate=6,
        sees="Four varying tokens at the very front: the ratio is 0 although the pool never fills.",
    ),
    Scenario(
        name="mid_variable", cause="prompt_divergence", mix="mid_variable", rate=8,
        sees="A varying value a third into the shared prompt: only what stands before it is found.",
    ),
    Scenario(
        name="thrash_low_usage", cause="eviction", mix="many_prefixes", rate=6, blocks=200, max_tokens=4,
        sees="A working set of twice the pool: half the requests find nothing, while usage stays near 0.",
    ),
    Scenario(
        name="pressure", cause="eviction", mix="shared", rate=14, blocks=160, max_tokens=220, clients=16,
        sees="Many long-running requests: usage near 1, preemptions, a queue, and prefixes evicted.",
    ),
    Scenario(
        name="divergent_small_pool", cause="prompt_divergence", mix="divergent", rate=6, blocks=200,
        max_tokens=4,
        sees="Blocks are evicted all the time, yet none of them would have been used again.",
    ),
    Scenario(
        name="decode_bound", cause="decode_bound", mix="short_turns", rate=1.2, max_tokens=900,
        sees="A good ratio, but outputs far longer than prompts: caching cannot move the latency.",
    ),
    Scenario(
        name="short_prompts", cause="short_prompts", mix="short_prompts", rate=10,
        sees="Identical prompts shorter than a block: nothing can be cached, and the ceiling says so.",
    ),
    Scenario(
        name="salted", cause="cache_key_split", mix="salted", rate=6,
        sees="The same prompts under a salt per request: the ratio is 0 by design.",
    ),
    Scenario(
        name="caching_disabled", cause="caching_disabled", mix="shared", rate=6, enable_prefix_caching=False,
        sees="Prefix caching is off: nothing is looked up, and the ratio is absent, not 0.",
    ),
    Scenario(
        name="idle", cause="no_traffic", mix="shared", rate=0,
        sees="No traffic: every ratio is absent.",
    ),
    Scenario(
        name="mixed_long_warm", cause="healthy", mix="long_warm", rate=16,
        sees="Long prompts warm, short ones cold: the token ratio is some 30 points above the request ratio.",
    ),
    Scenario(
        name="mixed_short_warm", cause="prompt_divergence", mix="short_warm", rate=10,
        sees="Short prompts warm, long ones cold: the token ratio is some 25 points below the request ratio.",
    ),
    Scenario(
        name="template_change", cause="prompt_divergence", mix="template_change", rate=6,
        sees="A timestamp moves to the front of the template half way through: the ratio falls to 0.",
    ),
    Scenario(
        name="restart", cause="healthy", mix="shared", rate=8, half_time="restart",
        sees="The engine restarts half way through: counters begin again at 0, and the figures survive it.",
    ),
    Scenario(
        name="reset", cause="healthy", mix="shared", rate=8, half_time="reset",
        sees="The cache is reset half way through: a dip, while the counters go on.",
    ),
    Scenario(
        name="two_engines", cause="healthy", mix="shared", rate=8, engines=2,
        sees="Two data-parallel engines behind one page: each warms its own cache.",
    ),
)  # fmt: skip

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}

TOUR: tuple[str, ...] = (
    "healthy", "template_change", "mixed_long_warm", "mixed_short_warm", "thrash_low_usage", "pressure",
    "divergent_small_pool", "salted", "short_prompts", "decode_bound", "reset", "restart", "two_engines",
    "caching_disabled", "idle",
)  # fmt: skip


def scenario_named(name: str) -> Scenario:
    """Return a scenario; raises DemoError for an unknown name."""
    if name not in SCENARIOS:
        raise DemoError(f"scenario {name!r} does not exist; use one of {', '.join(SCENARIOS)}")
    return SCENARIOS[name]
