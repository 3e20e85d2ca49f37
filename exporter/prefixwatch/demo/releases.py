"""The releases whose pages the stand-in can write, and how they count."""

from prefixwatch.demo.errors import DemoError

Version = tuple[int, int, int]

LATEST = "0.32.0"

RELEASES: dict[str, Version] = {
    name: (0, int(name.split(".")[1]), int(name.split(".")[2]))
    for name in (
        "0.7.3", "0.8.5", "0.9.2", "0.10.2", "0.11.2", "0.12.0", "0.13.0", "0.16.0", "0.25.0", LATEST,
    )
}  # fmt: skip


def version_of(release: str) -> Version:
    """Return a release as numbers; raises DemoError for one that is not in the table."""
    if release not in RELEASES:
        known = ", ".join(RELEASES)
        raise DemoError(f"release {release!r} is not one that the stand-in knows; use one of {known}")
    return RELEASES[release]


def counts_retried_lookups(version: Version) -> bool:
    """Whether each step that looked a waiting request up counted it (up to 0.25)."""
    return version < (0, 28, 0)


def counts_preempted_lookups(version: Version) -> bool:
    """Whether a preempted request, looked up again, was counted again (up to 0.10)."""
    return version < (0, 11, 0)
