"""Logging: one JSON object a line, or plain lines on a terminal.

What is logged comes from engines, clients and files in part: nothing of it starts a line of its own
or reaches a terminal as a command, and credentials and queries of URLs are hidden, wherever they come from.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime

from prefixwatch.addresses import HIDDEN
from prefixwatch.figures.wording import harmless

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OTHERS = ("aiohttp", "asyncio")
# The user information of a URL, its query; `Authorization: Bearer ...` and its like.
_USER = re.compile(r"""(\w://)[^\s/?#@'"]+@""")
_QUERY = re.compile(r"""(\w://[^\s?'"]{0,500}\?)[^\s'"]+""")
_IN_HEADERS = re.compile(r"""\b(Basic|Bearer)\s+[\w.~+/=-]{4,}""", re.IGNORECASE)


class JsonFormatter(logging.Formatter):
    """Render a record, and whatever was passed as `extra`, as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": _hidden(record.getMessage()),
        }
        entry.update(_extras(record))
        if record.exc_info:
            entry["exception"] = _hidden(self.formatException(record.exc_info))
        return json.dumps(entry)


class TextFormatter(logging.Formatter):
    """Render a record as one line for a person; a traceback follows, moved in."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines, without the last one's end."""
        extras = "".join(f" {name}={value}" for name, value in _extras(record).items())
        lines = [f"{record.levelname} {_hidden(record.getMessage())}{extras}"]
        if record.exc_info:
            lines += [f"    {line}" for line in _hidden(self.formatException(record.exc_info)).splitlines()]
        return "\n".join(harmless(line) for line in lines)


def set_up(*, level: str = "info", form: str = "auto") -> None:
    """Send this program's log to stderr. `form`: "json", "text", or "auto": text on a terminal."""
    handler = logging.StreamHandler(sys.stderr)
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    for name in ("prefixwatch", *_OTHERS):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        # At "debug", libraries would tell of every byte.
        logger.setLevel(level.upper() if name == "prefixwatch" else logging.WARNING)
        logger.propagate = False


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {
        key: value if isinstance(value, int | float | bool | None) else _hidden(str(value))
        for key, value in vars(record).items()
        if key not in _STANDARD
    }


def _hidden(text: str) -> str:
    text = _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", text))
    return _IN_HEADERS.sub(rf"\1 {HIDDEN}", text)
