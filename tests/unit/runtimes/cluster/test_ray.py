"""The Ray runtime: its connection, its nodes before training, and where the learner goes."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray_cluster import Placed, assert_counts, ray_config
from whole_runs import rows

from clearl.errors import ConfigError, MissingExtraError
from clearl.experiment import run
from clearl.records.run_dir import RunDir
from clearl.runtimes.cluster.backend import ActorProcess, PublishedWeights
from clearl.runtimes.cluster.hosted import RunBundle
from clearl.runtimes.cluster.ray import _OUR_OWN, connected
from clearl.runtimes.messages import Alive, Ready, Setup, Sync, Synced


def test_a_ray_of_our_own_listens_on_this_machine_only(listening: set[str]) -> None:
    assert listening and listening <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


STRANGER = """
import logging, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
print("ran", ray.get(ray.remote(lambda: 1).remote(), timeout=30))
"""


def knock(address: str, home: Path, **token: str) -> subprocess.Popen[str]:
    """Another process, with a home of its own, tries to run code on a cluster."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    command = [sys.executable, "-c", STRANGER, address]
    pipe = subprocess.PIPE
    environment = {**known, **_OUR_OWN, "HOME": str(home), **token}
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def test_a_ray_of_our_own_lets_nobody_in_without_its_token(
    listening: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ab" * 32}
    monkeypatch.setattr("secrets.token_hex", lambda nbytes: "ab" * nbytes)
    with connected(None, cpus=1):
        address = ray.get_runtime_context().gcs_address
        assert not any(name.startswith("RAY_AUTH") for name in os.environ), "what an environment starts need not know"
        with connected(None, cpus=1):
            assert not any(name.startswith("RAY_AUTH") for name in os.environ), "nor does a node that joins later"
        friend = knock(address, tmp_path, **token)
        strangers = [
            knock(address, tmp_path, RAY_AUTH_MODE="disabled"),
            knock(address, tmp_path, **{**token, "RAY_AUTH_TOKEN": "0" * 64}),
        ]
        assert friend.communicate(timeout=120)[0] == "ran 1\n"
        for stranger in strangers:  # as long again as the friend had; Ray itself would try for minutes
            with contextlib.suppress(subprocess.TimeoutExpired):
                stranger.wait(5)
            stranger.kill()
            assert "ran" not in stranger.communicate()[0]
    assert not (tmp_path / ".ray" / "auth_token").exists(), "the token is in no file"


def test_an_address_where_nobody_listens_is_refused_at_once(listening: set[str]) -> None:
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(ConfigError, match=f"no Ray cluster at address {address}: .*refused"),
            connected(address, cpus=0),
        ):
            pass


def test_the_learner_may_be_on_another_node_that_sees_the_run_directory(
    cluster: Any, children: dict[str, Placed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (second,) = cluster.worker_nodes
    node = second.node_id
    monkeypatch.setattr("clearl.runtimes.cluster.ray_host.learner_place", lambda *_: (node, 0))
    run(ray_config(), tmp_path / "run", console=False)
    assert children["learner"].node == node
    assert_counts(tmp_path / "run")
    monkeypatch.setattr("clearl.runtimes.cluster.driver.NamedTemporaryFile", elsewhere)
    with pytest.raises(ConfigError, match=r"goes to node 127.0.0.1, which does not see .*other: give an --out that"):
        run(ray_config(), tmp_path / "other", console=False)


@contextmanager
def elsewhere(**_: Any) -> Iterator[Any]:
    """A file that is on this machine only, as far as another can tell."""
    yield SimpleNamespace(name="/nowhere/mark")


def test_errors_of_the_learner_are_those_of_the_run(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="device 'cuda' is not there; torch sees: cpu") as caught:
        run(ray_config(device="cuda"), tmp_path / "run", console=False)
    assert caught.type is ConfigError and RunDir.open(tmp_path / "run").status == "failed"


@pytest.mark.parametrize(
    ("device", "gpus", "place"),
    [
        ("cpu", (0, 4), ("here", 0)), ("cuda", (0, 4), ("there", 1)), ("cuda", (1, 4), ("here", 1)),
        ("cuda:1", (1, 4), ("there", 2)), ("cuda", (0, 0), ("here", 0)), ("mps", (0, 4), ("here", 0)),
    ],
)  # fmt: skip
def test_the_learner_goes_where_the_gpu_is(device: str, gpus: tuple[int, int], place: tuple[str, int]) -> None:
    from clearl.runtimes.cluster.ray_host import learner_place

    nodes = [
        {"NodeID": node, "Alive": node != "dead", "Resources": {"CPU": 8.0, **({"GPU": float(count)} if count else {})}}
        for node, count in (("dead", 8), ("here", gpus[0]), ("there", gpus[1]))
    ]
    assert learner_place(device, "here", nodes) == place


def test_a_node_with_other_versions_is_named_before_training(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearl.runtimes.cluster.hosted.versions", lambda: {"clearl": "0.0.0", "python": "3.11"})
    with pytest.raises(ConfigError, match=r"node 127.0.0.1 has clearl .* \(here 0.0.0\): install the same versions"):
        run(ray_config(), tmp_path / "run", console=False)
    assert [row["kind"] for row in rows(tmp_path / "run")] == []


def test_a_node_without_a_package_is_named_before_training(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_here = f"import os\nif os.getpid() != {os.getpid()}:\n    raise ImportError('No module named my_robot')\n"
    (tmp_path / "only_here.py").write_text(only_here)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"node 127.0.0.1 cannot run a worker: .*my_robot"):
        run(ray_config(imports=("only_here",)), tmp_path / "run", console=False)


def test_more_workers_than_the_cluster_has_room_for(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="4 workers and 1 evaluators need 5 CPUs, the cluster has 4: give fewer"):
        run(ray_config(workers=4), tmp_path / "run", console=False)


BUSY = """
import time
from clearl.runtimes.runtime import RunSpec
from clearl.runtimes.messages import Alive, Ready, Synced

class BusyProgram:
    def __init__(self, outlet, setup, places):
        self.ready, self.outlet = Ready((), 0), outlet

    def handle(self, message):
        until = time.monotonic() + 3
        while time.monotonic() < until:
            self.outlet.send(Alive(True))
        yield Synced()
"""


def test_signs_of_life_are_heard_in_the_midst_of_work(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    from clearl.runtimes.cluster.hosted import RayProgram
    from clearl.runtimes.cluster.ray_host import RayActor, RayTransport

    (tmp_path / "busy_program.py").write_text(BUSY)
    (tmp_path / "meta.json").write_text("{}")
    monkeypatch.syspath_prepend(tmp_path)
    make: Any = ray.remote
    transport, handle = RayTransport(), make(concurrency_groups={"aside": 1})(RayProgram).remote(background=False)
    child = ActorProcess(transport, lambda setup: RayActor(handle), lambda name, node: None, RunBundle.of(tmp_path))
    setup = Setup("busy", "busy_program:BusyProgram", "", "", str(tmp_path), 0)
    child.begin(setup, [PublishedWeights(1, transport.publish)])
    heard: list[Any] = []
    while len(heard) < 1 or not isinstance(heard[-1], Synced):
        transport.arrived(child.awaited, 0.1)
        said = child.poll()
        heard += said
        if said and isinstance(said[-1], Ready):
            child.send(Sync())
    child.end()
    assert heard[0] == Ready((), 0) and set(heard[1:-1]) == {Alive(building=True)}


def test_without_ray_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(MissingExtraError, match=r"runtime ray needs .* pip install 'clearl\[ray\]'"),
        connected(None, cpus=1),
    ):
        pass
