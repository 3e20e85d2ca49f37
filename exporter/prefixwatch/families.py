"""What a scrape is made of: samples by family, in the catalogue's order.

`TextFamilies` writes the text at once, byte for byte as `prometheus_client` would, but several times
as fast: labels that many samples share are written once. `MetricFamilies` gives that library's own.
"""

from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.utils import floatToGoString

from prefixwatch.catalog import BY_NAME, METRICS, Kind, Metric
from prefixwatch.figures.figure import Absent

_encode = msgspec.json.Encoder().encode
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Labels:
    """The labels of a sample in the order of their names, and their text. `labels.plus(name, value)` has one more."""

    __slots__ = ("_kept", "_texts", "text", "values")

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        pairs = sorted((values or {}).items())
        self._set(pairs, [_written(name, value) for name, value in pairs])

    def _set(self, values: list[tuple[str, str]], texts: list[str]) -> None:
        self.values, self._texts = values, texts
        self.text = "{" + ",".join(texts) + "}" if texts else ""
        self._kept: dict[tuple[str, str], Self] = {}

    def plus(self, name: str, value: str) -> Self:
        """Return these labels and one more. The same again is the same object."""
        pair = name, value
        kept = self._kept.get(pair)
        if kept is None:
            kept = self._kept[pair] = self.__new__(type(self))
            values, texts = self.values.copy(), self._texts.copy()
            place = bisect(values, pair)
            values.insert(place, pair)
            texts.insert(place, _written(name, value))
            kept._set(values, texts)
        return kept


class Families(ABC):
    """The families of one scrape, filled sample by sample."""

    @abstractmethod
    def add(self, name: str, labels: Labels, value: float | Absent | None, *, created: float | None = None) -> None:
        """Add a sample; an absent value adds nothing. Raises KeyError for what the catalogue lacks."""


class MetricFamilies(Families):
    """Families of `prometheus_client`, for a registry of it."""

    def __init__(self) -> None:
        self._families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}

    def add(self, name: str, labels: Labels, value: float | Absent | None, *, created: float | None = None) -> None:
        """Add a sample as the base class says."""
        metric = BY_NAME[name]
        if value is None or isinstance(value, Absent):
            return
        family = self._families.get(name)
        if family is None:
            kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = self._families[name] = kind(
                metric.full_name, metric.help, labels=[name for name, _ in labels.values]
            )
        values = [value for _, value in labels.values]
        if isinstance(family, CounterMetricFamily):
            family.add_metric(values, float(value), created=created)
        else:
            family.add_metric(values, float(value))

    def filled(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the families that have samples."""
        return (self._families[metric.name] for metric in METRICS if metric.name in self._families)


@dataclass(slots=True)
class _Lines:
    """A family's lines, as bytes: of 1,000 engines they are 16 MB.

    `created`: of its `_created` samples, which are a family of their own in the classic format.
    """

    name: str
    created_name: str
    is_wanted: bool
    is_created_wanted: bool
    samples: bytearray = field(default_factory=bytearray)
    created: bytearray = field(default_factory=bytearray)


class TextFamilies(Families):
    """The text of a scrape: OpenMetrics 1.0, or the classic format 0.0.4. `names`: only samples called so."""

    def __init__(self, *, is_openmetrics: bool, names: Collection[str] | None = None) -> None:
        self._is_openmetrics = is_openmetrics
        self._lines: dict[str, _Lines] = {}
        self._created, self._created_text = 0.0, _number(0.0)
        for metric in METRICS:
            created = metric.full_name.removesuffix("_total") + "_created"
            self._lines[metric.name] = lines = _Lines(
                name=metric.full_name,
                created_name=created,
                is_wanted=names is None or metric.full_name in names,
                is_created_wanted=metric.kind is Kind.COUNTER and (names is None or created in names),
            )
            if is_openmetrics:
                lines.created = lines.samples

    def add(self, name: str, labels: Labels, value: float | Absent | None, *, created: float | None = None) -> None:
        """Add a sample as the base class says."""
        lines = self._lines[name]
        if value is None or isinstance(value, Absent):
            return
        if lines.is_wanted:
            lines.samples += f"{lines.name}{labels.text} {_number(float(value))}\n".encode()
        if created is not None and lines.is_created_wanted:
            if created != self._created:  # many in a row began together
                self._created, self._created_text = created, _number(created)
            lines.created += f"{lines.created_name}{labels.text} {self._created_text}\n".encode()

    def pieces(self) -> list[bytes | bytearray]:
        """Return the text of all families that have samples; joined, it would be there twice."""
        written: list[bytes | bytearray] = []
        for metric in METRICS:
            lines = self._lines[metric.name]
            is_counter = metric.kind is Kind.COUNTER
            if self._is_openmetrics and lines.samples:
                name = metric.full_name.removesuffix("_total") if is_counter else metric.full_name
                written += self._head(name, metric, metric.kind), lines.samples
            elif not self._is_openmetrics and (lines.samples or lines.created):
                written += self._head(metric.full_name, metric, metric.kind), lines.samples
                if lines.created:
                    written += self._head(lines.created_name, metric, Kind.GAUGE), lines.created
        if self._is_openmetrics:
            written.append(b"# EOF\n")
        return written

    def _head(self, name: str, metric: Metric, kind: Kind) -> bytes:
        text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
        if self._is_openmetrics:
            text = text.replace('"', r"\"")
        return f"# HELP {name} {text}\n# TYPE {name} {kind}\n".encode()


@lru_cache(maxsize=256)  # all engines have the same windows, bounds, causes
def _written(name: str, value: str) -> str:
    return f'{name}="{value.translate(_ESCAPES)}"'


def _number(value: float) -> str:
    """Return what the library's floatToGoString does, which is slow."""
    if 1e-4 <= value < 1e16:  # here msgspec writes what Python does, in a third of the time
        text = _encode(value).decode()
        if value < 1e6:
            return text
        whole, _, rest = text.partition(".")  # Go takes an exponent sooner than Python
        return f"{whole[0]}.{whole[1:]}{rest}".rstrip("0.") + f"e+{len(whole) - 1:02d}"
    return repr(value) if -1 < value < 1 else str(floatToGoString(value))  # type: ignore[no-untyped-call]
