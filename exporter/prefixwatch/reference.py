"""The metric reference, METRICS.md, from the catalogue: `python -m prefixwatch.reference`."""

from collections.abc import Iterator

from prefixwatch.catalog import METRICS, Group, Metric, budget

_INTRO = """\
# Metrics

<!-- Generated from exporter/prefixwatch/catalog.py by `make generate`. -->

Every metric of the exporter. Labels beside the ones named: `cluster`, `namespace` and whatever else a
target's configuration states.

- **stable** names and meanings stay within a major version. **experimental** ones may change with a minor one.
- A sample that is not there is not zero: nothing was looked up, the window is not covered, the engine does not say.
  `/api/v1/status` and the page at `/` state the reason.
- Counters add up over engines; gauges of a window do not. A fleet's ratio is a sum of rates over a sum of rates:
  `sum(rate(prefixwatch_hit_tokens_total[5m])) / sum(rate(prefixwatch_queried_tokens_total[5m]))`.
- A target whose last poll failed has `prefixwatch_up` 0; once three in a row did, the series of its engines end until it
  is back. A poll of one that hangs fails after `poll_timeout` (4 s).
- Budget: at most {budget} series an engine with its target, at three windows (`_created` series not counted).
"""

_GROUPS = {
    Group.ENGINE: "The engine's own counts under names that last, with its `_created`: a restart of the exporter is no"
    " reset, a restart of the engine is one. A unit of blocks is converted where the block size is stated, else absent.",
    Group.EXPORTER: "Counted by the exporter, poll by poll: each interval is added once and never revised. They start"
    " at 0 with the exporter, and their denominators are the exporter's too.",
    Group.WINDOW: "For one engine, at the resolution of the polls. Do not average or sum them.",
    Group.STATE: "What is now.",
}


def rendered() -> str:
    """Return the whole reference as Markdown."""
    return _INTRO.format(budget=budget()) + "".join(_section(group) for group in Group)


def _section(group: Group) -> str:
    rows = "".join(_rows(metric for metric in METRICS if metric.group is group))
    return (
        f"\n## {group}\n\n{_GROUPS[group]}\n\n| metric | type | labels | what it is | stability |\n"
        f"| --- | --- | --- | --- | --- |\n{rows}"
    )


def _rows(metrics: Iterator[Metric]) -> Iterator[str]:
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        text = metric.help.replace("|", "\\|")
        yield f"| `{metric.full_name}` | {metric.kind} | {labels} | {text} | {metric.stability} |\n"


if __name__ == "__main__":
    print(rendered(), end="")
