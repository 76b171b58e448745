"""The page on export, literally, with a small budget; and exported agents where neither suites nor clearl are."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from policy_cases import CASES, make_agent, make_network

from clearl.cli.main import main
from clearl.sharing.graph import PolicyGraph

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
SUITES = ("gymnasium", "minatar", "ale_py", "envpool", "vizdoom", "minigrid", "metaworld")
SMALL = "--frames-per-visit 400 --eval-episodes 1 --runtime inline --slots 4 --batch-unrolls 4 --quiet"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the commands of the page were run."""
    directory = tmp_path_factory.mktemp("page")
    console = "".join(re.findall(r"^```console\n(.*?)^```", PAGE, flags=re.M | re.S))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for line in console.splitlines():
            arguments = shlex.split(line)[2:]
            if arguments[0] == "push":  # tests/unit/sharing/test_hub.py
                continue
            if arguments[0] == "run":
                at = arguments.index("--frames-per-visit")
                del arguments[at : at + 2]
                arguments += shlex.split(SMALL)
            assert main(arguments) == 0
        assert main(["export", "runs/cart", "--out", "whole"]) == 0
    return directory


def _run_without(modules: tuple[str, ...], code: str, directory: Path) -> str:
    """Return what a program prints where `modules` are not installed."""
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in modules)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys\n{blocked}{code}"],
        cwd=directory, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_of_the_page_needs_neither_suites_nor_torch_nor_clearl(exported: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.M | re.S)
    assert _run_without((*SUITES, "torch", "clearl"), code, exported) in ("0\n", "1\n")


def test_the_program_of_torch_needs_torch_only(exported: Path) -> None:
    code = (
        "import torch\n"
        "module = torch.export.load('agent/policy.pt2').module()\n"
        "print(module({'observation': torch.ones(2, 4), 'mask': torch.ones(2, 2, dtype=torch.bool)})['action'].shape)\n"
    )
    assert _run_without((*SUITES, "clearl"), code, exported) == "torch.Size([2])\n"


def test_an_agent_for_clearl_acts_without_any_suite(exported: Path) -> None:
    code = "import clearl, numpy\nprint(clearl.load_agent('whole').act(numpy.zeros(4, numpy.float32)) in (0, 1))\n"
    assert _run_without(SUITES, code, exported) == "True\n"


def test_the_tables_say_of_every_input_and_output_what_its_description_says() -> None:
    rows = (line.split(" | ") for line in PAGE.splitlines() if line.startswith("| `"))
    documented = {row[0].strip("| `"): row[-1].removesuffix(" |") for row in rows if len(row) == 5}
    described = {}
    for spec, settings in CASES.values():
        graph = PolicyGraph(make_agent(make_network(spec, **settings), spec))
        for port in (*graph.inputs, *graph.outputs):
            described[re.sub("/.*", "/PART", port.name)] = port.about.partition("; 2 frames")[0]
    assert described == documented
