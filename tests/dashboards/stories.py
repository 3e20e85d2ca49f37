"""What engines went through, as the exporter would have exported it: samples with their own times."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prefixwatch.collector import StatusCollector
from prefixwatch.config import Config
from prefixwatch.page.reading import PageReading
from prefixwatch.replaying import RecordedFeed
from prefixwatch.targetpoller import TargetStatus
from prefixwatch.targetwatch import TargetWatch
from replayed import status_of

CONFIG = Config()
SCRAPED = {"job": "prefixwatch", "instance": "prefixwatch:9840"}
DAY = 86400.0

Sample = tuple[str, float, float]
"""A series as text, unix seconds, a value."""
Pages = Iterable[tuple[float, PageReading | None]]
"""Time and page of each poll, None for one that failed."""


@dataclass(kw_only=True)
class Story:
    """One target over time; `cluster` is the scenario. `end`: the last status; `own`: the exporter's own counters by time."""

    cluster: str
    target: str
    pages: Pages
    scrape_seconds: float = 15.0
    feed: RecordedFeed | None = None
    end: TargetStatus | None = field(default=None, init=False)
    own: dict[float, Mapping[str, float]] = field(default_factory=dict, init=False)

    def samples(self) -> Iterator[Sample]:
        """Yield what Prometheus would have scraped from the exporter."""
        watch = TargetWatch(
            self.target, spans=CONFIG.windows, labels={"cluster": self.cluster, "namespace": "chat"},
            diagnosed=CONFIG.diagnosis_window, hold_seconds=CONFIG.diagnosis_hold, feed=self.feed,
        )  # fmt: skip
        failed, missed, scraped, last = 0, 0, 0.0, 0.0
        for at, page in self.pages:
            if page is None:
                failed, missed = failed + 1, missed + 1
                watch.fail("the connection was refused")
            else:
                missed, last = 0, at
                if self.feed is not None:
                    self.feed.take(at)
                watch.add(page)
            if at - scraped >= self.scrape_seconds:
                scraped = at
                errors = {"connection_refused": failed} if failed else {}
                self.end = status_of(watch, missed=missed, last_success=last, errors=errors, began=at)
                self.own[at] = next((engine.own for engine in self.end.state.engines), {})
                yield from exported([self.end], at)


def exported(statuses: Sequence[TargetStatus], at: float) -> Iterator[Sample]:
    """Yield what one scrape at that time would give."""
    for family in StatusCollector(lambda: statuses, windows=CONFIG.windows).collect():
        for sample in family.samples:
            yield series(sample.name, {**sample.labels, **SCRAPED}), at, sample.value


def series(name: str, labels: Mapping[str, str]) -> str:
    stated = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(labels.items()) if value != "")
    return f"{name}{{{stated}}}"


def moved(samples: Iterable[Sample], seconds: float) -> Iterator[Sample]:
    """Yield samples as if all that had been so much earlier."""
    return ((name, at - seconds, value) for name, at, value in samples)
