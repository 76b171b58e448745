"""Mirrors show what metrics.jsonl holds, and can be built from it again."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import pytest

from clearl.errors import ConfigError, MissingExtraError, UnknownNameError
from clearl.records import MetricsWriter, RunDir, eval_row, train_row
from clearl.records.mirrors import MIRRORS, Scalars, check_mirrors, open_mirrors

ROWS = [
    eval_row(task="breakout", frames=10, mean_return=1.5, episodes=4, updates=1, wall_s=1.0, std=0.5),
    train_row(
        tasks=["breakout"], frames=20, updates=2, fps=9.0, loss={"value": 3.0, "entropy": None},  # pyright: ignore[reportArgumentType]
        lag_updates=1.0, replay={"fill": 0.25}, wall_s=2.0,
    ),
]  # fmt: skip


@pytest.fixture
def run_dir(tmp_path):
    RunDir.create(tmp_path / "run", config_text="", meta={"seed": 1, "arm": "clear"})
    with MetricsWriter(tmp_path / "run") as writer:
        for row in ROWS:
            writer.write(row)
    return tmp_path / "run"


def test_scalars_are_tagged_by_kind_and_task():
    scalars = Scalars()
    assert scalars(ROWS[0]) == {"eval/return/breakout": 1.5, "eval/std/breakout": 0.5}
    assert scalars(ROWS[1]) == {
        "train/updates": 2.0,
        "train/fps": 9.0,
        "train/loss/value": 3.0,
        "train/lag_updates": 1.0,
        "train/replay/fill": 0.25,
        "train/shares/breakout": 1.0,
    }
    assert scalars({"v": 1, "kind": "segment"}) == {}


def test_scalars_tell_which_task_is_trained_and_which_no_longer_is():
    scalars, shown = Scalars(), []
    for tasks, extra in ((["a"], {}), (["b"], {}), (["a", "b"], {"shares": {"a": 0.25, "b": 0.75}})):
        values = scalars({"v": 1, "kind": "train", "tasks": tasks, **extra})
        shown.append({tag.removeprefix("train/shares/"): value for tag, value in values.items()})
    assert shown == [{"a": 1.0}, {"a": 0.0, "b": 1.0}, {"a": 0.25, "b": 0.75}]


def _events(directory):
    loader = importlib.import_module("tensorboard.backend.event_processing.event_file_loader")
    (file,) = directory.iterdir()
    return [(value, event) for event in loader.EventFileLoader(str(file)).Load() for value in event.summary.value]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_holds_the_rows_and_is_rebuilt_not_doubled(run_dir):
    pytest.importorskip("tensorboard")
    for _ in range(2):
        (mirror,) = open_mirrors(run_dir, ["tensorboard"])
        mirror.write(eval_row(task="asterix", frames=30, mean_return=4.0, episodes=1, updates=3, wall_s=3.0))
        mirror.close()
    events = {
        (value.tag, event.step): value.tensor.float_val[0]
        for value, event in _events(run_dir / "tensorboard")
        if value.tensor.float_val
    }
    assert events[("eval/return/breakout", 10)] == 1.5
    assert events[("train/loss/value", 20)] == 3.0
    assert events[("eval/return/asterix", 30)] == 4.0
    assert len(events) == 9


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_the_time_of_day_and_the_settings(run_dir):
    pytest.importorskip("tensorboard")
    RunDir(run_dir).update_meta(began_unix_s=1_700_000_000)
    (run_dir / "config.yaml").write_text("learning_rate: 0.5\nanneal: true\ntasks: [a, b]\n")
    (mirror,) = open_mirrors(run_dir, ["tensorboard"])
    mirror.close()
    events = _events(run_dir / "tensorboard")
    assert {event.wall_time for value, event in events if value.tag == "eval/return/breakout"} == {1_700_000_001.0}
    (content,) = (v.metadata.plugin_data.content for v, _ in events if v.tag == "_hparams_/session_start_info")
    plugin = importlib.import_module("tensorboard.plugins.hparams.plugin_data_pb2").HParamsPluginData
    told = plugin.FromString(content).session_start_info.hparams
    assert told["learning_rate"].number_value == 0.5 and told["anneal"].bool_value is True
    assert told["tasks"].string_value == "a,b"


def test_wandb_gets_the_rows_by_frames(run_dir, monkeypatch):
    calls = []
    run = SimpleNamespace(
        offline=False, resumed=False,
        define_metric=lambda *names, **options: calls.append(("define", names, options)),
        log=lambda values: calls.append(("log", values)),
        finish=lambda: calls.append(("finish",)),
    )  # fmt: skip
    monkeypatch.setitem(
        sys.modules, "wandb", SimpleNamespace(init=lambda **options: calls.append(("init", options)) or run)
    )
    (mirror,) = open_mirrors(run_dir, ["wandb"])
    mirror.close()
    assert calls[0][1]["group"] == "clear" and calls[0][1]["config"]["seed"] == 1
    assert ("define", ("*",), {"step_metric": "frames"}) in calls
    assert ("log", {"eval/return/breakout": 1.5, "eval/std/breakout": 0.5, "frames": 10}) in calls
    assert calls[-1] == ("finish",)


class Service:
    """W&B or Trackio as far as runs go: it knows a run once a row of it has arrived."""

    def __init__(self, monkeypatch, name):
        self.key = "id" if name == "wandb" else "name"
        self.rows = {}
        self.loses = False
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(init=self.init))

    def init(self, *, resume, **options):
        name = options[self.key]
        if resume == "must" and name not in self.rows:
            raise ValueError(f"Run '{name}' does not exist")
        self.opened = options
        log = lambda values, **_: None if self.loses else self.rows.setdefault(name, []).append(values)  # noqa: E731
        return SimpleNamespace(
            offline=False, resumed=resume != "never" and name in self.rows,
            define_metric=lambda *names, **options: None, log=log, finish=lambda: None,
        )  # fmt: skip


def _session(run_dir, service, frames):
    (mirror,) = open_mirrors(run_dir, [service])
    mirror.write(eval_row(task="asterix", frames=frames, mean_return=4.0, episodes=1, updates=3, wall_s=3.0))
    mirror.close()


@pytest.fixture(params=["wandb", "trackio"])
def service(request):
    return request.param


def test_a_resumed_run_goes_on_in_the_same_run_of_a_service_and_repeats_nothing(run_dir, monkeypatch, service):
    there = Service(monkeypatch, service)
    _session(run_dir, service, 30)
    moved = run_dir.rename(run_dir.with_name("moved"))
    _session(moved, service, 40)
    assert there.opened["group"] == "clear" and there.opened["config"]["seed"] == 1
    ((_, rows),) = there.rows.items()
    assert len(rows) == 2 + 1 + 1, "the rows so far, then one new row each"


def test_a_run_that_a_service_does_not_know_is_told_in_full(run_dir, monkeypatch, service):
    """Killed before its first rows arrived, or forgotten there."""
    there = Service(monkeypatch, service)
    there.loses = True
    _session(run_dir, service, 30)
    there.loses = False
    _session(run_dir, service, 40)
    ((_, rows),) = there.rows.items()
    assert len(rows) == 2 + 1


def test_a_run_that_was_started_again_is_another_run_at_a_service(run_dir, monkeypatch, service):
    there = Service(monkeypatch, service)
    _session(run_dir, service, 30)
    RunDir(run_dir).remove_run()
    assert not any(run_dir.iterdir()), "of the run and its mirrors nothing is left"
    RunDir.create(run_dir, config_text="", meta={"seed": 2, "arm": "clear"})
    _session(run_dir, service, 10)
    assert [len(rows) for rows in there.rows.values()] == [3, 1]


@pytest.mark.parametrize("package", ["tensorboard", "wandb", "trackio"])
def test_a_missing_package_is_named_with_its_remedy(run_dir, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith(package + ".")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=rf"pip install 'clearl\[{package}\]'"):
        check_mirrors([package])


def test_a_missing_key_of_wandb_is_said_before_the_run(monkeypatch):
    def login(prompt, verify):
        assert not prompt and not verify
        return keys

    def old_login(verify):
        """Before W&B 0.31: there is no `prompt`, and it asks at the terminal."""

    current = SimpleNamespace(login=login)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    for keys in (False, True):
        old = SimpleNamespace(login=old_login, api=SimpleNamespace(api_key="key" if keys else None))
        for wandb in (current, old):
            monkeypatch.setitem(sys.modules, "wandb", wandb)
            if keys:
                check_mirrors(["wandb"])
                continue
            with pytest.raises(ConfigError, match="WANDB_API_KEY"):
                check_mirrors(["wandb"])
            with monkeypatch.context() as patch:
                patch.setenv("WANDB_MODE", "offline")
                check_mirrors(["wandb"])


@pytest.mark.parametrize("stage", ["init", "log", "finish"])
def test_a_mirror_that_fails_is_switched_off_with_one_line(run_dir, monkeypatch, capsys, stage):
    def fail(*values, **options):
        raise OSError(28, "No space left on device")

    run = SimpleNamespace(
        define_metric=lambda *names, **options: None, log=lambda values: None, finish=lambda: None,
        offline=False, resumed=False,
    )  # fmt: skip
    wandb = SimpleNamespace(init=lambda **options: run)
    monkeypatch.setattr(wandb if stage == "init" else run, stage, fail)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    (mirror,) = open_mirrors(run_dir, ["wandb"])
    for frames in (30, 40):
        mirror.write(eval_row(task="asterix", frames=frames, mean_return=4.0, episodes=1, updates=3, wall_s=3.0))
    mirror.close()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Weights & Biases is switched off, training goes on: OSError: No space left on device" in said


def test_a_mirror_of_ones_own_is_registered_and_an_unknown_name_is_refused(run_dir, monkeypatch):
    written = []
    mirror = SimpleNamespace(write=written.append, close=lambda: None)
    monkeypatch.setitem(sys.modules, "own_mirror", SimpleNamespace(Own=lambda path: mirror))
    monkeypatch.setattr(MIRRORS, "_entries", dict(MIRRORS._entries))
    MIRRORS.register("own", "own_mirror:Own")
    check_mirrors(["own"])
    assert len(open_mirrors(run_dir, ["own", "own"])) == 1
    assert [row["kind"] for row in written] == ["eval", "train"], "the rows so far"
    with pytest.raises(UnknownNameError, match="mirror 'tensorbord'"):
        check_mirrors(["tensorbord"])
