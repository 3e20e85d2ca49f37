"""docker-compose.yml without Docker: what it mounts, pins, opens, forbids and sets."""

import itertools
import json
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from compose.stack import ROOT, compose, mounts, settings_of, variables
from prefixwatch import config
from prefixwatch.cli import main
from prefixwatch.config import Duration

STACK = compose()
SERVICES = STACK["services"]
NAMES = sorted(SERVICES)
SERVING = sorted(set(SERVICES) - {"configuration"})
# What the Compose Specification and Debian's docker-compose 1.29 both know, of what is used here.
KEYS = {
    "build", "cap_drop", "command", "depends_on", "environment", "extra_hosts", "healthcheck", "image", "logging",
    "mem_limit", "network_mode", "pids_limit", "ports", "profiles", "read_only", "restart", "security_opt",
    "stop_grace_period", "tmpfs", "volumes",
}  # fmt: skip
CONDITIONS = {"service_healthy", "service_completed_successfully"}


def seconds(duration: str) -> float:
    return float(Duration.parse(duration))


def test_the_file_has_known_keys_only() -> None:
    assert {key for key in STACK if not key.startswith("x-")} == {"services", "volumes"}
    assert {key for service in SERVICES.values() for key in service} <= KEYS


def test_services_stand_in_order() -> None:
    assert list(SERVICES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_image_is_pinned(name: str) -> None:
    image = SERVICES[name]["image"]
    if "build" in SERVICES[name]:
        assert image == "prefixwatch:local"
    else:
        assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", image)


@pytest.mark.parametrize("name", NAMES)
def test_a_container_has_no_rights_that_it_does_not_need(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "devices", "pid", "ipc", "user"} & set(service)
    assert service.get("network_mode", "none") == "none"
    assert not any("docker.sock" in source for source, _, _ in mounts(service))


@pytest.mark.parametrize("name", NAMES)
def test_a_container_has_limits(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    assert service["pids_limit"] > 0
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}


@pytest.mark.parametrize("name", SERVING)
def test_what_serves_is_checked_and_comes_back(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    if "build" not in service:  # the others have the image's own check
        check = service["healthcheck"]
        assert check["test"][:2] == ["CMD", "wget"]
        assert seconds(check["timeout"]) < seconds(check["interval"])
        assert {"start_period", "retries"} <= set(check)


def test_settings_are_checked_once_and_stop_there() -> None:
    first = SERVICES["configuration"]
    assert (first["command"], first["restart"]) == (["config"], "no")
    assert SERVICES["prefixwatch"]["depends_on"] == {"configuration": {"condition": "service_completed_successfully"}}
    assert first["environment"] == SERVICES["prefixwatch"]["environment"]


def test_order_of_start_has_no_circle_and_never_waits_for_a_vllm() -> None:
    left = {name: service.get("depends_on", {}) for name, service in SERVICES.items()}
    for needed in left.values():
        assert all(one["condition"] in CONDITIONS for one in needed.values())
        assert not any(SERVICES[name].get("profiles") for name in needed)
    while left:
        free = [name for name, needed in left.items() if not set(needed) & set(left)]
        assert free
        left = {name: needed for name, needed in left.items() if name not in free}


@pytest.mark.parametrize("name", NAMES)
def test_ports_are_open_on_this_host_alone(name: str) -> None:
    for port in SERVICES[name].get("ports", ()):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)


def test_no_two_services_take_one_port() -> None:
    taken = [port.split(":")[1] for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(set(taken)) == len(taken) == 5
    assert "8000" not in taken  # a vLLM on this host has it


@pytest.mark.parametrize("name", NAMES)
def test_what_is_mounted_exists_and_is_read_only_or_a_volume(name: str) -> None:
    for source, target, mode in mounts(SERVICES[name]):
        assert target.startswith("/")
        if source.startswith("."):
            assert (ROOT / source).is_dir(), "a file that is replaced stays the old one in a container"
            assert mode == "ro"
        else:
            assert source in STACK["volumes"]


def test_every_volume_is_used() -> None:
    used = [source for service in SERVICES.values() for source, _, _ in mounts(service) if source[0] != "."]
    assert sorted(used) == sorted(STACK["volumes"])


@pytest.mark.parametrize("name", ["prometheus", "alertmanager"])
def test_the_configuration_that_is_named_is_mounted(name: str) -> None:
    (option,) = [part for part in SERVICES[name]["command"] if part.startswith("--config.file=")]
    file = Path(option.partition("=")[2])
    (source,) = [source for source, target, _ in mounts(SERVICES[name]) if Path(target) == file.parent]
    assert source == "./alerts"
    content = yaml.safe_load((ROOT / source / file.name).read_text())
    for rules in content.get("rule_files", ()):
        assert (ROOT / source / rules).is_file()


def test_prometheus_finds_everything_where_compose_has_it() -> None:
    content = yaml.safe_load((ROOT / "alerts/prometheus.yaml").read_text())
    addresses = [
        address
        for entry in [*content["scrape_configs"], *content["alerting"]["alertmanagers"]]
        for group in entry["static_configs"]
        for address in group["targets"]
    ]
    assert addresses == ["prefixwatch:9840", "localhost:9090", "alertmanager:9093"]
    for address in addresses:
        host, _, port = address.partition(":")
        service = SERVICES["prometheus" if host == "localhost" else host]
        assert service["ports"][0].endswith(f":{port}")


def option_of(name: str, option: str) -> str:
    (found,) = [part for part in SERVICES[name]["command"] if part.startswith(f"{option}=")]
    return str(found.partition("=")[2])


def test_prometheus_keeps_what_the_alerts_look_back_on() -> None:
    assert seconds(option_of("prometheus", "--storage.tsdb.retention.time")) >= 9 * 86400


def test_alertmanager_remembers_longer_than_it_waits_to_repeat() -> None:
    routing = (ROOT / "alerts/alertmanager.yaml").read_text()
    longest = max(seconds(found) for found in re.findall(r"repeat_interval: (\w+)", routing))
    assert seconds(option_of("alertmanager", "--data.retention")) > longest


def test_remote_write_is_one_comment_away(tmp_path: Path) -> None:
    text = (ROOT / "alerts/prometheus.yaml").read_text()
    with_it = re.sub(
        r"^#(remote_write:| )(?=.*)", lambda found: found[0][1:], text.partition("#remote_write")[2], flags=re.MULTILINE
    )
    file = tmp_path / "prometheus.yaml"
    file.write_text(text.partition("#remote_write")[0] + "remote_write" + with_it)
    for rules in ("prefixwatch.rules.yaml", "prefixwatch.alerts.yaml"):
        (tmp_path / rules).write_bytes((ROOT / "alerts" / rules).read_bytes())
    assert yaml.safe_load(file.read_text())["remote_write"][0]["write_relabel_configs"][0]["action"] == "keep"
    done = subprocess.run(["promtool", "check", "config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_receivers_are_one_comment_away(tmp_path: Path) -> None:
    file = tmp_path / "alertmanager.yaml"
    file.write_text(re.sub(r"^#(?=    )", "", (ROOT / "alerts/alertmanager.yaml").read_text(), flags=re.MULTILINE))
    receivers = {one["name"]: set(one) for one in yaml.safe_load(file.read_text())["receivers"]}
    assert receivers["ticket"] == {"name", "slack_configs", "email_configs"}
    done = subprocess.run(["amtool", "check-config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_copies_of_the_configuration_are_kept_out_of_git() -> None:
    given = {"ALERTMANAGER_CONFIG": "my-alertmanager.yaml", "PROMETHEUS_CONFIG": "my-prometheus.yaml"}
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    for name, file in zip(("alertmanager", "prometheus"), given.values(), strict=True):
        assert f"--config.file=/etc/prefixwatch/{file}" in compose(given)["services"][name]["command"]
        assert any(fnmatch(f"alerts/{file}", pattern) for pattern in ignored)


def test_grafana_finds_dashboards_and_prometheus() -> None:
    where = {target: source for source, target, _ in mounts(SERVICES["grafana"])}
    provisioning = ROOT / where["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/prefixwatch.yaml").read_text())["providers"]
    boards = ROOT / where[provider["options"]["path"]]
    assert len(list(boards.glob("prefixwatch-*.json"))) == 4
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"]
    assert (boards / home.name).is_file()
    (source,) = yaml.safe_load((provisioning / "datasources/prefixwatch.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    scrape = yaml.safe_load((ROOT / "alerts/prometheus.yaml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scrape
    for file in boards.glob("*.json"):
        fixed = set(re.findall(r'"uid": "([^"$]+)"', json.dumps(json.loads(file.read_text()).get("panels"))))
        assert fixed <= {source["uid"], "-- Grafana --", "-- Dashboard --", "-- Mixed --"}


@pytest.mark.parametrize("name", ["configuration", "prefixwatch"])
def test_the_exporter_takes_its_settings(name: str) -> None:
    settings = config.load(None, SERVICES[name]["environment"], {})
    assert [target.url for target in settings.targets] == ["http://host.docker.internal:8000/metrics"]
    assert settings.events.endpoints == ()
    assert settings.listen == ":9840"
    assert f":{settings.address[1]}" in SERVICES["prefixwatch"]["ports"][0]


def test_several_engines_and_their_events() -> None:
    given = {"VLLM_METRICS_URL": "http://gpu-1:8000/metrics, http://gpu-2:8000/metrics", "VLLM_EVENTS": "tcp://*:5557"}
    environment = compose(given)["services"]["prefixwatch"]["environment"]
    settings = config.load(None, environment, {})
    assert [target.url for target in settings.targets] == ["http://gpu-1:8000/metrics", "http://gpu-2:8000/metrics"]
    assert settings.events.endpoints == ("tcp://*:5557",)


def test_a_url_that_is_none_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in compose({"VLLM_METRICS_URL": "gpu 1"})["services"]["configuration"]["environment"].items():
        monkeypatch.setenv(name, value)
    assert main(["config"]) == 2
    assert capsys.readouterr().err.startswith('prefixwatch: config: targets[0].url: "gpu 1" is not a URL')


def test_this_host_has_a_name_in_the_exporter() -> None:
    assert SERVICES["prefixwatch"]["extra_hosts"] == ["host.docker.internal:host-gateway"]


def test_the_demo_adds_an_engine_that_the_exporter_reaches() -> None:
    assert [name for name in NAMES if SERVICES[name].get("profiles")] == ["engine"]
    given = settings_of("demo.env")
    assert given["COMPOSE_PROFILES"] == SERVICES["engine"]["profiles"][0]
    (target,) = config.load(None, compose(given)["services"]["prefixwatch"]["environment"], {}).targets
    listen = SERVICES["engine"]["command"][2]
    assert target.url == f"http://engine:{listen.partition(':')[2]}/metrics"
    assert listen.startswith("0.0.0.0:")
    assert SERVICES["engine"]["environment"]["HEALTH_URL"] == f"http://127.0.0.1:{listen.partition(':')[2]}/scenario"


def test_example_names_every_setting_with_its_default() -> None:
    known = {name: default for name, default in variables().items() if default}
    assert settings_of(".env.example") == known
    assert set(settings_of(".env.example", commented_too=True)) == set(variables())
    assert set(settings_of("demo.env")) - {"COMPOSE_PROFILES"} <= set(variables())


def test_images_are_pinned_alike_everywhere() -> None:
    args = [service["build"]["args"] for service in SERVICES.values() if "build" in service]
    assert len(args) == 3
    assert all(one == other for one, other in itertools.pairwise(args))
    assert f"ARG PYTHON_IMAGE={args[0]['PYTHON_IMAGE']}\n" in (ROOT / "exporter/Dockerfile").read_text()
