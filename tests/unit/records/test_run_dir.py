"""A run directory is made once, opened with its contents checked, and never put over something else."""

from __future__ import annotations

import errno
import json
import os

import pytest

from clearl.errors import CorruptFileError, RunDirectoryError, StorageError
from clearl.records import RunDir, holds_run, read_meta, refuse_foreign
from clearl.records.run_dir import describe_machine, describe_versions

CONFIG = "method: clear\nseed: 3\n"


def _create(path):
    return RunDir.create(path, config_text=CONFIG, meta={"seed": 3, "method": "clear"})


def test_create_writes_config_and_meta_and_open_reads_them(tmp_path):
    _create(tmp_path / "runs" / "a")
    run = RunDir.open(tmp_path / "runs" / "a")
    assert run.config_text == CONFIG
    assert run.meta["seed"] == 3 and run.meta["v"] == 1 and run.status == "running"
    assert sorted(entry.name for entry in run.path.iterdir()) == ["config.yaml", "meta.json"]
    assert run.metrics_path == run.path / "metrics.jsonl"
    assert (run.checkpoints_path.name, run.replay_path.name) == ("checkpoints", "replay")


def test_what_holds_no_run_is_told_as_it_is(tmp_path):
    for path, said in ((tmp_path / "gone", "nothing of this name"), (tmp_path, "there is no meta.json in it")):
        with pytest.raises(RunDirectoryError, match=said):
            RunDir.open(path)
    os.mkfifo(tmp_path / "meta.json")
    with pytest.raises(RunDirectoryError, match="its meta.json is no regular file"):
        RunDir.open(tmp_path)


def test_meta_is_json_that_anyone_can_read(tmp_path):
    run = _create(tmp_path)
    assert json.loads((run.path / "meta.json").read_text())["method"] == "clear"


def test_status_and_fields_are_updated_in_place(tmp_path):
    run = _create(tmp_path)
    run.set_status("interrupted", frames=100)
    run.update_meta(arm="clear-75-25")
    assert (run.status, run.meta["frames"], run.meta["arm"], run.meta["seed"]) == ("interrupted", 100, "clear-75-25", 3)
    with pytest.raises(ValueError, match="'done'"):
        run.set_status("done")  # pyright: ignore[reportArgumentType]


def test_an_interrupted_update_leaves_the_old_meta(tmp_path, monkeypatch):
    run = _create(tmp_path)

    def fail(*_):
        raise OSError(errno.ENOSPC, "power cut")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(StorageError, match=r"meta.json: power cut; make room.*\(\d+ bytes needed, \d+ free\)"):
        run.set_status("finished")
    assert run.status == "running"
    assert sorted(path.name for path in run.path.iterdir()) == ["config.yaml", "meta.json"]


def test_two_processes_cannot_train_into_one_directory(tmp_path):
    run = _create(tmp_path)
    with run.locked(), pytest.raises(RunDirectoryError, match="being trained by another process"), run.locked():
        pass
    with run.locked():
        pass


def test_an_empty_directory_is_taken_and_one_just_begun_too(tmp_path):
    (tmp_path / "empty").mkdir()
    _create(tmp_path / "empty")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.yaml").write_text("half")
    assert _create(tmp_path / "begun").config_text == CONFIG


def test_something_else_is_never_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunDirectoryError, match=r"not empty and holds no run \(thesis.tex\); give another --out"):
        _create(tmp_path)
    with pytest.raises(RunDirectoryError, match="is a file"):
        refuse_foreign(tmp_path / "thesis.tex")
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_directory_that_holds_a_run_is_not_made_again(tmp_path):
    _create(tmp_path)
    refuse_foreign(tmp_path)
    with pytest.raises(RunDirectoryError, match="holds a run already"):
        _create(tmp_path)


def test_opening_no_run_says_so(tmp_path):
    assert not holds_run(tmp_path)
    with pytest.raises(RunDirectoryError, match="holds no run"):
        RunDir.open(tmp_path)


def test_damage_to_meta_or_config_is_noticed(tmp_path):
    run = _create(tmp_path)
    meta = (tmp_path / "meta.json").read_bytes()
    (tmp_path / "meta.json").write_bytes(meta.replace(b'"seed": 3', b'"seed": 7'))
    with pytest.raises(CorruptFileError, match=r"checksum.*by hand"):
        read_meta(tmp_path)
    (tmp_path / "meta.json").write_bytes(meta)
    (tmp_path / "config.yaml").write_text(CONFIG.replace("3", "4"))
    with pytest.raises(CorruptFileError, match="was changed after the run was made"):
        RunDir.open(tmp_path)
    (tmp_path / "config.yaml").unlink()
    with pytest.raises(CorruptFileError, match="is missing"):
        _ = run.config_text


def test_meta_of_another_version_is_refused(tmp_path):
    (tmp_path / "meta.json").write_text('{"v": 9}')
    with pytest.raises(CorruptFileError, match="version 9"):
        read_meta(tmp_path)


def test_machine_and_versions_name_no_host_or_user():
    assert set(describe_machine()) == {"system", "machine", "cores"}
    versions = describe_versions("numpy", "no-such-package")
    assert set(versions) == {"python", "numpy"}
