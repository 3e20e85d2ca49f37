"""What the chart copies is what the rest of the repository ships, and a program says where it is not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from compose.stack import compose
from helm.chart import CHART, ROOT

BOARDS = ROOT / "dashboards/generated"


def sync(*arguments: object) -> tuple[int, str]:
    command = [sys.executable, ROOT / "helm/sync.py", *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert not done.stdout
    return done.returncode, done.stderr


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CHART, tmp_path / "prefixwatch"))


def test_the_chart_is_current() -> None:
    assert sync("--check") == (0, "")


def test_sync_names_what_is_not_current_and_puts_it_right(copied: Path) -> None:
    board, rules = copied / "files/dashboards/prefixwatch-fleet.json", copied / "files/rules/prefixwatch.rules.yaml"
    values, schema = copied / "values.yaml", copied / "values.schema.json"
    board.write_text(board.read_text() + " ")
    rules.unlink()
    values.write_text(values.read_text().replace("tokens_per_second: 20", "tokens_per_second: 21"))
    schema.write_text(schema.read_text().replace('"tokens_per_second"', '"tokens_per_minute"'))
    (copied / "files/dashboards/prefixwatch-old.json").write_text("{}")
    stale = (
        "files/dashboards/prefixwatch-fleet.json, files/dashboards/prefixwatch-old.json,"
        " files/rules/prefixwatch.rules.yaml, values.schema.json, values.yaml"
    )
    assert sync("--check", "--chart", copied) == (1, f"helm: not current: {stale}: run make generate\n")
    assert sync("--chart", copied) == (0, "")
    assert sync("--check", "--chart", copied) == (0, "")
    for file in (file for file in copied.rglob("*") if file.is_file()):
        assert file.read_bytes() == (CHART / file.relative_to(copied)).read_bytes(), file
    assert not (copied / "files/dashboards/prefixwatch-old.json").exists()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: text.replace("# --- end of rules", ""), id="no end"),
        pytest.param(lambda text: text + "\n# --- rules: written by helm/sync.py\n", id="begins twice"),
    ],
)
def test_sync_refuses_values_without_the_region(copied: Path, damage) -> None:
    values = copied / "values.yaml"
    values.write_text(damage(values.read_text()))
    said = (
        'helm: values.yaml: needs the lines "# --- rules: written by helm/sync.py" and "# --- end of rules",'
        " once each and in this order\n"
    )
    assert sync("--chart", copied) == (2, said)


def test_compose_mounts_what_the_chart_copies() -> None:
    """Boards byte for byte; test_rules compares the rules, of which the chart's copy has placeholders."""
    services = compose()["services"]
    assert "./dashboards/generated:/etc/grafana/dashboards/prefixwatch:ro" in services["grafana"]["volumes"]
    assert "./alerts:/etc/prefixwatch:ro" in services["prometheus"]["volumes"]
    copies = {file.name: file.read_bytes() for file in (CHART / "files/dashboards").iterdir()}
    assert copies == {file.name: file.read_bytes() for file in BOARDS.iterdir()}
    mounted = yaml.safe_load((ROOT / "alerts/prometheus.yaml").read_text())["rule_files"]
    assert {file.name for file in (CHART / "files/rules").iterdir()} == set(mounted)
