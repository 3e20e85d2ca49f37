"""A poller of one fake engine, its clock in the test's hands."""

from collections.abc import Mapping, Sequence
from typing import Self

from prometheus_client import CollectorRegistry, generate_latest

from edge.engines import Engine
from prefixwatch.addresses import host_and_port
from prefixwatch.catalog import METRICS, PREFIX, Group
from prefixwatch.collector import StatusCollector
from prefixwatch.config import Access, Config, Duration
from prefixwatch.discovery import Target
from prefixwatch.fetch import Address, Fetcher, session
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.targetpoller import TargetPoller, TargetStatus, watch_of

CONFIG = Config(
    poll_interval=Duration(1),
    poll_timeout=Duration(0.25),
    windows=(Duration(10), Duration(60)),
    diagnosis_window=Duration(10),
    max_page_bytes=2**20,
)


class Polled:
    """Poll `engine` when told to."""

    def __init__(
        self, engine: Engine, config: Config = CONFIG, *, name: str | None = None, access: Access = Access()
    ) -> None:
        self.engine, self.config = engine, config
        self.now = self.wall = 1_795_984_000.0
        self._target = Target(
            name=name or host_and_port(engine.url),
            address=Address(url=engine.url, access=access),
            labels={"zone": "a"},
        )

    async def __aenter__(self) -> Self:
        self._session = session()
        fetcher = Fetcher(
            await self._session.__aenter__(),
            timeout=self.config.poll_timeout,
            max_bytes=self.config.max_page_bytes,
        )
        self.poller = TargetPoller(
            self._target, self.config, fetcher, PageReader(is_wanted),
            watch=watch_of(self._target, self.config), spans=self.config.windows,
            clock=lambda: self.now, wall=lambda: self.wall, jitter=lambda low, high: (low + high) / 2,
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.__aexit__(None, None, None)

    @property
    def status(self) -> TargetStatus:
        return self.poller.status

    async def play(self, scrapes: Sequence[tuple[float, bytes]]) -> None:
        """Poll page after page, at the time at which each was recorded."""
        self.engine.answer = None
        for time, self.engine.page in scrapes:
            self.now = time
            await self.poller.poll()

    async def poll(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += 1
            await self.poller.poll()

    def exposition(self) -> str:
        """Return /metrics as it would be now."""
        return exposition([self.status], self.config)

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the one sample of that name, without prefix, that has these labels."""
        registry = _registry([self.status], self.config)
        found = [
            sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == PREFIX + name and labels.items() <= sample.labels.items()
        ]
        assert len(found) <= 1
        return found[0] if found else None

    def exported(self) -> set[str]:
        """Return the names that /metrics has samples of."""
        return names(self.exposition())


def exposition(statuses: Sequence[TargetStatus], config: Config = CONFIG) -> str:
    return generate_latest(_registry(statuses, config)).decode()


def _registry(statuses: Sequence[TargetStatus], config: Config) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: statuses, windows=config.windows))
    return registry


def names(text: str) -> set[str]:
    """Return the catalogue's names (no prefix) that a text has samples of, `_created` left out."""
    samples = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if line[:1] != "#"}
    return {name.removeprefix(PREFIX) for name in samples if not name.endswith("_created")}


def nulls(values: Mapping[str, object]) -> set[str]:
    """Return the names of the nulls of a JSON object, those within as outer.inner."""
    found = {name for name, value in values.items() if value is None}
    for name, value in values.items():
        if isinstance(value, dict) and name != "reasons":
            found |= {f"{name}.{inner}" for inner in nulls(value)}
    return found


OF_ENGINES = {metric.name for metric in METRICS if "engine" in metric.labels}
PASSED_THROUGH = {metric.name for metric in METRICS if metric.group is Group.ENGINE}
OF_WINDOWS = {metric.name for metric in METRICS if metric.group is Group.WINDOW}
