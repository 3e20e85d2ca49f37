"""One engine in simulated time: steps that take as long as the cost model says."""

from collections import deque
from dataclasses import dataclass, field
from random import Random

from prefixwatch.demo.config import EngineConfig
from prefixwatch.demo.errors import DemoError
from prefixwatch.demo.pool import BlockPool, CacheEvent
from prefixwatch.demo.request import Finished, Prompt, Request
from prefixwatch.demo.residency import Eviction, Residency
from prefixwatch.demo.scheduler import Batch, Scheduler


@dataclass(slots=True, kw_only=True)
class Step:
    """What one step reports at its end, all in one update.

    Lookups (``batch``) are those of the requests admitted in it, ``prompt``, ``cached`` and
    ``first_tokens`` belong to the requests whose first token it gave, ``finished`` to those that
    ended with it. The gauges are taken after the finished have freed their blocks.
    """

    at: float
    seconds: float
    batch: Batch
    running: int = 0
    waiting: int = 0
    usage: float = 0.0
    prompt: int = 0
    cached: int = 0
    generated: int = 0
    first_tokens: list[float] = field(default_factory=list)
    token_gaps: list[float] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)


class Engine:
    """A pure state machine: ``submit`` requests, ``advance`` the time, read the steps.

    Time only moves forward and is the caller's; with the same seed and calls the same happens.
    """

    def __init__(self, config: EngineConfig, *, seed: int, now: float = 0.0) -> None:
        self.config = config
        self.sleep_level = 0
        self._random = Random(seed)
        sample = config.kv_cache_metrics_sample
        self._residency = Residency(sample=sample, random=Random(seed + 1)) if sample else None
        self.pool = BlockPool(
            blocks=config.num_gpu_blocks,
            caching=config.enable_prefix_caching,
            residency=self._residency,
        )
        self._scheduler = Scheduler(config, self.pool)
        self._arriving: deque[Request] = deque()
        self._now = now
        self._step: Step | None = None

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self._scheduler.running)

    @property
    def waiting(self) -> int:
        """Requests waiting, including those still in the front end."""
        return len(self._scheduler.waiting) + len(self._arriving)

    def submit(self, prompt: Prompt, *, sent: float) -> None:
        """Send a request at ``sent``; raises DemoError when it can never be served."""
        cost, config = self.config.cost, self.config
        blocks = -(-(len(prompt.tokens) + prompt.max_tokens) // config.block_size)
        if not prompt.tokens or len(prompt.tokens) >= config.max_model_len:
            raise DemoError(f"prompt of {len(prompt.tokens)} tokens: must be 1 to {config.max_model_len - 1}")
        if blocks > config.num_gpu_blocks - 1:
            raise DemoError(f"request needs {blocks} blocks; the pool has {config.num_gpu_blocks - 1}")
        arrived = sent + cost.client
        self._arriving.append(Request(prompt, sent, arrived, arrived + cost.front_end, block_size=config.block_size))

    def advance(self, until: float) -> list[Step]:
        """Run to ``until`` and return the steps that ended by then.

        A step that is under way at ``until`` ends in a later call.
        """
        steps: list[Step] = []
        while self._step is not None or self._begin_step(until):
            if self._step is None or self._step.at > until:
                break
            steps.append(self._end_step(self._step))
        self._now = max(self._now, until)
        return steps

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Empty the cache, as /reset_prefix_cache does.

        False while a request holds blocks, unless the running ones are to be preempted.
        """
        if reset_running_requests:
            self._abandon_step()
        return self.pool.reset(self._now)

    def sleep(self, level: int = 1) -> None:
        """Put the engine to sleep (1: weights offloaded, 2: all discarded); the cache is emptied.

        Running requests are put back and go on after ``wake_up``.
        """
        self.reset_prefix_cache(reset_running_requests=True)
        self.sleep_level = level

    def wake_up(self) -> None:
        """Serve requests again."""
        self.sleep_level = 0

    def drain_events(self) -> list[CacheEvent]:
        """Return the cache events since the last call."""
        return self.pool.drain_events()

    def _abandon_step(self) -> None:
        # The step under way still ends and reports its lookups, but its work is lost.
        preempted = self._scheduler.preempt_all()
        if self._step is not None:
            self._step.batch.work.clear()
            self._step.batch.preempted += preempted

    def _begin_step(self, until: float) -> bool:
        if self.sleep_level or not (self._scheduler.running or self._scheduler.waiting or self._arriving):
            return False
        start = self._now
        if not self._scheduler.running and not self._scheduler.waiting:
            start = max(start, self._arriving[0].queued)
        if start > until:
            return False
        while self._arriving and self._arriving[0].queued <= start:
            self._scheduler.waiting.append(self._arriving.popleft())
        batch = self._scheduler.schedule(start)
        seconds = self._cost(batch)
        self._step = Step(at=start + seconds, seconds=seconds, batch=batch)
        return True

    def _cost(self, batch: Batch) -> float:
        prefills = prefill_tokens = 0
        for request, tokens in batch.work:
            if tokens > 1 or request.computed < request.prompt_tokens:
                prefills += 1
                prefill_tokens += tokens
        cost = self.config.cost
        seconds = cost.step_seconds(
            prefills=prefills, prefill_tokens=prefill_tokens, decodes=len(batch.work) - prefills
        )
        return seconds * self._random.lognormvariate(0.0, cost.jitter)

    def _end_step(self, step: Step) -> Step:
        self._step = None
        self._now = step.at
        for request, tokens in step.batch.work:
            request.computed += tokens
            if request.computed == len(request.tokens):
                self._emit_token(step, request)
        step.running = len(self._scheduler.running)
        step.waiting = len(self._scheduler.waiting)
        step.usage = self.pool.usage
        if self._residency:
            step.evictions = self._residency.drain()
        return step

    def _emit_token(self, step: Step, request: Request) -> None:
        if request.first_token is None:
            step.prompt += request.prompt_tokens
            step.cached += request.cached
            step.first_tokens.append(step.at - request.arrived)
        else:
            step.token_gaps.append(step.at - request.last_token)
        request.generate(step.at)
        step.generated += 1
        is_long_enough = request.output_tokens >= request.prompt.max_tokens
        if is_long_enough or len(request.tokens) >= self.config.max_model_len:
            self._scheduler.finish(request)
            step.finished.append(request.finish(client=self.config.cost.client))
