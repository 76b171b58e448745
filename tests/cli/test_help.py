"""`--help` answers at once: nothing heavy is imported before it is needed."""

from __future__ import annotations

import importlib
import resource
import subprocess
import sys

import pytest

from clearl.cli.main import VERBS, main

HEAVY = ("torch", "numpy", "gymnasium", "matplotlib", "ray", "scipy")
MOST_S = 0.5


def _cpu_seconds(*arguments: str) -> float:
    """CPU time of the command: on a shared machine, wall time is mostly other people's work."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "clearl", *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["reproduce", "--help"], ["--version"]])
def test_help_answers_within_half_a_second(arguments: list[str]):
    assert min(_cpu_seconds(*arguments) for _ in range(3)) <= MOST_S


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_imports_nothing_heavy(verb: str):
    arguments = [verb, "--help"] if verb else ["--help"]
    code = (
        "import sys\nfrom clearl.cli.main import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_file(verb: str):
    assert callable(importlib.import_module(f"clearl.cli.{verb}").main)


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert [verb for verb in VERBS if f"\n  {verb} " not in shown] == []


def test_training_imports_no_library_that_it_does_not_use() -> None:
    """Neither the library that draws the help nor SymPy, 0.1 and 0.3 s of CPU in every run."""
    flags = "--suite gym:CartPole-v1 --frames-per-visit 400 --slots 4 --batch-unrolls 4 --unroll-steps 5"
    code = (
        "import sys, tempfile\nfrom clearl.cli.main import main\n"
        f"flags = {flags!r}.split() + ['--runtime', 'inline', '--diagnose-every-updates', '2', '--quiet']\n"
        "with tempfile.TemporaryDirectory() as home:\n    assert main(['run', *flags, '--out', home + '/run']) == 0\n"
        "    assert '\"diagnostics\"' in open(home + '/run/metrics.jsonl').read()\n"
        "print('loaded:', [name for name in ('tyro', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_workers_do_not_import_the_learner() -> None:
    """Its modules are 12 ms of CPU in every worker and evaluator, before their first step; on a cluster as well."""
    code = (
        "import sys, importlib\nfrom clearl.runtimes.local.processes import _CHILD_MODULES\n"
        "names = ('clearl.wiring', 'clearl.runtimes.cluster.hosted', *_CHILD_MODULES)\n"
        "for name in names: importlib.import_module(name)\n"
        "print('loaded:', [name for name in sys.modules if name.startswith('clearl.learning')])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"
