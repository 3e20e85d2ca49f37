"""Colours: one meaning each, on every board. After Okabe and Ito (2008), told apart without red or green.

A colour never stands alone: causes and states are written in words, lines have names and their own dashes.
"""

from collections.abc import Mapping

from prefixwatch.diagnosis import CONFIDENCE, Cause, Confidence

TOKENS = "#0072B2"  # the token level
REQUESTS = "#56B4E9"  # the request level
GOOD = "#009E73"  # from the cache; as it should be
PROMPTS = "#E69F00"  # what prompts cost: computed tokens, cold requests
MEMORY = "#D55E00"  # the pool is short: evictions, preemptions
DECODE = "#CC79A7"  # generated tokens
WAITING = "#F0E442"  # time: to the first token, in the queue, until warm
LIMIT = "#767676"  # what it is compared with: ceilings, baselines; nothing to say
DESIGN = "#7A5FB5"  # meant to be so
OFF = "#4A4A4A"  # switched off
UNSURE = "#C8C8C8"  # cannot be told
QUIET = "transparent"  # nothing to look at here
FLOOR = "#8C5E1F"  # prompts shorter than a block

# From what needs no action to what needs it most: the worst of several engines is the highest.
CAUSES: Mapping[str, tuple[str, str]] = {
    Cause.NO_TRAFFIC: ("no traffic", LIMIT),
    Cause.HEALTHY: ("healthy", GOOD),
    Cause.DECODE_BOUND: ("decode bound", DECODE),
    Cause.WARMING_UP: ("warming up", WAITING),
    Cause.SHORT_PROMPTS: ("short prompts", FLOOR),
    Cause.CACHE_KEY_SPLIT: ("cache key split", DESIGN),
    Cause.INSUFFICIENT_EVIDENCE: ("not enough evidence", UNSURE),
    Cause.PROMPT_DIVERGENCE: ("diverging prompts", PROMPTS),
    Cause.CACHING_DISABLED: ("caching off", OFF),
    Cause.EVICTION: ("eviction", MEMORY),
}
CAUSE_RANKS = {cause: rank for rank, cause in enumerate(CAUSES)}
CAUSE_WORDS = {str(CAUSE_RANKS[cause]): named for cause, named in CAUSES.items()}

CONFIDENCE_WORDS = {
    f"{CONFIDENCE[one]:g}": (f"{one} confidence", colour)
    for one, colour in ((Confidence.LOW, UNSURE), (Confidence.MEDIUM, REQUESTS), (Confidence.HIGH, TOKENS))
}

Words = Mapping[str, tuple[str, str]]
"""Values, as text, to what is shown instead and its colour."""
