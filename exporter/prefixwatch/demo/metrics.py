"""The page: what the tallies of a server's engines look like under vLLM's names of one release."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from prefixwatch.demo.buckets import request_token_edges
from prefixwatch.demo.cache_config import cache_config_labels
from prefixwatch.demo.config import EngineConfig
from prefixwatch.demo.engine import Step
from prefixwatch.demo.families import families_of
from prefixwatch.demo.family import Family
from prefixwatch.demo.histograms import HISTOGRAMS
from prefixwatch.demo.process import HttpTally, http_families, process_families
from prefixwatch.demo.releases import LATEST, version_of
from prefixwatch.demo.tallies import EngineTally

_ENGINE_LABEL = (0, 9, 0)
_HIT_RATE = "vllm:gpu_prefix_cache_hit_rate"
_CPU_HIT_RATE = "vllm:cpu_prefix_cache_hit_rate"


class Page(Collector):
    """One server's /metrics: the counters of its engines since it started.

    ``started`` and ``created`` are unix seconds: when the process began, and when its counters
    did (some seconds later, once the model is loaded). A new server is a new Page.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        started: float,
        created: float,
        engines: int = 1,
        release: str = LATEST,
        model_name: str = "tiny",
    ) -> None:
        self._config = config
        self._version = version_of(release)
        self._model_name = model_name
        self._started = started
        self._created = created
        self._families = families_of(self._version, with_residency=config.kv_cache_metrics_sample is not None)
        edges = _histogram_edges(config.max_model_len)
        self._tallies = [EngineTally(edges) for _ in range(engines)]
        self._http = HttpTally()
        self._cpu_seconds = 0.0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def record(self, step: Step, *, engine: int = 0) -> None:
        """Count one step of an engine."""
        self._tallies[engine].record(step)
        self._cpu_seconds += step.seconds
        for finished in step.finished:
            self._http.record(seconds=finished.e2e, prompt_tokens=finished.prompt)

    def record_sleep(self, level: int) -> None:
        """Show all engines asleep at a level; 0 is awake."""
        for tally in self._tallies:
            tally.record_sleep(level)

    def render(self) -> bytes:
        """Return the page as text, format 0.0.4."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Yield the families in the order of vLLM's page."""
        yield from process_families(started=self._started, cpu_seconds=self._cpu_seconds)
        self._update_hit_rates()
        for family in self._families:
            yield self._metric(family)
        yield self._cache_config_info()
        yield from http_families(self._http, created=self._created)

    def describe(self) -> Iterable[Metric]:
        """Describe nothing: the families depend on the release."""
        return []

    def _metric(self, family: Family) -> Metric:
        if family.kind == "histogram":
            return self._histogram(family)
        kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        names = list(self._labels(family, 0))
        metric = kind(family.name, family.help, labels=[*names, family.label[0]] if family.label else names)
        for value in family.label[1] if family.label else ("",):
            for engine, tally in enumerate(self._tallies if family.is_per_engine else self._tallies[:1]):
                labels = list(self._labels(family, engine).values()) + ([value] if value else [])
                number = tally.values[family.tally, value]
                if isinstance(metric, CounterMetricFamily):
                    metric.add_metric(labels, number, created=self._created)
                else:
                    metric.add_metric(labels, number)
        return metric

    def _histogram(self, family: Family) -> Metric:
        metric = HistogramMetricFamily(family.name, family.help, labels=list(self._labels(family, 0)))
        for engine, tally in enumerate(self._tallies):
            labels = self._labels(family, engine)
            histogram = tally.histograms[family.tally]
            metric.add_metric(list(labels.values()), histogram.buckets(), histogram.sum)
        for engine in range(len(self._tallies)):
            metric.add_sample(f"{family.name}_created", self._labels(family, engine), self._created)
        return metric

    def _labels(self, family: Family, engine: int) -> dict[str, str]:
        if self._version < _ENGINE_LABEL or not family.is_per_engine:
            return {"model_name": self._model_name}
        return {"model_name": self._model_name, "engine": str(engine)}

    def _cache_config_info(self) -> Metric:
        rows = [
            cache_config_labels(self._config, version=self._version, engine=engine)
            for engine in range(len(self._tallies))
        ]
        info = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=list(rows[0])
        )
        for row in rows:
            info.add_metric(list(row.values()), 1.0)
        return info

    def _update_hit_rates(self) -> None:
        # The V0 engine stated ratios: since the start, and -1 with caching off.
        for tally in self._tallies:
            queries, hits = tally.values["query blocks", ""], tally.values["hit blocks", ""]
            rate = hits / queries if queries else 0.0
            tally.values[_HIT_RATE, ""] = rate if self._config.enable_prefix_caching else -1.0
            tally.values[_CPU_HIT_RATE, ""] = 0.0 if self._config.enable_prefix_caching else -1.0


def _histogram_edges(max_model_len: int) -> dict[str, Sequence[float]]:
    tokens = request_token_edges(max_model_len)
    return {family.tally: tokens if isinstance(family.buckets, str) else family.buckets for family in HISTOGRAMS}
