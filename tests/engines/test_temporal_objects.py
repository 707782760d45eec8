# Shows D6
"""Large values and files of executions in Temporal: in parts, in directories and in S3."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.temporal import objects as local_copies
from flowengine.engines.temporal.connection import connect, read_address
from flowengine.engines.temporal.keys import Keys
from flowengine.engines.temporal.objects import VARIABLE, LocalCopies, Objects, objects
from flowengine.engines.temporal.outgoing import Inputs
from flowengine.engines.temporal.past import replayed
from flowengine.engines.temporal.payloads import PART, Codec, PackingConverter
from flowengine.errors import NotFound, StoreError
from tests.engines.temporal_server import RunningWorker, StoreNamed
from tests.replacing import patches_everywhere

pytestmark = pytest.mark.endurance

BUCKET = "flows"


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    """The variables with the location and the credentials of a bucket that a server checks."""
    import boto3  # type: ignore[import-untyped]
    from moto.server import ThreadedMotoServer  # here, so that other processes do not load it

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    with patches_everywhere() as patch:
        patch.setattr("werkzeug.serving._log", lambda *_: None)  # a line for each request
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        given: dict[str, Any] = {
            "endpoint_url": url,
            "region_name": "us-east-1",
            "aws_access_key_id": "first",
            "aws_secret_access_key": "first",
        }
        boto3.client("s3", **given).create_bucket(Bucket=BUCKET)
        iam = boto3.client("iam", **given)
        iam.create_user(UserName="worker")
        policy = (
            '{"Version": "2012-10-17", "Statement":'
            ' [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
        )
        iam.put_user_policy(UserName="worker", PolicyName="all", PolicyDocument=policy)
        key = iam.create_access_key(UserName="worker")["AccessKey"]
        # From now on, signatures and rights are checked.
        patch.setattr("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0)
        yield {
            VARIABLE: f"s3://{BUCKET}/executions",
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        }
    server.stop()


STORED = """\
flowengine: 1
id: stored
inputs: {megabytes: {type: integer}}
tools: {long: {python: "long:text", effect: pure}}
steps:
  - {id: long, call: long, with: {size: 300000}}
  - id: file
    run: {script: 'head -c "${N}M" /dev/zero | tr "\\0" x', env: {N: "${{ inputs.megabytes }}"}}
