"""What is known to be wrong, missing or different in a release's counting.

A page does not state its release. `/version` does where it answers; else the families and labels
that are there bound it. The facts were read from vLLM's source, release by release.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

Release = tuple[int, ...]
"""A release as numbers: (0, 11, 2)."""

_RELEASE = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){1,3})(?!\d)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """Something about a page or a release that a reader of its figures has to know."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """Releases from `first` up to, not including, `until`; None leaves that end open."""

    first: Release | None = None
    until: Release | None = None

    def contains(self, other: "Era") -> bool:
        """Say whether every release of `other` lies in this era."""
        starts = self.first is None or (other.first is not None and other.first >= self.first)
        ends = self.until is None or (other.until is not None and other.until <= self.until)
        return starts and ends


BLOCKS = Caveat(
    name="lookups_in_blocks",
    text="lookups are counted in blocks, not tokens (V1 engine of 0.8); "
    "they become tokens where the block size is stated",
)
UNKNOWN_UNIT = Caveat(
    name="lookup_unit_unknown",
    text="nothing says whether lookups are counted in blocks or tokens: ratios hold, token counts are left out",
)
V0 = Caveat(
    name="lifetime_gauge_only",
    text="the V0 engine has no counters, only a hit rate since its start, from which no window can be made",
)
RETRIED = Caveat(
    name="lookups_retried",
    text="this release may count a waiting request at each lookup, so that a saturated queue inflates queries and hits",
)
MERGED_PROCESSES = Caveat(
    name="several_api_processes",
    text="several API processes write this page in turn: a gauge is the largest of theirs, groups may be torn",
)
UNASSIGNED = Caveat(
    name="unassigned_series",
    text="some series could not be given to one engine of this page and were left out",
)
MIXED_SPELLINGS = Caveat(
    name="mixed_spellings",
    text="the page spells its names in two ways, which would count twice: the one with most samples was read",
)
RESTARTED = Caveat(
    name="engine_restarted",
    text="the engine restarted in this window: its cache was empty then, and requests that finished unread are missing",
)
CHANGED = Caveat(
    name="process_changed",
    text="another process answers since a moment in this window, and by its times it is no new one (does the engine's "
    "clock differ?): what it did before its first page is missing",
)
CUT = Caveat(
    name="page_cut_off", text="the page ends in the middle: its last line was left out, and more may be missing"
)

_BY_RELEASE: tuple[tuple[Era, Caveat], ...] = (
    (
        Era(until=(0, 11)),
        Caveat(name="preempted_counted_again", text="preempted requests are looked up and counted again (up to 0.10)"),
    ),
    (Era(first=(0, 9), until=(0, 28)), RETRIED),
    (
        Era(until=(0, 13)),
        Caveat(
            name="no_request_level",
            text="no histogram of computed tokens before 0.13: what single requests got cannot be told",
        ),
    ),
    (
        Era(first=(0, 13), until=(0, 16)),
        Caveat(
            name="no_cached_at_first_token",
            text="no cached tokens at first token before 0.16: request level comes from finished requests only",
        ),
    ),
    (
        Era(until=(0, 32)),
        Caveat(
            name="alignment_unstated",
            text="what a hit is aligned to is not stated before 0.32: "
            "for hybrid models the block is larger than block_size",
        ),
    ),
)

# A family or config label and the release that it came with.
_FIRST_WITH: tuple[tuple[str, Release], ...] = (
    ("cache_hit_alignment_tokens", (0, 32)),
    ("effective_attention_block_size", (0, 32)),
    ("kv_cache_size_tokens", (0, 24)),
    ("cached_prompt_tokens", (0, 16)),
    ("prompt_tokens_by_source", (0, 16)),
    ("request_computed_tokens", (0, 13)),
    ("external_queried_tokens", (0, 11, 2)),
    ("new_names", (0, 9)),
    ("engine_label", (0, 9)),
)
# ... and what went away with one.
_GONE_WITH: tuple[tuple[str, Release], ...] = (("lifetime_hit_rate", (0, 9)), ("old_names", (0, 12)))


def parsed_release(text: str | None) -> Release | None:
    """Read "0.11.2", "v0.9.0rc1" or "0.32.1.dev4+gabc" as numbers; None where there are none."""
    match = _RELEASE.match(text.strip()) if text else None
    return tuple(int(part) for part in match[1].split(".")) if match else None


def era_of(release: str | None, features: Collection[str], config_labels: Collection[str]) -> Era:
    """Bound the release of a page.

    `features` names what the page has (quantities, and old_names, new_names, engine_label),
    `config_labels` the labels of its cache_config_info, empty without one. A `release` that the
    page contradicts is not believed: builds from source may call themselves 0.1.dev1.
    """
    of_page = _era_of_page(features, config_labels)
    exact = parsed_release(release)
    if exact is None or exact < (of_page.first or exact) or (of_page.until and exact >= of_page.until):
        return of_page
    return Era(first=exact, until=(*exact, 0))


def _era_of_page(features: Collection[str], config_labels: Collection[str]) -> Era:
    present = {*features, *config_labels}
    first = max((since for name, since in _FIRST_WITH if name in present), default=None)
    until = min((end for name, end in _GONE_WITH if name in present), default=None)
    if config_labels and until is None:
        if "kv_cache_size_tokens" not in config_labels:
            until = (0, 25)
        elif "cache_hit_alignment_tokens" not in config_labels:
            until = (0, 32)
    return Era(first=first, until=until)


def release_caveats(era: Era) -> Iterator[Caveat]:
    """Yield what is known of the counting of every release in `era`."""
    return (caveat for affected, caveat in _BY_RELEASE if affected.contains(era))
