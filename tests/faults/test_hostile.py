from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from damage import files_of
from interrupted import crash, row_number
from whole_runs import rows, small_config

from clearl.artifacts import export_agent
from clearl.artifacts import load_agent as load_exported
from clearl.config import resolve
from clearl.errors import ClearlError
from clearl.experiment import agent_of_run, run
from clearl.records.table import MetricsTable
from clearl.report.load import load_runs
from clearl.storage.checkpoints import CheckpointStore

CONFIG = small_config(cycles=1, frames_per_visit=300)
_EVENTS: list[str] = []
_WATCHING = [False]


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _WATCHING[0]:
        return
    if event in ("pickle.find_class", "os.system", "code.__new__") or (
        event == "marshal.loads" and "importlib" not in str(sys._getframe(1).f_code.co_filename)
    ):
        _EVENTS.append(f"{event} {arguments}")


sys.addaudithook(_audit)


@contextmanager
def no_code_runs(tmp_path: Path) -> Iterator[None]:
    """Assert that nothing in the block unpickles, and that no pickle took effect."""
    _EVENTS.clear()
    _WATCHING[0] = True
    try:
        yield
    finally:
        _WATCHING[0] = False
    assert not _EVENTS
    assert not (tmp_path / "pwned").exists()


class Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (Path.touch, (self.target,))


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("crashed") / "run"
    crash(CONFIG, out, at=row_number(6))
    return out


@pytest.fixture
def out(crashed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(crashed, tmp_path / "run"))


def use_everything(out: Path) -> list[str]:
    """Read a run directory in every way; return the errors."""
    refused = []
    uses: list[Callable[[], object]] = [
        lambda: MetricsTable.read(out),
        lambda: load_runs([out]),
        lambda: agent_of_run(out),
        lambda: run(CONFIG, out, console=False),
    ]
    for use in uses:
        try:
            use()
        except ClearlError as error:
            refused.append(str(error))
    return refused


def test_the_watch_sees_an_unpickling(tmp_path: Path) -> None:
    with pytest.raises(AssertionError), no_code_runs(tmp_path):
        pickle.loads(pickle.dumps(Bomb(tmp_path / "pwned")))  # noqa: S301 - to see the alarm work


@pytest.mark.parametrize("kind", ["config.yaml", "meta.json", "metrics.jsonl", "state.json", "manifest.json"])
def test_a_pickle_in_place_of_a_file_is_refused(out: Path, tmp_path: Path, kind: str) -> None:
    for path in files_of(out, kind):
        path.write_bytes(pickle.dumps(Bomb(tmp_path / "pwned")))
    with no_code_runs(tmp_path):
        assert use_everything(out)


@pytest.mark.parametrize("name", ["state.json", "arrays.safetensors"])
def test_a_pickle_with_the_right_hash_is_refused(out: Path, tmp_path: Path, name: str) -> None:
    for directory in (out / "checkpoints").iterdir():
        put(directory, name, pickle.dumps(Bomb(tmp_path / "pwned")))
    with no_code_runs(tmp_path):
        assert len(use_everything(out)) == 2


def test_pickles_in_the_replay_store_are_quarantined(out: Path, tmp_path: Path) -> None:
    for path in files_of(out, ".seg"):
        path.write_bytes(pickle.dumps(Bomb(tmp_path / "pwned")) * 50)
        path.with_name("00000099.seg").write_bytes(pickle.dumps(Bomb(tmp_path / "pwned")))
        path.with_name("pickle.pkl").write_bytes(pickle.dumps(Bomb(tmp_path / "pwned")))
    with no_code_runs(tmp_path):
        assert use_everything(out) == []
    assert "unrolls of replay are lost" in rows(out, "fault")[0]["problem"]


HOSTILE_YAML = [
    "!!python/object/apply:os.system ['true']",
    "method: !!python/name:os.system",
    "seed: !!python/object/new:pathlib.Path [/]",
    "a: &a [*a]",
    "[" * 100_000,
    "seed: 1\nseed: [1, 2]",
    "slots: 1" + "0" * 5000,
    "tasks: &x [a, b]\nimports: *x\nmethod: {<<: *x}",
]


@pytest.mark.parametrize("text", HOSTILE_YAML, ids=range(len(HOSTILE_YAML)))
def test_a_hostile_config_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.yaml").write_text(text)
    with no_code_runs(tmp_path), pytest.raises(ClearlError):
        resolve(file=tmp_path / "settings.yaml")


HOSTILE_META: dict[str, dict[str, Any]] = {
    "no replay": {"replay": None},
    "replay of text": {"replay": {"store": "disk", "capacity_unrolls": "many"}},
    "negative capacity": {"replay": {"store": "disk", "capacity_unrolls": -5}},
    "other version": {"v": 2},
}
HOSTILE_SPECS: dict[str, Any] = {
    "none": None,
    "list": [1, 2],
    "unknown key": {"frame_shape": [3], "frame_dtype": "bool", "num_actions": 2, "path": "/etc/passwd"},
    "huge": {"frame_shape": [100_000, 100_000, 10], "frame_dtype": "bool", "num_actions": 2},
    "negative": {"frame_shape": [-1, 5, 5], "frame_dtype": "bool", "num_actions": 2},
    "text": {"frame_shape": ["a", "b"], "frame_dtype": "bool", "num_actions": 2},
    "object": {"frame_shape": [3], "frame_dtype": "object", "num_actions": 2},
    "many actions": {"frame_shape": [3], "frame_dtype": "bool", "num_actions": 10**12},
}


