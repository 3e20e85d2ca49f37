"""Configuration: what comes before what, and one clear message for each mistake."""

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from prefixwatch import config
from prefixwatch.addresses import host_and_port, url_of
from prefixwatch.config import Access, Config, ConfigError, Duration, TargetConfig, load, read_targets, shown

DATA = Path(__file__).parents[1] / "data" / "config"
TARGET = {"targets": [{"url": "localhost:8000"}]}

BAD = {
    "broken-tag": "{file}: not YAML: invalid literal for int() with base 10: 'x'",
    "cert-without-key": "config: access: cert_file and key_file go together",
    "cert-without-key-of-target": "config: targets[0].access: cert_file and key_file go together",
    "control-character": "{file}: not YAML: special characters are not allowed",
    "diagnosis-window-not-among-windows": 'config: diagnosis_window: "5m": must be one of windows: 1m',
    "discovery-of-zero": 'config: discovery_interval: "0s": must be above 0',
    "endless-duration": f'config: forget_after: "{"9" * 77}..." is not a duration; use a form like "5m"',
    "huge-number": f'config: max_page_bytes: "{"9" * 26}": expected a whole number <= 1073741824',
    "impossible-date": "{file}: not YAML: month must be in 1..12",
    "interval-too-short": 'config: poll_interval: "50ms": below 0.2s a poll costs the engine too much',
    "key-twice": "{file}: line 3: poll_interval: stands twice in one mapping",
    "label-name": 'config: targets[0].labels: "a-b" is not a label name',
    "label-reserved": 'config: targets[0].labels: "engine" is one of the exporter\'s own labels',
    "label-value-not-text": 'config: targets[0].labels.zone: "5": expected text, got a whole number',
    "lines-of-another-file": "config: root:$6$...: there is no such setting",
    "list-at-the-top": "{file}: this must be a mapping of settings, like `poll_interval: 5s`",
    "list-for-text": 'config: listen: "[1, 2]": expected text, got a list',
    "listen-with-impossible-port": 'config: listen: ":99999": use a form like ":9840" or "127.0.0.1:9840"',
    "listen-with-other-digits": 'config: listen: ":²": use a form like ":9840" or "127.0.0.1:9840"',
    "listen-without-port": 'config: listen: "localhost": use a form like ":9840" or "127.0.0.1:9840"',
    "log-format": 'config: log_format: "xml": must be auto, json or text',
    "log-level": 'config: log_level: "loud": must be debug, info, warning or error',
    "name-of-dns": 'config: targets[0].name: "x": a dns name stands for many targets',
    "no-target": "config: targets: none; name a vLLM, e.g. `prefixwatch run http://localhost:8000/metrics`"
    " or PREFIXWATCH_TARGETS",
    "no-windows": 'config: windows: "[]": name at least one, like "5m"',
    "not-utf8": "{file}: not UTF-8",
    "not-yaml": "{file}: line 2: not YAML: expected the node content, but found '-'",
    "number-as-a-key": "config: a name in it is not text: put it in quotes",
    "number-for-duration": 'config: poll_interval: "5" is not a duration; use a form like "5s"',
    "tab": "{file}: line 2: not YAML: found character '\\t' that cannot start any token",
    "target-not-a-mapping": 'config: targets[0]: "localhost:8000": expected a mapping, got text',
    "target-of-both-kinds": "config: targets[0]: give either url or dns",
    "target-of-neither-kind": "config: targets[0]: give either url or dns",
    "target-twice": 'config: targets[1]: "localhost:8000" is targets[0] already; give one of them a name of its own',
    "target-with-a-space": 'config: targets[0].url: "http://local host:8000" is not a URL; use a form like'
    ' "http://localhost:8000/metrics"',
    "target-with-a-token": 'config: targets[0].url: "<hidden>@localhost:8000": no credentials in a URL;'
    " use access.bearer_token_file, or --bearer-token-file",
    "target-with-another-scheme": 'config: targets[0].url: "ftp://localhost" is not a URL; use a form like'
    ' "http://localhost:8000/metrics"',
    "target-with-credentials": 'config: targets[0].url: "http://<hidden>@localhost:8000" is not a URL; use a form like'
    ' "http://localhost:8000/metrics"',
    "target-with-impossible-port": 'config: targets[0].url: "localhost:99999" is not a URL; use a form like'
    ' "http://localhost:8000/metrics"',
    "targets-not-a-list": 'config: targets: "localhost:8000": expected a list, got text',
    "text-for-a-number": 'config: stale_after_polls: "three": expected a whole number, got text',
    "threshold-above-one": 'config: thresholds.near_full: "2.0": must be a share: from 0 to 1',
    "threshold-below-zero": 'config: thresholds.min_requests: "-1": must be 0 or more',
    "threshold-not-a-number": 'config: thresholds.reused: "nan": must be a share: from 0 to 1',
    "thresholds-in-the-wrong-order": 'config: thresholds.low_of_ceiling: "0.95": is above near_ceiling, 0.9',
    "timeout-of-zero": 'config: poll_timeout: "0s": must be above 0',
    "two-lines": 'config: poll_interval: "5\\nmin" is not a duration; use a form like "5m"',
    "unknown-key": "config: poll_intervall: there is no such setting; do you mean poll_interval?",
    "unknown-key-of-access": "config: access.token: there is no such setting",
    "unknown-key-of-target": "config: targets[0].uri: there is no such setting",
    "window-shorter-than-two-polls": 'config: windows[0]: "8s": shorter than two polls of 5s (poll_interval)',
    "window-twice": 'config: windows[1]: "5m": stands twice',
    "words-for-duration": 'config: windows[1]: "5 min" is not a duration; use a form like "5m"',
    "zero-polls": 'config: stale_after_polls: "0": expected a whole number >= 1',
}