outputs: {size: "${{ size(steps.long.output) }}", file: "${{ steps.file.output.stdout_file }}"}
"""


@pytest.mark.parametrize("megabytes", [6, 50])
def test_values_and_files_are_kept_in_s3(
    megabytes: int,
    server: StoreNamed,
    s3: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files of more than 5 MB are sent in parts."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "long.py").write_text("def text(size: int) -> str:\n    return 'x' * size\n")
    flow, id = tmp_path / "flow.yaml", f"stored{megabytes}"
    flow.write_text(STORED)
    with RunningWorker(server("s3")), Engine(server("s3"), workdir=tmp_path) as engine:
        result = engine.run(flow, {"megabytes": megabytes}, id=id)
        assert result.outputs is not None, result.error
        file = result.outputs["file"]
        assert (result.outputs["size"], file["size"]) == (300_000, megabytes << 20)
        with engine.store.open_artifact(file["sha256"], id) as content:
            assert sha256(content.read()).hexdigest() == file["sha256"]
        with pytest.raises(NotFound, match="execution other has no artifact"):
            engine.store.fetch_artifact(file["sha256"], "other")


def test_refused_credentials_are_an_error(
    s3: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreError, match="s3://flows/executions does not work") as caught:
        asyncio.run(Objects(s3[VARIABLE]).put_value(b"x"))
    assert "<Code>SignatureDoesNotMatch</Code>" in caught.value.message
    assert "Debug" not in caught.value.message


@pytest.mark.parametrize("encrypted", [False, True])
def test_of_a_value_that_grows_only_the_new_parts_are_written(
    encrypted: bool, tmp_path: Path
) -> None:
    """The conversation of an agent, as its turns get it."""
    keys = Keys(f"one:{'A' * 86}==") if encrypted else None
    pack = PackingConverter()
    codec = Codec(Objects(str(tmp_path)), keys)
    messages: list[Any] = []
    sizes = [0]
    for turn in range(40):
        messages += [{"role": "tool", "content": f"{turn % 10}" * 20_000}]
        given = pack.to_payloads([{"turn": turn, "state": messages}])
        sent = asyncio.run(codec.encode(given))
        other = Codec(Objects(str(tmp_path)), keys)  # of another worker
        assert asyncio.run(other.decode(sent)) == given
        assert turn < 3 or sent[0].ByteSize() < 200
        sizes.append(sum(path.stat().st_size for path in tmp_path.glob("value/*")))
    steps = [after - before for before, after in pairwise(sizes)]
    assert max(steps) < 5 * PART
    before = {path: os.stat(path).st_mtime_ns for path in (tmp_path / "value").iterdir()}
    asyncio.run(codec.encode(given))
    assert before == {path: os.stat(path).st_mtime_ns for path in (tmp_path / "value").iterdir()}


CONVERSATION = """\
flowengine: 1
id: reader
defaults: {model: scripted/script.json}
tools: {page: {python: "pages:page", effect: pure}}
agents: {reader: {instructions: You read., tools: [page], max_turns: 100}}
steps: [{id: ask, agent: reader, with: {prompt: Read.}}]
outputs: {answer: "${{ steps.ask.output }}"}
"""
TURNS, PAGE = 24, 20_000


def test_a_conversation_is_kept_once(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a history nor the object store has it again for each turn, nor does a replay."""
    page = f"def page(n: int) -> str:\n    'Read.'\n    return str(n) + 'x' * {PAGE}\n"
    (tmp_path / "pages.py").write_text(page)
    calls = [{"name": "page", "arguments": {"n": n}, "id": f"c{n}"} for n in range(TURNS)]
    script = [*({"calls": [call]} for call in calls), {"text": "read"}]
    (tmp_path / "script.json").write_text(json.dumps(script))
    (tmp_path / "flow.yaml").write_text(CONVERSATION)
    values = Path(os.environ[VARIABLE], "value")
    before = set(values.glob("*"))
    with Engine(store, workdir=tmp_path) as engine:
        result = engine.run(tmp_path / "flow.yaml", id="reader")
        assert result.outputs == {"answer": "read"}, result.error
    kept = sum(path.stat().st_size for path in set(values.glob("*")) - before)
    whole = TURNS * PAGE * 3 // 2  # with the shortened text that the model receives
    assert kept < 8 * whole  # the inputs of all turns have 12 times as much
    packed: list[int] = []
    pack = Inputs.packed

    def noting(*given: Any) -> bytes:
        data = pack(*given)
        packed.append(len(data))
        return data

    monkeypatch.setattr(Inputs, "packed", noting)
    assert max(asyncio.run(sizes(store, "reader"))) < whole
    assert len(packed) == 2 * TURNS + 1
    assert max(packed) < 2 * PAGE


async def sizes(store: str, id: str) -> list[int]:
    """Replay all runs of an execution, and return the sizes of their histories."""
    client = await connect(read_address(store), objects())
    found = []
    async for row in client.list_workflows(f"WorkflowId = '{id}'"):
        await replayed(client, id, row.run_id or "")
        handle = client.get_workflow_handle(id, run_id=row.run_id)
        info = (await handle.describe()).raw_description.workflow_execution_info
        found.append(info.history_size_bytes)
    return found


def test_threads_share_the_directory_of_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have seen that there is none yet, before either makes it."""
    copies, made, barrier = LocalCopies(), list[str](), Barrier(2)

    def directory(prefix: str) -> TemporaryDirectory[str]:
        with suppress(BrokenBarrierError):
            barrier.wait(0.2)  # for a second thread that would come here
        folder = TemporaryDirectory(prefix=prefix)
        made.append(folder.name)
        return folder

    monkeypatch.setattr(local_copies, "TemporaryDirectory", directory)
    with ThreadPoolExecutor(2) as threads:
        paths = [*threads.map(copies.path, ["a", "b"])]
    copies.write(paths[0], [b"con", b"tent"])
    assert [os.listdir(one) for one in made] == [["a"]]
    assert paths[0].read_bytes() == b"content"
    copies.close()
    assert not paths[0].parent.exists()
