"""Settings as people write them: YAML, kinds of values, durations; and how a mistake in them is named.

Every error names the key path and the value: `config: windows[1]: "5 min" is not a duration; ...`.
"""

import difflib
import errno
import os
import re
import stat
import typing
from pathlib import Path
from typing import Any

import msgspec
import yaml

from prefixwatch.addresses import one_line, without_credentials

MAX_BYTES = 4 * 2**20
"""How large a file of settings may be: ten thousand targets with their labels take half of it."""

MAX_VALUES = 500_000
"""How many values a file may hold, with each alias (`*name`) counted as what it stands for."""

MAX_TOKEN_BYTES = 64 * 2**10
"""How large a file with a token may be."""

_PLAIN_KEY = re.compile(r"[\w.-]{1,40}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_PLAIN_NUMBER = re.compile(r"\d{1,8}(?:\.\d{1,9})?", re.ASCII)
_MAX_DURATION = 10 * 365 * 86400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

# msgspec's words for kinds of values, and ours.
_KINDS = {
    "object": "a mapping",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


class ConfigError(Exception):
    """A configuration that cannot be used: names the key path, the value and what to do."""


class Duration(float):
    """Seconds, written as "5m" or "1h30m"."""

    @classmethod
    def parse(cls, text: object) -> "Duration":
        """Read a duration. Raises ValueError saying what form it has."""
        parts = _DURATION.findall(text) if isinstance(text, str) else []
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        if not parts or "".join(number + unit for number, unit in parts) != text or seconds > _MAX_DURATION:
            form = f"{text}s" if _PLAIN_NUMBER.fullmatch(str(text)) else "5m"
            raise ValueError(f'"{one_line(text)}" is not a duration; use a form like "{form}"')
        return cls(seconds)

    def __str__(self) -> str:
        """Return the shortest form: 90 s are "1m30s", 300 s are "5m"."""
        seconds = float(self)
        if 0 < seconds < 1 or not seconds.is_integer():
            number, unit = (seconds * 1000, "ms") if seconds < 1 else (seconds, "s")
            return f"{number:.6f}".rstrip("0").rstrip(".") + unit
        left, text = int(seconds), ""
        for unit in ("d", "h", "m", "s"):
            count, left = divmod(left, int(_UNITS[unit]))
            text += f"{count}{unit}" if count else ""
        return text or "0s"


def read(file: Path, *, is_secret: bool = False) -> Any:
    """Return what a YAML file holds. Raises `ConfigError`, which quotes nothing of the file where it `is_secret`."""
    try:
        content = content_of(file, most=MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{file}: larger than {MAX_BYTES // 2**20} MiB")
        return _built(content.decode())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8") from None
    except _TwiceError as error:
        raise ConfigError(f"{file}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}:" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "broken"
        words = "" if is_secret else f": {one_line(problem)}"
        raise ConfigError(f"{file}:{where} not YAML{words}") from None
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        # PyYAML lets through what building a value raises: !!int "x", 2001-99-99, a thousand brackets.
        words = "" if is_secret else f": {one_line(error)}"
        raise ConfigError(f"{file}: not YAML{words}") from None


def content_of(file: Path, *, most: int) -> bytes:
    """Return the first bytes of a file. Raises OSError, also where it is a device or a pipe: those may never end."""
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(file))
        return stream.read(most)


class _TwiceError(Exception):
    """A key that stands twice in one mapping."""

    def __init__(self, key: yaml.ScalarNode) -> None:
        super().__init__(f"line {key.start_mark.line + 1}: {_shown_key(key.value)}: stands twice in one mapping")


def _built(text: str) -> Any:
    """Build the values of a text: of plain kinds alone (PyYAML's safe loader), none twice, and not too many."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _weigh(node, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _weigh(node: yaml.Node, known: dict[int, int | None]) -> int:
    """Return how many values a node stands for. An alias costs its anchor again: few lines can make billions."""
    key = id(node)
    if key in known:
        weight = known[key]
        if weight is None:
            raise _fault(node, "an anchor stands for something that it is a part of")
        return weight
    known[key] = None
    inner: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode):
                if name.value in names:
                    raise _TwiceError(name)
                names.add(name.value)
            inner += (name, value)
    elif isinstance(node, yaml.SequenceNode):
        inner = node.value
    weight = 1 + sum(_weigh(one, known) for one in inner)
    if weight > MAX_VALUES:
        raise _fault(node, f"more than {MAX_VALUES:,} values")
    known[key] = weight
    return weight


def _fault(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def converted(value: Any, kind: Any, where: str, *, is_secret: bool = False) -> Any:
    """Return a value as `kind`. Raises `ConfigError`, which quotes no value where they are `is_secret`."""
    try:
        return msgspec.convert(value, kind, dec_hook=_decoded)
    except msgspec.ValidationError as error:
        fault, _, path = str(error).partition(" - at `")
        words = _explained(fault, path, value, is_secret=is_secret)
        if "unknown field" in fault and not is_secret:
            words += _meant(fault, path, kind)
        raise ConfigError(f"{where}: {words}") from None
    except (OverflowError, RecursionError, ValueError) as error:
        raise ConfigError(f"{where}: {'cannot be read' if is_secret else one_line(error)}") from None


def _decoded(kind: type, value: Any) -> Any:
    if kind is Duration:
        return Duration.parse(value)
    raise NotImplementedError(kind)


def _explained(fault: str, path: str, value: Any, *, is_secret: bool) -> str:
    """Turn msgspec's words into: key path, the value, what is wrong."""
    if path.startswith("key"):
        return "a name in it is not text: put it in quotes"
    path = path.removeprefix("$").removesuffix("`").removeprefix(".")
    unknown = re.search(r"unknown field `(.*)`", fault, re.DOTALL)
    if unknown:
        return f"{path + '.' if path else ''}{_shown_key(unknown[1])}: there is no such setting"
    if "is not a duration" in fault:
        return f"{path}: {fault[fault.index('is not a duration') :] if is_secret else fault}"
    found = value
    for key in re.findall(r"\.\.\.|[^.\[\]]+", path):
        if key == "...":  # some value of a mapping of texts
            name, found = next((item for item in found.items() if not isinstance(item[1], str)), ("", found))
            path = path.replace("[...]", f".{one_line(name)}")
        else:
            found = found[int(key)] if isinstance(found, list | tuple) else found[key]
    words = re.sub(r"`([^`]*)`", lambda match: " or ".join(_KINDS.get(k, k) for k in match[1].split(" | ")), fault)
    words = words[:1].lower() + words[1:]
    # What stands under `access` in the place of a file's name may be the secret itself; so may what is in a mapping.
    has_mapping = any(isinstance(one, dict) for one in (found if isinstance(found, list) else [found]))
    is_shown = not is_secret and "access" not in path and not has_mapping
    return f'{path}: "{without_credentials(found)}": {words}' if is_shown else f"{path}: {words}"


def _meant(fault: str, path: str, kind: Any) -> str:
    """Return the name that an unknown one is almost, of those that there are at this path in a kind."""
    found = _struct_in(kind)
    for key in re.findall(r"\w+", path):
        fields = {field.name: field.type for field in msgspec.structs.fields(found)} if found else {}
        found = _struct_in(fields[key]) if key in fields else found  # else it is a position in a list
    wrong = re.search(r"unknown field `(\w{1,40})`", fault)
    near = difflib.get_close_matches(wrong[1], found.__struct_fields__, n=1, cutoff=0.8) if wrong and found else []
    return f"; do you mean {near[0]}?" if near else ""


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next(filter(None, map(_struct_in, typing.get_args(kind))), None)


def _shown_key(key: str) -> str:
    """Return a key as an error shows it: the start of one that is none, which may be a line of quite another file."""
    return key if _PLAIN_KEY.fullmatch(key) else one_line(key) if len(key) <= 8 else f"{one_line(key[:8])}..."


def read_token(file: Path) -> str:
    """Return the token that a file holds. Raises OSError, and ValueError where it is not one token."""
    token = content_of(file, most=MAX_TOKEN_BYTES + 1).strip()
    if not 0 < len(token) <= MAX_TOKEN_BYTES or not all(0x21 <= byte <= 0x7E for byte in token):
        raise ValueError(f"{file}: not one token: it must be a line of ASCII without spaces")
    return token.decode("ascii")
