"""What the log says of a target that goes and comes back."""

import logging
from collections import deque

FLIPS = 6
"""So many lines, three times there and back, may come as they do."""

FLIPPING_SECONDS = 600.0
"""Where they came within this time, the target is one that flips."""

QUIET_SECONDS = 60.0
"""How long a target that flips is not spoken of again."""


class OutageLog:
    """Log each change of one target; of one that flips once in `QUIET_SECONDS`, with the number of changes."""

    def __init__(self, target: str, logger: logging.Logger) -> None:
        self._target, self._logger = target, logger
        self._was_up = self._is_said_up = True
        self._changes = 0
        self._said: deque[float] = deque(maxlen=FLIPS)

    def note(self, time: float, message: str, *, is_up: bool, **details: object) -> None:
        """Take note of a poll's result at a time in seconds; log `message` if it is not what was said last."""
        self._changes += is_up != self._was_up
        self._was_up = is_up
        if is_up == self._is_said_up or self._is_flipping(time):
            return
        if self._changes > 1:
            details["changes"] = self._changes
        self._said.append(time)
        self._is_said_up, self._changes = is_up, 0
        level = logging.INFO if is_up else logging.WARNING
        self._logger.log(level, message, extra={"target": self._target, **details})

    def _is_flipping(self, time: float) -> bool:
        said = self._said
        return len(said) == FLIPS and time - said[0] < FLIPPING_SECONDS and time - said[-1] < QUIET_SECONDS
