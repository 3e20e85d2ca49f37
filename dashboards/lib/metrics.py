"""Queries from the catalogue and the recording rules: an unknown name, label or value fails the build."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lib.errors import BoardError
from lib.rulefile import RAW, STATIC, recorded
from lib.variables import FILTERS
from prefixwatch.catalog import BY_NAME, PREFIX, Kind
from prefixwatch.config import Config
from prefixwatch.diagnosis import Cause

ENGINE = (*STATIC, "target", "model_name", "engine")
MODEL = (*STATIC, "model_name")
TARGET = (*STATIC, "target")

_VALUES: Mapping[str, frozenset[str]] = {
    "bound": frozenset({"estimate", "lower", "upper"}),
    "cause": frozenset(Cause),
    "source": frozenset({"computed", "local_cache", "external", "unsplit"}),
    "window": frozenset(str(span) for span in Config().windows),
    "quantile": frozenset({"0.5", "0.9", "0.99"}),
    "pool": frozenset({"1.5x", "2x", "4x"}),
    "alertstate": frozenset({"firing", "pending"}),
}
_ALERT_LABELS = frozenset({*ENGINE, "alertname", "alertstate", "severity", "job", "instance"})


@dataclass(frozen=True, slots=True)
class Expr:
    """An expression, and the labels of what it gives. `is_counter`: it must be rated before it is drawn."""

    text: str
    labels: frozenset[str]
    is_counter: bool = False
    is_compound: bool = False

    def __str__(self) -> str:
        if self.is_counter:
            raise BoardError(f"{self.text} is a counter: take its rate")
        return self.text

    def rate(self) -> "Expr":
        """Return a counter's rate a second over the panel's own interval."""
        return self._ranged("rate", "$__rate_interval")

    def changes(self, span: str) -> "Expr":
        """Return how often a value changed within a fixed span."""
        return Expr(f"changes({self.text}[{span}])", self.labels)

    def sum_by(self, *labels: str) -> "Expr":
        """Return the sum; without labels that of everything."""
        return self._aggregated("sum", labels)

    def max_by(self, *labels: str) -> "Expr":
        """Return the highest; an engine that is watched twice counts once."""
        return self._aggregated("max", labels)

    def min_by(self, *labels: str) -> "Expr":
        """Return the lowest."""
        return self._aggregated("min", labels)

    def count_by(self, *labels: str) -> "Expr":
        """Return how many there are."""
        return self._aggregated("count", labels)

    def per(self, other: "Expr") -> "Expr":
        """Return the ratio of sums, absent where the other is 0."""
        self._refuse_other_labels(other)
        return Expr(f"{self._operand()} / ({other} > 0)", self.labels, is_compound=True)

    def times(self, factor: float) -> "Expr":
        """Return a multiple."""
        return Expr(f"{self._operand()} * {factor:g}", self.labels, is_compound=True)

    def minus(self, other: "Expr") -> "Expr":
        """Return the difference of series with the same labels."""
        self._refuse_other_labels(other)
        return Expr(f"{self._operand()} - {other._operand()}", self.labels, is_compound=True)

    def plus(self, other: "Expr") -> "Expr":
        """Return the sum of two series with the same labels."""
        self._refuse_other_labels(other)
        return Expr(f"{self._operand()} + {other._operand()}", self.labels, is_compound=True)

    def beside(self, other: "Expr") -> "Expr":
        """Return this for the series of which the other has something."""
        self._refuse_other_labels(other)
        return Expr(f"{self._operand()} and {other._operand()}", self.labels, is_compound=True)

    def where(self, comparison: str) -> "Expr":
        """Return only what compares so, such as "== 1"."""
        return Expr(f"{self._operand()} {comparison}", self.labels, is_compound=True)

    def _ranged(self, function: str, span: str) -> "Expr":
        if not self.is_counter:
            raise BoardError(f"{self.text} is no counter: it has no {function}")
        return Expr(f"{function}({self.text}[{span}])", self.labels)

    def _aggregated(self, function: str, labels: tuple[str, ...]) -> "Expr":
        if unknown := set(labels) - self.labels:
            raise BoardError(
                f"{self} has no label {', '.join(sorted(unknown))}: it has {', '.join(sorted(self.labels))}"
            )
        by = f" by ({', '.join(labels)})" if labels else ""
        if self.text.startswith(f"{function}{by} (") and self.labels == set(labels) and not self.is_compound:
            return self  # aggregated so already
        return Expr(f"{function}{by} ({self})", frozenset(labels))

    def _refuse_other_labels(self, other: "Expr") -> None:
        if self.labels != other.labels:
            raise BoardError(f"{self} and {other} have different labels: {sorted(self.labels ^ other.labels)}")

    def _operand(self) -> str:
        return f"({self})" if self.is_compound else str(self)


def raw(name: str, **labels: str) -> Expr:
    """Return one of the exporter's own metrics (no prefix), filtered by the board's variables.

    A label's value may be several, `a|b`. Raises BoardError for what the catalogue does not have.
    """
    metric = BY_NAME.get(name)
    if metric is None:
        raise BoardError(f"the catalogue has no metric {name}")
    text = _selector(metric.full_name, RAW[metric.full_name], labels)
    return Expr(text, RAW[metric.full_name], is_counter=metric.kind is Kind.COUNTER)


def of_engine(name: str, **labels: str) -> Expr:
    """Return a gauge per engine, each once though several exporters may watch it, its other labels kept."""
    found = raw(name, **labels)
    kept = sorted(found.labels - {*ENGINE, "job", "instance", *labels})
    return found.max_by(*ENGINE, *kept)


def rate(level: str, name: str, window: str, **labels: str) -> Expr:
    """Return a recorded rate a second of `level` (engine, model, fleet)."""
    return series(f"{level}:{PREFIX}{name}:rate{window}", **labels)


def ratio(level: str, name: str, window: str, **labels: str) -> Expr:
    """Return a recorded ratio of `level`."""
    return series(f"{level}:{PREFIX}{name}:ratio_rate{window}", **labels)


def series(name: str, **labels: str) -> Expr:
    """Return a recorded series by its whole name, filtered by the board's variables."""
    rule = recorded().get(name)
    if rule is None:
        raise BoardError(f"no recording rule {name}")
    return Expr(_selector(name, rule.labels, labels), rule.labels)


