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


def changed(path: str, value: object) -> str:
    """Return config.yaml with another value, as YAML."""
    content = yaml.safe_load(CONFIG.read_text())
    entry = content
    for key in path.split("."):
        entry = entry[key]
    entry["value"] = value
    return yaml.safe_dump(content)


DROPPED = "alerts.PrefixCacheHitRatioDropped"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(changed(f"{DROPPED}.share_critical", "abc"), f'{DROPPED}.share_critical: "abc" is not a number from 0 to 1', id="text for a share"),
        pytest.param(changed(f"{DROPPED}.share_critical", 80), f"{DROPPED}.share_critical: 80 is not a number from 0 to 1", id="per cent for a share"),
        pytest.param(changed(f"{DROPPED}.share_critical", None), f"{DROPPED}.share_critical: null is not a number from 0 to 1", id="nothing"),
        pytest.param(changed(f"{DROPPED}.share_critical", [1]), f"{DROPPED}.share_critical: [1] is not a number from 0 to 1", id="a list for a share"),
        pytest.param(changed(f"{DROPPED}.share_critical", True), f"{DROPPED}.share_critical: true is not a number from 0 to 1", id="a switch for a share"),
        pytest.param(changed(f"{DROPPED}.share_critical", float("nan")), f"{DROPPED}.share_critical: NaN is not a number from 0 to 1", id="not a number"),
        pytest.param(changed(f"{DROPPED}.share_critical", 0.8), f"{DROPPED}.share_critical: 0.8 is above {DROPPED}.share_warning, 0.7", id="critical before warning"),
        pytest.param(changed("shared.tokens_per_second", -1), "shared.tokens_per_second: -1 is not a number from 0 on", id="a negative amount"),
        pytest.param(changed(f"{DROPPED}.for", "soon"), f'{DROPPED}.for: "soon" is not a duration, like "10m" or "0s"', id="a duration in words"),
        pytest.param(changed(f"{DROPPED}.for", 10), f'{DROPPED}.for: 10 is not a duration, like "10m" or "0s"', id="a duration without its unit"),
        pytest.param(changed(f"{DROPPED}.for", "10m\n"), f'{DROPPED}.for: "10m\\n" is not a duration', id="a line too much"),
        pytest.param(changed(f"{DROPPED}.baseline_offset", "-1d"), f'{DROPPED}.baseline_offset: "-1d" is not a duration above 0', id="a negative duration"),
        pytest.param(changed("windows.5m", "0s"), 'windows.5m: "0s" is not a duration above 0', id="an empty window"),
        pytest.param(changed("links.runbooks", "{{ . }}"), 'links.runbooks: "{{ . }}" is not an address', id="a template for an address"),
        pytest.param(changed("alerts.PrefixCacheDisabled.marked", 'a"b'), 'marked: "a\\"b" is not a word', id="a quote in a label"),
        pytest.param(changed("alerts.PrefixCacheNoReuse.expected_models", "org/a"), 'expected_models: "org/a" is not a list of names', id="a name for names"),
        pytest.param(changed("alerts.PrefixCacheNoReuse.expected_models", ["a", "a"]), 'expected_models: ["a", "a"] is not a list of names', id="a name twice"),
        pytest.param("shared: {flap: [", " line 1: not YAML: ", id="not YAML"),
        pytest.param("a: 2001-99-99", " not YAML: month must be in 1..12", id="not a date"),
        pytest.param("- 1", ": this must be a mapping", id="not a mapping"),
    ],
)  # fmt: skip
def test_render_refuses_a_value_with_its_path_in_one_line_and_writes_nothing(
    tmp_path: Path, text: str, said: str
) -> None:
    file, out = tmp_path / "mine.yaml", tmp_path / "out"
    file.write_text(text)
    command = [sys.executable, ALERTS / "render.py", "--config", file, "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and not out.exists()
    assert done.stderr.startswith(f"alerts: {file}:") and done.stderr.count("\n") == 1, done.stderr
    assert said in done.stderr


def test_render_makes_the_folder_that_it_writes_to(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    assert ran(sys.executable, ALERTS / "render.py", "--out", out) == ""
    assert {file.name for file in out.iterdir()} == set(FILES)


def test_render_says_where_it_cannot_write_or_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for option in ("--out", "--config"):
        command = [sys.executable, ALERTS / "render.py", option, tmp_path / "file" / "below"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "Not a directory" in done.stderr and done.stderr.count("\n") == 1, done.stderr


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
