"""What is known of a metric family: name, kind, help, labels, buckets, and in which releases."""

from dataclasses import dataclass, field
from typing import Literal, TypedDict, Unpack

from prefixwatch.demo.releases import Version

Kind = Literal["counter", "gauge", "histogram"]
Label = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of a page.

    ``reads`` names the tally it shows (its own name by default), ``label`` an extra label with
    all its values. ``since`` is the first release that has the family, ``until`` the first that
    no longer does. ``buckets`` of a histogram are edges, or REQUEST_TOKENS.
    """

    name: str
    kind: Kind
    help: str
    reads: str = ""
    label: Label | None = None
    buckets: tuple[float, ...] | str = ()
    is_per_engine: bool = True
    needs_residency: bool = False
    since: Version = (0, 0, 0)
    until: Version = (99, 0, 0)
    tally: str = field(init=False)

    def __post_init__(self) -> None:
        """Settle the tally."""
        object.__setattr__(self, "tally", self.reads or self.name)

    def is_in(self, version: Version) -> bool:
        """Whether that release's page has the family."""
        return self.since <= version < self.until


class Options(TypedDict, total=False):
    """The fields of a Family that most families leave at their defaults."""

    reads: str
    label: Label | None
    is_per_engine: bool
    needs_residency: bool
    since: Version
    until: Version


def counter(name: str, help_text: str, **options: Unpack[Options]) -> Family:
    """Return a counter of vLLM, declared without ``_total``."""
    return Family(name=f"vllm:{name}", kind="counter", help=help_text, **options)


def gauge(name: str, help_text: str, **options: Unpack[Options]) -> Family:
    """Return a gauge of vLLM."""
    return Family(name=f"vllm:{name}", kind="gauge", help=help_text, **options)


def histogram(name: str, help_text: str, buckets: tuple[float, ...] | str, **options: Unpack[Options]) -> Family:
    """Return a histogram of vLLM."""
    return Family(name=f"vllm:{name}", kind="histogram", help=help_text, buckets=buckets, **options)
