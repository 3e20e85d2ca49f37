"""Who an engine is and how its target stands, in words."""

from collections.abc import Iterator

from prefixwatch.figures.wording import duration
from prefixwatch.overview.markup import Markup, name, tag
from prefixwatch.overview.views import State, TargetView
from prefixwatch.snapshot import EngineFigures

# A shape beside the word, so that neither the colour nor the word stands alone.
_SIGNS = {
    State.UP: ("\N{BLACK CIRCLE}", "good"),
    State.WAITING: ("\N{WHITE CIRCLE}", "calm"),
    State.LOADING: ("\N{CIRCLE WITH LEFT HALF BLACK}", "calm"),
    State.LATE: ("\N{BLACK DIAMOND}", "warn"),
    State.STALE: ("\N{BLACK UP-POINTING TRIANGLE}", "bad"),
    State.ERROR: ("\N{BLACK SQUARE}", "bad"),
}


def state_label(state: State) -> Markup:
    """Return the state as a label."""
    sign, mood = _SIGNS[state]
    return tag("span", tag("span", sign, aria_hidden="true"), f" {state.value}", class_=f"state {mood}")


def in_words(cause: str) -> str:
    """Return a cause as a person would say it."""
    return cause.replace("_", " ")


def headline(target: TargetView, figures: EngineFigures | None, *, level: str, key: str | None = None) -> Markup:
    """Return the heading: the model and engine, at which target, of which release, with its labels."""
    snapshot = target.snapshot
    if figures is None:
        title: list[Markup | str] = [name(snapshot.target)]
    else:
        title = [name(figures.model_name or "a model without a name"), tag("small", " engine ", name(figures.engine))]
    dialect = "vLLM" if snapshot.dialect == "vllm" else snapshot.dialect
    release = " ".join(text for text in (dialect, snapshot.release) if text)
    facts: list[Markup] = [] if figures is None else [name(snapshot.target)]
    facts += [name(release)] if release else []
    facts += [name(f"{label}={value}") for label, value in snapshot.labels.items()]
    return tag("div", tag(level, title, id=key), tag("p", _between(facts), class_="facts") if facts else None)


def trouble(target: TargetView, time: float) -> Markup | None:
    """Return what is wrong with a target and what to do; None where nothing is."""
    error = target.snapshot.error
    if target.state is State.UP or (error is None and target.advice is None):
        return None
    last = target.last_success
    ago = None if last is None else f"Last answer {duration(max(0.0, time - last))} ago."
    never = "It has not answered since the exporter started." if last is None and target.state is State.ERROR else None
    first = tag("strong", f"{error[:1].upper()}{error[1:]}.") if error else None
    rest = " ".join(part for part in (ago or never, target.advice) if part)
    return tag("p", first, " ", rest, class_=f"trouble {_SIGNS[target.state][1]}")


def _between(facts: list[Markup]) -> Iterator[Markup | str]:
    for position, fact in enumerate(facts):
        if position:
            yield " \N{MIDDLE DOT} "
        yield fact
