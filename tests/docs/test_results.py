"""Results on the pages: sweep files that pages name exist, and the overview links every result."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from clearl.cli.arguments import parse
from clearl.cli.main import VERBS, main
from clearl.cli.reproduce import ReproduceArgs
from clearl.cli.sweep import SweepArgs
from clearl.methods import METHODS
from clearl.reproduce.catalog import ARMS, planned_runs
from clearl.reproduce.planned import PlannedRun
from clearl.reproduce.sweep import load_sweep

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


def test_sweep_files_that_pages_name_exist() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"experiments/([\w.-]+\.yaml)", page.read_text("utf-8"))}
    assert len(named) >= 3
    assert [name for name in sorted(named) if not (ROOT / "experiments" / name).is_file()] == []


def test_every_published_result_is_linked_from_the_overview() -> None:
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    published = [path.parent.name for path in RESULTS.glob("*/README.md")]
    assert len(published) >= 5
    assert [name for name in published if f"({name}/README.md)" not in page] == []


def _results_with_arms() -> dict[str, set[str]]:
    """The pages of published results that have an arm of each method; the baseline is in all of them."""
    pages: dict[str, set[str]] = {}
    for path in RESULTS.glob("*/*/summary.json"):
        for arm in json.loads(path.read_text(encoding="utf-8"))["arms"]:
            name = re.split(r",| \(", arm)[0]
            method = ARMS.get(name, {}).get("method") or re.sub(r"^(clear)-.*", r"\1", name)
            for part in method.split("+"):
                assert part in METHODS, arm
                pages.setdefault(part, set()).add(path.parts[-3])
    return {method: found for method, found in pages.items() if method != "baseline"}


@pytest.mark.parametrize(("method", "pages"), sorted(_results_with_arms().items()))
def test_the_page_of_a_method_links_its_results_and_does_not_call_them_missing(method: str, pages: set[str]) -> None:
    text = (ROOT / "docs" / "methods" / f"{method}.md").read_text(encoding="utf-8").partition("\n## Results\n")[2]
    assert [page for page in sorted(pages) if f"(../results/{page}/README.md)" not in text] == []
    assert not re.search(r"not\s+run|No published run", text)


@pytest.mark.parametrize(
    ("method", "claim", "arm"),
    [("ewc", "clear-ewc", None), ("online-ewc", None, "online-ewc"), ("progress-compress", None, "progress-compress"),
     ("l2-init", None, "l2-init+clear")],
)  # fmt: skip
def test_the_effects_that_a_method_page_tells_are_those_of_the_results(
    method: str, claim: str | None, arm: str | None
) -> None:
    folder = RESULTS / "e3-schemes"
    if claim:
        findings = json.loads((folder / "e3-schemes" / "findings.json").read_text(encoding="utf-8"))
        effect = next(finding["effect"] for finding in findings if finding["id"] == claim)
        told = f"{effect['value']:.2f} ({effect['low']:.2f} to {effect['high']:.2f})"
    else:
        row = next(
            line.split(" | ")
            for line in reversed((folder / "README.md").read_text(encoding="utf-8").splitlines())
            if line.startswith(f"| {arm} |")
        )
        told = f"{row[1]} ({row[2]})"
    assert told in " ".join((ROOT / "docs" / "methods" / f"{method}.md").read_text(encoding="utf-8").split())


PAGES = sorted(RESULTS.glob("*/README.md"))
RUNS = re.compile(
    r"^Tasks .+; (\d+) cycles? of ([\d,]+) frames a visit\. \d+ of (\d+) planned runs, seeds ([\d, ]+);", re.M
)


def _commands(page: Path) -> list[list[str]]:
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return [shlex.split(line.removeprefix("$ ")) for block in blocks for line in block.splitlines()]


def _planned(verb: str, arguments: list[str]) -> list[PlannedRun]:
    """The runs that a command of a results page would train."""
    if verb == "sweep":
        sweep = parse(SweepArgs, arguments, verb=verb, about="")
        return [run for file in sweep.files for run in load_sweep(ROOT / file).runs]
    assert verb == "reproduce"
    asked = parse(ReproduceArgs, arguments, verb=verb, about="")
    runs = planned_runs(asked.name, asked.scale, asked.seeds)
    return [run for run in runs if asked.only in (None, run.sequence)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_the_commands_of_a_result_plan_the_runs_that_it_tells_of(page: Path) -> None:
    commands, told = _commands(page), RUNS.findall(page.read_text(encoding="utf-8"))
    assert commands
    if commands[0][0] == "python":
        assert (ROOT / commands[0][1]).is_file() and not told
        return
    for (_, verb, *arguments), (cycles, frames, count, seeds) in zip(commands, told, strict=True):
        runs = _planned(verb, arguments)
        summary = json.loads((page.parent / runs[0].sequence / "summary.json").read_text(encoding="utf-8"))
        arms = {re.sub(r" \(probe at \d+\)", "", arm) for arm in summary["arms"]}
        runs = [run for run in runs if run.arm in arms]  # an experiment may have got more arms since
        assert len(runs) == int(count)
        assert {run.config.seed for run in runs} == set(map(int, seeds.split(", ")))
        assert (int(cycles), int(frames.replace(",", ""))) in {
            (run.config.cycles, run.config.frames_per_visit) for run in runs
        }


def test_commands_in_the_text_of_results_exist() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (RESULTS / "README.md", RESULTS / "leaderboard.md"))
    commands = [shlex.split(span) for span in re.findall(r"`clearl ([^`]+)`", text)]
    assert {verb for verb, *_ in commands} <= {*VERBS}
    runs = [command for command in commands if command[0] == "run"]
    assert runs
    for command in runs:
        assert main([*command, "--dry-run", "--out", "runs/none"]) == 0
