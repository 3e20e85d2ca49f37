"""The stand-in behaves as the recorded engine did, within the stated limits."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_it_is_near_the_recorded_traces(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["compare_standin.py"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "tests" / "bench" / "compare_standin.py"), run_name="__main__")
    table = capsys.readouterr().out
    assert ended.value.code == 0, table
    assert table.count(" ok") >= 5
