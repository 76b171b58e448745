"""Agents go to the hub and come back; whatever goes wrong on the way is one line."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest
import yaml
from hub_server import TOKEN, Hub, serve_hub
from whole_runs import small_config

import clearl
from clearl import artifacts
from clearl.cli.main import main
from clearl.errors import ClearlError, ConfigError
from clearl.experiment import run
from clearl.records import MetricsWriter, eval_row
from clearl.records.schema import seal
from clearl.records.table import MetricsTable
from clearl.report.run import Run
from clearl.sharing.card import TaskResult, card_text
from clearl.sharing.hub import HubError, HubName

hub_package = pytest.importorskip("huggingface_hub")
pytest.importorskip("huggingface_hub.constants")
# The client's own upload of large files.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hub") / "run"
    run(small_config(cycles=1, frames_per_visit=300), out, console=False)
    (out / "videos").mkdir()
    (out / "videos" / "breakout.gif").write_bytes(b"GIF89a")
    return out


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(hub_package.constants, "HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hub_package.constants, "HF_HUB_DISABLE_XET", True)  # its storage has no stand-in
    with serve_hub() as server:
        monkeypatch.setattr(hub_package.constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            hub_package.constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            server.url + "/{repo_id}/resolve/{revision}/{filename}",
        )
        yield server


def _only_line(capsys: pytest.CaptureFixture[str]) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("clearl: ")]
    return lines[-1]


def test_an_agent_is_pushed_and_loaded_by_its_name(trained: Path, hub: Hub, capsys) -> None:
    assert main(["push", "lab/two-games", str(trained), "--private"]) == 0
    assert f"{hub.url}/lab/two-games" in capsys.readouterr().out
    files = hub.repos["lab/two-games"]
    assert set(files) == {"README.md", "agent.json", "agent.safetensors", "config.yaml", "videos/breakout.gif"}
    assert hub.private == {"lab/two-games"}
    assert list(hub.blobs.values()) == [files["agent.safetensors"]]  # weights go by LFS, the rest into the commit
    ours, theirs = clearl.load_agent(trained), clearl.load_agent("hf:lab/two-games")
    images = np.random.default_rng(0).random((8, 10, 10, 7)) < 0.5
    np.testing.assert_array_equal(ours.act(images, deterministic=True), theirs.act(images, deterministic=True))
    fetched = [request for request in hub.requests if request.startswith("GET") and "/resolve/" in request]
    assert all("agent." in request for request in fetched)  # nothing else of a stranger's repository is fetched
    clearl.load_agent("hf:lab/two-games")
    again = [request for request in hub.requests if request.startswith("GET") and "/resolve/" in request]
    assert again == fetched  # unchanged files are not fetched twice
    hub.broken = True  # a commit never changes, so that no network is needed
    clearl.load_agent(f"hf:lab/two-games@{hub.sha('lab/two-games')}")


def test_the_card_tells_results_forgetting_settings_and_video(trained: Path, tmp_path: Path, capsys) -> None:
    assert main(["export", str(trained), "--out", str(tmp_path / "agent"), "--card"]) == 0
    card = (tmp_path / "agent" / "README.md").read_text()
    _, front, body = card.split("---\n", 2)
    about = yaml.safe_load(front)
    assert about["library_name"] == "clearl" and {"reinforcement-learning", "breakout", "freeway"} <= set(about["tags"])
    results = {result["dataset"]["name"]: result["metrics"] for result in about["model-index"][0]["results"]}
    assert set(results) == {"breakout", "freeway"}
    last = list(MetricsTable.read(trained).where(kind="eval", task="breakout"))[-1]
    assert results["breakout"][0]["value"] == f"{last['return']:.2f} +/- {last['std']:.2f}"
    assert [metric["type"] for metric in results["breakout"]] == [
        "mean_reward",
        "forgetting",
    ]  # it was left for freeway
    assert [metric["type"] for metric in results["freeway"]] == ["mean_reward"]
    assert "![breakout](videos/breakout.gif)" in body and "method: clear" in body
    assert f'load_agent("{tmp_path / "agent"}")' in body
    assert main(["export", str(trained), "--out", str(tmp_path / "graph"), "--card", "--format", "torch"]) == 0
    assert "load_agent" not in (tmp_path / "graph" / "README.md").read_text()


@pytest.mark.parametrize("name", ["lab", "lab/../x", "a/b/c", "lab/a b", "/x", "lab/", "lab/x@"])
def test_a_name_that_cannot_be_is_refused_before_any_request(name: str, hub: Hub) -> None:
    with pytest.raises(ConfigError, match="ORG/NAME"):
        HubName.parse(name)
    with pytest.raises(ConfigError, match="ORG/NAME"):
        clearl.load_agent(f"hf:{name}")
    assert hub.requests == []


def test_a_push_replaces_what_an_earlier_one_wrote_and_nothing_else(trained: Path, hub: Hub, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(trained, tmp_path / "run"))
    assert main(["push", "lab/x", str(run_dir), "--format", "onnx,torch"]) == 0
    files = hub.repos["lab/x"]
    graphs = {"policy.onnx", "policy.pt2", "policy.json"}
    own = {".gitattributes", "LICENSE", "notes/policy.json", "videos/plan.txt"}
    assert graphs | {"videos/breakout.gif"} < set(files)
    files.update(dict.fromkeys(own, b"theirs"))
    (run_dir / "videos" / "breakout.gif").rename(run_dir / "videos" / "freeway.mp4")
    assert main(["push", "lab/x", str(run_dir)]) == 0
    assert set(files) == own | {"README.md", "agent.json", "agent.safetensors", "config.yaml", "videos/freeway.mp4"}
    assert all(files[name] == b"theirs" for name in own)


def test_a_push_that_another_one_overtakes_changes_nothing(trained: Path, hub: Hub, capsys, monkeypatch) -> None:
    assert main(["push", "lab/x", str(trained)]) == 0
    before = hub_package.HfApi.create_commit

    def overtaken(*arguments, **options):
        hub.repos["lab/x"]["policy.onnx"] = b"of another push"
        return before(*arguments, **options)

    monkeypatch.setattr(hub_package.HfApi, "create_commit", overtaken)
    assert main(["push", "lab/x", str(trained)]) == 1
    assert "412" in _only_line(capsys) and hub.repos["lab/x"]["policy.onnx"] == b"of another push"


@pytest.mark.parametrize(("name", "remedy"), [("lab/x", "hf auth login"), ("lab/x@main", "leave out @main")])
def test_what_a_push_would_be_refused_for_is_told_before_the_export(
    name: str, remedy: str, trained: Path, hub: Hub, capsys, monkeypatch
) -> None:
    if "@" not in name:
        monkeypatch.setattr(hub_package, "get_token", lambda: None)
    monkeypatch.setattr(artifacts, "export_agent", lambda *_, **__: pytest.fail("the agent was exported"))
    assert main(["push", name, str(trained)]) == 2
    assert remedy in _only_line(capsys) and hub.requests == []


def test_a_token_that_may_not_write_is_one_line(trained: Path, hub: Hub, capsys, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_another")
    assert main(["push", "lab/x", str(trained)]) == 1
    assert "hf auth login" in _only_line(capsys)


def test_a_large_file_that_is_refused_is_one_line(trained: Path, hub: Hub, capsys) -> None:
    hub.refuses_blobs = True
    assert main(["push", "lab/x", str(trained)]) == 1
    told = capsys.readouterr().err  # behind the client's progress bar
    assert "answers 403 for lab/x: " in told and "hf auth login" in told and "Traceback" not in told
    assert hub.repos["lab/x"] == {}


def test_a_model_or_revision_that_is_not_there_is_one_line(hub: Hub) -> None:
    with pytest.raises(HubError, match="has no model lab/x, or it is private"):
        clearl.load_agent("hf:lab/x")
    hub.repos["lab/x"] = {"agent.json": b"{}"}
    with pytest.raises(HubError, match="no such revision"):
        clearl.load_agent("hf:lab/x@other")
    with pytest.raises(HubError, match="holds no agent.safetensors"):
        clearl.load_agent("hf:lab/x")


def test_a_hub_that_is_broken_or_gone_is_one_line(hub: Hub, monkeypatch) -> None:
    hub.broken = True
    with pytest.raises(HubError, match="500") as caught:
        clearl.load_agent("hf:lab/x")
    assert "\n" not in str(caught.value)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(hub_package.constants, "ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(HubError, match="cannot be reached .*check the network") as caught:
            clearl.load_agent("hf:lab/x")
    assert "\n" not in str(caught.value)


def test_more_bytes_than_an_agent_has_are_not_fetched(hub: Hub) -> None:
    hub.repos["lab/x"] = {"agent.json": b"{}", "agent.safetensors": b"x"}
    hub.told_sizes["agent.safetensors"] = 1 << 40
    with pytest.raises(HubError, match="at most 2,147,483,648 are fetched"):
        clearl.load_agent("hf:lab/x")
    assert not any("/resolve/" in request for request in hub.requests)


def test_a_strangers_module_is_imported_only_if_asked_for(trained: Path, hub: Hub, tmp_path: Path, monkeypatch) -> None:
    assert main(["push", "lab/x", str(trained)]) == 0
    files = hub.repos["lab/x"]
    about = json.loads(files["agent.json"])
    about["config"] = (
        about["config"].replace("imports: []", "imports: [strangers_module]").replace("torso: auto", "torso: strange")
    )
    assert "strangers_module" in about["config"] and "strange\n" in about["config"]
    files["agent.json"] = seal(json.dumps({key: value for key, value in about.items() if key != "crc"}))
    (tmp_path / "strangers_module.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="--imports strangers_module"):
        clearl.load_agent("hf:lab/x")
    assert "strangers_module" not in sys.modules
    with pytest.raises(ClearlError, match="it ran"):
        clearl.load_agent("hf:lab/x", trust=True)


def test_without_the_package_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ClearlError, match=r"clearl\[hub\]"):
        clearl.load_agent("hf:lab/x")


@pytest.mark.parametrize("existed", [True, False])
def test_an_export_that_fails_leaves_its_directory_as_it_was(
    existed: bool, trained: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    out = tmp_path / "some" / "agent"
    if existed:
        out.mkdir(parents=True)
    command = ["export", str(trained), "--out", str(out), "--card"]

    def fail(*arguments: object) -> None:
        raise ConfigError("this network cannot be written as a graph")

    with monkeypatch.context() as patch:
        patch.setattr(artifacts, "write_graph", fail)
        assert main([*command, "--format", "clearl,torch"]) == 2
    assert "cannot be written as a graph" in _only_line(capsys)
    assert list(tmp_path.rglob("*")) == ([out.parent, out] if existed else [])
    assert main(command) == 0
    files = {file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file()}
    assert files == {"README.md", "agent.json", "agent.safetensors", "config.yaml", "videos/breakout.gif"}
    assert {file.name for file in out.iterdir() if file.is_dir()} == {"videos"}


def test_all_that_an_export_writes_is_replaced_by_the_next_push(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "agent"
    assert main(["export", str(trained), "--out", str(out), "--card", "--format", "clearl,onnx,torch"]) == 0
    files = {file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file()}
    assert {name for name in files if not any(fnmatchcase(name, each) for each in artifacts.EXPORTED)} == set()


def test_a_return_that_is_not_a_number_and_a_film_are_shown_in_the_card(trained: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(trained, tmp_path / "run"))
    with MetricsWriter(run_dir, position=(run_dir / "metrics.jsonl").stat().st_size) as writer:
        for task in ("breakout", "freeway"):
            row = eval_row(
                task=task, frames=10**6, mean_return=float("nan"), std=float("nan"), episodes=2, updates=9, wall_s=1.0
            )
            writer.write(row)
    (run_dir / "videos" / "free way.mp4").write_bytes(b"")
    assert main(["export", str(run_dir), "--out", str(tmp_path / "agent"), "--card"]) == 0
    card = (tmp_path / "agent" / "README.md").read_text()
    _, front, body = card.split("---\n", 2)
    (result,) = yaml.safe_load(front)["model-index"][0]["results"]  # freeway has neither a return nor forgetting
    assert result["dataset"]["name"] == "breakout" and [each["type"] for each in result["metrics"]] == ["forgetting"]
    assert "| freeway | - | 2 | - |" in body and "A mean that was not finite is left out." in body
    assert "\n![breakout](videos/breakout.gif)\n" in body and "\n[Video: free way](videos/free%20way.mp4)\n" in body


def test_names_of_a_run_do_nothing_in_the_card() -> None:
    run = Run(Path("x"), {"label": "a\n---\nb", "clearl": "<b>"}, {"tasks": "```\n# heading"}, {}, (), None, 0.0)
    nasty = "x|y](http://z) <script>\n# z"
    text = card_text(run, [TaskResult(nasty, 1.0, None, 1, None)], [], load_as=None)
    assert text.count("\n---\n") == 1 and "<script>" not in text.partition("\n---\n")[2].replace("\\<", "")
    about = yaml.safe_load(text.split("---\n")[1])
    assert about["model-index"][0]["results"][0]["dataset"]["name"].startswith("x|y](http://z) <script>?# z")
    assert "````yaml\n" in text
