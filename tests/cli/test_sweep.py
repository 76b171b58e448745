"""`clearl sweep`: two files, a report each; interrupted it goes on, finished it runs nothing, failed it reports."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from served import hear_ctrl_c

FILE = """
title: {title}
preset: minatar-schemes
settings: {{runtime: inline, slots: 8, batch_unrolls: 8, unroll_steps: 10, frames_per_visit: 640, cycles: 1,
           eval_every_frames: 640, eval_episodes: 2, eval_max_steps: 50}}
arms: [sequential, clear]
seeds: 1
"""


def sweep(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120"}
    command = [sys.executable, "-m", "clearl", "sweep", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)


def test_files_run_one_after_the_other_and_end_in_a_report_each(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.yaml" for name in ("one", "two")]
    for file in files:
        file.write_text(FILE.format(title=f"the study {file.stem}"))
    out = tmp_path / "out"
    listed = sweep(*map(str, files), "--out", str(out), "--dry-run")
    assert listed.stdout.split() == [f"{n}/{arm}/seed-0" for n in ("one", "two") for arm in ("sequential", "clear")]
    assert not out.exists()
    done = sweep(*map(str, files), "--out", str(out), "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert (out / "status.txt").read_text() == "4 of 4 runs finished\n"
    for name in ("one", "two"):
        assert f"the study {name}" in (out / "reports" / name / "index.html").read_text()
    shutil.rmtree(out / "reports")  # as after a batch system, which only runs
    again = sweep(*map(str, files), "--out", str(out))
    assert again.returncode == 0 and "4 of 4 runs are finished already" in again.stdout
    assert all((out / "reports" / name / "index.html").is_file() for name in ("one", "two"))


def test_settings_of_a_wrong_type_are_named_before_they_are_looked_at_for_modules(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("settings: {imports: 5}\n")
    refused = sweep(str(file), "--dry-run")
    assert refused.returncode == 2
    assert "imports must be a list of texts without empty ones, got 5" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_commands_for_a_batch_system_run_as_they_are(tmp_path: Path) -> None:
    file, out = tmp_path / "one.yaml", tmp_path / "out"
    file.write_text(FILE.format(title="one"))
    lines = sweep(str(file), "--out", str(out), "--commands").stdout.splitlines()
    assert len(lines) == 2
    command = lines[0].replace("clearl ", f"{sys.executable} -m clearl ", 1)
    subprocess.run(command, shell=True, check=True, timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert "1 of 2 runs are finished already" in sweep(str(file), "--out", str(out)).stdout


def test_a_method_of_ones_own_is_swept_over_once_its_module_is_asked_for(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    file = tmp_path / "own.yaml"
    file.write_text("settings: {imports: [examples.own_method]}\narms: {own: {method: pull-to-start+clear}}\n")
    environment = {**os.environ, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "clearl", "sweep", str(file), "--out", str(tmp_path / "out"), "--dry-run"]
    refused = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root, timeout=100)
    assert refused.returncode == 2 and "--imports" in refused.stderr
    asked = [*command, "--imports", "examples.own_method"]
    done = subprocess.run(asked, capture_output=True, text=True, env=environment, cwd=root, timeout=100)
    assert done.stdout.split() == ["own/own/seed-0"], done.stderr


@pytest.mark.parametrize(
    "arms",
    ["{own: {imports: [strange]}}", "{own: {suite: 'gym:strange:Odd-v0'}}",
     "{own: {suite: gym}}\norders: [['strange:Odd-v0']]",
     "{own: {method: clear}}\ngrid: {wrappers: [['strange:Wrapper'], []]}",
     "{own: {suite: gym}}\nrandom: {samples: 2, settings: {tasks: [['strange:Odd-v0'], [CartPole-v1]]}}"],
)  # fmt: skip
def test_no_module_is_imported_unasked_wherever_the_file_names_it(tmp_path: Path, arms: str) -> None:
    (tmp_path / "strange.py").write_text("open('was-here', 'w')")
    file = tmp_path / "theirs.yaml"
    file.write_text(f"settings: {{frames_per_visit: 640, runtime: inline}}\narms: {arms}\n")
    for flags in ([], ["--dry-run"], ["--commands"]):
        command = [sys.executable, "-m", "clearl", "sweep", str(file), "--out", "out", *flags]
        refused = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=100)
        assert refused.returncode == 2 and "needs modules that are not imported unasked" in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["strange.py", "theirs.yaml"]


def test_environments_of_a_module_of_ones_own_are_trained_once_it_is_asked_for(tmp_path: Path) -> None:
    code = "import gymnasium\ngymnasium.register('Odd-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    (tmp_path / "mine.py").write_text(code)
    file, out = tmp_path / "own.yaml", tmp_path / "out"
    text = FILE.format(title="own").replace("minatar-schemes", "gym-classic")
    file.write_text(text.replace("[sequential, clear]", "{own: {suite: 'gym:mine:Odd-v0'}}"))
    command = [sys.executable, "-m", "clearl", "sweep", str(file), "--out", str(out), "--imports", "mine"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("1 run, ") and (out / "status.txt").read_text() == "1 of 1 runs finished\n"


@pytest.mark.parametrize(
    ("arm", "says"),
    [("{method: cleer}", "wrong.yaml: later: unknown method 'cleer'; did you mean 'clear'?"),
     ("{tasks: [breakot]}", "wrong.yaml: later: unknown task of suite minatar 'breakot'; did you mean 'breakout'"),
     ("{runtime: lokal}", "wrong.yaml: later: unknown runtime 'lokal'; did you mean 'local'?"),
     ("{method: ewc, protocol: overlap}", "wrong.yaml: later: method ewc has to be told where a task ends")],
)  # fmt: skip
def test_what_a_later_arm_cannot_plan_is_refused_before_the_first_run(tmp_path: Path, arm: str, says: str) -> None:
    file, out = tmp_path / "wrong.yaml", tmp_path / "out"
    file.write_text(FILE.format(title="wrong").replace("[sequential, clear]", f"{{fine: {{}}, later: {arm}}}"))
    for flags in ([], ["--dry-run"], ["--commands"]):
        refused = sweep(str(file), "--out", str(out), *flags)
        assert refused.returncode == 2 and says in " ".join(refused.stderr.split()), refused.stderr
    assert not out.exists()


def test_an_interrupted_sweep_goes_on_where_it_was_and_ends_in_a_report(tmp_path: Path) -> None:
    file, out = tmp_path / "long.yaml", tmp_path / "out"
    long = FILE.replace("frames_per_visit: 640", "frames_per_visit: 6_400, checkpoint_every_frames: 1_000")
    file.write_text(long.format(title="long"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "clearl", "sweep", str(file), "--out", str(out), "--jobs", "2"]
    metrics = [out / "runs" / "long" / arm / "seed-0" / "metrics.jsonl" for arm in ("sequential", "clear")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=hear_ctrl_c) as first:
        while not all(path.exists() and '"kind":"train"' in path.read_text() for path in metrics):
            assert first.poll() is None, "it ended before it could be interrupted"
            time.sleep(0.05)
        first.send_signal(signal.SIGINT)
        told, _ = first.communicate(timeout=120)
    assert first.returncode == 130 and told.endswith("stopped; the same command resumes\n")
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr
    assert (out / "status.txt").read_text() == "2 of 2 runs finished\n"
    assert all(path.read_text().count('"kind":"resume"') == 1 for path in metrics), "each went on from its checkpoint"
    assert "long" in (out / "reports" / "long" / "index.html").read_text()


def test_runs_that_fail_do_not_keep_the_others_from_the_report(tmp_path: Path) -> None:
    file, out = tmp_path / "half.yaml", tmp_path / "out"
    file.write_text(FILE.format(title="half"))
    in_the_way = out / "runs" / "half" / "sequential" / "seed-0" / "notes.txt"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("of somebody else")
    done = sweep(str(file), "--out", str(out))
    assert done.returncode == 1 and "1 run failed" in done.stderr, done.stdout + done.stderr
    assert "half" in (out / "reports" / "half" / "index.html").read_text()
