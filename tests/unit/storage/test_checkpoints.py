from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearl.errors import CorruptFileError, StorageError
from clearl.storage import checkpoints
from clearl.storage.checkpoints import ARRAYS_FILE, MANIFEST_FILE, STATE_FILE, CheckpointStore


def tree(number: int) -> dict[str, Any]:
    return {
        "number": number,
        "rng": {"state": (1 << 127) + number, "inc": 5},
        "learner": {"tensors": {"network/w": torch.full((4, 5), float(number)), "step": torch.tensor(number)}},
        "actor": None,
        "waiting": [np.zeros((0, 3), np.uint64), np.array([True, False])],
    }


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def assert_is(number: int, found: dict[str, Any]) -> None:
    assert found["number"] == number and found["rng"]["state"] == (1 << 127) + number
    assert torch.equal(found["learner"]["tensors"]["network/w"], torch.full((4, 5), float(number)))
    assert found["waiting"][0].dtype == np.uint64 and found["waiting"][1].tolist() == [True, False]


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


def test_an_empty_store_has_nothing_and_makes_nothing(store: CheckpointStore) -> None:
    assert store.newest() is None and store.oldest() is None
    assert not store.path.exists()


def test_two_generations_are_kept(store: CheckpointStore) -> None:
    paths = [store.save(tree(number)) for number in range(1, 5)]
    assert names(store.path) == ["checkpoint-00000003", "checkpoint-00000004"]
    newest, oldest = store.newest(), store.oldest()
    assert newest and oldest and newest.path == paths[3] and oldest.path == paths[2]
    assert newest.notes == ()
    assert_is(4, newest.tree)
    assert_is(3, oldest.tree)


def test_the_json_part_is_read_without_the_arrays(store: CheckpointStore) -> None:
    (store.save(tree(1)) / ARRAYS_FILE).unlink()
    oldest = store.oldest()
    assert oldest and oldest.json["number"] == 1
    assert oldest.json["learner"]["tensors"] == {"network/w": None, "step": None}
    with pytest.raises(CorruptFileError, match="arrays.safetensors cannot be opened"):
        _ = oldest.tree


def test_a_damaged_newest_falls_back_and_says_so(store: CheckpointStore) -> None:
    store.save(tree(1))
    flip(store.save(tree(2)) / ARRAYS_FILE, 100)
    found = store.newest()
    assert found and len(found.notes) == 1
    assert (
        "checkpoint-00000002 cannot be used" in found.notes[0] and "went on from checkpoint-00000001" in found.notes[0]
    )
    assert_is(1, found.tree)


def test_a_save_keeps_the_good_older_one_rather_than_the_damaged(store: CheckpointStore) -> None:
    store.save(tree(1))
    flip(store.save(tree(2)) / STATE_FILE, 3)
    flip(store.save(tree(3)) / ARRAYS_FILE, 40)
    assert names(store.path) == ["checkpoint-00000001", "checkpoint-00000003"]
    store.save(tree(4))
    assert names(store.path) == ["checkpoint-00000001", "checkpoint-00000004"]


def test_all_damaged_is_an_error_and_never_a_fresh_start(store: CheckpointStore) -> None:
    for path in [store.save(tree(number)) for number in (1, 2)]:
        (path / MANIFEST_FILE).write_bytes(b"")
    with pytest.raises(CorruptFileError, match="no good checkpoint is left.*00000002.*00000001"):
        store.newest()
    assert store.oldest() is None


def test_a_checkpoint_that_its_user_refuses_is_passed_over(store: CheckpointStore) -> None:
    def check(state: dict[str, Any]) -> None:
        if state["number"] == 2:
            raise CorruptFileError("the metrics end before it")

    store.save(tree(1))
    store.save(tree(2))
    found = CheckpointStore(store.path, check=check).newest()
    assert found and found.json["number"] == 1 and "the metrics end before it" in found.notes[0]


