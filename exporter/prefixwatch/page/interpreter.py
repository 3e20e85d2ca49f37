"""Page to reading.

What a page's series mean is worked out once, as a plan, and a page with the same series again only
fills in values.
"""

from dataclasses import dataclass

from prefixwatch.page import caveats as known
from prefixwatch.page.exposition import Page
from prefixwatch.page.plans import Plan, extreme, plan_of
from prefixwatch.page.reading import PageReading


@dataclass(frozen=True, slots=True)
class _Life:
    """What of a page stays as it is while its process lives: the epoch, and when each engine's counters began.

    `moments`: the values that this was made of.
    """

    moments: list[float]
    epoch: tuple[float | None, float | None]
    created: tuple[dict[str, float], ...]

    @classmethod
    def of(cls, plan: Plan, values: tuple[float, ...]) -> "_Life":
        return cls(
            moments=[values[i] for i in plan.moments],
            epoch=(extreme(min, values, plan.created), extreme(min, values, plan.starts)),
            created=tuple(engine.created_at(values) for engine in plan.engines),
        )


class Interpreter:
    """Turn the pages of one target into readings."""

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._life: _Life | None = None

    def interpret(self, page: Page, *, time: float, release: str | None = None) -> PageReading:
        """Return what `page` says at `time` (unix seconds); never raises.

        `release` is what `/version` answered, if it did.
        """
        plan = self._plan
        if plan is None or not plan.is_of(page, release):
            plan = self._plan = plan_of(page, release)
            self._life = None
        values = page.values
        life = self._life
        if life is None or life.moments != [values[i] for i in plan.moments]:
            life = self._life = _Life.of(plan, values)
        return PageReading(
            time=time,
            dialect=plan.dialect,
            release=release,
            era=plan.era,
            caveats=(*plan.caveats, known.CUT) if page.is_cut else plan.caveats,
            epoch=life.epoch,
            engines=tuple(
                engine.reading(values, time, created)
                for engine, created in zip(plan.engines, life.created, strict=True)
            ),
            why_empty=plan.why_empty,
        )
