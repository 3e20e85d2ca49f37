"""The rules of grafana/dashboard-linter, and of this repository, over the committed boards."""

import re

import pytest
from grafana_foundation_sdk.models import units
from grafanalib import formatunits

from dashboards.boards_as_json import ALL_PANELS, ALL_TARGETS, BOARDS, nodes, panels, parsed
from lib.rulefile import ALERTS, RAW, alerts, recorded, settings

SHOWN = ("stat", "timeseries", "table", "state-timeline", "gauge", "graph")
ANGULAR = {
    "graph", "singlestat", "table-old", "grafana-piechart-panel", "grafana-worldmap-panel", "natel-discrete-panel",
    "flant-statusmap-panel", "bessler-pictureit-panel", "heatmap-old",
}  # fmt: skip
KINDS = {"row", "stat", "table", "timeseries", "state-timeline", "text"}

WITHOUT_JOB = (re.compile(r".+:.+|ALERTS"), "recorded series and ALERTS are summed over jobs and instances on purpose")
COUNTED_BY_CHANGES = {
    "prefixwatch_engine_restarts_total": "each restart is an event: how many changes, not how many a second"
}

UNITS = {value for name, value in vars(formatunits).items() if name.isupper()} | {
    value for name, value in vars(units).items() if name[0].isupper() and isinstance(value, str)
}


@pytest.fixture(params=BOARDS, name="board")
def _board(request):
    return BOARDS[request.param]


def test_the_boards_are_the_four() -> None:
    assert set(BOARDS) == {f"prefixwatch-{name}" for name in ("overview", "diagnosis", "kv-pool", "fleet")}
    assert all(board["uid"] == name for name, board in BOARDS.items())


def test_a_board_cannot_be_edited_and_states_its_schema(board) -> None:
    assert board["editable"] is False  # uneditable-dashboard
    assert board["schemaVersion"] == 39
    assert board["tags"] == ["prefixwatch"]
    assert not {"rows", "__inputs", "style", "hideControls", "sharedCrosshair", "id", "gnetId"} & board.keys()


def test_variables(board) -> None:
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert list(variables) == [
        "datasource",
        "cluster",
        "namespace",
        "job",
        "instance",
        "model_name",
        "target",
        "engine",
    ]
    source = variables.pop("datasource")  # template-datasource-rule
    assert (source["type"], source["label"], source["query"]) == ("datasource", "Data source", "prometheus")
    for name, variable in variables.items():
        assert variable["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert variable["refresh"] == 2  # template-on-time-change-reload-rule
        assert variable["multi"]
        assert variable["includeAll"]
        assert variable["current"]["value"] == ["$__all"]
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert match  # template-label-promql-rule
        assert match[2] == name
        ((selector, _),) = nodes(parsed(match[1]))
        assert name in RAW[selector.name]
        assert variable["definition"] == variable["query"]["query"]
        earlier = list(variables)[: list(variables).index(name)]
        assert {matcher.value.strip("$") for matcher in selector.matchers.matchers} <= set(earlier)
    for name, label in (("job", "Job"), ("instance", "Instance")):  # template-job-rule, template-instance-rule
        assert (variables[name]["allValue"], variables[name]["label"]) == (".+", label)
    for name in variables.keys() - {"job", "instance"}:
        assert variables[name]["allValue"] == ".*", "a label that nothing has must not empty the board"


def test_every_panel_has_what_a_reader_needs() -> None:
    for uid, panel in ALL_PANELS:
        where = f"{uid}: {panel['title']}"
        assert panel["type"] not in ANGULAR, where
        assert panel["type"] in KINDS, where
        if panel["type"] == "text":
            assert panel["options"]["content"], where
            continue
        assert panel["title"], where  # panel-title-description-rule
        assert re.search(r"\n\n\*\*Good:\*\* .+\n\n\*\*If not:\*\* .+", panel["description"]), where
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, where  # panel-datasource-rule
        assert panel["targets"], where  # panel-no-targets-rule
        assert panel["fieldConfig"]["defaults"]["noValue"], where
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs), where
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"]), where
        assert "maxDataPoints" not in panel, where


