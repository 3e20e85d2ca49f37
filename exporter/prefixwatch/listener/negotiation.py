"""What a client accepts: qualities in `Accept` and `Accept-Encoding` (RFC 9110, 12.4 and 12.5)."""

import re

_QUALITY = re.compile(r";\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*(?=;|$)", re.IGNORECASE | re.ASCII)


def accepts_gzip(header: str) -> bool:
    """Say whether gzip is accepted, and preferred to the plain text. Without a header, plain text it is."""
    qualities = {name.lower(): quality for name, quality in _listed(header)}
    rest = qualities.get("*", 0.0)
    gzip = qualities.get("gzip", qualities.get("x-gzip", rest))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


def by_preference(header: str) -> str:
    """Return an `Accept` header with the best first, and without what is not wanted at all."""
    wanted = [(quality, item) for item, quality in _listed(header, is_whole=True) if quality > 0]
    return ",".join(item for _, item in sorted(wanted, key=lambda one: -one[0]))


def _listed(header: str, *, is_whole: bool = False) -> list[tuple[str, float]]:
    items = []
    for item in header.split(","):
        name = item.strip() if is_whole else item.partition(";")[0].strip()
        if name:
            found = _QUALITY.search(item)
            items.append((name, float(found[1]) if found else 1.0))
    return items
