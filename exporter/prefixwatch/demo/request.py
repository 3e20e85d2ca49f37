"""A request: what a client sends, and what the engine knows of it while it runs."""

import zlib
from array import array
from dataclasses import dataclass, field

from prefixwatch.demo.keys import BlockKey, extend_keys

FIRST_TOKEN_ID, TOKEN_IDS = 3, 497


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a client sends. A salt or an adapter splits the cache."""

    tokens: list[int]
    max_tokens: int
    salt: str | None = None
    adapter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One finished request; times in seconds.

    ``cached`` is what the first admission found. ``ttft`` and ``latency`` are the client's, from
    ``sent``; the others are the engine's own intervals, ``e2e`` and ``engine_ttft`` from its
    front end on.
    """

    at: float
    sent: float
    prompt: int
    cached: int
    output: int
    max_tokens: int
    preemptions: int
    ttft: float
    latency: float
    e2e: float
    queue: float
    prefill: float
    decode: float
    inference: float


@dataclass(slots=True, eq=False)
class Request:
    """The engine's state of one request.

    ``tokens`` are prompt and output so far; ``computed`` of them are in the KV cache. ``stored``
    blocks of ``blocks`` have entered the prefix cache. Sampling is greedy: the same prompt gives
    the same output.
    """

    prompt: Prompt
    sent: float
    arrived: float
    queued: float
    block_size: int
    tokens: list[int] = field(init=False)
    keys: list[BlockKey] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    stored: int = 0
    computed: int = 0
    cached: int = 0
    preemptions: int = 0
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float = 0.0
    _next_token: int = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the prompt's tokens and keys."""
        self.tokens = list(self.prompt.tokens)
        self._next_token = zlib.crc32(array("I", self.tokens).tobytes())
        self._extend_keys()

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt.tokens)

    @property
    def output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - len(self.prompt.tokens)

    @property
    def cacheable_keys(self) -> list[BlockKey]:
        """Keys that a lookup may ask for: whole blocks, and never the last token."""
        return self.keys[: (len(self.tokens) - 1) // self.block_size]

    def generate(self, now: float) -> None:
        """Append one output token."""
        self._next_token = (self._next_token * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
        self.tokens.append(FIRST_TOKEN_ID + (self._next_token >> 8) % TOKEN_IDS)
        if len(self.tokens) % self.block_size == 0:
            self._extend_keys()
        if self.first_token is None:
            self.first_token = now
        self.last_token = now

    def finish(self, *, client: float) -> Finished:
        """Sum the request up; ``client`` is what lies between engine and client, one way."""
        scheduled = self.scheduled if self.scheduled is not None else self.queued
        first = self.first_token if self.first_token is not None else self.last_token
        return Finished(
            at=self.last_token + client,
            sent=self.sent,
            prompt=self.prompt_tokens,
            cached=self.cached,
            output=self.output_tokens,
            max_tokens=self.prompt.max_tokens,
            preemptions=self.preemptions,
            ttft=first + client - self.sent,
            latency=self.last_token + client - self.sent,
            e2e=self.last_token - self.arrived,
            queue=scheduled - self.queued,
            prefill=first - scheduled,
            decode=self.last_token - first,
            inference=self.last_token - scheduled,
        )

    def _extend_keys(self) -> None:
        extend_keys(
            self.keys,
            self.tokens,
            block_size=self.block_size,
            salt=self.prompt.salt,
            adapter=self.prompt.adapter,
        )
