"""Which process answered: the same as before, a restarted one, or several in turn.

Behind a load-balanced address each poll may reach another engine, and differences between their
counters mean nothing. A process is told by when its counters began (`_created`) and when it
started; a page without either is told by its engines, and by counters that keep falling.
"""

from collections import deque
from enum import Enum

from prefixwatch.page.reading import PageReading

HOLD_SECONDS = 600.0
"""How long an address must answer for one process alone, after several did, to be believed again."""

MAX_FALLS = 3
"""So many falls of a counter within `FALL_POLLS` polls are no restarts: no engine starts that fast."""

FALL_POLLS = 20

MAX_SEEN = 256
"""So many processes are remembered; a Service with more behind it is known for what it is by then."""

_Mark = tuple[float | None, float | None, frozenset[tuple[str, str]]]
_NOTHING: _Mark = (None, None, frozenset())


class Verdict(Enum):
    """Who answered, as far as the page shows."""

    SAME = "the same process as before"
    RESTARTED = "a process that started since the last page"
    UNCLEAR = "another process, older than the last page: perhaps one of several"
    SEVERAL = "one of several processes that answer in turn"


class Processes:
    """Judge page after page of one address."""

    def __init__(self) -> None:
        self._current: _Mark | None = None
        self._seen: deque[_Mark] = deque(maxlen=MAX_SEEN)
        self._last_time = 0.0
        self._several_until = float("-inf")
        self._falls: deque[int] = deque(maxlen=MAX_FALLS)
        self._polls = 0

    def judge(self, page: PageReading, *, has_fallen: bool) -> Verdict:
        """Say who answered. `has_fallen`: a counter of this page is below that of the last."""
        mark = _mark(page)
        current, time_before = self._current, self._last_time
        self._last_time = page.time
        self._polls += 1
        if current is None or _is_same(current, mark):
            verdict = Verdict.SAME
            if has_fallen:
                verdict = self._fallen(is_marked=_states_start(mark))
        elif any(_is_known_as(mark, seen) for seen in self._seen):
            verdict = Verdict.SEVERAL
        else:
            began = max((part for part in mark[:2] if part is not None), default=None)
            # One that will begin only after this page has another clock than ours: then values tell.
            is_new = began is None or (began > time_before and (began <= page.time or has_fallen))
            verdict = Verdict.RESTARTED if is_new else Verdict.UNCLEAR
        if mark != _NOTHING:  # else a page without engines, which says nothing of who answered
            if current is None or _states_start(mark) or not _states_start(current):
                self._current = mark
            if mark not in self._seen:
                self._seen.append(mark)
        if verdict is Verdict.SEVERAL:
            self._several_until = page.time + HOLD_SECONDS
        elif page.time < self._several_until:
            return Verdict.SEVERAL
        elif verdict is not Verdict.SAME and self._several_until > float("-inf"):
            # Those of long ago may be gone; the one before this must be known again when it is back.
            self._seen = deque([mark if current is None else current, mark], maxlen=MAX_SEEN)
        return verdict

    def _fallen(self, *, is_marked: bool) -> Verdict:
        self._falls.append(self._polls)
        is_often = len(self._falls) == MAX_FALLS and self._polls - self._falls[0] < FALL_POLLS
        return Verdict.SEVERAL if is_often and not is_marked else Verdict.RESTARTED


def _mark(page: PageReading) -> _Mark:
    created, started = page.epoch
    if created is not None or started is not None:
        return created, started, frozenset()
    return None, None, frozenset((engine.model_name, engine.engine) for engine in page.engines)


def _states_start(mark: _Mark) -> bool:
    return mark[0] is not None or mark[1] is not None


def _is_same(one: _Mark, other: _Mark) -> bool:
    """Compare what both state. Without any of it: some engine stands on both pages."""
    both = _stated(one, other)
    if both:
        return both[0] == both[1]
    return not (one[2] and other[2]) or bool(one[2] & other[2])


def _is_known_as(mark: _Mark, seen: _Mark) -> bool:
    """Say whether something that both state shows that they are one process."""
    both = _stated(mark, seen)
    return both[0] == both[1] if both else bool(mark[2] & seen[2])


def _stated(one: _Mark, other: _Mark) -> tuple[float, float] | None:
    """Return what both state: when their counters began, else when their processes started.

    The second is not asked where the first is known: it is worked out from the host's clock, and
    moves with it.
    """
    pairs = zip(one[:2], other[:2], strict=True)
    return next(((a, b) for a, b in pairs if a is not None and b is not None), None)
