"""Cache events all the way: from a trace or a configuration to figures, JSON and the exposition."""

import json
from pathlib import Path

import pytest

from prefixwatch.cli import main
from prefixwatch.config import Config, ConfigError, TargetConfig, load
from prefixwatch.diagnosis import Cause
from prefixwatch.discovery import Discovery
from prefixwatch.figures.figure import Absent
from prefixwatch.names import Names
from prefixwatch.replaying import replay

TRACES = Path(__file__).parents[1] / "data" / "traces"


def engine_of(trace, *, events=True, until=None):
    path = TRACES / trace
    done = replay(path, kv_events=path if events else None, until=until)
    (engine,) = done.watch.state().snapshot().engines
    return engine


@pytest.mark.parametrize(
    ("trace", "cause"),
    [
        pytest.param("thrash_low_usage", Cause.EVICTION, id="stored again after eviction"),
        pytest.param("pressure", Cause.EVICTION, id="stored again under pressure"),
        pytest.param("salted", Cause.CACHE_KEY_SPLIT, id="the same tokens under other salts"),
    ],
)
def test_events_decide_the_diagnosis(trace, cause):
    assert engine_of(trace).diagnosis.cause is cause


def test_without_events_their_figures_are_absent_with_a_reason():
    engine = engine_of("thrash_low_usage", events=False).to_json()
    for name in ("avoidable_miss_ratio", "working_set_ratio", "whatif_avoidable_miss_ratio", "cache_events"):
        assert engine[name] is None
        assert "not watched" in engine["reasons"][name]


def test_events_are_taken_up_to_the_moment_asked_for():
    early, whole = engine_of("thrash_low_usage", until=20.0), engine_of("thrash_low_usage")
    assert 0 < early.cache_events.blocks_stored < whole.cache_events.blocks_stored


def test_the_json_of_a_replay_has_them(capsys):
    path = str(TRACES / "thrash_low_usage")
    assert main(["replay", path, "--kv-events", path, "--json"]) == 0
    (engine,) = json.loads(capsys.readouterr().out)["targets"][0]["engines"]
    assert engine["avoidable_miss_ratio"] == pytest.approx(0.86, abs=0.005)
    assert list(engine["whatif_avoidable_miss_ratio"]) == ["1.5x", "2x", "4x"]
    assert engine["cache_events"]["sampling_rate"] == 1
    assert engine["cache_events"]["blocks_stored"] == 5566


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        pytest.param(b'{"t": 1, "stored": ["zz"]}\n{}\n', "line 1: not a cache event", id="no hash"),
        pytest.param(b"# SCRAPE 1\n", "line 1: not a cache event", id="a trace of pages"),
        pytest.param(b"\x1f\x8b\x08", "the compressed file is broken", id="cut off"),
        pytest.param(b"", "no cache event in it", id="empty"),
        pytest.param(b'{"t": 4e9, "removed": ["1"]}\n', "is of a later time", id="of another time"),
    ],
)
def test_events_that_cannot_be_read_are_one_line(tmp_path, capsys, content, fault):
    file = tmp_path / "kv_events.jsonl"
    file.write_bytes(content)
    assert main(["replay", str(TRACES / "healthy"), "--kv-events", str(file)]) == 2
    error = capsys.readouterr().err
    assert fault in error
    assert error.count("\n") == 1


async def test_a_target_is_given_its_endpoints_on_its_own_host():
    events = {"endpoints": ["tcp://*:5557", "tcp://*:5558"], "topic": "kv"}
    config = load(
        None, {}, {"targets": [{"url": "http://10.0.0.7:8000"}, {"url": "b:8000", "events": {}}], "events": events}
    )
    targets = await Discovery(config, Names()).targets()
    assert targets["10.0.0.7:8000"].events.endpoints == ("tcp://10.0.0.7:5557", "tcp://10.0.0.7:5558")
    assert targets["b:8000"].events is None


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        pytest.param({"endpoints": ["localhost:5557"]}, 'events.endpoints[0]: "localhost:5557" is not', id="no scheme"),
        pytest.param(
            {"endpoints": ["tcp://*:1"], "replay_endpoints": ["tcp://*:2"] * 2}, "as many", id="too many replays"
        ),
        pytest.param({"endpoints": ["tcp://*:1"], "remembered_blocks": 5}, "events.remembered_blocks", id="too few"),
    ],
)
def test_events_that_cannot_be_meant_are_refused(events, fault):
    with pytest.raises(ConfigError, match="events") as caught:
        load(None, {}, {"targets": [{"url": "a:8000"}], "events": events})
    assert fault in str(caught.value)


def test_the_environment_names_endpoints():
    config = load(None, {"PREFIXWATCH_TARGETS": "a:8000", "PREFIXWATCH_EVENTS": "tcp://*:5557, tcp://*:5558"}, {})
    assert config.events.endpoints == ("tcp://*:5557", "tcp://*:5558")


def test_events_are_off_by_default():
    assert not Config().events.endpoints
    assert TargetConfig().events is None
    assert isinstance(engine_of("healthy", events=False).avoidable_miss_ratio, Absent)
