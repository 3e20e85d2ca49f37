"""What is known of targets and engines at one moment, and its JSON.

A figure is a value or `Absent`; in the JSON an absent figure is null and its reason stands in
`reasons`, so that no null goes without one.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from prefixwatch.figures.figure import Absent, Estimate

Figure = float | Absent
Estimated = Estimate | Absent


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """The figures of one engine over one window: the contract's JSON, field by field.

    Ratios and shares in 0..1, tokens, seconds and counts as the names say.
    """

    model_name: str
    engine: str
    window_seconds: Figure
    requests: Figure
    token_hit_ratio: Figure
    external_hit_ratio: Figure
    cached_prompt_ratio: Figure
    hit_ratio_ceiling: Estimated
    request_hit_ratio: Estimated
    mostly_cached_request_ratio: Estimated
    full_request_ratio: Estimated
    cold_request_ratio: Estimated
    hit_ratio_gap: Figure
    prompt_tokens_by_source: Mapping[str, float] | Absent
    output_per_prompt_token: Figure
    prefill_share: Figure
    pool_tokens: Figure
    pool_filled: bool | Absent
    turnover_seconds: Figure
    kv_usage_max: Figure
    requests_running: Figure
    requests_waiting: Figure
    preemptions: Figure
    caching_enabled: bool | Absent
    caveats: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; absent figures become null, their reasons stand beside them."""
        values: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Absent):
                values[field.name], reasons[field.name] = None, value.reason
            elif isinstance(value, Estimate):
                values[field.name] = {k: v for k, v in dataclasses.asdict(value).items() if v is not None}
            else:
                values[field.name] = _whole(value)
        return {**values, "reasons": reasons}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSnapshot:
    """One target at one moment: whether it answers, what it speaks, and its engines' figures.

    `error` says why the target is not up, or why an answering one has no engines.
    """

    target: str
    is_up: bool
    dialect: str | None
    release: str | None
    caveats: tuple[str, ...]
    engines: tuple[EngineFigures, ...]
    error: str | None = None
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the contract."""
        reasons = {}
        if self.dialect is None:
            reasons["dialect"] = self.error or "nothing was read yet"
        if self.release is None:
            reasons["release"] = "/version did not answer, and the page does not state it"
        return {
            "target": self.target,
            **({"labels": dict(self.labels)} if self.labels else {}),
            "up": self.is_up,
            **({"error": self.error} if self.error else {}),
            "dialect": self.dialect,
            "release": self.release,
            "caveats": list(self.caveats),
            "engines": [engine.to_json() for engine in self.engines],
            "reasons": reasons,
        }


def encoded(targets: Sequence[TargetSnapshot]) -> bytes:
    """Return the whole JSON document, indented."""
    document = msgspec.json.encode({"targets": [target.to_json() for target in targets]})
    return msgspec.json.format(document, indent=2)


def _whole(value: Any) -> Any:
    """Counts of tokens and requests are whole: 394, not 394.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 and abs(value) >= 1:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _whole(one) for key, one in value.items()}
    return value
