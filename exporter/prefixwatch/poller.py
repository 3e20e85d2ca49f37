"""Poll many targets side by side, one task a target, as discovery finds them."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping

from prefixwatch.config import Config
from prefixwatch.discovery import Discovery, Target
from prefixwatch.eventstream import EventStream
from prefixwatch.fetch import Fetcher, session
from prefixwatch.names import Names
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.targetpoller import Jitter, TargetPoller, TargetStatus, steady_clock, watch_of
from prefixwatch.turns import Turns

_log = logging.getLogger(__name__)

STALLED_AFTER = 10
"""After how many of the longest rounds that there can be without the end of any poll, polling has stalled."""

MIN_PAUSE = 0.05
"""How long a target is left alone at least, where polls take longer than the interval."""

BEATS = 100
"""On so many beats an interval polls begin, so that those due at almost the same time share the rounds of the event loop."""


class Poller:
    """Poll all targets of a configuration, as discovery finds them."""

    def __init__(
        self, config: Config, *, clock: Callable[[], float] | None = None, jitter: Jitter = random.uniform
    ) -> None:
        self._config = config
        self._clock = clock or steady_clock()
        self._jitter = jitter
        self._turns = Turns()
        self._reader = PageReader(is_wanted)
        self._names = Names()
        self._pollers: dict[str, TargetPoller] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._streams: dict[str, EventStream] = {}
        self._unseen_since: dict[str, float] = {}
        self._is_ready = False
        self._last_end = self._clock()
        self.discovery = Discovery(config, self._names)

    @property
    def statuses(self) -> list[TargetStatus]:
        """What is known of every target now, in order of their names. Safe in any thread."""
        return [poller.status for _, poller in sorted(self._pollers.items())]

    @property
    def is_ready(self) -> bool:
        """Whether a round of polling has ended, whatever its result. New targets change nothing in it."""
        if not self._is_ready:
            self._is_ready = self.discovery.is_done and all(poller.is_polled for poller in self._pollers.values())
        return self._is_ready

    def why_ill(self) -> str | None:
        """Return why polls no longer happen, None while they do. That they fail is no illness of the poller."""
        ended = [name for name, task in self._tasks.items() if task.done()]
        if ended:
            return f"the polling of {len(ended)} of {len(self._tasks)} targets has ended"
        config = self._config
        longest = 2 * config.poll_timeout + max(config.poll_interval, config.max_backoff)
        silent = self._clock() - self._last_end
        return f"no poll has ended for {silent:.0f} s" if self._tasks and silent > STALLED_AFTER * longest else None

    async def run(self) -> None:
        """Discover and poll until cancelled."""
        async with session(self._names) as shared:
            fetcher = Fetcher(shared, timeout=self._config.poll_timeout, max_bytes=self._config.max_page_bytes)
            try:
                while True:
                    try:
                        self._reconcile(await self.discovery.targets(), fetcher)
                    except Exception:  # noqa: BLE001  nor end the polling of the targets known
                        _log.exception("discovery failed inside the exporter")
                    await asyncio.sleep(self._config.discovery_interval)
            finally:
                tasks = list(self._tasks.values())
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for stream in self._streams.values():
                    stream.stop(wait=False)

    def _reconcile(self, targets: Mapping[str, Target], fetcher: Fetcher) -> None:
        now = self._clock()
        is_alone = len(targets) == 1
        for name, target in targets.items():
            known = self._pollers.get(name)
            if known is None or known.target != target:
                self._drop(name)
                if not self._pollers:
                    self._last_end = now
                poller = self._pollers[name] = self._poller(target, fetcher)
                self._tasks[name] = asyncio.create_task(self._keep_polling(poller, at_once=is_alone))
            self._unseen_since.pop(name, None)
        for name in self._pollers.keys() - targets.keys():
            since = self._unseen_since.setdefault(name, now)
            if now - since >= self._config.forget_after:
                self._drop(name)

    def _poller(self, target: Target, fetcher: Fetcher) -> TargetPoller:
        stream = EventStream(target.name, target.events) if target.events else None
        if stream is not None:
            self._streams[target.name] = stream
            stream.start()
        return TargetPoller(
            target,
            self._config,
            fetcher,
            self._reader,
            watch=watch_of(target, self._config, feed=stream),
            spans=self._config.windows,
            clock=self._clock,
            jitter=self._jitter,
            turns=self._turns,
        )

    def _drop(self, name: str) -> None:
        self._pollers.pop(name, None)
        self._unseen_since.pop(name, None)
        task = self._tasks.pop(name, None)
        if task:
            task.cancel()
        stream = self._streams.pop(name, None)
        if stream:
            stream.stop(wait=False)

    async def _keep_polling(self, poller: TargetPoller, *, at_once: bool) -> None:
        if not at_once:  # spread the targets over the interval
            await asyncio.sleep(self._jitter(0, self._config.poll_interval))
        while True:
            started = self._clock()
            await poller.poll()
            self._last_end = self._clock()
            due = self._on_beat(started + poller.delay())
            await asyncio.sleep(max(MIN_PAUSE, due - self._clock()))

    def _on_beat(self, due: float) -> float:
        """Return the beat that is nearest to a time in seconds."""
        beat = self._config.poll_interval / BEATS
        return round(due / beat) * beat
