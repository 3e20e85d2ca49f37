"""What is known of targets and engines at one moment, and its JSON.

A figure is a value or `Absent`; in the JSON an absent figure is null and its reason stands in
`reasons`, so that no null goes without one.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from prefixwatch.diagnosis import Diagnosis
from prefixwatch.figures.engine import WindowFigures
from prefixwatch.figures.figure import Absent

# The contract's fields, in its order; the figures have more, which others derive from.
_FIELDS = (
    "model_name", "engine", "window_seconds", "requests", "token_hit_ratio", "external_hit_ratio", "cached_prompt_ratio",
    "hit_ratio_ceiling", "request_hit_ratio", "mostly_cached_request_ratio", "full_request_ratio", "cold_request_ratio",
    "hit_ratio_gap", "prompt_tokens_by_source", "output_per_prompt_token", "prefill_share", "pool_tokens", "pool_filled",
    "turnover_seconds", "kv_usage_max", "requests_running", "requests_waiting", "preemptions", "residency",
    "avoidable_miss_ratio", "working_set_ratio", "whatif_avoidable_miss_ratio", "key_split_ratio", "cache_events",
    "prefill_seconds_saved", "prefill_saved_share", "caching_enabled",
)  # fmt: skip
_COUNTS = frozenset(
    {"blocks_stored", "blocks_removed", "blocks_stored_again", "requests", "pool_tokens", "requests_running", "requests_waiting", "preemptions"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures(WindowFigures):
    """The figures of one engine over one window, and what they point to."""

    diagnosis: Diagnosis | Absent

    @classmethod
    def of(cls, figures: WindowFigures, found: Diagnosis | Absent) -> "EngineFigures":
        """Return the figures with their diagnosis."""
        return cls(
            **{field.name: getattr(figures, field.name) for field in dataclasses.fields(WindowFigures)}, diagnosis=found
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; absent figures become null, their reasons stand beside them."""
        values: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        for name in (*_FIELDS, "diagnosis"):
            value = getattr(self, name)
            if isinstance(value, Absent):
                reasons[name] = value.reason
            elif dataclasses.is_dataclass(value) and not isinstance(value, type):
                for part in dataclasses.fields(value):
                    if isinstance(inner := getattr(value, part.name), Absent):
                        reasons[f"{name}.{part.name}"] = inner.reason
            values[name] = _plain(value, is_count=name in _COUNTS)
        found = values.pop("diagnosis")
        return {**values, "reasons": reasons, "diagnosis": found}


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
            reasons["release"] = "the page does not state it, and no /version answered"
        if not self.engines:
            reasons["engines"] = self.error or "nothing was read yet"
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


def _plain(value: Any, *, is_count: bool = False) -> Any:
    """Return what JSON can hold: counts whole, absent figures null, unknown parts of a figure left out."""
    if isinstance(value, Absent):
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: _plain(part, is_count=name in _COUNTS) for name, part in fields.items() if part is not None}
    if isinstance(value, Mapping):
        return {str(key): _plain(part, is_count=is_count) for key, part in value.items()}
    if is_count and isinstance(value, float) and value.is_integer():
        return int(value)
    return value
