"""The JSON of the contract: fields, counts, nulls and their reasons."""

import json

import pytest

from figures import diagnosed
from prefixwatch.diagnosis import diagnose
from prefixwatch.figures.figure import Absent
from prefixwatch.figures.savings import Saving
from prefixwatch.snapshot import EngineFigures, TargetSnapshot, encoded

CONTRACT = [
    "model_name", "engine", "window_seconds", "requests", "token_hit_ratio", "external_hit_ratio", "cached_prompt_ratio",
    "hit_ratio_ceiling", "request_hit_ratio", "mostly_cached_request_ratio", "full_request_ratio", "cold_request_ratio",
    "hit_ratio_gap", "prompt_tokens_by_source", "output_per_prompt_token", "prefill_share", "pool_tokens", "pool_filled",
    "turnover_seconds", "kv_usage_max", "requests_running", "requests_waiting", "preemptions", "residency",
    "avoidable_miss_ratio", "working_set_ratio", "prefill_seconds_saved", "reasons", "diagnosis",
]  # fmt: skip


def engine(**changes: object) -> EngineFigures:
    figures = diagnosed.figures(**changes)
    return EngineFigures.of(figures, diagnose(figures))


def target(*engines: EngineFigures, **changes: object) -> TargetSnapshot:
    base = {"target": "a:1", "is_up": True, "dialect": "vllm", "release": "0.32.0", "caveats": ("one: note",)}
    return TargetSnapshot(**{**base, "engines": engines, **changes})


def test_the_contract_is_there_in_its_order() -> None:
    found = engine().to_json()
    assert [name for name in found if name in CONTRACT] == CONTRACT


def test_an_absent_figure_is_null_and_has_its_reason() -> None:
    found = engine(external_hit_ratio=Absent("no KV connector on this page")).to_json()
    assert found["external_hit_ratio"] is None
    assert found["reasons"]["external_hit_ratio"] == "no KV connector on this page"
    assert "token_hit_ratio" not in found["reasons"]


def test_counts_are_whole_and_ratios_are_not() -> None:
    text = json.dumps(engine(requests=394.0, pool_tokens=6400, preemptions=0.0, token_hit_ratio=1.0).to_json())
    for written in ('"requests": 394,', '"pool_tokens": 6400,', '"preemptions": 0,', '"token_hit_ratio": 1.0,'):
        assert written in text


def test_an_estimate_has_its_bounds_and_method() -> None:
    found = engine(request_hit_ratio=diagnosed.estimate(0.5)).to_json()
    assert found["request_hit_ratio"] == {"estimate": 0.5, "lower": 0.48, "upper": 0.52, "method": "pooled"}
    saved = engine(prefill_seconds_saved=Saving(estimate=4.0, standard_error=0.5)).to_json()
    assert saved["prefill_seconds_saved"] == {"estimate": 4.0, "standard_error": 0.5}


def test_a_part_that_is_absent_has_its_reason_too() -> None:
    found = engine(residency=diagnosed.residency(late_reuse_share=Absent("no reuse"))).to_json()
    assert found["residency"]["late_reuse_share"] is None
    assert found["reasons"]["residency.late_reuse_share"] == "no reuse"
    assert found["residency"]["idle_seconds"] == {"0.5": 2.0}


def test_diagnosis() -> None:
    found = engine(token_hit_ratio=0.95).to_json()["diagnosis"]
    assert found == {
        "cause": "healthy", "confidence": "high", "evidence": ("the token hit ratio is 95.0 %",), "next_steps": (),
    }  # fmt: skip
    absent = EngineFigures.of(diagnosed.figures(), Absent("too little was seen")).to_json()
    assert absent["diagnosis"] is None
    assert absent["reasons"]["diagnosis"] == "too little was seen"


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        pytest.param({}, {}, id="all is known"),
        pytest.param({"release": None}, {"release": "the page does not state it, and no /version answered"}, id="no"),
        pytest.param({"dialect": None, "error": "refused"}, {"dialect": "refused"}, id="down"),
        pytest.param({"dialect": None}, {"dialect": "nothing was read yet"}, id="not polled yet"),
    ],
)
def test_of_a_target_what_is_unknown_has_its_reason(changes: dict[str, object], reasons: dict[str, str]) -> None:
    found = target(engine(), **changes).to_json()
    assert found["reasons"] == reasons
    assert ("error" in found) is ("error" in changes)


def test_labels_stand_where_there_are_any() -> None:
    assert "labels" not in target().to_json()
    assert target(labels={"cluster": "c"}).to_json()["labels"] == {"cluster": "c"}


def test_the_document_is_json_whatever_names_hold() -> None:
    name = 'a"b\\c\n\x1b[31m\u202e'
    document = json.loads(encoded([target(engine(model_name=name)), target(target="b:2", is_up=False)]))
    assert [one["target"] for one in document["targets"]] == ["a:1", "b:2"]
    assert document["targets"][0]["engines"][0]["model_name"] == name
    assert document["targets"][1]["up"] is False
    assert document["targets"][1]["engines"] == []