def fault_of(
    file: Path | None, environment: dict[str, str] | None = None, flags: dict[str, object] | None = None
) -> str:
    with pytest.raises(ConfigError) as caught:
        load(file, environment or {}, flags or {})
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_named(name):
    file = DATA / f"bad-{name}.yaml"
    where = f" ({file})" if BAD[name].startswith("config: ") and name != "no-target" else ""
    assert fault_of(file) == BAD[name].replace("{file}", str(file)) + where


def test_each_bad_file_has_its_message():
    assert sorted(file.stem.removeprefix("bad-") for file in DATA.glob("bad-*.yaml")) == sorted(BAD)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("no-such-file.yaml", "cannot be read: No such file or directory"),
        ("", "cannot be read: Is a directory"),
        ("/dev/zero", "cannot be read: not a regular file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name, fault):
    assert fault_of(DATA / name) == f"{DATA / name}: {fault}"


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert fault_of(tmp_path / "pipe") == f"{tmp_path / 'pipe'}: cannot be read: not a regular file"


def test_a_whole_file_is_read():
    loaded = load(DATA / "good-full.yaml", {}, {})
    assert loaded.targets == (
        TargetConfig(
            url="http://vllm-0:8000/metrics", name="chat", labels={"cluster": "lab", "zone": "a"},
            access=Access(bearer_token_file="/run/secrets/token"),
        ),
        TargetConfig(dns="http://vllm-headless:8000"),
    )  # fmt: skip
    assert (loaded.targets_file, loaded.address) == ("targets.yaml", ("127.0.0.1", 9841))
    assert (loaded.poll_interval, loaded.poll_timeout, loaded.max_backoff) == (1, 0.8, 30)
    assert (loaded.stale_after_polls, loaded.forget_after, loaded.discovery_interval) == (5, 120, 10)
    assert (loaded.windows, loaded.diagnosis_window, loaded.max_page_bytes) == ((30, 300, 5400), 30, 1048576)
    assert loaded.access == Access(ca_file="/etc/ca.pem", cert_file="/etc/client.pem", key_file="/etc/client.key")
    assert (loaded.log_level, loaded.log_format) == ("debug", "json")


def test_nothing_but_a_target_is_needed():
    assert load(DATA / "good-target-only.yaml", {}, {}) == load(None, {}, TARGET)
    assert load(None, {}, TARGET) == Config(targets=(TargetConfig(url="localhost:8000"),))
    assert load(DATA / "good-empty.yaml", {}, {}, needs_target=False) == Config()
    assert load(None, {"PREFIXWATCH_TARGETS_FILE": "targets.yaml"}, {}).targets_file == "targets.yaml"


FILE = "poll_interval: 2s\nwindows: [2m]\nlog_level: warning\ntargets: [{url: file:1}]\n"
ENVIRONMENT = {
    "PREFIXWATCH_POLL_INTERVAL": "3s",
    "PREFIXWATCH_WINDOWS": "3m, 6m",
    "PREFIXWATCH_TARGETS": "env:1, env:2",
}


@pytest.mark.parametrize(
    ("has_file", "environment", "flags", "expected"),
    [
        pytest.param(False, {}, {}, (5, (60, 300, 3600), "info", ()), id="defaults"),
        pytest.param(True, {}, {}, (2, (120,), "warning", ("file:1",)), id="the file"),
        pytest.param(False, ENVIRONMENT, {}, (3, (180, 360), "info", ("env:1", "env:2")), id="the environment"),
        pytest.param(True, ENVIRONMENT, {}, (3, (180, 360), "warning", ("env:1", "env:2")), id="environment over file"),
        pytest.param(
            True, ENVIRONMENT, {"poll_interval": "4s", "targets": [{"url": "flag:1"}]},
            (4, (180, 360), "warning", ("flag:1",)), id="flags over all",
        ),
    ],
)  # fmt: skip
def test_defaults_file_environment_flags(tmp_path, has_file, environment, flags, expected):
    file = tmp_path / "config.yaml"
    file.write_text(FILE)
    loaded = load(file if has_file else None, environment, flags, needs_target=False)
    urls = tuple(target.url for target in loaded.targets)
    assert (loaded.poll_interval, loaded.windows, loaded.log_level, urls) == expected


EVENTS_FILE = """\
targets: [{url: a:1}]
events: {endpoints: ["tcp://*:5557"], replay_endpoints: ["tcp://*:5561"], topic: kv, remembered_blocks: 5000}
"""


@pytest.mark.parametrize(
    ("environment", "flags", "expected"),
    [
        pytest.param({}, {}, (("tcp://*:5557",), ("tcp://*:5561",), "kv"), id="the file"),
        pytest.param({}, {"topic": "x"}, (("tcp://*:5557",), ("tcp://*:5561",), "x"), id="another topic alone"),
        pytest.param({}, {"endpoints": ["tcp://*:6"]}, (("tcp://*:6",), (), "kv"), id="other endpoints, other replays"),
        pytest.param(
            {"PREFIXWATCH_EVENTS": "tcp://*:7"},
            {"topic": "x"},
            (("tcp://*:7",), (), "x"),
            id="a topic over the environment",
        ),
    ],
)
def test_each_setting_of_the_events_counts_for_itself(tmp_path, environment, flags, expected):
    (tmp_path / "config.yaml").write_text(EVENTS_FILE)
    events = load(tmp_path / "config.yaml", environment, {"events": flags} if flags else {}).events
    assert (events.endpoints, events.replay_endpoints, events.topic) == expected
    assert events.remembered_blocks == 5000


@pytest.mark.parametrize(
    ("interval", "windows", "diagnosed"),
    [("30s", (60, 300, 3600), 300), ("31s", (300, 3600), 300), ("1m", (300, 3600), 300), ("3m", (3600,), 3600)],
)
def test_default_windows_that_hold_no_two_polls_are_left_out(interval, windows, diagnosed):
    loaded = load(None, {}, {**TARGET, "poll_interval": interval})
    assert (loaded.windows, loaded.diagnosis_window) == (windows, diagnosed)


def test_where_every_default_window_is_too_short_that_is_said():
    assert fault_of(None, {}, {**TARGET, "poll_interval": "1h"}) == (
        'config: windows[0]: "1m": shorter than two polls of 1h (poll_interval) (command line)'
    )


@pytest.mark.parametrize(
    ("text", "environment", "flags", "where"),
    [
        pytest.param("events: {endpoints: [x]}", {}, {"events": {"topic": "kv"}}, "{file}", id="another key of events"),
        pytest.param("", {"PREFIXWATCH_EVENTS": "x"}, {"events": {"topic": "kv"}}, "PREFIXWATCH_EVENTS", id="its own"),
        pytest.param("windows: [1m]", {}, {"poll_interval": "1m"}, "{file}, command line", id="two that do not go together"),
        pytest.param(
            "targets: [{url: a:1}, {url: b:1}]", {"PREFIXWATCH_TARGET_HOST": "c"}, {}, "{file}, PREFIXWATCH_TARGET_HOST",
            id="names made the same",
        ),
    ],
)  # fmt: skip
def test_a_mistake_between_settings_names_where_each_stands(tmp_path, text, environment, flags, where):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    fault = fault_of(file, environment, flags if "targets" in text else {**TARGET, **flags})
    assert fault.endswith(f" ({where.replace('{file}', str(file))})")


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        pytest.param("bearer_token_file: x", "no such setting", id="it belongs elsewhere"),
        pytest.param("access: {bearer_token_fil: x}", "do you mean bearer_token_file?", id="in a mapping"),
        pytest.param("targets: [{url: a, acces: {}}]", "do you mean access?", id="in a list"),
        pytest.param("targets: [{url: a, poll_intervall: 5s}]", "no such setting", id="not of this place"),
        pytest.param("targets: [{url: a, events: {endpoint: []}}]", "do you mean endpoints?", id="deep"),
        pytest.param("thresholds: {near_ful: 1}", "do you mean near_full?", id="a threshold"),
    ],
)
def test_a_near_name_is_one_that_could_stand_there(tmp_path, text, ending):
    (tmp_path / "config.yaml").write_text(text)
    assert fault_of(tmp_path / "config.yaml").removesuffix(f" ({tmp_path}/config.yaml)").endswith(ending)


