# Shows E104, V61
"""Metrics of environments match the list, and nothing is loaded if they are off (E104)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))

from flowengine.execution_environment import TimeBounds, EnvironmentManager, register_provider
from flowengine.sdk import EnvironmentFailure, EnvironmentStartFailed
from flowengine_envs.kinds.files import Files
class Stubborn(Files):
    kind = "stubborn"

    async def release(self, resource):
        raise OSError("no")
class Broken(Files):
    kind = "broken"

    async def ensure(self, request):
        raise EnvironmentStartFailed("it does not start: SEKRET")
def measured():
    manager.flush_events()
    points = []
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    value = point.count if hasattr(point, "count") else point.value
                    points.append([metric.name, dict(point.attributes), value])
    return points
register_provider(Stubborn())
register_provider(Broken())
manager = EnvironmentManager("environments", bounds=TimeBounds(retries=(600.0,)))  # not meanwhile
whose = {"scope": "session", "owner_id": "ana"}
first = manager.ensure({"kind": "files", **whose})
manager.ensure({"kind": "files", **whose})
manager.ensure({"kind": "files", **whose, "resource_key": "other"})
manager.release(manager.ensure({"kind": "stubborn", **whose}))
manager.declare({"kind": "files", **whose, "resource_key": "never"})
try:
    manager.ensure({"kind": "broken", **whose})
except EnvironmentFailure:
    pass
print(json.dumps({"list": manager.list(), "metrics": measured()}))
manager.close()
print(json.dumps(measured()))
"""


def run(program: str, folder: Path, **env: str) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.endurance
def test_metrics_equal_the_list(tmp_path: Path) -> None:
    before, after = run(PROGRAM, tmp_path)
    metrics = before["metrics"]

    def of(name: str) -> dict[tuple[str, ...], int]:
        return {
            tuple(attributes[key] for key in ("kind", "state")): value
            for metric, attributes, value in metrics
            if metric == f"flowengine.environment.{name}"
        }

    listed: dict[tuple[str, ...], list[int]] = {}
    for one in before["list"]:
        if one["state"] != "declared":
            listed.setdefault((one["kind"], one["state"]), []).append(one["holds"])
    assert of("open") == {key: len(holds) for key, holds in listed.items()}
    assert of("holds") == {key: sum(holds) for key, holds in listed.items()}
    assert of("open") == {("files", "ready"): 2, ("stubborn", "failed"): 1}
    assert of("holds") == {("files", "ready"): 3, ("stubborn", "failed"): 0}

    counted = {
        (metric.rpartition("environment.")[2], attributes["kind"]): value
        for metric, attributes, value in metrics
    }
    assert {kind: counted["starts", kind] for kind in ("files", "stubborn", "broken")} == {
        "files": 2,
        "stubborn": 1,
        "broken": 1,
    }
    assert (counted["start.duration", "files"], counted["failures", "broken"]) == (2, 1)
    failures = [about for name, about, _ in metrics if name.endswith(".failures")]
    assert {
        "kind": "broken",
        "scope": "session",
        "error.type": "EnvironmentStartFailed",
    } in failures
    assert "ana" not in json.dumps(metrics)
    assert "SEKRET" not in json.dumps(metrics)

    still = [one for one in after if one[0].endswith((".open", ".holds"))]
    assert all(attributes["kind"] == "stubborn" for _, attributes, _ in still)
