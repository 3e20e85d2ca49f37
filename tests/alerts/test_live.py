"""On a real Prometheus and Alertmanager: one alert from its cause to its notification and back, and what silences what.

All of them at compressed time: tests/bench/alerts_live.py.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from alerts.live import Inbox, alertmanager, compressed, monitored
from edge.commands import exporter
from edge.waiting import until
from prefixwatch.demo.server import serve

DISABLED = "PrefixCacheDisabled"
SETTINGS = ("--poll-interval", "0.5s", "--window", "5s", "--window", "10s")


async def test_an_alert_fires_on_its_cause_is_notified_and_resolves(tmp_path: Path) -> None:
    rules = compressed("4s", "10s", "20s", offset="20s", settled="10s", lasting="2s", window="5s")
    async with Inbox() as inbox, await serve("healthy") as engine, exporter(engine.url, *SETTINGS) as running:
        place = running.url.removeprefix("http://")
        async with (
            alertmanager(tmp_path, inbox) as manager,
            monitored(tmp_path, rules, {"prefixwatch": place}, manager) as server,
        ):

            async def has_ratio() -> bool:
                query = "/api/v1/query?query=fleet:prefixwatch_hit_tokens_per_queried_token:ratio_rate5m"
                return bool((await server.get(query))["data"]["result"])

            await until(has_ratio, seconds=30)
            assert await server.firing() == []
            engine.switch("caching_disabled")
            await until(lambda: list(inbox.said(DISABLED, "firing")), seconds=40)
            ((receiver, labels), *_) = inbox.said(DISABLED, "firing")
            assert (receiver, labels["severity"], labels["model_name"]) == ("notice", "info", "tiny")
            engine.switch("healthy")
            await until(lambda: list(inbox.said(DISABLED, "resolved")), seconds=40)
            assert await server.unhealthy() == []


def posted(name: str, severity: str = "warning", **labels: str) -> dict[str, Any]:
    begin = datetime.now(UTC)
    return {
        "labels": {"alertname": name, "severity": severity, **labels},
        "startsAt": begin.isoformat(),
        "endsAt": (begin + timedelta(minutes=5)).isoformat(),
    }


MODEL = {"namespace": "chat", "model_name": "m"}
GPU_1, GPU_2 = ({**MODEL, "target": f"gpu-{n}:8000", "engine": "0"} for n in (1, 2))


async def test_what_silences_what(tmp_path: Path) -> None:
    """By labels that both sides have: no alert of another engine or model is lost."""
    reachable = {"namespace": "chat", "target": "gpu-1:8000"}
    alerts = [
        posted("PrefixCacheHitRatioDropped", "critical", **MODEL),
        posted("PrefixCacheHitRatioDropped", **MODEL),
        posted("PrefixCacheHitRatioDropped", **{**MODEL, "model_name": "other"}),
        posted("PrefixCacheEngineUnreachable", **reachable),
        posted("PrefixCacheKvPressure", **GPU_1, evidence="preemptions"),
        posted("PrefixCacheKvPressure", **GPU_2, evidence="preemptions"),
        posted("PrefixCacheNoReuse", **{**MODEL, "model_name": "third"}),
        posted("PrefixCacheHitRatioDropped", **{**MODEL, "model_name": "third"}),
        posted("PrefixCacheHitRatioDropped", "critical", **{**MODEL, "model_name": "third"}),
        posted("PrefixCacheReplicaImbalance", **MODEL),
    ]
    async with Inbox() as inbox, alertmanager(tmp_path, inbox) as manager:
        await manager.post("/api/v2/alerts", alerts)

        async def silenced() -> list[tuple[str, str, str]] | None:
            found = await manager.get("/api/v2/alerts")
            out = sorted(
                (one["labels"]["alertname"], one["labels"]["model_name"], one["labels"].get("target", ""))
                for one in found
                if one["status"]["inhibitedBy"]
            )
            return out if len(out) >= 3 else None

        assert await until(silenced) == [
            ("PrefixCacheHitRatioDropped", "m", ""),
            ("PrefixCacheHitRatioDropped", "third", ""),
            ("PrefixCacheKvPressure", "m", "gpu-1:8000"),
        ]
        assert {name for name, severity in await manager.inhibited() if severity == "critical"} == set()