@pytest.mark.parametrize(
    ("environment", "flags", "where"),
    [
        pytest.param({"PREFIXWATCH_POLL_INTERVAL": "5"}, {}, "PREFIXWATCH_POLL_INTERVAL", id="of the wrong kind"),
        pytest.param({"PREFIXWATCH_POLL_INTERVAL": "1ms"}, {}, "PREFIXWATCH_POLL_INTERVAL", id="that cannot be meant"),
        pytest.param({}, {"poll_interval": "1ms"}, "command line", id="a flag"),
        pytest.param(
            {"PREFIXWATCH_POLL_INTERVAL": "5s"}, {"poll_interval": "1ms"}, "command line", id="the last one counts"
        ),
    ],
)
def test_a_mistake_names_where_it_stands(environment, flags, where):
    fault = fault_of(None, environment, {**TARGET, **flags})
    assert fault.startswith("config: poll_interval: ")
    assert fault.endswith(f" ({where})")


@pytest.mark.parametrize(
    ("settings", "window"),
    [
        pytest.param({}, 300, id="the default"),
        pytest.param({"windows": ["1m", "5m", "1h"]}, 300, id="among windows that are given"),
        pytest.param({"windows": ["1m"]}, 60, id="the only window"),
        pytest.param({"windows": ["1h", "1m", "10m"]}, 600, id="the middle of what there is"),
        pytest.param({"windows": ["1m", "10m"]}, 60, id="the shorter of two"),
        pytest.param({"windows": ["1m", "10m"], "diagnosis_window": "10m"}, 600, id="as it is said"),
    ],
)
def test_the_window_of_the_diagnosis_is_one_of_the_windows(settings, window):
    assert load(None, {}, {**TARGET, **settings}).diagnosis_window == window


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("POLL_TIMEOUT", "1m30s", "poll_timeout", 90),
        ("STALE_AFTER_POLLS", "7", "stale_after_polls", 7),
        ("LISTEN", "[::1]:0", "listen", "[::1]:0"),
        ("LOG_FORMAT", "json", "log_format", "json"),
        ("WINDOWS", "10m,", "windows", (600,)),
        ("MAX_PAGE_BYTES", "2048", "max_page_bytes", 2048),
        ("TARGET_HOST", "10.0.0.7", "target_host", "10.0.0.7"),
    ],
)
def test_each_kind_of_setting_comes_from_the_environment(name, text, key, value):
    assert getattr(load(None, {f"PREFIXWATCH_{name}": text}, TARGET), key) == value


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("POLL_INTERVAL", "soon", 'config: poll_interval: "soon" is not a duration; use a form like "5m"'),
        ("POLL_INTERVAL", "", 'config: poll_interval: "" is not a duration; use a form like "5m"'),
        ("STALE_AFTER_POLLS", "²", 'config: stale_after_polls: "²": expected a whole number, got text'),
        ("STALE_AFTER_POLLS", "9" * 5000, "config: stale_after_polls: "),
        ("WINDOWS", "1m,x", 'config: windows[1]: "x" is not a duration; use a form like "5m"'),
        (
            "TARGETS",
            "localhost:8000,http://u:p@h",
            'config: targets[1].url: "http://<hidden>@h": no credentials in a URL;',
        ),
        ("TARGET_HOST", "", 'config: target_host: "": must be an address or a name, without a port'),
        ("TARGET_HOST", "$(POD_IP)", 'config: target_host: "$(POD_IP)": must be an address or a name, without a port'),
        ("TARGET_HOST", "10.0.0.7:8000", 'config: target_host: "10.0.0.7:8000": must be an address or a name, without'),
        ("POLLINTERVAL", "5s", "config: PREFIXWATCH_POLLINTERVAL: there is no such setting; there are PREFIXWATCH_D"),
        ("ACCESS", "x", "config: PREFIXWATCH_ACCESS: there is no such setting"),
    ],
)
def test_a_mistake_in_the_environment_is_named(name, text, fault):
    assert fault_of(None, {f"PREFIXWATCH_{name}": text}, None if name == "TARGETS" else TARGET).startswith(fault)


