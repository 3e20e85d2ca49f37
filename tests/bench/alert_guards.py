"""Take each guard out of the alerts, and see that the case which it is for is noticed.

    python tests/bench/alert_guards.py

A test that says "does not fire" proves nothing if it cannot fail. Exits 1 where a guard is missed by no case.
"""

import copy
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "exporter"), str(ROOT / "tests"), str(ROOT / "alerts")]

from alerts import rulefiles  # noqa: E402
from alerts.promtool import Batch  # noqa: E402
from alerts.test_exclusions import BATCH  # noqa: E402

E = re.escape("cluster, namespace, target, model_name, engine")
M = re.escape("cluster, namespace, model_name")
SETTLED = "model:prefixwatch_settled_hit_tokens_per_settled_queried_token:ratio_rate"
NO_RESTART = "dropped: not a restart under the same name and another scrape"

GUARDS: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("restarts", r"unless\n\s+engine:prefixwatch_queried_tokens:restarts1h", "", ("dropped: not a restart", NO_RESTART)),
    ("began later", rf"or\n\s+max by \({E}\) \(prefixwatch_queried_tokens_created\) > time\(\) - 3600", "", (NO_RESTART,)),
    (
        "settled", r"and\n\s+present_over_time\([^)]*\)", "",
        ("dropped: not a scale-out", "dropped: not a deployment", "imbalance: not a cold replica"),
    ),
    ("long window", f"{SETTLED}1h <", f"{SETTLED}5m <", ("dropped: not the dip after a cache reset",)),
    (
        "traffic", r"and\n\s+model:prefixwatch_settled_queried_tokens:rate5m > \d+", "",
        ("dropped: not when the traffic is gone",),
    ),
    ("has hit", r"and\n\s+model:prefixwatch_\w+:max_ratio_rate1d > [\d.]+", "", ("no reuse: not batches of unique documents",)),
    ("ceiling", rf"and on \({M}\)\n\s+model:prefixwatch_cacheable\S+ > [\d.]+", "", ("no reuse: not short prompts",)),
    (
        "caching on", rf"unless\n\s+max by \({M}\) \(prefixwatch_prefix_caching_enabled\) == 0", "",
        ("no reuse: not with caching off",),
    ),
    ("prefill", r"unless\n\s+engine:prefixwatch_generation_tokens\S+ / [^<]*< \d+", "", ("imbalance: not the prefill side of a pair",)),
    (
        "decode", r"unless\n\s+engine:prefixwatch_external_hit_tokens\S+ / [^>]*> 0\) > [\d.]+", "",
        ("imbalance: not the decode side of a pair",),
    ),
    (
        "once", rf"max by \({E}\) \(prefixwatch_diag",
        "max by (cluster, namespace, target, model_name, engine, instance) (prefixwatch_diag",
        ("evicting: one engine under two exporters is one alert",),
    ),
    ("certain", 'bound="upper"', 'bound="lower"', ("gap: not wide bounds, though the estimate is as far",)),
    ("requests", r"and\n\s+model:prefixwatch_requests_observed:rate1h \* 3600 > \d+", "", ("gap: not few requests",)),
    (
        "first tokens", r"== 0 and engine:prefixwatch_prompt_tokens:rate5m > 0", "== 0",
        ("frozen: not long decodes without new requests",),
    ),
    (
        "looks up", r"and\n\s+engine:prefixwatch_queried_tokens:rate1d > 0\nunless\n\s+max by[^=]*== 0", "",
        ("frozen: not an engine that caches nothing",),
    ),
    (
        "had an address", r"and\n\s+max by \([^)]*\) \(max_over_time\(prefixwatch_dns_addresses\[1d\]\)\) == 0", "",
        ("unreachable: not a name that was scaled to none overnight",),
    ),
    (
        "polled for long", r"and\n\s+max by \([^)]*\) \(prefixwatch_up offset 30m\) == 0", "",
        ("unreachable: not a model that still loads", "unreachable: not a model that loads after hours in which host and exporter were off"),
    ),
    (
        "in vain", r"max by \([^)]*\) \(max_over_time\(prefixwatch_up\[30m\]\)\) == 0\n\s+and", "",
        ("unreachable: host and exporter restarted twice, the model loads each time",),
    ),
    (
        "was read", r"max by \([^)]*\) \(prefixwatch_last_success_timestamp_seconds\) > 0\n\s+or", "",
        ("unreachable: it answered, and does not",),
    ),
    (
        "any exporter", r"max by \(([^)]*)\) \(prefixwatch_up\) == 0", r"min by (\1) (prefixwatch_up) == 0",
        ("unreachable: not what another exporter reaches",),
    ),
    (
        "was there", r"and\n\s+max by \([^)]*\) \(max_over_time\(prefixwatch_build_info\[1d\]\)\) == 1", "",
        ("exporter: not another job that is down",),
    ),
    (
        "another is left", r"unless\n\s+max by \([^)]*\) \(prefixwatch_build_info\) == 1", "",
        ("exporter: not a rollout that replaces pods",),
    ),
]  # fmt: skip


def main() -> int:
    shipped = {file: rulefiles.groups(file) for file in rulefiles.FILES}
    failed = False
    for name, pattern, instead, cases in GUARDS:
        changed = copy.deepcopy(shipped)
        count = 0
        for rule in (rule for groups in changed.values() for group in groups for rule in group["rules"]):
            rule["expr"], found = re.subn(pattern, instead, rule["expr"])
            count += found
        rulefiles.groups = changed.__getitem__  # type: ignore[assignment]
        batch = Batch({case: BATCH.cases[case] for case in cases})
        missed = [case for case in cases if not batch.fault(case)]
        failed |= bool(missed) or not count
        print(f"{name:16} {count:3} places  {'MISSED BY ' + ', '.join(missed) if missed else 'noticed'}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
