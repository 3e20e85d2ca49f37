"""Figures for a person at a terminal."""

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from prefixwatch.comparison import Comparison, Difference
from prefixwatch.diagnosis import Diagnosis
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.wording import duration, harmless, percent, span
from prefixwatch.snapshot import EngineFigures, TargetSnapshot

_DIALECTS = {"vllm": "vLLM", "ray": "vLLM on Ray Serve", "kserve": "vLLM on KServe"}

_WIDTH = 120
"""Columns of what is printed into a pipe or a file."""

Row = tuple[str, str, str]


def console() -> Console:
    """Return standard output: as wide as the terminal that it is, or as COLUMNS says."""
    return Console(highlight=False, width=shutil.get_terminal_size((_WIDTH, 0)).columns)


def show(targets: list[TargetSnapshot], console: Console) -> None:
    """Print what is known of each engine: figures, what is absent and why."""
    for target in targets:
        if not target.engines:
            console.print(_text(f"{target.target}: {why_nothing(target)}"), soft_wrap=True)
        for engine in target.engines:
            console.print(_text(_headline(target, engine), style="bold"))
            console.print()
            _print_table(_table(list(_rows(engine))), console)
            _show_diagnosis(engine, console)
            _show_absent(engine, console)
        if target.engines and target.error:
            _print_indented(
                f"  the last poll failed, what stands above is from before it: {target.error}", console, style="bold"
            )
            console.print()
        for caveat in target.caveats:
            _print_indented(f"  note: {caveat.partition(': ')[2] or caveat}", console, style="dim")


def why_nothing(target: TargetSnapshot) -> str:
    """Say why there is no engine to show."""
    return target.error or "nothing was read"


