"""The page on plug-ins: every Python block runs, in order, and its checks pass."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearl.methods import METHODS
from clearl.methods.method import Method, Wrapper
from clearl.nets.network import PolicyNetwork, as_module
from clearl.records.run_dir import RunDir
from clearl.testing import check_method

ROOT = Path(__file__).parents[2]


MIRRORED = """
from pathlib import Path
from clearl.records.mirrors import open_mirrors

(mirror,) = open_mirrors(Path(), ["returns"])
mirror.write({"kind": "train", "frames": 600})
mirror.write({"kind": "eval", "frames": 600, "task": "coins", "return": 0.5})
mirror.close()
"""


def test_every_block_of_the_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(blocks) == 6
    (tmp_path / "page.py").write_text("\n".join([*blocks, MIRRORED]) + "\nprint('all checks passed')\n")
    done = subprocess.run([sys.executable, "-W", "error", "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.endswith("all checks passed\n"), done.stderr
    assert (tmp_path / "returns.txt").read_text() == "600 coins 0.5\n"


def test_the_example_is_short_and_outside_the_package() -> None:
    assert len((ROOT / "examples" / "own_method.py").read_text().splitlines()) <= 40


def test_the_example_runs_by_its_name_with_its_setting(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "clearl", "run", "--imports", "examples.own_method", "--method", "pull-to-start+clear",
        "--pull-weight", "0.05", "--tasks", "breakout", "--runtime", "inline", "--slots", "4", "--batch-unrolls", "4",
        "--unroll-steps", "5", "--frames-per-visit", "200", "--record-every-updates", "1", "--eval-every-frames", "200",
        "--eval-episodes", "1", "--eval-max-steps", "20", "--quiet", "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    pulls = [row["loss"]["pull"] for row in rows if row["kind"] == "train"]
    assert pulls[0] == 0 and pulls[-1] > 0
    run_dir = RunDir.open(tmp_path / "run")
    assert "pull_weight: 0.05" in run_dir.config_text
    assert run_dir.meta["label"] == "Pull to start + CLEAR"


def test_the_example_passes_the_public_check() -> None:
    code = "import examples.own_method, clearl.testing; clearl.testing.check_method('pull-to-start'); print('passed')"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "passed\n", done.stderr


class Forgetful(Wrapper):
    """Keeps a count that no checkpoint holds."""

    label, updates = "Forgetful", 0

    def losses(self, network: Any, batch: Any) -> dict[str, Any]:
        self.updates += 1
        losses = super().losses(network, batch)
        return {**losses, "value": losses["value"] * (1 + self.updates % 7)}


class Rooted(Wrapper):
    """Keeps the initial parameters, which `build_network` gives it, in no checkpoint."""

    label, terms = "Rooted", ("pull",)

    def build_network(self, build: Callable[[], PolicyNetwork]) -> PolicyNetwork:
        network = super().build_network(build)
        self.start = [p.detach().clone() for p in as_module(network).parameters()]
        return network

    def weights(self) -> dict[str, float]:
        return {**super().weights(), "pull": 0.01}

    def losses(self, network: Any, batch: Any) -> dict[str, Any]:
        pulls = [(p - start).abs().sum() for p, start in zip(network.parameters(), self.start, strict=True)]
        return {**super().losses(network, batch), "pull": sum(pulls)}


class Deaf(Wrapper):
    """Does not tell its base of an update that was applied."""

    label = "Deaf"

    def after_step(self, network: Any, optimizer: Any) -> None:
        pass


class Stubborn(Wrapper):
    """Does not tell its base of a visit."""

    label = "Stubborn"

    def visit(self, network: Any, visit: Any) -> None:
        pass


class Greedy(Wrapper):
    """Takes the frames that its base needs on top of a visit."""

    label = "Greedy"

    def __init__(self, base: Method) -> None:
        super().__init__(base)
        self.extra_frames_share = 0.0


@pytest.mark.parametrize(
    ("kind", "base", "text"),
    [
        (Forgetful, "clear", "differs"),
        (Rooted, "clear", "differs"),
        (Deaf, "clear", r"Deaf.after_step must call super\(\).after_step once: 0 of 10 calls reached Clear"),
        (Deaf, "l2-init+clear", "0 of 10 calls reached L2Init"),
        (Stubborn, "ewc+clear", r"Stubborn.visit must call super\(\).visit once: 0 of 10 calls reached Ewc"),
        (Greedy, "progress-compress+clear", "frames of its base"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_a_wrong_method_fails_the_public_check(
    kind: type[Wrapper], base: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS._entries, "wrong", kind)
    with pytest.raises(AssertionError, match=text):
        check_method(f"wrong+{base}")
