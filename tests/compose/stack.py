"""docker-compose.yml, the files of settings and the Dockerfile, as a test reads them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+):-(?P<default>[^}]*)\}")


def compose(settings: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the content with variables filled in. Each must have a default: without a .env everything works."""
    given = settings or {}
    text = (ROOT / "docker-compose.yml").read_text()
    filled = _VARIABLE.sub(lambda found: given.get(found["name"]) or found["default"], text)
    assert "$" not in filled, "a variable without a default"
    content: dict[str, Any] = yaml.safe_load(filled)
    return content


def variables() -> dict[str, str]:
    """Return each variable of docker-compose.yml with its default."""
    found = list(_VARIABLE.finditer((ROOT / "docker-compose.yml").read_text()))
    defaults = {one["name"]: one["default"] for one in found}
    assert all(defaults[one["name"]] == one["default"] for one in found), "two defaults for one variable"
    return defaults


def settings_of(name: str, *, commented_too: bool = False) -> dict[str, str]:
    """Read NAME=value lines of a file for --env-file."""
    lines = (ROOT / name).read_text().splitlines()
    pattern = re.compile(r"(?:# )?([A-Z_]+)=(\S*)" if commented_too else r"([A-Z_]+)=(\S*)")
    found: dict[str, str] = {}
    for match in filter(None, map(pattern.fullmatch, lines)):
        found.setdefault(match[1], match[2])
    return found


def mounts(service: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield source, target and mode of each volume."""
    for volume in service.get("volumes", ()):
        source, target, *mode = volume.split(":")
        yield source, target, mode[0] if mode else "rw"


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Return (INSTRUCTION, the rest) of each, with continued lines joined and comments dropped."""
    kept = "\n".join(line for line in dockerfile.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", kept)
    return [
        (word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)
    ]
