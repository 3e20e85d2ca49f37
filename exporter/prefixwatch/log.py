"""Logging: one JSON object a line, or plain lines on a terminal."""

import json
import logging
import sys
from datetime import UTC, datetime

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Render a record, and whatever was passed as `extra`, as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        entry.update({key: value for key, value in vars(record).items() if key not in _STANDARD})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def set_up(*, level: str = "info", form: str = "auto") -> None:
    """Send this program's log to stderr. `form`: "json", "text", or "auto": text on a terminal."""
    handler = logging.StreamHandler(sys.stderr)
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s") if is_text else JsonFormatter())
    logger = logging.getLogger("prefixwatch")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
