"""One line of a page, by the rules of the format."""

import re
from dataclasses import dataclass

# Whitespace is that of ASCII throughout: the format knows no other.
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_QUOTED = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OTHER = re.compile(rf"\s*(?P<name>{_NAME})(?=[\s{{])", re.ASCII)
_SERIES = re.compile(
    rf'\s*(?P<name>{_NAME})?(?:\s*\{{(?P<labels>[^"}}]*+(?:{_QUOTED}[^"}}]*+)*+)\}})?', re.DOTALL | re.ASCII
)
_LABEL = re.compile(rf"\s*(?:(?P<label>[a-zA-Z_]\w*)\s*=\s*)?(?P<text>{_QUOTED})\s*(?:,|$)", re.DOTALL | re.ASCII)
_VALUE = re.compile(
    r"\s+(?P<value>[^\s#]+)(?:\s+(?P<time>[-+0-9.eE]+))?\s*(?P<exemplar>#\s*\{.*)?$", re.DOTALL | re.ASCII
)
_NUMBER = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_DECLARATION = re.compile(rf"#\s*(?P<kind>HELP|TYPE)\s+(?P<name>{_NAME})(?:\s+(?P<text>.*))?$", re.DOTALL | re.ASCII)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_JSON = re.compile(rb'[\[{]\s*(?:"[^"]*"\s*:|[\[\]{}]|$)')


Labels = tuple[tuple[str, str], ...]


class PageError(Exception):
    """A page that cannot be read: what is wrong and, where a line is at fault, which (from 1)."""

    def __init__(self, fault: str, line: int | None = None) -> None:
        super().__init__(fault)
        self.fault = fault
        self.line = line

    def __str__(self) -> str:
        """Return the fault with its line."""
        return self.fault if self.line is None else f"line {self.line}: {self.fault}"


class NotAPage(PageError):
    """The body is no page of metrics at all: HTML, JSON, something binary."""


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before a sample's value: its name and labels, in the order of their names, and how much text that is."""

    name: str
    labels: Labels
    text: str
    end: int

    @classmethod
    def of(cls, line: bytes) -> "Head":
        """Read the head of a line. Raises `PageError`."""
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            refuse_other_formats(line)
            raise PageError(f"not UTF-8 at byte {error.start}") from None
        match = _SERIES.match(text)
        end = match.end() if match else 0
        if match is None or not text[:end].strip() or not text[end : end + 1].isspace():
            refuse_other_formats(line)
            raise PageError(f"neither a comment nor a sample: {_shown(text)}")
        name, labels = _name_and_labels(match["name"], match["labels"] or "", text)
        return cls(name, labels, text, end)

    def value(self) -> float:
        """Return the value behind it. Raises `PageError`."""
        rest = _VALUE.match(self.text, self.end)
        if rest is None:
            raise PageError(f"no value, or something behind it: {_shown(self.text)}")
        return _number(rest["value"], self.text)


def declared(line: bytes) -> tuple[str, str, str] | None:
    """Return kind (HELP or TYPE), name and text of a declaration, None of another comment."""
    match = _DECLARATION.match(line.decode("utf-8", "replace").strip())
    return (match["kind"], match["name"], match["text"] or "") if match else None


def plain_name(line: bytes) -> str | None:
    """Return the name that a line begins with, None where it begins with something else."""
    match = _OTHER.match(line.decode("utf-8", "replace"))
    return match["name"] if match else None


def _name_and_labels(name: str | None, inside: str, line: str) -> tuple[str, Labels]:
    """Read the labels, and the name where it stands quoted among them (UTF-8 names)."""
    labels: dict[str, str] = {}
    inside = inside.rstrip()
    at = 0
    while at < len(inside):
        pair = _LABEL.match(inside, at)
        if pair is None or (pair["label"] is None and name is not None) or pair["label"] in labels:
            raise PageError(f"broken labels: {_shown(line)}")
        text = _unescaped(pair["text"][1:-1])
        if pair["label"] is None:
            name = text
        else:
            labels[pair["label"]] = text
        at = pair.end()
    if name is None:
        raise PageError(f"a sample without a name: {_shown(line)}")
    return name, tuple(sorted(labels.items()))


def refuse_other_formats(line: bytes, number: int | None = None) -> None:
    """Raise `NotAPage` where a line begins another format."""
    start = line.lstrip()[:200]
    if start[:1] == b"<":
        raise NotAPage("this is HTML or XML, not a page of metrics", number)
    if _JSON.match(start):
        raise NotAPage("this is JSON, not a page of metrics", number)
    if start[:2] == b"\x1f\x8b":
        raise NotAPage("this is compressed (gzip): decompress it first", number)


def _number(text: str, line: str) -> float:
    """Read a value. Python would take 1_000 and other scripts' digits, the format does not."""
    if not _NUMBER.fullmatch(text):
        raise PageError(f'"{_shown(text)[:40]}" is not a number: {_shown(line)}')
    return float(text)


def _unescaped(text: str) -> str:
    """Undo the three escapes of a label value: backslash, quote and newline."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda m: {"n": "\n", "\\": "\\", '"': '"'}.get(m[1], m[0]), text)


def _shown(line: str) -> str:
    """Shorten a line for an error message, with what could confuse a terminal made visible."""
    text = ascii(line.strip())[1:-1]
    return text if len(text) <= 80 else text[:77] + "..."