def share(part: str, whole: str, window: str, **labels: str) -> Expr:
    """Return the ratio over all models that the variables choose: sums first, then one division."""
    return rate("model", part, window, **labels).sum_by().per(rate("model", whole, window).sum_by())


def alerts(**labels: str) -> Expr:
    """Return prefixwatch's alerts as Prometheus states them."""
    chosen = [f'{name}=~"${name}"' for name in STATIC]
    _check("ALERTS", _ALERT_LABELS, labels)
    stated = [f'{name}="{value}"' for name, value in labels.items()]
    matchers = ", ".join(['alertname=~"PrefixCache.+"', *stated, *chosen])
    return Expr(f"ALERTS{{{matchers}}}", _ALERT_LABELS)


def ranked(causes: Mapping[str, int]) -> Expr:
    """Return each engine's cause as its rank: the number that `causes` gives it."""
    terms = [raw("diagnosis", cause=cause).times(rank).text for cause, rank in causes.items()]
    return Expr(f"max by ({', '.join(ENGINE)}) ({' or '.join(terms)})", frozenset(ENGINE))


def _selector(name: str, known: frozenset[str], labels: Mapping[str, str]) -> str:
    _check(name, known, labels)
    stated = [f'{key}=~"{value}"' if "|" in value else f'{key}="{value}"' for key, value in labels.items()]
    chosen = [f'{key}=~"${key}"' for key in FILTERS if key in known and key not in labels]
    return f"{name}{{{', '.join([*stated, *chosen])}}}"


def _check(name: str, known: frozenset[str], labels: Mapping[str, str]) -> None:
    for label, value in labels.items():
        if label not in known:
            raise BoardError(f"{name} has no label {label}: it has {', '.join(sorted(known))}")
        for one in re.split(r"\|", value):
            if label in _VALUES and one not in _VALUES[label]:
                raise BoardError(f'{name}: {label} is never "{one}": {", ".join(sorted(_VALUES[label]))}')
