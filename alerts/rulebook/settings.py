"""The configuration: values with their reasons."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from rulebook.kinds import KINDS, fits, kind_of

_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


class SettingsError(Exception):
    """A configuration that cannot be used: names file, key path and what is wrong."""


def seconds(duration: str) -> float:
    """Return the seconds of one of Prometheus's durations, such as 1h30m. Raises SettingsError."""
    parts = re.findall(r"(\d+)(ms|[smhdw])", duration)
    if "".join(number + unit for number, unit in parts) != duration or not parts:
        raise SettingsError(f'"{duration}" is not a duration; use a form like "5m"')
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


class Settings:
    """Values by key path. What nobody asks for is an error: a misspelt key would change nothing.

    `tree`: the configuration as it was read, each value with its reason.
    """

    def __init__(self, content: Mapping[str, Any], *, source: str) -> None:
        self._source = source
        self.tree = content
        self._entries = dict(_flat(content, source, ""))
        self._asked: set[str] = set()

    @classmethod
    def read(cls, file: Path) -> "Settings":
        """Read a file. Raises SettingsError."""
        try:
            content = yaml.safe_load(file.read_text())
        except OSError as error:
            raise SettingsError(f"{file}: cannot be read: {error.strerror}") from None
        except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a date like 2001-99-99
            mark = getattr(error, "problem_mark", None)
            where = f" line {mark.line + 1}:" if mark else ""
            problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
            raise SettingsError(f"{file}:{where} not YAML: {problem}") from None
        if not isinstance(content, dict):
            raise SettingsError(f"{file}: this must be a mapping")
        return cls(content, source=str(file))

    def __getitem__(self, path: str) -> Any:
        """Return the value at a path such as "shared.flap". Raises SettingsError where there is none."""
        self._asked.add(path)
        return self._entry(path)["value"]

    def seconds(self, path: str) -> str:
        """Return a duration as PromQL's number of seconds. Raises SettingsError."""
        return f"{seconds(self[path]):.15g}"

    def any_of(self, path: str) -> str:
        """Return a list of names as a regular expression between PromQL's double quotes."""
        names = "|".join(_SPECIAL.sub(r"\\\g<0>", name) for name in self[path])
        return names.replace("\\", "\\\\").replace('"', '\\"')

    def if_any(self, path: str, text: str) -> str:
        """Return the text where the list at a path has entries, and nothing where it is empty."""
        return text if self[path] else ""

    def why(self, path: str) -> str:
        """Return the reason for a value."""
        return str(self._entry(path)["why"])

    def check_kinds(self, defaults: "Settings") -> None:
        """Refuse a value that is not of the kind of its default. Raises SettingsError.

        A path without a default is passed over: it is one of `unused`.
        """
        for path, entry in self._entries.items():
            if path in defaults._entries:
                kind = KINDS[kind_of(path.rpartition(".")[2], defaults._entries[path]["value"])]
                if not fits(entry["value"], kind.schema):
                    shown = json.dumps(entry["value"], default=str, ensure_ascii=False)[:80]
                    raise SettingsError(f"{self._source}: {path}: {shown} is not {kind.words}")

    def unused(self) -> list[str]:
        """Return the paths that nobody asked for."""
        return sorted(self._entries.keys() - self._asked)

    def _entry(self, path: str) -> Mapping[str, Any]:
        try:
            return self._entries[path]
        except KeyError:
            raise SettingsError(f"{self._source}: {path} is missing") from None


def _flat(content: Mapping[str, Any], source: str, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, entry in content.items():
        path = f"{prefix}{key}"
        if not isinstance(entry, Mapping):
            raise SettingsError(f"{source}: {path} must be {{value: ..., why: ...}}")
        if "value" not in entry:
            yield from _flat(entry, source, f"{path}.")
        elif entry.keys() != {"value", "why"} or not str(entry["why"]).strip():
            raise SettingsError(f"{source}: {path} needs a value and a reason (why), and nothing else")
        else:
            yield path, entry