def test_what_kubernetes_sets_beside_a_service_is_not_ours():
    names = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_9840_TCP", "PORT_9840_TCP_ADDR",
             "PORT_9840_TCP_PORT", "PORT_9840_TCP_PROTO", "FLEET_SERVICE_HOST", "FLEET_PORT_9840_TCP")  # fmt: skip
    environment = {f"PREFIXWATCH_{name}": "tcp://10.0.0.1:9840" for name in names}
    environment |= {"PREFIXWATCH_CONFIG": "file.yaml", "PATH": "/bin", "prefixwatch_listen": "x"}
    assert load(None, environment, TARGET) == load(None, {}, TARGET)


class TestTargetsFile:
    def test_both_forms(self):
        expected = (
            TargetConfig(url="localhost:8000", labels={"zone": "a"}),
            TargetConfig(dns="http://vllm:8000"),
            TargetConfig(url="a:8000", labels={"zone": "b"}),
            TargetConfig(url="b:8000", labels={"zone": "b"}),
        )
        assert read_targets(DATA / "targets-good.yaml") == expected
        assert read_targets(DATA / "targets-good.json") == expected[2:3]

    def test_what_prometheus_alone_means_by_labels_of_a_group_is_left_out(self, tmp_path):
        file = tmp_path / "targets.json"
        file.write_text('[{"targets": ["a:1"], "labels": {"job": "vllm", "instance": "a", "__x": "y", "zone": "b"}}]')
        assert read_targets(file) == (TargetConfig(url="a:1", labels={"zone": "b"}),)

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            pytest.param("", "this must be a list of targets", id="empty"),
            pytest.param("a: b", "this must be a list of targets", id="a mapping"),
            pytest.param("[x]", '[0]: "x": expected a mapping, got text', id="a bare address"),
            pytest.param("[{targets: [a:1], labels: [x]}]", "[0].labels: \"['x']\": expected a mapping, got a list", id="labels"),
            pytest.param("[{targets: [a:1], label: {}}]", "[0].label: there is no such setting; do you mean labels?", id="unknown key"),
            pytest.param("[{targets: [5]}]", '[0].url: "5": expected text or nothing, got a whole number', id="a number"),
            pytest.param("[{url: a:1}, {url: a:1}]", 'targets[1]: "a:1" is targets[0] already; give one of them a name of'
                         " its own", id="twice"),
            pytest.param("[{url: a:1, labels: {le: x}}]", 'targets[0].labels: "le" is one of the exporter\'s own labels',
                         id="a label of ours"),
            pytest.param("[{targets: [a:1], labels: {window: x}}]", 'targets[0].labels: "window" is one of the exporter\'s own'
                         " labels", id="a label of ours in a group"),
            pytest.param("[", "line 1: not YAML: expected the node content, but found '<stream end>'", id="not YAML"),
        ],
    )  # fmt: skip
    def test_a_mistake_is_named(self, tmp_path, text, fault):
        file = tmp_path / "targets.yaml"
        file.write_text(text)
        with pytest.raises(ConfigError) as caught:
            read_targets(file)
        assert str(caught.value) == f"{file}: {fault}"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        pytest.param("10.0.0.7", "10.0.0.7:8000", id="IPv4"),
        pytest.param("fd00::7", "[fd00::7]:8000", id="IPv6 gets its brackets"),
        pytest.param("[fd00::7]", "[fd00::7]:8000", id="IPv6 that has them"),
        pytest.param("vllm-0.vllm.chat.svc", "vllm-0.vllm.chat.svc:8000", id="a name"),
    ],
)
def test_a_sidecars_target_is_named_by_the_host_that_others_reach_it_at(host, name):
    loaded = load(None, {"PREFIXWATCH_TARGETS": "http://localhost:8000/metrics", "PREFIXWATCH_TARGET_HOST": host}, {})
    assert (loaded.name_of(loaded.targets[0]), loaded.targets[0].url) == (name, "http://localhost:8000/metrics")


