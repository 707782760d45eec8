# Shows S38
"""`policy: {network: [host:port]}`: only those destinations are reachable from a sandbox."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentLost, EnvironmentUnavailable
from flowengine.sdk.environments import Provider, Sandbox, background
from flowengine.sdk.environments.models import EnvironmentPolicy
from flowengine.sdk.web.urls import not_public
from flowengine_envs.kinds.bash import BashProvider
from flowengine_envs.kinds.docker.provider import DockerProvider
from flowengine_envs.kinds.node import NodeProvider
from flowengine_envs.sandboxes.docker.daemon import connect
from flowengine_envs.sandboxes.docker.sandbox import Docker
from flowengine_envs.sandboxes.host import HostSandbox
from flowengine_envs.sandboxes.namespace import Namespace
from flowengine_envs.sandboxes.processes import has
from tests.certificates import own_certificate
from tests.envs.containers import skip_without_docker
from tests.envs.network.ways_out import running, serving
from tests.envs.opening import open_resource, opened, release, request_for
from tests.envs.users import as_ordinary_user
from tests.replacing import patches_everywhere
from tests.rows import each_row

NAME = "db.example.org"
"""Resolves only outside of the sandbox, and there only in this process."""
ADDRESS = "127.9.9.9"
"""The address of `NAME`."""
BLOCK = bytes(1 << 16)


class Outside(socketserver.ThreadingTCPServer):
    """A server whose behavior on a connection is chosen by the first line it receives."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 500

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.port = int(self.server_address[1])
        self.sent = 0
        self.gone = threading.Event()
        self.held = threading.Event()


class _Answer(socketserver.StreamRequestHandler):
    server: Outside

    def handle(self) -> None:
        word = self.rfile.readline().decode().strip()
        if word == "digest":  # answers once the client has closed its side
            digest = hashlib.sha256(self.rfile.read()).hexdigest()
            self.wfile.write(digest.encode())
        elif word == "bytes":
            for _ in range(320):
                self.wfile.write(BLOCK)
        elif word == "flood":
            while True:
                try:
                    self.server.sent += self.request.send(BLOCK)
                except OSError:
                    return
        elif word == "hold":
            self.server.held.set()
            self.rfile.read()
            self.server.gone.set()
        else:
            self.wfile.write(word.upper().encode())


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    with running(Outside()) as server, patches_everywhere() as patched:
        resolve(patched, server.port)
        yield server


def resolve(patched: pytest.MonkeyPatch, port: int) -> None:
    """Resolve `NAME`, in this process, to an address where every port leads to this one."""
    real, connect = socket.getaddrinfo, asyncio.open_connection

    def known(host: Any, *args: Any, **options: Any) -> Any:
        return real(ADDRESS if host == NAME else host, *args, **options)

    async def connected(host: str, wanted: int, **options: Any) -> Any:
        if host == ADDRESS:
            host, wanted = "127.0.0.1", port
        return await connect(host, wanted, **options)

    patched.setattr(socket, "getaddrinfo", known)
    patched.setattr(asyncio, "open_connection", connected)


class Case(NamedTuple):
    provider: type[Provider[Any]]
    sandbox: type[Sandbox]


