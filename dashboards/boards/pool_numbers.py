"""Numbers of the pool that two boards show, over the diagnosis window; of several engines the one that is worst off."""

from lib.grafana import Panel
from lib.metrics import of_engine
from lib.palette import GOOD, LIMIT, MEMORY, QUIET, UNSURE
from lib.panels import number, told, verdict
from prefixwatch.config import Config
from prefixwatch.diagnosis import Thresholds

LIMITS = Thresholds()
WINDOW = str(Config().diagnosis_window)
NO_EVENTS = "cache events are off"


def filled() -> Panel:
    """Return whether the pool has filled."""
    return verdict(
        "Pool filled", of_engine("pool_filled").max_by(), words={"0": ("never filled", QUIET), "1": ("has filled", UNSURE)},
        empty="cannot be told",
        about=told(
            "Whether as much was written since the engine's start as the pool holds.",
            "never filled: nothing had to be evicted, misses are first-time.", "has filled: eviction is possible, not certain.",
        ),
    )  # fmt: skip


def turnover() -> Panel:
    """Return how long it takes to write the pool over."""
    return number(
        "Turnover", of_engine("turnover_seconds", window=WINDOW).min_by(), unit="s", colour=LIMIT, empty="nothing written",
        about=told(
            f"How long it takes to write the whole pool over, at the pace of the last {WINDOW}; of several engines the shortest.",
            "longer than users take between two turns.", "no block that nobody touches survives longer than that.",
        ),
    )  # fmt: skip


def avoidable_misses() -> Panel:
    """Return the share of misses that a larger pool would have avoided."""
    return number(
        "Avoidable misses", of_engine("avoidable_miss_ratio", window=WINDOW).max_by(), unit="percentunit", colour=GOOD,
        steps=((LIMITS.avoidable, MEMORY),), empty=NO_EVENTS, decimals=1,
        about=told(
            "Blocks stored again after their removal, of all that were stored: misses that a larger pool would have avoided.",
            f"below {LIMITS.avoidable:.0%}.", "more KV memory; What if, on the KV pool board, shows how much helps.",
        ),
    )  # fmt: skip


def late_reuses() -> Panel:
    """Return the share of reuses shortly before the eviction."""
    return number(
        "Late reuses", of_engine("late_reuse_ratio", window=WINDOW).max_by(), unit="percentunit", colour=GOOD,
        steps=((LIMITS.late_reuses, MEMORY),), empty="no evictions, or no --kv-cache-metrics", decimals=1,
        about=told(
            "The share of reuses in the second half of the time that an idle block survives.",
            f"below {LIMITS.late_reuses:.0%}.", "reuses crowd the time before eviction, so many come too late: eviction.",
        ),
    )  # fmt: skip
