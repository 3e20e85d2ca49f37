"""Read a page of /metrics: bytes to samples of the wanted families.

An engine's page repeats itself: the same series in the same text, poll after
poll, with other values. The reader remembers what the text before each value
means, and the layout of whole pages: reading a known page is one comparison a
line, reading one that changed a dictionary lookup a line.

The text is the classic format 0.0.4 or OpenMetrics 1.0
(https://prometheus.io/docs/instrumenting/exposition_formats/).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import compress

from prefixwatch.page.layout import Layout
from prefixwatch.page.lines import Head, Labels, PageError, declared, plain_name, refuse_other_formats

MAX_LINES = 300_000
MAX_SERIES = 50_000
MAX_TEXTS = 200_000
MAX_TEXT_BYTES = 4096
MAX_BYTES = 32 * 2**20

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A wanted series; its labels stand in order of their names. Identity compares."""

    name: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class Page:
    """The wanted samples of one page, in its order; `values[i]` belongs to `series[i]`.

    `helps` and `types` hold the declarations of wanted families. `other_names` are names of other
    samples, filled only where at most one wanted sample was found. `is_cut` is true where the last line
    had no end (it was left out) or an OpenMetrics page had no `# EOF`.
    """

    series: tuple[Series, ...]
    values: tuple[float, ...]
    helps: dict[str, str]
    types: dict[str, str]
    other_names: tuple[str, ...]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class _Declaration:
    line: bytes
    kind: str
    name: str
    text: str