CASES = {
    "namespace": Case(BashProvider, Namespace),
    "container": Case(BashProvider, Docker),
    "containers": Case(DockerProvider, Docker),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    if request.param == "namespace" and not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")
    if request.param != "namespace":
        skip_without_docker()
    return CASES[request.param]


@pytest.fixture(scope="module")
def box(case: Case, outside: Outside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with reaching(case, tmp_path_factory.mktemp("box"), f"{NAME}:443", "localhost:7443") as made:
        yield made


def reaching(case: Case, workspace: Path, *places: str, **more: Any) -> Any:
    return opened(case.provider(), case.sandbox, workspace, policy={"network": [*places]}, **more)


ASK = """
import socket, sys
def ask(text, host="db.example.org", port=443):
    with socket.create_connection((host, port), 20) as place:
        place.sendall(text if isinstance(text, bytes) else text.encode())
        place.shutdown(socket.SHUT_WR)
        with place.makefile("rb") as answer:
            return answer.read()
"""


def python(box: Any, code: str, **more: Any) -> str:
    """Run code inside the sandbox, after `ASK`."""
    done = box.run(["python3", "-c", ASK + code], timeout=50, **more)
    assert done.stderr == ""
    return str(done.stdout)


def test_nothing_else_is_reached(box: Any, outside: Outside) -> None:
    """Other ports of the host, other addresses of this machine and name servers are unreachable."""
    own = [
        str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    ]
    tried = [(NAME, 80), ("172.17.0.1", outside.port), ("1.1.1.1", 443), ("1.1.1.1", 53)]
    tried += [(host, outside.port) for host in ("127.0.0.1", NAME, *own)]
    code = (
        f"for place in {tried}:\n"
        "    try: socket.create_connection(place, 2); print('reached', place)\n"
        "    except OSError: pass\n"
        "try: socket.getaddrinfo('example.org', 80); print('resolved')\n"
        "except OSError: pass\n"
        "asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "try: asking.sendto(b'x', ('1.1.1.1', 53)); print('sent')\n"
        "except OSError: pass\n"
        "print(sorted(name for _, name in socket.if_nameindex()))\n"
    )
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        port = everywhere.getsockname()[1]
        hosts = ["127.0.0.1", "172.17.0.1", *own]
        code += (
            f"for host in {hosts}:\n"
            f"    try: socket.create_connection((host, {port}), 2); print('reached', host)\n"
            "    except OSError: pass\n"
        )
        said = python(box, code)
    assert eval(said) <= ["lo", "sit0", "tunl0"]
    assert "reached" not in said


@pytest.mark.wherever("case")
def test_bytes_arrive_as_they_are_and_each_side_ends_its_own(box: Any) -> None:
    """The answer follows the end of the request, and arrives complete."""
    code = (
        "import hashlib, os\n"
        "data = os.urandom(5_000_000)\n"
        "print(ask(b'digest\\n' + data).decode() == hashlib.sha256(data).hexdigest())\n"
        "print(len(ask('bytes\\n')))\n"
    )
    assert python(box, code).split() == ["True", str(320 * len(BLOCK))]


@pytest.mark.parametrize("case", ["namespace", "container"], indirect=True)
def test_more_connections_than_the_supervisor_would_open(
    box: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Programs that go around the supervisor are refused, and the log says so once."""
    code = (
        "links = []\n"
        "for _ in range(300):\n"
        "    links.append(socket.socket(socket.AF_UNIX))\n"
        "    links[-1].connect('/run/flowengine/0')\n"
        "print(sorted({link.recv(1) for link in links}))\n"
    )
    with caplog.at_level(logging.WARNING):
        assert python(box, code) == "[b'', b'+']\n"
    assert caplog.text.count("refused, since programs have 200 connections open") == 1


def test_a_place_that_does_not_answer(box: Any, caplog: pytest.LogCaptureFixture) -> None:
    code = (
        "try: print(socket.create_connection(('localhost', 7443)).recv(100))\n"
        "except OSError as error: print(type(error).__name__)\n"
    )
    with caplog.at_level(logging.WARNING):
        assert python(box, code) == "ConnectionResetError\n"
    assert "policy.network: localhost:7443 cannot be reached: Connection refused" in caplog.text


@pytest.mark.wherever("case")
def test_what_is_not_taken_is_not_fetched_and_pings_are_answered(
    case: Case, outside: Outside, tmp_path: Path
) -> None:
    outside.sent = 0
    code = (
        "place = socket.create_connection(('db.example.org', 443))\n"
        "place.sendall(b'flood\\n')\n"
        "place.recv(1)\n"
        "print('begun', flush=True)\n"
        "import time; time.sleep(100)\n"
    )
    begun = threading.Event()
    ended: list[Any] = []
    with reaching(case, tmp_path, f"{NAME}:443") as box:

        def work() -> None:
            try:
                argv = ["python3", "-c", ASK + code]
                ended.append(box.run(argv, timeout=60, on_output=lambda *_: begun.set()))
            except EnvironmentLost as error:
                ended.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        assert begun.wait(60)
        last = -1
        while last != outside.sent:  # until the sender is blocked
            last = outside.sent
            time.sleep(0.3)
        assert last < 32 << 20
        if hasattr(box, "_channel"):
            background().run(answers(box))
    thread.join(60)
    assert ended


async def answers(box: Any) -> None:
    """Wait until the supervisor of a sandbox answers."""
    async with asyncio.timeout(5):
        await box._channel.request("ping")


@pytest.mark.parametrize("case", ["namespace", "container"], indirect=True)
def test_a_bulk_transfer_does_not_delay_a_ping(
    case: Case, outside: Outside, tmp_path: Path
) -> None:
    code = (
        "place = socket.create_connection(('db.example.org', 443))\n"
        "place.sendall(b'flood\\n')\n"
        "print('begun', flush=True)\n"
        "while place.recv(1 << 20): pass\n"
    )
    begun = threading.Event()
    with reaching(case, tmp_path, f"{NAME}:443") as box:

        def work() -> None:
            argv = ["python3", "-c", ASK + code]
            with suppress(EnvironmentLost):
                box.run(argv, timeout=60, on_output=lambda *_: begun.set())

        thread = threading.Thread(target=work)
        thread.start()
        assert begun.wait(60)
        before = outside.sent
        for _ in range(20):
            background().run(answers(box))
        while outside.sent < before + (8 << 20):
            time.sleep(0.01)
    thread.join(60)


def test_connections_end_with_the_sandbox_and_nothing_is_left(
    case: Case, outside: Outside, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outside.gone.clear()
    outside.held.clear()
    code = (
        "place = socket.create_connection(('db.example.org', 443))\n"
        "place.sendall(b'hold\\n')\n"
        "print('begun', flush=True)\n"
        "import time; time.sleep(100)\n"
    )
    provider = case.provider()
    box = open_resource(provider, case.sandbox, tmp_path, policy={"network": [f"{NAME}:443"]})
    request = getattr(box, "request", None) or box.sandbox.request
    [folder] = [Path(each) for each in request.trace.facts["folders"]]
    assert (folder / "0").is_socket()

    def work() -> None:
        try:
            box.run(["python3", "-c", ASK + code], timeout=60)
        except EnvironmentLost:
            return

    thread = threading.Thread(target=work)
    thread.start()
    assert outside.held.wait(60)
    release(provider, box)
    thread.join(60)
    assert outside.gone.wait(60)
    assert [each for each in caplog.messages if "StreamReaderProtocol" in each] == []
    assert not folder.exists()
    if case.sandbox is Docker:
        label = f"flowengine.environment={request.id}"
        assert connect().api.containers(all=True, filters={"label": [label]}) == []


@pytest.mark.endurance
@pytest.mark.wherever("case")
def test_tls_is_between_the_program_and_the_place(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = own_certificate(tmp_path, NAME)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "ca.pem").write_bytes(certificate.read_bytes())
    server = Outside()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    resolve(monkeypatch, server.port)
    code = (
        "import ssl\n"
        "context = ssl.create_default_context(cafile='ca.pem')\n"
        "plain = socket.create_connection(('db.example.org', 443), 20)\n"
        "with context.wrap_socket(plain, server_hostname='db.example.org') as place:\n"
        "    place.sendall(b'hello\\n')\n"
        "    print(place.recv(100).decode())\n"
    )
    with running(server), reaching(case, workspace, f"{NAME}:443") as box:
        assert python(box, code) == "HELLO\n"


THROUGH_PROXY = """
import urllib.error, urllib.request
def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode().strip()}"
    except OSError as error:
        return f"{type(error).__name__} {error}"
"""


@pytest.mark.endurance
# Shows W32
def test_a_proxy_leads_to_hosts_that_are_not_known_beforehand(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only to public addresses. Programs find the proxy in the usual environment variables."""
    with serving() as site, serving() as canary:
        resolve(monkeypatch, site.port)
        monkeypatch.setattr(
            "flowengine.sdk.web.connections.not_public",
            lambda address: "" if str(address) == ADDRESS else not_public(address),
        )
        monkeypatch.setattr("flowengine.sdk.web.connections._is_own", lambda *_: False)
        site.pages["/page"] = (200, {}, b"hello")
        urls = [f"http://{NAME}/page", f"http://inside.test:{canary.port}/"]
        urls += [f"http://{host}:{canary.port}/" for host in ("0x7f.1", "2130706433", "10.0.0.1")]
        code = f"{THROUGH_PROXY}for url in {urls}: print(fetch(url))\n"
        with caplog.at_level(logging.WARNING), reaching(case, tmp_path, "public") as box:
            said = python(box, code).splitlines()
            assert said[0] == "hello"
            assert said[1].startswith("502 ")
            refused = f"403 127.0.0.1:{canary.port} is not public: loopback"
            assert said[2:4] == [refused, refused]
            assert said[4] == f"403 10.0.0.1:{canary.port} is not public: private"
        assert canary.connections == 0
    assert "policy.network: 127.0.0.1" in caplog.text


@pytest.mark.parametrize("sandbox", [Namespace, Docker])
def test_node_reaches_a_place_of_this_machine(
    sandbox: type[Sandbox], outside: Outside, tmp_path: Path
) -> None:
    """Node resolves addresses itself, and tries `::1` first for `localhost`."""
    if sandbox is Docker:
        skip_without_docker()
    code = (
        "const ask = host => new Promise((done, failed) => {\n"
        "  const place = require('net').connect(inputs.port, host, () => place.end('hello\\n'));\n"
        "  place.on('data', data => done(String(data))).on('error', failed);\n"
        "});\n"
        "return [await ask('localhost'), await ask('127.0.0.1')];\n"
    )
    places = [f"localhost:{outside.port}", f"127.0.0.1:{outside.port}"]
    with opened(NodeProvider(), sandbox, tmp_path, policy={"network": places[:1]}) as node:
        assert node.run(code, inputs={"port": outside.port}).value == ["HELLO", "HELLO"]


def test_places_that_are_alike_are_kept_apart(outside: Outside, tmp_path: Path) -> None:
    """No name gets an address that is a destination itself. Two names may share one."""
    port = outside.port
    alike = [f"127.1.0.1:{port}", f"localhost:{port}", f"127.0.0.1:{port}", f"{NAME}:{port}"]
    with reaching(CASES["namespace"], tmp_path, *alike, f"{NAME.upper()}:{port}") as box:
        hosts = box.run("cat /etc/hosts").stdout
        assert f"127.1.0.2 {NAME}\n" in hosts
        assert "127.1.0.1" not in hosts
        said = python(box, f"print(ask('a\\n', port={port}), ask('b\\n', 'localhost', {port}))")
        assert said == "b'A' b'B'\n"


def test_low_ports_give_no_rights(tmp_path: Path) -> None:
    """To listen at port 443, the sandbox uses a network that another process has set up."""
    with reaching(CASES["namespace"], tmp_path, f"{NAME}:443") as box:
        status = box.run("cat /proc/self/status").stdout
        for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
            assert line in status
        assert box.run("unshare -r true").exit_code != 0
        assert box.run("echo 1 > /proc/sys/net/ipv4/ip_unprivileged_port_start").exit_code != 0
        assert len(box.run("ls /proc | grep '^[0-9]'").stdout.split()) < 8  # only the sandbox's
        assert box.run("rm /run/flowengine/0").exit_code != 0


def as_nobody(folder: Path) -> str:
    with patches_everywhere() as patched, socket.create_server(("127.0.0.1", 0)) as server:
        resolve(patched, server.getsockname()[1])

        def serve() -> None:
            connection, _ = server.accept()
            connection.sendall(b"for " + connection.recv(100))
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with reaching(CASES["namespace"], folder, f"{NAME}:443") as box:
            said = python(box, "print(ask('anybody').decode())")
        thread.join()
        return said


def test_as_an_ordinary_user(tmp_path: Path) -> None:
    as_nobody(tmp_path)  # loads modules that the other user may be unable to read
    assert as_ordinary_user(as_nobody) == "for anybody\n"


@pytest.mark.parametrize(
    ("provider", "network"), [("namespace", "any"), ("host", "any"), ("host", None)]
)
def test_what_cannot_be_denied_is_refused(
    provider: str, network: str | None, tmp_path: Path
) -> None:
    policy = {"deny_network": ["example.org"], **({"network": network} if network else {})}
    spec = {"kind": "bash", "scope": "session", "owner_id": "s", "provider": provider}
    with (
        EnvironmentManager(tmp_path) as manager,
        pytest.raises(EnvironmentUnavailable, match="deny_network cannot be enforced"),
    ):
        manager.ensure({**spec, "policy": policy})


@pytest.mark.endurance
def test_what_a_killed_engine_left_is_taken_away(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from flowengine.execution_environment import EnvironmentManager\n"
        "manager = EnvironmentManager(sys.argv[1])\n"
        "spec = {'kind': 'bash', 'scope': 'session', 'owner_id': 's'}\n"
        "bash = manager.ensure({**spec, 'policy': {'network': ['localhost:7443']}}).resource\n"
        "print(bash.sandbox._egress.folder, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    killed = subprocess.run(argv, capture_output=True, text=True, check=False)
    folder = Path(killed.stdout.strip())
    assert folder.is_dir(), killed.stderr

    with EnvironmentManager(tmp_path) as manager:
        manager.reap()
    assert not folder.exists()


@each_row(
    ("place", "message"),
    [
        ("ex*mple.org:443", "is not a pattern: write"),
        ("*", "is not a pattern: write"),
        ("example..org", "is not a destination: write host:port"),
        ("example.org:0", "is not a destination"),
        ("example.org:99999", "is not a destination"),
        ("https://example.org", "is not a destination"),
        ("a b:80", "is not a destination"),
        ("127.0.0.1 evil\n1.2.3.4:80", "is not a destination"),
        (":80", "is not a destination"),
    ],
)
def test_what_is_no_place_is_told(place: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EnvironmentPolicy(network=["localhost:80", place])


def test_what_cannot_be_held_is_refused(tmp_path: Path) -> None:
    for sandbox in (Namespace, Docker):
        policy = {"network": ["10.0.0.5:5432"]}
        with pytest.raises(EnvironmentUnavailable, match=r"10\.0\.0\.5:5432.*needs a name"):
            open_resource(BashProvider(), sandbox, tmp_path, policy=policy)
    for asked, rule in ((["a.example:80"], "names places"), ("none", "forbids the network")):
        spec = request_for(
            *(BashProvider(), Docker, tmp_path),
            policy={"network": asked},
            config={"network": "bridge"},
        ).spec
        with pytest.raises(EnvironmentUnavailable, match=f"policy {rule}"):
            background().run(Docker.probe(spec))
    with pytest.raises(EnvironmentUnavailable, match="cannot cut programs off from the network"):
        open_resource(BashProvider(), HostSandbox, tmp_path, policy={"network": ["a.example:80"]})
