import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from edge.engines import Engine, trace


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """A fake engine that serves the first page of the trace `healthy`."""
    async with Engine(page=trace("healthy")[0][1]) as running:
        yield running


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """What the exporter logs."""
    logger, kept = logging.getLogger("prefixwatch"), _Kept()
    level = logger.level
    logger.addHandler(kept)
    logger.setLevel(logging.DEBUG)
    yield kept.records
    logger.removeHandler(kept)
    logger.setLevel(level)
