"""The chart as a package: what a repository of charts and Helm's own linter ask of it."""

import re
import tarfile
from pathlib import Path

import helm_python
import yaml

from helm.chart import CHART, OLDEST, chart, for_each_case, values_of
from helm.kubernetes import versions
from prefixwatch import __version__


def test_its_metadata_is_what_repositories_ask_for() -> None:
    metadata = chart().metadata
    assert metadata["apiVersion"] == "v2"
    assert metadata["name"] == CHART.name
    assert metadata.get("type", "application") == "application"
    assert re.fullmatch(r"\d+\.\d+\.\d+", metadata["version"])
    assert metadata["appVersion"] == __version__
    assert metadata["description"] and metadata["keywords"]
    assert all({"name", "url"} <= set(one) or {"name", "email"} <= set(one) for one in metadata["maintainers"])
    annotations = metadata["annotations"]
    assert annotations["artifacthub.io/license"] == "Apache-2.0"
    assert all(set(one) == {"name", "url"} for one in yaml.safe_load(annotations["artifacthub.io/links"]))


def test_it_takes_every_kubernetes_that_it_is_checked_against() -> None:
    """The hyphen lets the versions of clouds in, such as 1.29.1-gke.100."""
    found = re.fullmatch(r">=\s*1\.(\d+)\.0-0", chart().metadata["kubeVersion"])
    assert found and int(found[1]) <= int(OLDEST.partition(".")[2]), chart().metadata["kubeVersion"]


@for_each_case
def test_helms_linter_has_nothing_to_say(values: Path) -> None:
    version = f"v{versions(values)[0]}.0"
    report = helm_python.lint(CHART, values_of(values), strict=True, namespace="monitoring", kube_version=version)
    assert [one for one in report["messages"] if "icon is recommended" not in one["error"]] == []


def test_a_package_holds_what_is_needed_and_no_more(tmp_path: Path) -> None:
    with tarfile.open(helm_python.package(CHART, destination=str(tmp_path))) as archive:
        names = {name.removeprefix("prefixwatch/") for name in archive.getnames()}
    assert {"Chart.yaml", "values.yaml", "values.schema.json", "README.md", "templates/NOTES.txt"} <= names
    assert not {name for name in names if name.startswith("ci/") or ("test" in name and "templates" not in name)}, names