def show_comparison(comparisons: Sequence[Comparison], console: Console) -> None:
    """Print two windows side by side, what changed first."""
    for one in comparisons:
        console.print(_text(f"{one.model_name or 'a model without a name'}, engine {one.engine}", style="bold"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("  figure", "before", "after", ""):
            table.add_column(name, justify="left" if name in ("  figure", "") else "right")
        for name, difference in sorted(one.differences.items(), key=lambda item: not item[1].is_change):
            if isinstance(difference.before, Absent) and isinstance(difference.after, Absent):
                continue
            sides = [_number(name, side) for side in (difference.before, difference.after)]
            table.add_row(
                f"  {name.replace('_', ' ')}", *sides, _word(difference), style="bold" if difference.is_change else ""
            )
        _print_table(table, console)
        causes = [_cause(side.diagnosis) for side in (one.before, one.after)]
        console.print()
        _print_indented(f"  {_verdict(one)}", console, style="bold")
        same = causes[0] == causes[1]
        console.print(_text(f"  diagnosis: {causes[1]}{', as before' if same else f', before it: {causes[0]}'}"))
        console.print()


def _text(line: str, style: str = "") -> Text:
    """Return a line to print as it is: names come from engines, and may hold what a terminal would act on."""
    return Text(harmless(line), style=style)


def _print_indented(line: str, console: Console, *, style: str = "", indent: int = 4) -> None:
    """Print a line; what does not fit stands below it, moved in by `indent`."""
    parts = textwrap.wrap(
        harmless(line), console.width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    for part in parts:
        console.print(Text(part, style=style), soft_wrap=True)


def _print_table(table: Table, console: Console) -> None:
    """Print a table; into a file without the blanks behind its last column."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _verdict(one: Comparison) -> str:
    names: dict[str, list[str]] = {}
    for name in one.changes:
        names.setdefault(_word(one.differences[name]), []).append(name.replace("_", " "))
    if not names:
        return "nothing changed by more than the traffic's own variation"
    return "; ".join(f"{word}: {', '.join(names[word])}" for word in sorted(names, key=_WORDS.index))


_WORDS = ("changed", "appeared", "gone")


def _word(difference: Difference) -> str:
    """Say what became of a figure; one that was absent on one side cannot be said to have changed."""
    if not difference.is_change:
        return ""
    if isinstance(difference.before, Absent):
        return "appeared"
    return "gone" if isinstance(difference.after, Absent) else "changed"


def _cause(found: Diagnosis | Absent) -> str:
    return "none" if isinstance(found, Absent) else str(found.cause)


def _number(name: str, value: float | Absent) -> str:
    if isinstance(value, Absent):
        return "-"
    return percent(value) if "ratio" in name or name in ("prefill_share", "kv_usage_max") else f"{value:,.4g}"


def _headline(target: TargetSnapshot, engine: EngineFigures) -> str:
    release = f"vLLM {target.release}" if target.release else _DIALECTS.get(target.dialect or "", target.dialect)
    name = engine.model_name or "a model without a name"
    window, requests = engine.window_seconds, engine.requests
    covered = "since the engine's start" if isinstance(window, Absent) else f"{window:.0f} s"
    count = "" if isinstance(requests, Absent) else f", {requests:,.0f} requests"
    return f"{name}, engine {engine.engine} at {target.target} ({release}): {covered}{count}"


def _table(rows: list[Row]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(min_width=22)
    table.add_column(justify="right", min_width=9)
    table.add_column(style="dim", overflow="fold")
    for label, value, text in rows:
        table.add_row(f"  {label}", _text(value, style="bold"), _text(text))
    return table


def _rows(engine: EngineFigures) -> Iterator[Row]:
    yield ("token hit ratio", percent(engine.token_hit_ratio), _on_token_ratio(engine))
    if not isinstance(engine.external_hit_ratio, Absent):
        yield ("external hit ratio", percent(engine.external_hit_ratio), "of what was looked up in the KV connector")
        yield ("cached prompt ratio", percent(engine.cached_prompt_ratio), "of prompt tokens came from either cache")
    yield from _request_rows(engine)
    if not isinstance(engine.pool_tokens, Absent):
        yield ("pool", f"{engine.pool_tokens:,.0f}", f"tokens{_on_turnover(engine)}")
    if not isinstance(engine.avoidable_miss_ratio, Absent):
        yield ("avoidable misses", percent(engine.avoidable_miss_ratio), _on_avoidable(engine))
    if not isinstance(engine.kv_usage_max, Absent):
        yield (
            "usage at most",
            percent(engine.kv_usage_max),
            "of blocks held by running requests; cached blocks do not count",
        )
    if not isinstance(engine.preemptions, Absent) and engine.preemptions:
        yield ("preemptions", f"{engine.preemptions:,.0f}", "requests lost their blocks and started over")
    if not isinstance(engine.prefill_share, Absent):
        yield ("prefill", percent(engine.prefill_share), f"of the requests' inference time{_on_saving(engine)}")
    if not isinstance(engine.output_per_prompt_token, Absent):
        yield ("output", f"{engine.output_per_prompt_token:.3g}", "generated tokens per prompt token")


def _request_rows(engine: EngineFigures) -> Iterator[Row]:
    request = engine.request_hit_ratio
    if isinstance(request, Estimate):
        gap = engine.hit_ratio_gap
        beside = ""
        if not isinstance(gap, Absent) and abs(gap) >= 0.005:
            beside = f": {abs(gap) * 100:.0f} points {'below' if gap > 0 else 'above'} the token level"
        yield ("request hit ratio", percent(request.estimate), f"mean over requests ({span(request)}){beside}")
    mostly, full, cold = engine.mostly_cached_request_ratio, engine.full_request_ratio, engine.cold_request_ratio
    for label, share, text in (
        ("mostly cached", mostly, "of requests had at least half of their prompt cached"),
        ("fully cached", full, "of requests computed at most one block"),
        ("cold requests", cold, "got nothing from the cache"),
    ):
        if isinstance(share, Estimate):
            yield (label, percent(share.estimate), f"{text} ({span(share)})")


def _on_token_ratio(engine: EngineFigures) -> str:
    if isinstance(engine.token_hit_ratio, Absent):
        return engine.token_hit_ratio.reason
    ceiling = engine.hit_ratio_ceiling
    allowed = "" if isinstance(ceiling, Absent) else f"; these prompt lengths allow {ceiling.estimate * 100:.0f} %"
    return f"of looked-up prompt tokens were in the cache{allowed}"


def _on_saving(engine: EngineFigures) -> str:
    saved, share = engine.prefill_seconds_saved, engine.prefill_saved_share
    if isinstance(saved, Absent):
        return ""
    of_all = "" if isinstance(share, Absent) else f", {percent(share)} of what it would be without"
    return f"; caching saved {duration(saved.estimate)} of it (± {duration(saved.standard_error)}){of_all}"


def _on_avoidable(engine: EngineFigures) -> str:
    whatif = engine.whatif_avoidable_miss_ratio
    larger = "" if isinstance(whatif, Absent) else ", ".join(f"{percent(v)} at {pool}" for pool, v in whatif.items())
    return f"of stored blocks had been evicted before{f'; {larger} the pool' if larger else ''}"


def _on_turnover(engine: EngineFigures) -> str:
    filled = {True: "; filled", False: "; not filled yet since the start"}
    state = "" if isinstance(engine.pool_filled, Absent) else filled[engine.pool_filled]
    if isinstance(engine.turnover_seconds, Absent):
        return state
    return f", written over every {duration(engine.turnover_seconds)}{state}"


def _show_diagnosis(engine: EngineFigures, console: Console) -> None:
    found = engine.diagnosis
    if isinstance(found, Absent):
        return
    console.print()
    console.print(_text(f"  why: {found.cause} ({found.confidence} confidence)", style="bold"))
    for sentence in found.evidence:
        _print_indented(f"    - {sentence}", console, indent=6)
    if found.next_steps:
        console.print(_text("  what to do", style="bold"))
    for step in found.next_steps:
        _print_indented(f"    - {step}", console, indent=6)


def _show_absent(engine: EngineFigures, console: Console) -> None:
    """Print why figures are absent, each reason once."""
    reasons: dict[str, list[str]] = {}
    for name, reason in engine.to_json()["reasons"].items():
        reasons.setdefault(reason, []).append(name.replace("_", " ").replace(".", " "))
    if reasons:
        console.print()
    for reason, names in reasons.items():
        _print_indented(f"  absent: {', '.join(names)}: {reason}", console, style="dim")
    console.print()