def test_two_hosts_with_one_port_cannot_have_one_name():
    targets = {"PREFIXWATCH_TARGETS": "http://a:8000,http://b:8000", "PREFIXWATCH_TARGET_HOST": "10.0.0.7"}
    assert fault_of(None, targets).startswith('config: targets[1]: "10.0.0.7:8000" is targets[0] already')


@pytest.mark.parametrize(
    ("text", "url", "target"),
    [
        ("localhost:8000", "http://localhost:8000/metrics", "localhost:8000"),
        ("http://vllm", "http://vllm/metrics", "vllm:80"),
        ("https://vllm/", "https://vllm/metrics", "vllm:443"),
        ("http://vllm:8000/inner/metrics", "http://vllm:8000/inner/metrics", "vllm:8000"),
        ("http://vllm:8000/metrics?name=a#part", "http://vllm:8000/metrics?name=a", "vllm:8000"),
        ("http://[::1]:8000", "http://[::1]:8000/metrics", "[::1]:8000"),
        ("http://[10.0.0.7]:8000/m", "http://10.0.0.7:8000/m", "10.0.0.7:8000"),
        ("HTTP://VLLM:8000", "http://VLLM:8000/metrics", "vllm:8000"),
    ],
)
def test_what_people_write_for_a_target_is_completed(text, url, target):
    assert (url_of(text), host_and_port(url_of(text))) == (url, target)


