"""Counters of engines over hours, minute by minute, for tests of the rules."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from alerts.promtool import selector

GONE = "gone"
RESTART = "restart"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Some minutes of traffic. Tokens a minute; `kind` GONE has no series, RESTART begins at 0."""

    minutes: int
    queried: float = 6000.0
    ratio: float = 0.8
    kind: str = ""
    prompt: float | None = None
    requests: float = 12.0
    output: float = 50.0
    external: float = 0.0
    first_token_seconds: float = 0.2

    @property
    def grown(self) -> dict[str, float]:
        prompt = self.queried if self.prompt is None else self.prompt
        hits = self.queried * self.ratio
        return {
            "queried_tokens_total{}": self.queried,
            "hit_tokens_total{}": hits,
            "external_queried_tokens_total{}": self.queried if self.external else 0.0,
            "external_hit_tokens_total{}": self.queried * self.external,
            'prompt_tokens_total{source="computed"}': prompt * (1 - self.ratio - self.external),
            'prompt_tokens_total{source="local_cache"}': prompt * self.ratio,
            "requests_finished_total{}": self.requests,
            "generation_tokens_total{}": self.output * self.requests,
            "requests_observed_total{}": self.requests,
            "observed_prompt_tokens_total{}": self.queried,
            'cacheable_tokens_total{bound="lower"}': self.queried * 0.9,
            "first_tokens_total{}": self.requests,
            "first_token_seconds_total{}": self.requests * self.first_token_seconds,
        }


def idle(minutes: int) -> Phase:
    return Phase(minutes=minutes, queried=0.0, requests=0.0)


def gone(minutes: int) -> Phase:
    return Phase(minutes=minutes, kind=GONE)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One engine's story; `extra` labels are those of whoever scrapes it, such as instance."""

    phases: Sequence[Phase]
    target: str = "gpu-1:8000"
    model_name: str = "m"
    namespace: str = "chat"
    caching: float | None = 1.0
    extra: Mapping[str, str] = field(default_factory=dict)
    omits: Sequence[str] = ()

    @property
    def labels(self) -> dict[str, str]:
        return {"namespace": self.namespace, "target": self.target, "model_name": self.model_name, "engine": "0"}

    def series(self) -> dict[str, str]:
        names = [name for name in self.phases[0].grown if not name.startswith(tuple(self.omits) or ("-",))]
        found = {}
        for name in names:
            bare, _, own = name.partition("{")
            labels = {**self.labels, **self.extra}
            if own != "}":
                key, _, value = own.rstrip("}").partition("=")
                labels[key] = value.strip('"')
            found[selector(labels, f"prefixwatch_{bare}")] = " ".join(self._values(name))
        if self.caching is not None:
            present = " ".join("_" if gap else repr(self.caching) for gap in self._gaps())
            found[selector({**self.labels, **self.extra}, "prefixwatch_prefix_caching_enabled")] = present
        return found

    def _values(self, name: str) -> Iterator[str]:
        value = 0.0
        for phase in self.phases:
            if phase.kind == RESTART:
                value = 0.0
            for _ in range(phase.minutes):
                value += 0.0 if phase.kind == GONE else phase.grown[name]
                yield "_" if phase.kind == GONE else f"{value:g}" if value < 1e6 else f"{value:.3f}"

    def _gaps(self) -> Iterator[bool]:
        for phase in self.phases:
            yield from [phase.kind == GONE] * phase.minutes


def watched_twice(engine: Engine) -> list[Engine]:
    """Return the engine as a sidecar and a central exporter show it."""
    return [
        replace(engine, extra={"instance": "sidecar:9840", "job": "a"}),
        replace(engine, extra={"instance": "central:9840", "job": "b"}),
    ]


def together(*engines: Engine) -> dict[str, str]:
    return {name: values for engine in engines for name, values in engine.series().items()}
