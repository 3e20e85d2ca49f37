"""Frozen counters: requests are served, and the page says that nothing is looked up.

A ratio over counters that stand still would hold its last value, or none, without a word.
"""

from collections.abc import Mapping

LOOKUPS_STAND_SECONDS = 60.0
"""Lookups that stand still this long while more first tokens come than requests ran are frozen."""

ALL_STAND_SECONDS = 120.0
"""Requests that run this long without any counter moving: longer than a prefill may take."""

ACTIVITY = (
    "prompt_tokens",
    "generation_tokens",
    "time_to_first_token_seconds/count",
    "queried_tokens",
    "queried_blocks",
    "queried_units",
)
_LOOKUPS = ("queried_tokens", "queried_blocks", "queried_units")


class Standstill:
    """Watch one engine's counters for standing still. Pure state over passed-in readings."""

    def __init__(self) -> None:
        self._lookups_since: float | None = None
        self._running_then = 0.0
        self._first_tokens = 0.0
        self._all_since: float | None = None
        self._time = 0.0
        self._has_looked_up = False

    def observe(
        self, time: float, grown: Mapping[str, float], counters: Mapping[str, float], gauges: Mapping[str, float]
    ) -> None:
        """Take one reading: what grew since the last, the counters and gauges as they stand."""
        self._time = time
        running = gauges.get("requests_running", 0.0)
        in_flight = running + gauges.get("requests_waiting", 0.0)
        self._has_looked_up = any(counters.get(name, 0.0) > 0 for name in _LOOKUPS)
        if self._lookups_since is None or any(grown.get(name, 0.0) > 0 for name in _LOOKUPS):
            # What is in flight now was looked up already, its first tokens are still to come.
            self._lookups_since, self._running_then, self._first_tokens = time, in_flight, 0.0
        else:
            self._first_tokens += grown.get("time_to_first_token_seconds/count", 0.0)
        if self._all_since is None or running <= 0 or any(grown.get(name, 0.0) > 0 for name in ACTIVITY):
            self._all_since = time

    def reset(self) -> None:
        """Forget everything: the engine restarted."""
        self.__init__()  # type: ignore[misc]

    @property
    def reason(self) -> str | None:
        """Why the counters count as frozen; None: they move, or nothing can be said."""
        if self._lookups_since is None or self._all_since is None or not self._has_looked_up:
            return None
        still = self._time - self._lookups_since
        if still >= LOOKUPS_STAND_SECONDS and self._first_tokens > self._running_then:
            return f"frozen counters: {self._first_tokens:.0f} first tokens in {still:.0f} s without one lookup"
        still = self._time - self._all_since
        if still >= ALL_STAND_SECONDS:
            return f"frozen counters: requests run, and no counter moved for {still:.0f} s"
        return None