@pytest.mark.parametrize(
    "text", ["", "/metrics", "http://", "http://:8000", "http://[::1", "ftp://a", "file:///etc/passwd", "a:x", "a:0", "a b",
             "a\nb", "http://a/<script>"],
)  # fmt: skip
def test_what_is_no_url_is_said_to_be_so(text):
    with pytest.raises(ValueError, match="is not a URL; use a form like"):
        url_of(text)


@pytest.mark.parametrize(
    "text", ["u:p@h", "http://u:p@h", "http://token@h:1", "token@h", "http://u:p/w@h", "//u:p@h", "ftp://u:p@h"]
)
def test_credentials_are_refused_and_not_repeated(text):
    with pytest.raises(ValueError, match="h") as caught:
        url_of(text)
    secrets = ("u:p", "token@", "p/w")
    assert not any(secret in str(caught.value) for secret in secrets)


@pytest.mark.parametrize("targets", [{"url": "http://u:s3cret@h"}, ["http://u:s3cret@h"], ["s3cret@h"], "u:s3cret@h"])
def test_credentials_in_the_wrong_place_are_not_repeated(targets):
    assert "s3cret" not in fault_of(None, {}, {"targets": targets})


@pytest.mark.parametrize(
    ("text", "seconds", "written"),
    [
        ("5s", 5, "5s"), ("5m", 300, "5m"), ("1h30m", 5400, "1h30m"), ("90s", 90, "1m30s"), ("2d", 172800, "2d"),
        ("250ms", 0.25, "250ms"), ("1.5s", 1.5, "1.5s"), ("0s", 0, "0s"), ("0.0015s", 0.0015, "1.5ms"),
        ("100000.5s", 100000.5, "100000.5s"),
    ],
)  # fmt: skip
def test_durations(text, seconds, written):
    assert (Duration.parse(text), str(Duration.parse(text))) == (seconds, written)