def test_units() -> None:  # panel-units-rule
    for uid, panel in ALL_PANELS:
        config = panel.get("fieldConfig", {"defaults": {}, "overrides": []})
        found = [one["value"] for over in config["overrides"] for one in over["properties"] if one["id"] == "unit"]
        if panel["type"] in ("stat", "timeseries"):
            found.append(config["defaults"]["unit"])
        assert set(found) <= UNITS, f"{uid}: {panel['title']}"


def test_ids_are_unique_and_nothing_overlaps(board) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    titles = [panel["title"] for panel in panels(board) if panel["type"] != "text" and panel["title"] != "This?"]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    ("uid", "panel", "target"),
    [pytest.param(*one, id=f"{one[0]}-{one[1]['id']}{one[2]['refId']}") for one in ALL_TARGETS],
)
def test_queries(uid, panel, target) -> None:
    """Each parses, knows its names and labels, and is filtered by what the reader chooses."""
    for selector, inside in nodes(parsed(target["expr"])):  # target-promql-rule
        name, matchers = selector.name, {matcher.name: matcher.value for matcher in selector.matchers.matchers}
        labels = RAW.get(name) or (recorded()[name].labels if name in recorded() else None)
        if name == "ALERTS":
            labels = {*matchers}
        assert labels is not None, f"{name} is neither in the catalogue nor recorded"
        assert set(matchers) <= set(labels), name
        if not WITHOUT_JOB[0].fullmatch(name):
            assert (matchers["job"], matchers["instance"]) == (
                "$job",
                "$instance",
            )  # target-job-rule, target-instance-rule
        for label in {"cluster", "namespace", "model_name", "target", "engine"} & set(labels):
            assert matchers[label] == f"${label}"
        if name.endswith("_total"):  # target-counter-agg-rule
            assert {"rate", "irate", "increase"} & set(inside) or ("changes" in inside and name in COUNTED_BY_CHANGES)
    for function, span in re.findall(r"\b(rate|irate)\([^\[]+\[([^\]]+)\]", target["expr"]):
        assert span == "$__rate_interval", function  # target-rate-interval-rule


def test_links_keep_time_and_variables(board) -> None:
    (link,) = board["links"]
    assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == (
        "dashboards",
        ["prefixwatch"],
        True,
        True,
    )
    for url in re.findall(r'"(/d/[^"]+)"', str(board).replace("'", '"')):
        assert url.startswith(tuple(f"/d/{uid}?" for uid in BOARDS))
        assert "${__url_time_range}" in url
        names = set(re.findall(r"\$\{(\w+):queryparam\}|var-(\w+)=", url))
        assert {one or other for one, other in names} <= {variable["name"] for variable in board["templating"]["list"]}


def test_every_link_of_an_alert_leads_to_a_choice_on_a_board() -> None:
    for rule in alerts():
        match = re.search(r"/d/([\w-]+)\?(.+)", rule["annotations"]["dashboard_url"])
        assert match, rule["alert"]
        names = {variable["name"] for variable in BOARDS[match[1]]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", match[2])) <= names


def test_every_runbook_is_there() -> None:
    """Where no address is configured, a board names the path in the repository."""
    base = settings()["links"]["runbooks"]["value"] or "alerts/runbooks"
    named = {name for board in BOARDS.values() for name in re.findall(rf"{base}/(\w+)\.md", str(board))}
    assert len(named) >= 6
    known = {rule["alert"] for rule in alerts()}
    assert named <= known
    for name in known:
        assert (ALERTS / "runbooks" / f"{name}.md").is_file()


def test_annotations(board) -> None:
    found = {one["name"]: one for one in board["annotations"]["list"]}
    assert found.keys() == {"Annotations and alerts", "Engine restarts", "Firing alerts"}
    for name in ("Engine restarts", "Firing alerts"):
        parsed(found[name]["expr"])
        assert found[name]["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
