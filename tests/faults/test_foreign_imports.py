"""A stranger's run or config names modules: none of them is imported before the user asks for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from whole_runs import small_config

import clearl
from clearl.cli.main import main
from clearl.config import to_yaml
from clearl.experiment import run
from clearl.nets.torsos import TORSOS
from clearl.plugins import named_modules

WORLDS = """
import gymnasium

gymnasium.register("StrangeCart-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=20)
"""
NETS = """
from clearl.nets.torsos import TORSOS

TORSOS.register("strange_mlp", "clearl.nets.torsos:mlp")
"""
SMALL: dict[str, Any] = {
    "method": "clear", "suite": "gym:StrangeCart-v0", "tasks": (), "torso": "mlp", "cycles": 1,
    "frames_per_visit": 100, "eval_episodes": 1,
}  # fmt: skip
_IMPORTED: list[str] = []
_WATCHING = [False]


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _WATCHING[0] and event == "import":
        _IMPORTED.append(arguments[0])


sys.addaudithook(_audit)


@contextmanager
def watched_imports() -> Iterator[list[str]]:
    _IMPORTED.clear()
    _WATCHING[0] = True
    try:
        yield _IMPORTED
    finally:
        _WATCHING[0] = False


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory, first on the path as with `python -m clearl`, with modules that nobody imported yet."""
    (tmp_path / "strange_worlds.py").write_text(WORLDS)
    (tmp_path / "strange_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    forget_strangers()
    yield tmp_path
    forget_strangers()


def forget_strangers() -> None:
    for name in ("strange_worlds", "strange_nets"):
        sys.modules.pop(name, None)
    gymnasium.registry.pop("StrangeCart-v0", None)
    TORSOS._entries.pop("strange_mlp", None)


def trained(settings: dict[str, Any]) -> str:
    """A run directory as a stranger would send it: made here, with nothing of it left in this process."""
    run(small_config(**{**SMALL, **settings}), Path("run"), console=False)
    forget_strangers()
    return "run"


VERBS = {
    "eval": ["--episodes", "1"],
    "video": ["--out", "play.gif", "--max-steps", "3"],
    "export": ["--out", "agent"],
}
NAMING = {
    "imports": {"imports": ("strange_worlds",)},
    "id": {"suite": "gym:strange_worlds:StrangeCart-v0"},
    "torso": {"suite": "gym:CartPole-v1", "torso": "strange_mlp", "imports": ("strange_nets",)},
}


@pytest.mark.parametrize("naming", NAMING)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_imports_what_the_user_names_and_nothing_else(verb: str, naming: str, capsys) -> None:
    path = trained(NAMING[naming])
    module = "strange_nets" if naming == "torso" else "strange_worlds"
    with watched_imports() as imported:
        assert main([verb, path, *VERBS[verb]]) == 2
    assert not [name for name in imported if name.startswith("strange")]
    assert f"--imports {module}" in capsys.readouterr().err
    assert main([verb, path, *VERBS[verb], "--imports", module]) == 0
    forget_strangers()
    assert (
        main([verb, path, *VERBS[verb][:-1], f"other-{VERBS[verb][-1]}" if verb == "export" else "3", "--trust"]) == 0
    )


def test_the_watch_sees_an_import() -> None:
    with watched_imports() as imported:
        import strange_worlds  # noqa: F401 # pyright: ignore[reportMissingImports] # to see the alarm work
    assert "strange_worlds" in imported


def test_a_config_file_imports_nothing_that_the_flags_do_not_name(here: Path, capsys) -> None:
    config = small_config(**{**SMALL, "imports": ("strange_worlds",)})
    (here / "foreign.yaml").write_text(to_yaml(config))
    command = ["run", "--config", "foreign.yaml", "--out", "new", "--quiet"]
    with watched_imports() as imported:
        assert main(command) == 2
    assert "strange_worlds" not in imported and not (here / "new").exists()
    assert "foreign.yaml" in capsys.readouterr().err
    with pytest.raises(clearl.ClearlError, match="strange_worlds"):
        clearl.run(out=here / "new", file=here / "foreign.yaml")
    assert main([*command, "--imports", "strange_worlds"]) == 0


def test_an_agent_needs_no_environment_and_a_torso_only_by_name(here: Path) -> None:
    path = trained({"imports": ("strange_worlds", "strange_nets"), "torso": "strange_mlp"})
    assert main(["export", path, "--out", "agent", "--imports", "strange_worlds,strange_nets"]) == 0
    for directory in (path, "agent"):
        forget_strangers()
        with watched_imports() as imported, pytest.raises(clearl.ClearlError, match="--imports strange_worlds,strange"):
            clearl.load_agent(directory)
        assert not [name for name in imported if name.startswith("strange")]
        assert clearl.load_agent(directory, imports=["strange_nets"]).act(np.zeros(4)) in (0, 1)
        forget_strangers()
        assert clearl.load_agent(directory, trust=True).act(np.zeros(4)) in (0, 1)


@pytest.mark.parametrize(
    ("settings", "modules"),
    [
        ({"suite": "gym:a.b:X-v0,Y-v0", "tasks": ("c:Z-v0?g=2:1",), "imports": ("d",)}, ("d", "a.b", "c")),
        ({"suite": "gym:CartPole-v1", "tasks": "x:A-v0, B-v0", "probe_task": "p:C-v0"}, ("x", "p")),
        ({"suite": "minatar", "tasks": ("breakout@1",)}, ()),
        ({"suite": 5, "tasks": [1, None], "imports": 5, "wrappers": {"a:b": 1}, "environments": [3]}, ()),
    ],
)
def test_every_place_that_can_name_a_module_is_known(settings: dict[str, Any], modules: tuple[str, ...]) -> None:
    assert named_modules(settings) == modules


BROKEN = {
    "broken_syntax": ("def f(:\n", "has a syntax error"),
    "broken_raise": ("raise ValueError('two\\nlines')", "raised ValueError: two lines"),
    "broken_exit": ("import sys; sys.exit(0)", "raised SystemExit: 0"),
    "broken_import": ("import no_such_module_at_all", "no_such_module_at_all"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_module_is_one_line(here: Path, name: str, capsys) -> None:
    code, said = BROKEN[name]
    (here / f"{name}.py").write_text(code)
    assert main(["check", "gym:CartPole-v1", "--imports", name]) == 2
    shown = capsys.readouterr().err
    assert said in shown and name in shown and shown.count("\n") == 1


def test_going_on_with_a_strangers_run_imports_nothing_unasked(capsys) -> None:
    path = trained({"imports": ("strange_worlds",)})
    with watched_imports() as imported:
        assert main(["run", "--from", path, "--out", "next", "--cycles", "1", "--quiet"]) == 2
        assert main(["resume", path, "--quiet"]) == 2
    assert not [name for name in imported if name.startswith("strange")] and not Path("next").exists()
    assert "--imports strange_worlds" in capsys.readouterr().err
    assert main(["resume", path, "--quiet", "--imports", "strange_worlds"]) == 0
