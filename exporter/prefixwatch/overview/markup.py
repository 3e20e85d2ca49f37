"""HTML that is safe by construction: text becomes markup in one place, and is escaped there.

Label values come from whoever runs the engine. What cannot be seen or reorders its surroundings
(control characters, direction overrides) is shown as its escape sequence, what is long is cut.
"""

import re
import unicodedata
from collections.abc import Iterable
from html import escape

MAX_TEXT = 400
MAX_NAME = 80
DASH = "\N{EN DASH}"
"""Stands where there is no value."""

# The space in "98.0 %" and "2.2 s": a number and its unit stay on one line.
_UNIT = re.compile(r"(?<=\d) (?=(?:%|s|min|h)(?!\w))")
_VOID = frozenset({"input", "link", "meta"})
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | Iterable["Content"] | None


def tag(element: str, /, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """Return an element. `class_` becomes class, `aria_label` aria-label; None and False leave one out."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_escaped(_plain(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    start = f"<{element}{written}>"
    return Markup(start if element in _VOID else f"{start}{joined(content)}</{element}>")


def joined(content: Content) -> Markup:
    """Return markup as it is, text escaped, and the pieces of anything else one after the other."""
    if content is None:
        return Markup()
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return Markup(_escaped(_UNIT.sub("\N{NO-BREAK SPACE}", cut(content, MAX_TEXT))))
    return Markup("".join(joined(piece) for piece in content))


def name(text: str) -> Markup:
    """Return a label value, whose direction of writing does not reach its surroundings."""
    return tag("bdi", cut(text, MAX_NAME))


def cut(text: str, limit: int) -> str:
    """Return text of at most `limit` characters, the last of them an ellipsis where it was longer."""
    return text if len(text) <= limit else f"{text[: limit - 1]}\N{HORIZONTAL ELLIPSIS}"


def _plain(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _escaped(text: str) -> str:
    if not text.isprintable():
        text = "".join(
            char.encode("unicode_escape").decode("ascii") if unicodedata.category(char) in _INVISIBLE else char
            for char in text
        )
    return escape(text)
