"""Traffic: prompts and the times between them, drawn from a seed."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from prefixwatch.demo.request import FIRST_TOKEN_ID, TOKEN_IDS, Prompt
from prefixwatch.demo.scenarios import Mix, Scenario

_THRASHED_POOL_TOKENS = 6400
_SHORT_TURN_PREFIX, _SHORT_TURN_QUESTION = 160, 30
_SHORT_WARM_PREFIX, _SHORT_WARM_QUESTION = 256, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the seed draws, stated instead: lengths in tokens; None leaves a value to the seed.

    ``rate`` is requests a second, and then no factor applies.
    """

    prefix: int | None = None
    question: int | None = None
    groups: int | None = None
    prefixes: int | None = None
    rate: float | None = None


_FREE = Shape()


class Traffic:
    """Draw prompts one after the other, and the gaps between them (Poisson arrivals).

    The draws come in a fixed order from one generator for prompts and one for arrivals, the
    order of the recorder of tests/data/traces: the same seed gives the prompts and arrivals of a recorded
    trace.
    """

    def __init__(self, scenario: Scenario, *, seed: int, shape: Shape = _FREE) -> None:
        self.scenario = scenario
        self._random = Random(seed)
        self._arrivals = Random(seed + 1)
        draw = self._random.choice
        self.prefix = shape.prefix or draw([320, 512, 640, 800])
        self.question = shape.question or draw([48, 96, 128])
        self.groups = self._prefixes(shape.groups or draw([4, 6, 8]))
        spread = draw([1.6, 2.0, 2.5])
        self.many = self._prefixes(shape.prefixes or int(spread * _THRASHED_POOL_TOKENS / self.prefix))
        factor = self._arrivals.uniform(0.7, 1.4)
        self.rate = shape.rate if shape.rate is not None else scenario.rate * factor
        self._mixes: dict[Mix, Callable[[], list[int]]] = {
            "shared": self._shared,
            "short_turns": self._short_turn,
            "divergent": self._divergent,
            "mid_variable": self._mid_variable,
            "many_prefixes": lambda: self._random.choice(self.many) + self._tokens(30),
            "short_prompts": lambda: self.groups[0][: self._random.randint(14, 31)],
            "salted": self._shared,
            "long_warm": self._long_warm,
            "short_warm": self._short_warm,
        }

    def next_prompt(self, *, is_late: bool = False) -> Prompt:
        """Draw a prompt; ``is_late`` says that half time has passed (the template has changed)."""
        mix = self.scenario.mix
        if mix == "template_change":
            mix = "divergent" if is_late else "shared"
        tokens = self._mixes[mix]()
        salt = f"tenant-{self._random.randrange(10**9)}" if mix == "salted" else None
        return Prompt(tokens=tokens, max_tokens=self.scenario.max_tokens, salt=salt)

    def next_gap(self) -> float:
        """Draw the seconds to the next arrival; without traffic it never comes."""
        return self._arrivals.expovariate(self.rate) if self.rate else float("inf")

    def _tokens(self, count: int) -> list[int]:
        # What Random.choice() would draw from the token ids, at a fraction of its cost.
        bits, draw = TOKEN_IDS.bit_length(), self._random.getrandbits
        tokens: list[int] = []
        while len(tokens) < count:
            number = draw(bits)
            if number < TOKEN_IDS:
                tokens.append(FIRST_TOKEN_ID + number)
        return tokens

    def _prefixes(self, count: int) -> list[list[int]]:
        return [self._tokens(self.prefix) for _ in range(count)]

    def _shared(self) -> list[int]:
        return self._random.choice(self.groups) + self._tokens(self.question)

    def _short_turn(self) -> list[int]:
        return self._random.choice(self.groups)[:_SHORT_TURN_PREFIX] + self._tokens(_SHORT_TURN_QUESTION)

    def _divergent(self) -> list[int]:
        return self._tokens(4) + self._shared()

    def _mid_variable(self) -> list[int]:
        prefix = self._random.choice(self.groups)
        cut = len(prefix) // 3
        return prefix[:cut] + self._tokens(6) + prefix[cut:] + self._tokens(self.question)

    def _long_warm(self) -> list[int]:
        if self._random.random() < 0.6:
            return self._shared()
        return self._tokens(self._random.choice([40, 90, 200]))

    def _short_warm(self) -> list[int]:
        if self._random.random() < 0.7:
            return self.groups[0][:_SHORT_WARM_PREFIX] + self._tokens(_SHORT_WARM_QUESTION)
        return self._tokens(self._random.choice([600, 1200]))
