"""A diagnosis that does not flap, and is not made more often than that takes."""

from collections.abc import Hashable
from dataclasses import replace

from prefixwatch.diagnosis.terms import Cause, Diagnosis

LOOKS = 4
"""So often the figures are looked at while a new cause has to last."""


class Hold:
    """Let a cause change only after the new one held for a while, so that alerts do not flap.

    `seconds`: how long. The first diagnosis counts at once. Figures need looking at only when `is_due`
    says so: once in a quarter of that time, so that a change is seen by so much later at most.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: Diagnosis | None = None
        self._answer: Diagnosis | None = None
        self._rival: Cause | None = None
        self._rival_since = 0.0
        self._looked = 0.0
        self._signs: Hashable = None

    @property
    def answer(self) -> Diagnosis:
        """The diagnosis that held when the figures were last looked at, which they were before."""
        assert self._answer is not None
        return self._answer

    def is_due(self, time: float, signs: Hashable) -> bool:
        """Say whether to look at the figures now (unix seconds); `signs`: what is not to wait if it changes."""
        if self._answer is None or signs != self._signs:
            return True
        has_lasted = self._rival is not None and time - self._rival_since >= self._seconds
        return has_lasted or time - self._looked >= self._seconds / LOOKS

    def update(self, time: float, found: Diagnosis, signs: Hashable = None) -> Diagnosis:
        """Take the diagnosis of this moment (unix seconds); return the one that holds. `signs` are those of now."""
        self._looked, self._signs = time, signs
        self._answer = self._updated(time, found)
        return self._answer

    def _updated(self, time: float, found: Diagnosis) -> Diagnosis:
        if self._held is None or found.cause is self._held.cause:
            self._held, self._rival = found, None
        elif found.cause is not self._rival:
            self._rival, self._rival_since = found.cause, time
        if self._rival is not None and time - self._rival_since >= self._seconds:
            self._held, self._rival = found, None
        assert self._held is not None
        if self._rival is None:
            return self._held
        waited = f"for {time - self._rival_since:.0f} s the figures have pointed to {self._rival}"
        note = f"{waited}, which counts from {self._seconds:.0f} s on; what follows was so before"
        return replace(self._held, evidence=(note, *self._held.evidence))
