# Shows S4c
"""The image with numpy and pandas, built locally from Debian packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.sdk import ImageUnavailable
from flowengine_envs.kinds.python import Python
from flowengine_envs.sandboxes.docker import image
from flowengine_envs.sandboxes.docker.daemon import connect
from flowengine_envs.sandboxes.docker.image import find_image
from flowengine_envs.sandboxes.docker.sandbox import Docker
from tests.envs.containers import skip_without_docker
from tests.envs.opening import opened, request_for

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


def test_it_is_not_built_where_nothing_may_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"image": image.DATA, "pull_policy": "never"}
    spec = request_for(Python(), Docker, tmp_path, config=config).spec
    monkeypatch.setattr(image, "is_there", lambda client, tag: False)

    with pytest.raises(ImageUnavailable, match=r"not built on this machine.*docker\.image data"):
        find_image(connect(), spec)


def test_the_default_image_stays_what_it_is() -> None:
    default, data = image.description(), image.description(data=True)

    assert default.tag != data.tag
    assert set(default.packages) < set(data.packages)
    assert (default.suite, default.leave_out) == (data.suite, data.leave_out)