def test_leftovers_are_removed_at_the_next_start_but_not_a_write_under_way(store: CheckpointStore) -> None:
    store.save(tree(1))
    dead, alive = store.path / ".tmp-checkpoint-00000002", store.path / ".tmp-checkpoint-00000003"
    for path in (dead, alive):
        path.mkdir()
        (path / STATE_FILE).write_bytes(b"half")
    fd = os.open(alive, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    CheckpointStore(store.path).newest()
    assert dead.exists(), "who reads must not touch a run"
    store.clean()
    assert not dead.exists() and alive.exists()
    os.close(fd)
    store.clean()
    assert names(store.path) == ["checkpoint-00000001"]


def flip(path: Path, byte: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[byte % len(data)] ^= 1 << bit
    path.write_bytes(bytes(data))


def test_every_flip_and_truncation_is_detected_or_harmless(store: CheckpointStore) -> None:
    store.save(tree(1))
    directory = store.save(tree(2))
    rng = random.Random(5)
    files = {name: (directory / name).read_bytes() for name in (STATE_FILE, ARRAYS_FILE, MANIFEST_FILE)}
    outcomes = {"fell back": 0, "harmless": 0}
    for trial in range(2000):
        name = rng.choice(list(files))
        data = bytearray(files[name])
        if trial % 10:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        else:
            del data[rng.randrange(len(data)) :]
        (directory / name).write_bytes(bytes(data))
        found = store.newest()
        assert found is not None
        assert_is(1 if found.notes else 2, found.tree)
        outcomes["fell back" if found.notes else "harmless"] += 1
        # Only the white space of the manifest carries no meaning.
        assert found.notes or name == MANIFEST_FILE
        (directory / name).write_bytes(files[name])
    assert outcomes["fell back"] > 1700


def resealed(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Change the manifest of a checkpoint."""

    def apply(directory: Path) -> None:
        manifest = json.loads((directory / MANIFEST_FILE).read_bytes())
        change(manifest)
        (directory / MANIFEST_FILE).write_text(json.dumps(manifest))

    return apply


def with_right_hash(name: str, data: bytes) -> Callable[[Path], None]:
    """Put other content into a file and its true hash into the manifest, as one who means harm can."""

    def apply(directory: Path) -> None:
        (directory / name).write_bytes(data)
        entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        resealed(lambda manifest: manifest["files"].update({name: entry}))(directory)

    return apply


def linked(name: str) -> Callable[[Path], None]:
    def apply(directory: Path) -> None:
        outside = directory.parent.parent / "outside"
        shutil.move(directory / name, outside)
        (directory / name).symlink_to(outside)

    return apply


def piped(directory: Path) -> None:
    (directory / STATE_FILE).unlink()
    os.mkfifo(directory / STATE_FILE)


PICKLE = b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R."
HOSTILE: dict[str, Callable[[Path], object]] = {
    "absolute path": resealed(lambda m: m["files"].update({"/etc/passwd": m["files"].pop(STATE_FILE)})),
    "climbing path": resealed(lambda m: m["files"].update({"../x": m["files"][STATE_FILE]})),
    "huge size": resealed(lambda m: m["files"][STATE_FILE].update(bytes=1 << 62)),
    "negative size": resealed(lambda m: m["files"][STATE_FILE].update(bytes=-1)),
    "size as text": resealed(lambda m: m["files"][STATE_FILE].update(bytes="12")),
    "size as bool": resealed(lambda m: m["files"][STATE_FILE].update(bytes=True)),
    "unknown key": resealed(lambda m: m.update(pickle="yes")),
    "unknown key of a file": resealed(lambda m: m["files"][STATE_FILE].update(path="/etc/passwd")),
    "other version": resealed(lambda m: m.update(version=2)),
    "no hash": resealed(lambda m: m["files"][STATE_FILE].update(sha256=None)),
    "manifest is a pickle": lambda d: (d / MANIFEST_FILE).write_bytes(PICKLE),
    "manifest is endless": lambda d: (d / MANIFEST_FILE).write_bytes(b" " * (1 << 20)),
    "manifest is nested": lambda d: (d / MANIFEST_FILE).write_bytes(b"[" * 4000),
    "manifest is a directory": lambda d: ((d / MANIFEST_FILE).unlink(), (d / MANIFEST_FILE).mkdir()),
    "state is a pickle": with_right_hash(STATE_FILE, PICKLE),
    "arrays are a pickle": with_right_hash(ARRAYS_FILE, PICKLE),
    "arrays with a huge header": with_right_hash(ARRAYS_FILE, (1 << 62).to_bytes(8, "little") + b"{}"),
    "link out of the directory": linked(STATE_FILE),
    "linked arrays": linked(ARRAYS_FILE),
    "pipe": piped,
}


@pytest.mark.parametrize("harm", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_content_is_refused(store: CheckpointStore, harm: Callable[[Path], object]) -> None:
    harm(store.save(tree(1)))
    with pytest.raises(CorruptFileError):
        found = store.newest()
        assert found is not None
        _ = found.tree


def test_hostile_shapes_with_a_right_hash_are_refused(store: CheckpointStore) -> None:
    directory = store.save(tree(1))
    data = (directory / ARRAYS_FILE).read_bytes()
    for old, new in [(b"[4,5]", b"[9,9]"), (b"[4,5]", b"[-4,-5]"), (b'"F32"', b'"F64"'), (b'"F32"', b'"XYZ"')]:
        header_length = int.from_bytes(data[:8], "little") + len(new) - len(old)
        changed = header_length.to_bytes(8, "little") + data[8:].replace(old, new)
        assert changed[8:] != data[8:]
        with_right_hash(ARRAYS_FILE, changed)(directory)
        found = store.newest()
        assert found is not None
        with pytest.raises(CorruptFileError, match="not safetensors"):
            _ = found.tree


@pytest.mark.parametrize("call", ["write", "sync", "directory", "rename"])
def test_a_full_disk_leaves_the_previous_one_and_says_what_is_missing(
    store: CheckpointStore, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(tree(1))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        target = {"write": (checkpoints, "_write"), "sync": (os, "fsync"), "directory": (os, "mkdir")}
        patch.setattr(*target.get(call, (os, "rename")), full)
        with pytest.raises(
            StorageError,
            match=r"checkpoint-00000002: .*No space left.*\(\d+ bytes needed, \d+ free\).*from checkpoint-00000001",
        ):
            store.save(tree(2))
    assert names(store.path) == ["checkpoint-00000001"]
    found = store.newest()
    assert found is not None
    assert_is(1, found.tree)
    store.save(tree(2))
    assert names(store.path) == ["checkpoint-00000001", "checkpoint-00000002"]


def test_what_reads_back_wrong_does_not_replace_anything(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(tree(1))
    store.save(tree(2))
    write = checkpoints._write
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_write", lambda path, data: write(path, data[:-1] + b"?"))
        with pytest.raises(StorageError, match="cannot be read again"):
            store.save(tree(3))
    assert names(store.path) == ["checkpoint-00000001", "checkpoint-00000002"]


def test_a_save_that_is_killed_anywhere_leaves_a_good_checkpoint(store: CheckpointStore) -> None:
    """A child process dies at its n-th system call of interest, for every n until a save goes through."""
    survived, calls = False, -1
    while not survived:
        shutil.rmtree(store.path, ignore_errors=True)
        store.save(tree(1))
        store.save(tree(2))
        calls += 1
        pid = os.fork()
        if pid == 0:
            torch.set_num_threads(1)  # further ones are not forked along
            die_after(calls)
            CheckpointStore(store.path).save(tree(3))
            os._exit(0)
        survived = os.waitpid(pid, 0)[1] == 0
        found = CheckpointStore(store.path).newest()
        assert found is not None and found.notes == ()
        store.clean()
        number = found.json["number"]
        assert number in (2, 3) and (number == 3 or not survived)
        assert_is(number, found.tree)
        assert not [name for name in names(store.path) if name.startswith(".")]
        assert len(names(store.path)) == 2 or (len(names(store.path)) == 3 and number == 3 and not survived)
    assert calls > 20


def die_after(calls: int) -> None:
    """Let this process end without further ado at a system call of interest."""
    left = [calls]
    for name in ("open", "fsync", "rename", "mkdir", "unlink", "rmdir"):
        setattr(os, name, _dying(getattr(os, name), left))


def _dying(function: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if left[0] == 0:
            os._exit(9)
        left[0] -= 1
        return function(*arguments, **named)

    return call