@pytest.mark.parametrize(
    ("text", "form"),
    [("5", "5s"), (5, "5s"), ("0.5", "0.5s"), (1.5, "1.5s"), *(
        (text, "5m") for text in ("", "m", "5 m", "5m ", "-5m", "5M", "1e3s", "5m5", "\u0665m", "5mm", ".5s", "9" * 20 + "d", None)
    )],
)  # fmt: skip
def test_what_is_no_duration_is_said_to_be_so(text, form):
    with pytest.raises(ValueError, match=f'is not a duration; use a form like "{form}"'):
        Duration.parse(text)


@given(st.floats(0, 10**8))
def test_a_duration_is_read_back(seconds):
    assert Duration.parse(str(Duration(seconds))) == pytest.approx(seconds, abs=1e-6)


def test_the_effective_configuration_hides_secrets_and_is_a_configuration():
    flags = {"targets": [{"url": "http://a:1/metrics?token=s3cret&x=y z", "labels": {"a": "b?c"}}, {"dns": "http://b:1?k=s3cret"}],
             "access": {"bearer_token_file": "/run/secrets/token"}}  # fmt: skip
    with pytest.raises(ConfigError, match="is not a URL"):
        load(None, {}, flags)
    flags["targets"][0]["url"] = "http://a:1/metrics?token=s3cret&x=y"
    text = shown(load(None, {}, flags))
    assert "s3cret" not in text
    assert (text.count("<hidden>"), "b?c" in text, "/run/secrets/token" in text) == (2, True, True)
    assert "poll_interval: 5s\n" in text


@pytest.mark.parametrize("name", ["good-full", "good-target-only"])
def test_what_is_shown_is_read_back(tmp_path, name):
    loaded = load(DATA / f"{name}.yaml", {}, {})
    file = tmp_path / "again.yaml"
    file.write_text(shown(loaded))
    assert load(file, {}, {}) == loaded


KEYS = st.sampled_from(
    [*(field for field in Config.__struct_fields__), "url", "dns", "name", "labels", "a", "x", 5, None]
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
    | st.sampled_from(["5m", "1h", ":9840", "localhost:8000", "http://a:1", "info", "json", "http://u:p@h", "²", "9" * 400])
)  # fmt: skip
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)  # fmt: skip


def loads_or_names(file: Path) -> None:
    for read in (lambda: load(file, {}, {}), lambda: read_targets(file)):
        fault = ""
        try:
            loaded = read()
        except ConfigError as error:
            fault = str(error)
        else:
            assert not isinstance(loaded, Config) or shown(loaded)
        assert "\n" not in fault
        assert len(fault) < 600


@given(tree=st.dictionaries(KEYS, TREES, max_size=5) | TREES)
def test_any_yaml_gives_a_configuration_or_one_named_error(tmp_path_factory, tree):
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(yaml.safe_dump(tree, allow_unicode=True), "utf-8")
    loads_or_names(file)


@given(
    content=st.binary(max_size=80)
    | st.text(alphabet="targets:url- []{}\n\t&*!'\"|>%@`5m?,#", max_size=60).map(str.encode)
)
def test_any_bytes_give_a_configuration_or_one_named_error(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "any-bytes.yaml"
    file.write_bytes(content)
    loads_or_names(file)


@pytest.mark.parametrize(
    "text",
    ["[" * 1200, "&a [*a]", "? {a: b}\n: c", "!!timestamp x", "!!binary x", "!!python/object:x y", "<<: 5", "a: *x"],
)
def test_yaml_that_trips_its_reader_is_one_named_error(tmp_path, text):
    file = tmp_path / "any.yaml"
    file.write_text(text)
    loads_or_names(file)
    with pytest.raises(ConfigError):
        load(file, {}, {})


def test_every_default_is_a_value_that_is_allowed():
    config._check(Config(), needs_target=False)
