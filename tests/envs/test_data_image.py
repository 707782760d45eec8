# Shows S4c
"""The image with numpy and pandas, built locally from Debian packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine_envs.kinds.python import Python
from flowengine_envs.sandboxes.docker import image
from flowengine_envs.sandboxes.docker.daemon import connect
from flowengine_envs.sandboxes.docker.sandbox import Docker
from tests.envs.containers import skip_without_docker
from tests.envs.opening import opened

CODE = """
import io, numpy, pandas
table = pandas.read_csv(io.StringIO(inputs["text"]))
{"sum": int(table["b"].sum()), "dot": float(numpy.dot([1, 2], [3, 4]))}
"""


@pytest.fixture(autouse=True)
def _daemon() -> None:
    skip_without_docker()


@pytest.mark.timeout(900)
def test_numpy_and_pandas_are_there(tmp_path: Path) -> None:
    image.build(connect(), data=True)  # the first build installs packages
    with opened(Python(), Docker, tmp_path, config={"image": image.DATA}) as python:
        result = python.run(CODE, inputs={"text": "a,b\n1,2\n3,4\n"}, timeout=60)

        assert result.error is None
        assert result.value == {"sum": 6, "dot": 11.0}
        tag = image.description(data=True).tag
        assert python.image == connect().images.get(tag).id
