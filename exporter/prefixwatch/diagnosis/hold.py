"""A diagnosis that does not flap."""

from dataclasses import replace

from prefixwatch.diagnosis.terms import Cause, Diagnosis


class Hold:
    """Let a cause change only after the new one held for a while, so that alerts do not flap.

    `seconds`: how long. The first diagnosis counts at once.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: Diagnosis | None = None
        self._rival: Cause | None = None
        self._rival_since = 0.0

    def update(self, time: float, found: Diagnosis) -> Diagnosis:
        """Take the diagnosis of this moment (unix seconds); return the one that holds."""
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