@pytest.mark.parametrize("change", HOSTILE_META.values(), ids=list(HOSTILE_META))
def test_hostile_meta_data_is_refused(out: Path, change: dict[str, Any]) -> None:
    change_meta(out, change)
    with pytest.raises(ClearlError):
        run(CONFIG, out, console=False)


@pytest.mark.parametrize("spec", HOSTILE_SPECS.values(), ids=list(HOSTILE_SPECS))
def test_a_hostile_spec_is_refused(out: Path, spec: Any) -> None:
    change_meta(out, {"spec": spec})
    with pytest.raises(ClearlError):
        agent_of_run(out)


HOSTILE_STATES: dict[str, Callable[[dict[str, Any]], object]] = {
    "nothing": lambda tree: tree.clear(),
    "no learner": lambda tree: tree.pop("learner"),
    "learner is text": lambda tree: tree.update(learner="x"),
    "counters of text": lambda tree: tree["learner"]["state"]["counters"].update(frames="x"),
    "cursor of text": lambda tree: tree["cursor"].update(segment="x"),
    "cursor is a list": lambda tree: tree.update(cursor=[1]),
    "shard of text": lambda tree: tree.update(shards=["x"] * 4),
    "negative shard": lambda tree: tree.update(shards=[-1] * 4),
    "too many shards": lambda tree: tree.update(shards=[1] * 400),
    "slots out of range": lambda tree: tree["intake"].update(slots=list(range(10_000))),
    "mixer without counters": lambda tree: tree.update(mixer={}),
    "negative position": lambda tree: tree.update(metrics_position=-1),
    "position of text": lambda tree: tree.update(metrics_position="end"),
    "no position": lambda tree: tree.pop("metrics_position"),
    "foreign groups": lambda tree: tree["actor"].update(groups=[{"task": "../../etc", "slots": [0], "envs": {}}]),
    "random state of text": lambda tree: tree["actor"].update(rng="x"),
    "recorder is a number": lambda tree: tree.update(recorder=5),
}


@pytest.mark.parametrize("harm", HOSTILE_STATES.values(), ids=list(HOSTILE_STATES))
def test_a_hostile_checkpoint_with_right_hashes_is_refused(
    out: Path, tmp_path: Path, harm: Callable[[dict[str, Any]], object]
) -> None:
    for directory in (out / "checkpoints").iterdir():
        body = json.loads((directory / "state.json").read_bytes())
        harm(body["tree"])
        put(directory, "state.json", json.dumps(body).encode())
    with no_code_runs(tmp_path), pytest.raises(ClearlError):
        run(CONFIG, out, console=False)


def test_a_checkpoint_of_another_network_is_refused(out: Path, tmp_path: Path) -> None:
    other = small_config(cycles=1, frames_per_visit=300, lstm=True)
    run(other, tmp_path / "other", console=False)
    shutil.rmtree(out / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", out / "checkpoints")
    with pytest.raises(ClearlError):
        agent_of_run(out)


@pytest.mark.parametrize("name", ["agent.json", "agent.safetensors"])
def test_a_hostile_exported_agent_is_refused(out: Path, tmp_path: Path, name: str) -> None:
    export_agent(out, tmp_path / "agent")
    load_exported(tmp_path / "agent")
    (tmp_path / "agent" / name).write_bytes(pickle.dumps(Bomb(tmp_path / "pwned")))
    with no_code_runs(tmp_path), pytest.raises(ClearlError):
        load_exported(tmp_path / "agent")


@pytest.mark.parametrize("change", ["spec", "config", "weights_sha256"])
def test_an_exported_agent_that_says_strange_things_is_refused(out: Path, tmp_path: Path, change: str) -> None:
    export_agent(out, tmp_path / "agent")
    path = tmp_path / "agent" / "agent.json"
    about = {key: value for key, value in json.loads(path.read_bytes()).items() if key != "crc"}
    for value in (HOSTILE_SPECS["huge"], 5, None):
        path.write_text(json.dumps({**about, change: value}))
        with pytest.raises(ClearlError):
            load_exported(tmp_path / "agent")


def put(directory: Path, name: str, data: bytes) -> None:
    """Put other content into a file of a checkpoint, and its true hash into the manifest."""
    (directory / name).write_bytes(data)
    manifest = json.loads((directory / "manifest.json").read_bytes())
    manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (directory / "manifest.json").write_text(json.dumps(manifest))


def change_meta(out: Path, change: dict[str, Any]) -> None:
    """Change meta.json as one who edits it by hand, without a checksum."""
    meta = json.loads((out / "meta.json").read_bytes())
    meta.pop("crc")
    (out / "meta.json").write_text(json.dumps({**meta, **change}))


def test_the_sound_run_is_accepted(out: Path) -> None:
    """Without this, all of the above could pass for the wrong reason."""
    change_meta(out, {})
    newest = CheckpointStore(out / "checkpoints").newest()
    assert newest is not None
    put(newest.path, "state.json", (newest.path / "state.json").read_bytes())
    assert use_everything(out) == []
