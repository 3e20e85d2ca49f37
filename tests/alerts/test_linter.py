"""What linters for rules demand (pint, the mixins' rules), of every generated rule."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import promql_parser as promql
import pytest
from rulebook.settings import seconds

from alerts.rulefiles import ALERT_RULES, ENGINE_ONLY, FILES, RULES, alerts, groups, records, rules
from prefixwatch.catalog import METRICS, Kind

SCRAPE_SECONDS = 30
COMING: set[str] = set()
"""Names that the rules wait for. What the catalogue has already must go from here."""

COUNTERS = {metric.full_name for metric in METRICS if metric.kind is Kind.COUNTER} | {
    n for n in COMING if n.endswith("_total")
}
GAUGES = {metric.full_name for metric in METRICS if metric.kind is Kind.GAUGE} | {
    n for n in COMING if not n.endswith("_total")
}
CREATED = {name.removesuffix("_total") + "_created" for name in COUNTERS}
OF_COUNTERS, OVER_TIME = {"rate", "increase", "resets"}, {"max_over_time", "min_over_time", "present_over_time"}
LEVELS = {
    "engine": {"cluster", "namespace", "target", "model_name", "engine"},
    "model": {"cluster", "namespace", "model_name"},
    "fleet": {"cluster"},
}  # fmt: skip
Check = Callable[[dict[str, Any]], None]


def of_each(chosen: Callable[[], Iterable[dict[str, Any]]]) -> Callable[[Check], Callable[[], None]]:
    """Make one test of a check on many rules."""

    def decorate(check: Check) -> Callable[[], None]:
        def test() -> None:
            seen = 0
            for seen, rule in enumerate(chosen(), 1):  # noqa: B007
                try:
                    check(rule)
                except AssertionError as error:
                    raise AssertionError(f"{rule.get('record') or rule['alert']}: {error}") from error
            assert seen > 10

        return test

    return decorate


def recording() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "record" in rule]


def children(node: Any) -> list[Any]:
    found = [getattr(node, name, None) for name in ("lhs", "rhs", "expr", "param", "vector_selector", "vs", "arg")]
    arguments = getattr(node, "args", None)
    return [child for child in [*found, *(arguments or [])] if child is not None]


def walk(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    yield node, above
    for child in children(node):
        yield from walk(child, (*above, node))


def nodes(expr: str, kind: type) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    return ((node, above) for node, above in walk(promql.parse(expr)) if isinstance(node, kind))


def functions(above: tuple[Any, ...]) -> set[str]:
    return {node.func.name for node in above if isinstance(node, promql.Call)}


@of_each(rules)
def test_every_metric_is_known_and_used_as_its_type_demands(rule: dict[str, Any]) -> None:
    defined = records()
    for node, above in nodes(rule["expr"], promql.VectorSelector):
        name = node.name
        assert name, "a selector names its metric"
        if name.startswith("vllm:"):
            assert rule["record"].split(":")[1].startswith("vllm_")
            assert functions(above) & OF_COUNTERS
        elif ":" in name:
            assert name in defined, f"{name} is recorded nowhere"
            assert not functions(above) & OF_COUNTERS, "a rate of a rate"
        elif name in COUNTERS:
            assert functions(above) & OF_COUNTERS, f"{name} is a counter"
        else:
            assert name in GAUGES | CREATED | {"up"}, f"{name} is not in the catalogue"
            assert not functions(above) & OF_COUNTERS, f"{name} is a gauge"


def test_names_that_have_come_are_no_longer_awaited() -> None:
    assert not COMING & {metric.full_name for metric in METRICS}, "take them from COMING"


@of_each(rules)
def test_ranges_hold_two_scrapes_at_least(rule: dict[str, Any]) -> None:
    for node, _ in nodes(rule["expr"], promql.MatrixSelector):
        assert node.range.total_seconds() >= 2 * SCRAPE_SECONDS


@of_each(rules)
def test_denominators_are_guarded(rule: dict[str, Any]) -> None:
    """Idle is absent: a denominator is compared with 0, so that 0 / 0 is nothing."""
    for node, _ in nodes(rule["expr"], promql.BinaryExpr):
        if str(node.op) == "/":
            below = node.rhs.expr if isinstance(node.rhs, promql.ParenExpr) else node.rhs
            assert isinstance(below, promql.BinaryExpr), rule["expr"]
            assert str(below.op) == ">", rule["expr"]


@of_each(rules)
def test_aggregations_are_sums_over_names_that_are_kept(rule: dict[str, Any]) -> None:
    for node, above in nodes(rule["expr"], promql.AggregateExpr):
        assert str(node.op) in ("sum", "max", "count"), "no averages of ratios, no topk"
        assert str(node.modifier.type).endswith("By") if node.modifier else False, "an aggregation says what it keeps"
        if str(node.op) == "sum":
            assert "rate" not in functions(above), "rate, then sum"


@of_each(recording)
def test_the_level_in_a_name_is_what_its_labels_are(rule: dict[str, Any]) -> None:
    level, metric, operation = rule["record"].split(":")
    assert re.fullmatch(r"(ratio_)?rate(5m|1h|1d)(_offset1d)?|max_ratio_rate1d|restarts1h", operation)
    assert "_total" not in metric
    kept = promql.parse(rule["expr"])
    if isinstance(kept, promql.AggregateExpr):
        labels = set(kept.modifier.labels)
        wanted = (
            LEVELS[level] - {"target"} | {"job", "instance"}
            if "vllm_" in metric and level == "engine"
            else LEVELS[level]
        )
        assert labels - {"bound", "pool"} == wanted
    for node, _ in nodes(rule["expr"], promql.VectorSelector):
        if ":" in node.name and not node.name.startswith("vllm:"):
            order = list(LEVELS)
            assert order.index(node.name.split(":")[0]) <= order.index(level) or "on (" in rule["expr"]


@of_each(rules)
def test_matchers_are_no_more_than_needed(rule: dict[str, Any]) -> None:
    for node, _ in nodes(rule["expr"], promql.VectorSelector):
        for matcher in node.matchers.matchers:
            if str(matcher.op).endswith("Re"):
                assert re.search(r"[|.*+?\[]", matcher.value), f"{matcher.value} needs no regular expression"
            assert not matcher.value.startswith("^"), "expressions are anchored anyway"


@of_each(alerts)
def test_an_alert_says_what_how_long_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"PrefixCache[A-Z]\w+", rule["alert"])
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert all("{{" not in value for value in rule["labels"].values()), "a label that changes resets `for`"
    assert seconds(rule["for"]) >= 300
    assert seconds(rule["keep_firing_for"]) > 0
    text = rule["annotations"]
    assert text.keys() == {"summary", "description", "runbook_url", "dashboard_url"}
    assert re.fullmatch(r"[A-Z][^{}]*\.", text["summary"]), "static, so that alerts can be grouped under it"
    assert "{{" in text["description"]
    assert "$labels }}" not in text["description"]
    assert text["description"].endswith(".")
    assert text["runbook_url"].endswith(f"{rule['alert']}.md")
    assert any(str(node.op) in ("<", ">", "==", ">=", "<=") for node, _ in nodes(rule["expr"], promql.BinaryExpr))
    assert "absent(" not in rule["expr"]


@of_each(alerts)
def test_alerts_read_no_gauge_of_a_window_as_a_fleets(rule: dict[str, Any]) -> None:
    windowed = {metric.full_name for metric in METRICS if "window" in metric.labels}
    for node, above in nodes(rule["expr"], promql.VectorSelector):
        if node.name in windowed:
            keeps = [set(one.modifier.labels) for one in above if isinstance(one, promql.AggregateExpr)]
            assert all(LEVELS["engine"] <= labels for labels in keeps)


@pytest.mark.parametrize("file", FILES)
def test_groups_have_names_of_their_own_and_a_short_interval(file: str) -> None:
    names = [group["name"] for group in groups(file)]
    assert len(names) == len(set(names))
    for group in groups(file):
        assert seconds(group["interval"]) < 300, "within the time that a sample is looked back for"


def test_nothing_is_recorded_twice() -> None:
    names = Counter(rule["record"] for rule in rules(RULES, ENGINE_ONLY) if "record" in rule)
    assert max(names.values()) == 1
    tiers = Counter((rule["alert"], *sorted(rule["labels"].items())) for rule in alerts())
    assert max(tiers.values()) == 1


def test_a_rule_comes_after_what_it_needs_in_its_group() -> None:
    for file in (RULES, ENGINE_ONLY):
        for group in groups(file):
            later = {rule["record"] for rule in group["rules"]}
            for rule in group["rules"]:
                used = {node.name for node, _ in nodes(rule["expr"], promql.VectorSelector)}
                assert not used & later, f"{rule['record']} needs {used & later}"
                later.discard(rule["record"])


def test_files_hold_what_their_names_say() -> None:
    assert all("alert" in rule for rule in rules(ALERT_RULES))
    assert all("record" in rule for rule in rules(RULES, ENGINE_ONLY))
