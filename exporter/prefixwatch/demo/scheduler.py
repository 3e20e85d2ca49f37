"""Which requests the next step works on, and with how many tokens."""

from collections import deque
from dataclasses import dataclass, field

from prefixwatch.demo.config import EngineConfig
from prefixwatch.demo.pool import BlockPool
from prefixwatch.demo.request import Request


@dataclass(slots=True)
class Batch:
    """One step's work, and what scheduling it moved in the counter pair.

    ``work`` maps each request to its tokens in this step. Queries and hits are in tokens;
    the ``_blocks`` are the same lookups in whole blocks (how 0.8 counted).
    """

    work: list[tuple[Request, int]] = field(default_factory=list)
    queries: int = 0
    hits: int = 0
    query_blocks: int = 0
    hit_blocks: int = 0
    preempted: int = 0


class Scheduler:
    """Keep the waiting and the running, as vLLM's v1 scheduler does (first come, first served).

    Running requests are served first; where no block is left the youngest of them is preempted:
    freed, and put back at the front of the queue, to be computed again. Waiting requests are
    then admitted while the token budget, the number of sequences and the blocks for the whole
    prompt allow it, but not in a step that preempted.
    """

    def __init__(self, config: EngineConfig, pool: BlockPool) -> None:
        self._config = config
        self._pool = pool
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def schedule(self, now: float) -> Batch:
        """Pick the next step's work and take the blocks it needs."""
        batch = Batch()
        budget = self._serve_running(batch, now)
        if not batch.preempted:
            self._admit_waiting(batch, budget, now)
        return batch

    def finish(self, request: Request) -> None:
        """Drop a finished request and free its blocks."""
        self.running.remove(request)
        self._release(request)

    def preempt_all(self) -> int:
        """Preempt every running request; return how many."""
        count = len(self.running)
        while self.running:
            self._preempt(self.running.pop())
        return count

    def _serve_running(self, batch: Batch, now: float) -> int:
        budget = self._config.max_num_batched_tokens
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            tokens = min(len(request.tokens) - request.computed, budget)
            while not self._grow(request, tokens, now):
                victim = self.running.pop()
                self._preempt(victim)
                batch.preempted += 1
                if victim is request:
                    return budget
            batch.work.append((request, tokens))
            budget -= tokens
            index += 1
        return budget

    def _admit_waiting(self, batch: Batch, budget: int, now: float) -> None:
        while self.waiting and budget > 0 and len(self.running) < self._config.max_num_seqs:
            request = self.waiting[0]
            found = self._pool.lookup(request.cacheable_keys) if self._config.enable_prefix_caching else []
            admitted = self._room_for(request, found)
            if admitted or self._config.counts_retried_lookups:
                self._count_lookup(batch, request, len(found))
            if not admitted:
                return
            self.waiting.popleft()
            self.running.append(request)
            self._adopt(request, found, now)
            tokens = min(len(request.tokens) - request.computed, budget)
            self._grow(request, tokens, now)
            batch.work.append((request, tokens))
            budget -= tokens

    def _room_for(self, request: Request, found: list[int]) -> bool:
        # The whole sequence must fit, not only its first chunk; found blocks that nobody
        # holds leave the free queue as well.
        needed = self._blocks_for(len(request.tokens)) - len(found) + self._pool.idle_among(found)
        return needed <= self._pool.free_blocks

    def _adopt(self, request: Request, found: list[int], now: float) -> None:
        self._pool.touch(found, now)
        request.blocks = found
        request.stored = len(found)
        request.computed = len(found) * self._config.block_size
        if request.scheduled is None:
            request.scheduled = now
            request.cached = request.computed

    def _count_lookup(self, batch: Batch, request: Request, found: int) -> None:
        if not self._config.enable_prefix_caching:
            return
        if request.preemptions and not self._config.counts_preempted_lookups:
            return
        batch.queries += len(request.tokens)
        batch.hits += found * self._config.block_size
        batch.query_blocks += len(request.cacheable_keys)
        batch.hit_blocks += found

    def _grow(self, request: Request, tokens: int, now: float) -> bool:
        """Give the request the blocks for ``tokens`` more; False when they are not there.

        Blocks that these tokens fill enter the cache at once, so that a request admitted in the
        same step finds them.
        """
        covered = request.computed + tokens
        needed = self._blocks_for(covered) - len(request.blocks)
        if needed > self._pool.free_blocks:
            return False
        if needed > 0:
            request.blocks += self._pool.allocate(needed, now)
        full = min(covered, len(request.tokens)) // self._config.block_size
        if full > request.stored:
            self._pool.store(request.blocks[:full], request.keys[:full], now, start=request.stored)
            request.stored = full
        return True

    def _preempt(self, request: Request) -> None:
        self._release(request)
        request.preemptions += 1
        self.waiting.appendleft(request)

    def _release(self, request: Request) -> None:
        self._pool.free(reversed(request.blocks))
        request.blocks = []
        request.stored = request.computed = 0

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._config.block_size)
