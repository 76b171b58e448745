"""Wheel and sdist hold all that is needed, and the demo runs from the wheel alone, outside of the clone."""

from __future__ import annotations

import email
import email.message
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import clearl

ROOT = Path(__file__).resolve().parents[2]
DATA = {".py", ".yaml", ".typed", ".js", ".css", ".html", ".LICENSE"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

# Runs a verb, then tells which files of the clone it has imported.
PROGRAM = f"""
import sys
from clearl.cli.main import main
if __name__ == "__main__":
    code = main(sys.argv[1:])
    files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    print("of the clone:", [file for file in files if file.startswith({str(ROOT / "src")!r})])
    sys.exit(code)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the sdist; the wheel is built from the sdist."""
    clone, out = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, clone / name)
    shutil.copytree(ROOT / "src", clone / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(clone)], out)
    return out


@pytest.fixture(scope="module")
def faster_game(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the distribution that the extra `minatar` requires."""
    clone, out = tmp_path_factory.mktemp("minatar-fast"), tmp_path_factory.mktemp("dist-fast")
    unbuilt = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    shutil.copytree(ROOT / "distributions" / "minatar-fast", clone, ignore=unbuilt, dirs_exist_ok=True)
    _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(clone)], out)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(built: Path, faster_game: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment into which only our wheels are installed; what they depend on is taken from that of the tests."""
    home = tmp_path_factory.mktemp("venv")
    _run([sys.executable, "-m", "venv", "--without-pip", str(home)], home)
    python = home / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    _run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel), str(faster_game)], home)
    site = _run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], home).strip()
    # A line in a .pth file adds a directory without reading the .pth files in it, such as that of an editable clearl.
    (Path(site) / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return python


def _run(command: list[str], directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, env=ENVIRONMENT)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_file_of_the_package_is_in_both(built: Path) -> None:
    files = [
        path for path in (ROOT / "src" / "clearl").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    needed = {path.relative_to(ROOT / "src").as_posix() for path in files if path.suffix in DATA}
    assert "clearl/watch/static/uPlot.LICENSE" in needed and "clearl/presets/minatar.yaml" in needed
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.startswith(f"clearl-{clearl.__version__}.dist-info/")}
    assert held == needed == {path.relative_to(ROOT / "src").as_posix() for path in files}
    about = _metadata(wheel)
    assert (about["Version"], about["License-Expression"]) == (clearl.__version__, "Apache-2.0")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in needed} | {"LICENSE", "README.md", "pyproject.toml"} <= inside


def test_the_demo_runs_from_the_wheel_outside_of_the_clone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    small = ["--fast", "--frames-per-visit", "1_280", "--quiet"]
    shown = _run([str(installed), "program.py", "demo", *small, "--runtime", "inline"], tmp_path)
    assert shown.rstrip().endswith("of the clone: []")
    assert (tmp_path / "report" / "index.html").is_file()
    # The script of the wheel, and worker processes, which find the package by themselves.
    clear = str(installed.with_name("clearl"))
    assert _run([clear, "--version"], tmp_path) == f"clearl {clearl.__version__}\n"
    run = ["run", "--preset", "minatar-schemes", "--cycles", "1", "--frames-per-visit", "640", "--quiet"]
    _run([clear, *run, "--runtime", "local", "--workers", "1", "--out", "run"], tmp_path)
    assert (tmp_path / "run" / "metrics.jsonl").is_file()


def test_the_extra_minatar_requires_the_wheel_of_the_faster_game(
    built: Path, faster_game: Path, installed: Path, tmp_path: Path
) -> None:
    (wheel,) = built.glob("*.whl")
    about, faster = (_metadata(file) for file in (wheel, faster_game))
    assert f'{faster["Name"]}; extra == "minatar"' in about.get_all("Requires-Dist", [])
    assert faster["License-Expression"] == "GPL-3.0-only" and faster["Requires-Python"] == about["Requires-Python"]
    program = "import sys; from clearl.suites.minatar_games import find_game; find_game('space_invaders'); "
    shown = _run([str(installed), "-c", program + "print(sys.modules['clearl_minatar_fast'].__file__)"], tmp_path)
    assert Path(shown).is_relative_to(installed.parents[1])


def _metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))
