"""The packages that an installed exporter needs, and their licences. As a program, writes THIRD_PARTY_LICENSES.md.

Metadata says a licence in three ways (PEP 639, classifiers, free text); what they say is put into
one spelling here, and what is not known stays as it is, so that it stands out.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageMetadata, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LISTING = ROOT / "THIRD_PARTY_LICENSES.md"
ALLOWED = frozenset(
    {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "PSF-2.0", "Python-2.0", "Zlib", "CC0-1.0"}
)  # fmt: skip
_SPELLINGS = {
    "Apache 2": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}
_HEAD = """\
# Licences of what an installed exporter is made of

The runtime dependencies of `prefixwatch`, with those of the extra `events`, and all that these need in turn, whatever the
Python. Written by `make licences`. A test holds that each is here, and that its licence is one of
{allowed}.
Their texts come with the packages.

| package | licence |
| --- | --- |
"""


def runtime() -> dict[str, str]:
    """Return the licence of each package that is needed at run time, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [Requirement(text) for text in (*project["dependencies"], *project["optional-dependencies"]["events"])]
    found: dict[str, str] = {}
    while waiting:
        requirement = waiting.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name not in found:
            try:
                package = distribution(name)
            except PackageNotFoundError:
                continue  # not needed on this Python
            found[name] = licence_of(package.metadata)
            waiting += _needed(package.requires or (), requirement.extras)
    return dict(sorted(found.items()))


def _needed(requires: object, extras: set[str]) -> Iterator[Requirement]:
    for text in requires:
        requirement = Requirement(text)
        environments = [{"extra": extra} for extra in extras or {""}]
        if requirement.marker is None or any(requirement.marker.evaluate(one) for one in environments):
            yield requirement


def licence_of(metadata: PackageMetadata) -> str:
    """Return a licence as an SPDX expression, or the package's own words where they are none."""
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [
        one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier") or () if one.startswith("License ::")
    ]
    said = [one for one in classifiers if one != "OSI Approved"] or [
        (metadata.get("License") or "unknown").splitlines()[0]
    ]
    return " AND ".join(_SPELLINGS.get(one, one) for one in said)


def is_allowed(expression: str) -> bool:
    """Say whether all parts of an expression are on the list; of alternatives, one is enough."""
    return any(
        all(part.strip(" ()") in ALLOWED for part in re.split(r"\s+(?:AND|WITH)\s+", alternative))
        for alternative in re.split(r"\s+OR\s+", expression)
    )


def listed() -> dict[str, str]:
    """Return what THIRD_PARTY_LICENSES.md says."""
    rows = re.findall(r"^\| (\S+) \| (.+) \|$", LISTING.read_text(), re.MULTILINE)
    return {name: licence for name, licence in rows if name not in ("package", "---")}


def main() -> None:
    """Write the listing; what is in it for another Python stays."""
    both = {**listed(), **runtime()}
    rows = "".join(f"| {name} | {licence} |\n" for name, licence in sorted(both.items()))
    LISTING.write_text(_HEAD.format(allowed=", ".join(sorted(ALLOWED))) + rows)


if __name__ == "__main__":
    main()
