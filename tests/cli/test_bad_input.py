"""What a user did wrong is one line that names it, exit code 2, no traceback, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearl.cli.main import main
from clearl.cli.output import warn
from clearl.errors import ConfigError, WorkerError

# A tiny budget: if a check fails to fail, the test does so at once instead of training.
RUN = ["run", "--runtime", "inline", "--frames-per-visit", "640", "--eval-max-steps", "1", "--out", "x"]
DRIFT = [*RUN, "--protocol", "drift", "--suite"]
TABLE: list[tuple[list[str], str]] = [
    (["rnu"], "unknown verb 'rnu'; did you mean 'run'?"),
    (["run"], "run needs --out"),
    (["run", "--out"], "--out needs a value"),
    ([*RUN, "--out", "y"], "--out is given twice"),
    ([*RUN, "--frames-per-vist", "5"], "unknown flag '--frames-per-vist'; did you mean '--frames-per-visit'"),
    ([*RUN, "--frames_per_vist", "5"], "did you mean '--frames-per-visit'"),
    ([*RUN, "-z"], "unknown flag '-z'; clearl run --help lists them"),
    ([*RUN, "stray"], "run does not take 'stray'"),
    ([*RUN, "--lstm=yes"], "--lstm takes no value"),
    ([*RUN, "--lstm", "--seed"], "--seed needs a value"),
    ([*RUN, "--slots", "many"], "slots must be a whole number between 1 and 4_096, got 'many'"),
    ([*RUN, "--slots", "-3"], "slots must be a whole number between 1 and 4_096, got '-3'"),
    ([*RUN, "--slots=0"], "slots must be a whole number between 1 and 4_096, got '0'"),
    ([*RUN, "--replay-fraction", "1.5"], "replay_fraction must be a number between 0 and 1, got '1.5'"),
    ([*RUN, "--replay-fraction", "nan"], "replay_fraction must be a number between 0 and 1"),
    ([*RUN, "--learning-rate", "-1"], "learning_rate must be a number between 0 and 10"),
    ([*RUN, "--optimizer", "sgd"], "optimizer must be one of adam, rmsprop, got 'sgd'"),
    (["run", "--runtime", "ry", "--out", "x"], "unknown runtime 'ry'; did you mean 'ray'"),
    ([*RUN, "--slots", "8"], "batch_unrolls must be between 1 and slots (8), got 32"),
    ([*RUN, "--buffer-frames", "5"], "buffer_frames must be at least 1280"),
    (
        [*RUN, "--replay-budget", "5KB"],
        "for each of 64 slots, got 5.0 KB",
    ),
    ([*RUN, "--replay-budget", "some"], "replay_budget must be a size such as 20GB, in bytes between 1 and"),
    ([*RUN, "--replay-budget", "1GB", "--buffer-frames", "9k"], "give it, buffer_frames or buffer_share, not two"),
    ([*RUN, "--replay-frames", "9k"], "did you mean '--buffer-frames'"),
    ([*RUN, "--tasks", ","], "tasks must be a list of texts"),
    ([*RUN, "--preset", "minatr"], "unknown preset 'minatr'; did you mean 'minatar'"),
    ([*RUN, "--config", "gone.yaml"], "config file gone.yaml cannot be read"),
    ([*RUN, "--method", "clera"], "unknown method 'clera'; did you mean 'clear'"),
    ([*RUN, "--suite", "minatr"], "unknown suite 'minatr'; did you mean 'minatar'"),
    ([*RUN, "--tasks", "breakot"], "unknown task of suite minatar 'breakot'; did you mean 'breakout'"),
    ([*RUN, "--protocol", "sequentiel"], "unknown protocol 'sequentiel'; did you mean 'sequential'"),
    ([*RUN, "--torso", "minata"], "unknown torso 'minata'; did you mean 'minatar'"),
    ([*RUN, "--imports", "no_such_module"], "imports: module 'no_such_module' cannot be imported"),
    ([*RUN, "--suite", "gym:CartPole-v1", "--torso", "minatar"], "torso 'minatar' needs images"),
    ([*DRIFT, "gym:CartPole-v1?length=0..2.0"], "'CartPole-v1?length=0' is outside of what CartPole-v1 takes"),
    ([*DRIFT, "gym:CartPole-v1?lenght=0.5..2.0"], "did you mean 'length'"),
    ([*DRIFT, "gym:CartPole-v1?length=2.0..2.0"], "a range has two different numbers"),
    ([*DRIFT, "gym:CartPole-v1"], "protocol drift needs two tasks or more"),
    (
        [*DRIFT, "gym:CartPole-v1?length=0.5..2.0", "--method", "ewc"],
        "method ewc has to be told where a task ends, and protocol drift moves from task to task without a boundary",
    ),
    ([*RUN, "--protocol", "overlap", "--method", "progress-compress"], "protocol overlap moves from task to task"),
    ([*RUN, "--cycles", "forever", "--method", "clear"], "give buffer_frames or replay_budget"),
    ([*RUN, "--protocol", "schedule", "--schedule", "gone.yaml"], "gone.yaml cannot be read"),
    ([*RUN, "--from", "gone"], "gone holds no run"),
    ([*RUN, "--extend", "gone"], "give either --from RUN with --out for the copy that goes on, or --extend RUN alone"),
    (["eval"], "eval needs RUN"),
    (["eval", "gone"], "gone holds no run: there is nothing of this name"),
    (["video", "gone", "--out", "x.avi"], "out must end in .gif or .mp4"),
    (["export", "gone"], "export needs --out"),
    (["export", "gone", "--out", "x"], "gone holds no run"),
    (["check"], "check needs ENVIRONMENTS"),
    (["check", "gym:"], "check needs an environment"),
    (["check", "minatar:breakout"], "check takes Gymnasium environments; suite minatar comes with clearl"),
    (["list", "method"], "unknown list 'method'; did you mean 'methods'"),
    (["doctor", "now"], "doctor does not take 'now'"),
    (["reproduce"], "reproduce needs NAME"),
    (["reproduce", "stabilty"], "did you mean 'stability'"),
    (["demo", "--fats"], "unknown flag '--fats'; did you mean '--fast'"),
]


@pytest.mark.parametrize(("arguments", "message"), TABLE, ids=[" ".join(arguments) for arguments, _ in TABLE])
def test_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.startswith("clearl: ") and shown.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def _broken_verb(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(argv: list[str]) -> int:
        raise error

    monkeypatch.setattr("clearl.cli.doctor.main", fail)


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch):
    _broken_verb(monkeypatch, ConfigError("wrong"))
    monkeypatch.setenv("CLEARL_DEBUG", "1")
    with pytest.raises(ConfigError, match="wrong"):
        main(["doctor"])


def test_what_fails_while_running_is_code_1_with_the_workers_own_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("CLEARL_DEBUG", raising=False)
    _broken_verb(monkeypatch, WorkerError("worker 3 died\nTraceback: its own"))
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == "clearl: worker 3 died\nTraceback: its own\n"


def test_what_a_strangers_files_say_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.delenv("CLEARL_DEBUG", raising=False)
    _broken_verb(monkeypatch, ConfigError("no task \x1b]0;owned\x07 is known\nsecond line"))
    assert main(["doctor"]) == 2
    warn("checkpoint \x9b31m")
    assert capsys.readouterr().err == "clearl: no task ?]0;owned? is known\nsecond line\nclearl: checkpoint ?31m\n"


def test_ctrl_c_is_code_130(monkeypatch: pytest.MonkeyPatch):
    _broken_verb(monkeypatch, KeyboardInterrupt())
    assert main(["doctor"]) == 130


def test_an_error_of_ours_in_the_code_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    _broken_verb(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["run", "--lr", "0.1", "--out", "x"], "did you mean '--learning-rate'?"),
        (["run", "-o", "x"], "did you mean '--out'?"),
        (["run", "--tasks", "a", "b", "--out", "x"], "--tasks a,b"),
        (["run", "--imports", "./my_worlds.py", "--out", "x"], "write my_worlds"),
        (["check", "gym:CartPol-v1"], "--imports MODULE"),
    ],
)
def test_a_habit_from_elsewhere_is_understood(argv: list[str], said: str, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    shown = capsys.readouterr().err
    assert said in shown and shown.count("\n") == 1


@pytest.mark.parametrize("flag", ["version", "--version"])
def test_the_version_is_told(flag: str, capsys):
    assert main([flag]) == 0
    assert capsys.readouterr().out.startswith("clearl 0.")