class PageReader:
    """Read pages, remembering the text of their series.

    `wanted` says of the whole name of a sample or a family whether it is wanted. One reader can
    serve many targets. What it remembers is bounded: at `MAX_TEXTS` texts it begins anew, and
    texts above `MAX_TEXT_BYTES` are not remembered.
    """

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._known: dict[bytes, Series | _Declaration | None] = {}
        self._known_bytes = 0
        self._interned: dict[tuple[str, Labels], Series] = {}
        self._layouts: dict[tuple[bool, int, bytes], tuple[Layout, Page]] = {}

    def read(self, body: bytes, *, is_openmetrics: bool = False) -> Page:
        """Return the wanted samples of `body`.

        Raises `PageError` naming the line at fault: a broken line of a wanted family, or one
        that cannot be told from a wanted one. A broken line of another family is passed over.
        A series that stands twice with different values is an error too.
        """
        # Before anything is made of the lines; a body of so few bytes cannot have too many.
        if len(body) > MAX_LINES and (count := body.count(b"\n")) > MAX_LINES:
            raise PageError(f"{count} lines, more than {MAX_LINES}: is this the page of an engine?")
        lines = body.removeprefix(_BOM).split(b"\n")
        unended = lines.pop()
        # An engine's longest line is the one with its settings: they tell one engine's pages from another's.
        place = (is_openmetrics, len(lines), _start(max(lines, key=len, default=b"")))
        layout, last = self._layouts.get(place, (None, None))
        if layout is not None and last is not None and not unended:
            values = layout.values(lines)
            if values is not None:
                self._layouts[place] = self._layouts.pop(place)  # the least used stands first
                return replace(last, values=values)
        is_ended = False
        if b"# EOF" in body:
            is_ended, unended = _ends(lines, unended)
        if unended.strip() and not any(line.strip() for line in lines):
            refuse_other_formats(unended, len(lines) + 1)
        page, is_known = self._page(lines)
        page = replace(page, is_cut=bool(unended.strip()) or (is_openmetrics and not is_ended))
        if is_known and not page.is_cut:
            self._remember(place, lines, page)
        return page

    def _page(self, lines: list[bytes]) -> tuple[Page, bool]:
        """Read all lines; say too whether each text was known already."""
        if max(len(self._known), len(self._interned)) > MAX_TEXTS or self._known_bytes > MAX_BYTES:
            self._known.clear()
            self._interned.clear()
            self._known_bytes = 0
        texts_before = len(self._known)
        series, values, declared = self._samples(lines)
        if len(series) > MAX_SERIES:
            raise PageError(f"{len(series)} samples of wanted families, more than {MAX_SERIES}: a label without bound?")
        if len(set(series)) < len(series):
            series, values = self._without_repeats(series, values, lines)
        page = Page(
            series=tuple(series),
            values=tuple(values),
            helps={d.name: d.text for d in declared if d.kind == "HELP"},
            types={d.name: d.text for d in declared if d.kind == "TYPE"},
            other_names=() if len(series) > 1 else tuple(dict.fromkeys(self._other_names(lines))),
            is_cut=False,
        )
        return page, len(self._known) == texts_before

    def _remember(self, place: tuple[bool, int, bytes], lines: list[bytes], page: Page) -> None:
        """Keep the layout of a page, if each of its samples is a text that is known."""
        meanings = [self._known.get(_start(line)[:-1], line) for line in lines]
        is_sample = [isinstance(meaning, Series) for meaning in meanings]
        if tuple(compress(meanings, is_sample)) != page.series:
            return  # a timestamp behind a value, or a sample that stands twice
        starts = (
            _start(line) if meaning is None or isinstance(meaning, Series) else None
            for line, meaning in zip(lines, meanings, strict=True)
        )
        self._layouts[place] = Layout(lines, starts, is_sample), page
        while (
            sum(len(layout) for layout, _ in self._layouts.values()) > MAX_TEXTS
            or sum(layout.bytes for layout, _ in self._layouts.values()) > MAX_BYTES
        ):
            del self._layouts[next(iter(self._layouts))]

    def _samples(self, lines: list[bytes]) -> tuple[list[Series], list[float], list[_Declaration]]:
        known = self._known
        series: list[Series] = []
        values: list[float] = []
        declared: list[_Declaration] = []
        for line in lines:
            head, _, tail = line.rpartition(b" ")
            meaning = known.get(head, line)
            if meaning is None:
                continue
            if meaning.__class__ is Series:
                try:
                    value = float(tail)
                except ValueError:
                    pass  # named below
                else:
                    if b"_" not in tail:  # Python would take 1_000, the format does not
                        values.append(value)
                        series.append(meaning)
                        continue
            elif meaning.__class__ is _Declaration and meaning.line == line:
                declared.append(meaning)
                continue
            try:
                learnt = self._learn(line, head)
            except PageError as fault:
                raise type(fault)(fault.fault, lines.index(line) + 1) from None
            if isinstance(learnt, _Declaration):
                declared.append(learnt)
            elif learnt is not None:
                series.append(learnt[0])
                values.append(learnt[1])
        return series, values, declared

    def _learn(self, line: bytes, head: bytes) -> tuple[Series, float] | _Declaration | None:
        """Read a line by the rules of the format and remember what its head means."""
        stripped = line.lstrip()
        if not stripped:
            return None
        if stripped[:1] == b"#":
            return self._learn_comment(line, head)
        name = plain_name(line)
        if name and not self._wanted(name):
            if head.strip():  # else the name stands behind it
                self._learn_text(head, None)
            return None
        return self._learn_sample(line, head)

    def _learn_text(self, head: bytes, meaning: Series | _Declaration | None) -> None:
        if len(head) <= MAX_TEXT_BYTES:
            self._known[head] = meaning
            self._known_bytes += len(head)

    def _learn_comment(self, line: bytes, head: bytes) -> _Declaration | None:
        found, meaning = declared(line), None
        if found and self._wanted(found[1]):
            meaning = _Declaration(line, *found)
        if len(head.split(None, 3)) > 2:  # else the name itself may be what differs
            self._learn_text(head, meaning)
        return meaning

    def _learn_sample(self, line: bytes, head: bytes) -> tuple[Series, float] | None:
        read = Head.of(line)
        if not self._wanted(read.name):
            return None
        value = read.value()
        series = self._interned.get((read.name, read.labels))
        if series is None:
            series = self._interned[read.name, read.labels] = Series(read.name, read.labels)
            self._known_bytes += len(line)
        if head == read.text[: read.end].encode():  # else a timestamp or the like stands behind the value
            self._learn_text(head, series)
        return series, value

    def _without_repeats(
        self, series: list[Series], values: list[float], lines: list[bytes]
    ) -> tuple[list[Series], list[float]]:
        """Drop repeated samples; raise where two of one series differ."""
        first: dict[Series, float] = {}
        for position, (one, value) in enumerate(zip(series, values, strict=True)):
            before = first.setdefault(one, value)
            if before != value and not (math.isnan(before) and math.isnan(value)):
                fault = f"{one.name} stands twice with different values: are two pages glued together?"
                raise PageError(fault, self._line_of_sample(position, lines))
        return list(first), list(first.values())

    def _line_of_sample(self, position: int, lines: list[bytes]) -> int:
        for number, line in enumerate(lines, 1):
            position -= len(self._samples([line])[0])
            if position < 0:
                return number
        raise IndexError(position)

    def _other_names(self, lines: list[bytes]) -> Iterator[str]:
        for line in lines:
            name = plain_name(line)
            if name and not self._wanted(name):
                yield name


def _start(line: bytes) -> bytes:
    """Return the text before the last word of a line, with the space in between."""
    return line[: line.rfind(b" ") + 1]


def _ends(lines: list[bytes], unended: bytes) -> tuple[bool, bytes]:
    """Find OpenMetrics' `# EOF`; return whether it is there, and what is left without a line end."""
    marks = [number for number, line in enumerate(lines, 1) if line.strip() == b"# EOF"]
    if not marks:
        is_last = unended.strip() == b"# EOF"  # some servers leave out the last newline
        return is_last, b"" if is_last else unended
    if any(line.strip() for line in lines[marks[0] :]) or unended.strip():
        raise PageError("text after # EOF: are two pages glued together?", marks[0] + 1)
    return True, b""
