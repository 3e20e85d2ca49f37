"""Pages of /metrics written for a test, and what is read from them."""

from collections.abc import Iterable, Mapping

from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.page.interpreter import Interpreter
from prefixwatch.page.reading import PageReading
from prefixwatch.snapshot import EngineFigures
from prefixwatch.targetwatch import TargetWatch

ENGINE = {"engine": "0", "model_name": "m"}

Value = float | str


def line(name: str, value: Value, labels: Mapping[str, str] = ENGINE) -> str:
    """Return one sample."""
    inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value}"


def page(values: Mapping[str, Value], labels: Mapping[str, str] = ENGINE, *, spelling: str = "vllm:") -> str:
    """Return a page of the samples that `values` names without their spelling, all with one set of labels.

    A name may bring a label of its own: `prompt_tokens_by_source_total source=local_compute`.
    """
    lines = []
    for written, value in values.items():
        name, _, own = written.partition(" ")
        label, _, text = own.partition("=")
        lines.append(line(spelling + name, value, {**labels, **({label: text} if own else {})}))
    return "".join(f"{one}\n" for one in lines)


def config_line(labels: Mapping[str, str], *, spelling: str = "vllm:") -> str:
    """Return a line of cache_config_info."""
    return line(f"{spelling}cache_config_info", 1.0, labels) + "\n"


def read(text: str, *, time: float = 1000.0, release: str | None = None) -> PageReading:
    """Return what one page says."""
    return Interpreter().interpret(PageReader(is_wanted).read(text.encode()), time=time, release=release)


def watched(texts: Iterable[tuple[float, str]], *, release: str | None = None) -> TargetWatch:
    """Return a watch that took pages at their times (unix seconds). Raises what the watch refuses with."""
    watch, reader, interpreter = TargetWatch("localhost:8000"), PageReader(is_wanted), Interpreter()
    for time, text in texts:
        watch.add(interpreter.interpret(reader.read(text.encode()), time=time, release=release))
    return watch


def figures(watch: TargetWatch, seconds: float | None = None) -> list[EngineFigures]:
    """Return the figures of each engine over the last `seconds`, or over everything seen."""
    return list(watch.state((seconds,)).snapshot(seconds).engines)
