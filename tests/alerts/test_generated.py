"""The files are what their source gives, and Prometheus's own checkers accept them."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from render import rendered
from rulebook.settings import Settings, SettingsError

from alerts.rulefiles import ALERTS, FILES

CONFIG = ALERTS / "config.yaml"


def ran(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_generated_files_are_current() -> None:
    assert {file: (ALERTS / file).read_text() for file in FILES} == rendered(Settings.read(CONFIG))


def test_render_says_which_file_is_not_current(tmp_path: Path) -> None:
    ran(sys.executable, ALERTS / "render.py", "--out", tmp_path)
    (tmp_path / FILES[0]).write_text("old")
    command = [sys.executable, ALERTS / "render.py", "--out", tmp_path, "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"alerts: not current: {FILES[0]}: run make generate\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param("shared: {flap: 15m}", "shared.flap must be", id="a value without its reason"),
        pytest.param("shared: {flap: {value: 15m}}", "needs a value and a reason", id="no reason"),
        pytest.param("shared: {flapp: {value: 15m, why: x}}", "is missing", id="a key that is missing"),
    ],
)
def test_configurations_that_are_refused(tmp_path: Path, change: str, said: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(change)
    with pytest.raises(SettingsError, match=said):
        rendered(Settings.read(file))


def test_a_misspelt_key_is_an_error(tmp_path: Path) -> None:
    content = yaml.safe_load(CONFIG.read_text())
    content["alerts"]["PrefixCacheNoReuse"]["cieling"] = {"value": 1, "why": "a slip"}
    with pytest.raises(SettingsError, match=r"misspelt: alerts\.PrefixCacheNoReuse\.cieling"):
        rendered(Settings(content, source="config.yaml"))


def test_links_and_expected_models_come_from_the_configuration() -> None:
    content = yaml.safe_load(CONFIG.read_text())
    content["links"]["runbooks"]["value"] = "https://wiki.example/runbooks/"
    content["links"]["dashboards"]["value"] = "https://grafana.example"
    content["alerts"]["PrefixCacheNoReuse"]["expected_models"]["value"] = ["org/a", "org/b.5"]
    text = rendered(Settings(content, source="config.yaml"))["prefixwatch.alerts.yaml"]
    assert '"https://wiki.example/runbooks/PrefixCacheNoReuse.md"' in text
    assert '"https://grafana.example/d/prefixwatch-fleet?var-cluster=' in text
    assert 'model:prefixwatch_queried_tokens:rate5m{model_name=~"org/a|org/b\\\\.5"}' in text


def test_promtool_accepts_the_rules() -> None:
    assert "SUCCESS" in ran("promtool", "check", "rules", *(ALERTS / file for file in FILES))


def test_promtool_accepts_the_configuration() -> None:
    """Which names the rules files: they are there."""
    assert "2 rule files found" in ran("promtool", "check", "config", ALERTS / "prometheus.yaml")


def test_amtool_accepts_the_routing() -> None:
    assert "3 inhibit rules" in ran("amtool", "check-config", ALERTS / "alertmanager.yaml")


@pytest.mark.parametrize(("severity", "receiver"), [("critical", "page"), ("warning", "ticket"), ("info", "notice")])
def test_a_severity_goes_to_its_receiver(severity: str, receiver: str) -> None:
    routing = ALERTS / "alertmanager.yaml"
    said = ran("amtool", "config", "routes", "test", f"--config.file={routing}", f"severity={severity}")
    assert said.splitlines()[0] == receiver
