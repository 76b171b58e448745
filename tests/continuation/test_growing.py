"""The next task has more actions and other observations: the agent grows, and knows what it knew."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import space_suite
import torch
from gymnasium import spaces
from interrupted import extend_and_end
from whole_runs import contents, rows, state

import clearl
from clearl.acting.agent import Agent
from clearl.acting.stepper import Stepper
from clearl.artifacts import Trained, at_segment_end
from clearl.cli.main import main
from clearl.config import RunConfig, from_yaml
from clearl.continuation import extend_run, fork_run, go_on, plan_extension
from clearl.errors import ClearlError
from clearl.experiment import run
from clearl.forgetting import forget, plan_forgetting
from clearl.learning.batching import make_batch
from clearl.memory import read_memory
from clearl.nets.network import PolicyNetwork, StepInput, as_module
from clearl.records.run_dir import RunDir
from clearl.report import make_report
from clearl.storage.switch_weights import SwitchWeights
from clearl.tasks.plan import Plan, plan_from_json
from clearl.unroll import Unroll
from clearl.wiring import RunFactory, load_factory, saved_checkpoints

SMALL: dict[str, Any] = {
    "runtime": "inline", "slots": 4, "batch_unrolls": 3, "unroll_steps": 5, "frames_per_visit": 400, "cycles": 1,
    "eval_every_frames": 200, "eval_episodes": 1, "eval_max_steps": 20, "replay_store": "disk", "buffer_frames": 300,
    "method": "clear", "seed": 5, "record_every_updates": 5, "lstm_size": 8, "normalise_observations": True,
    "fisher_batches": 3, "learner_threads": 1,
}  # fmt: skip
CARTPOLE = {**SMALL, "suite": "gym:CartPole-v1", "lstm": True}
FIRST = CARTPOLE
ACROBOT: dict[str, Any] = {"suite": "gym:Acrobot-v1", "frames_per_visit": 300}


def opened(out: Path) -> tuple[RunFactory, PolicyNetwork]:
    """The parts of a run, and its network with the weights of its newest checkpoint."""
    factory, saved = load_factory(RunDir(out).config_text, out), saved_checkpoints(RunDir(out)).newest()
    assert saved is not None
    learner = factory.learner(plan_of(out))
    learner.restore(saved.tree["learner"]["tensors"], saved.tree["learner"]["state"])
    return factory, learner.network


def plan_of(out: Path) -> Plan:
    return plan_from_json(RunDir(out).meta["plan"])


def stored(out: Path, factory: RunFactory) -> Iterator[tuple[int, int, Unroll]]:
    """Every unroll of the buffer with its slot and sequence number, read as training reads it."""
    for slot, offered in enumerate(state(out)["shards"] or RunDir(out).meta["replay"]["sequences"]):
        shard = factory.shard(slot)
        shard.restore(int(offered))
        yield from ((slot, sequence, unroll) for sequence, unroll in contents(shard).items())
        shard.close()


def answers(factory: RunFactory, network: PolicyNetwork, unrolls: list[Unroll]) -> tuple[torch.Tensor, torch.Tensor]:
    joined = Unroll(**{name: np.stack([unroll.named()[name] for unroll in unrolls]) for name in unrolls[0].named()})
    batch = make_batch(joined, np.zeros(len(unrolls), bool), factory.layout, 0.99, "none")
    inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
    with torch.no_grad():
        output = network.unroll(inputs, batch.core_state)
    return network.head.distribution(output.policy[:-1], batch.mask).log_prob(batch.action), output.value


def assert_same_answers(a: Path, b: Path) -> int:
    """Assert equal answers on every stored observation; return the number of unrolls."""
    (before, old), (after, new) = opened(a), opened(b)
    known = {(slot, sequence): unroll for slot, sequence, unroll in stored(a, before)}
    padded = {(slot, sequence): unroll for slot, sequence, unroll in stored(b, after)}
    assert known.keys() == padded.keys() and known
    log_probs, values = answers(before, old, list(known.values()))
    grown_log_probs, grown_values = answers(after, new, [padded[key] for key in known])
    torch.testing.assert_close(grown_log_probs, log_probs, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(grown_values, values, atol=1e-6, rtol=1e-6)
    return len(known)


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def pole_probability(agent: Agent) -> torch.Tensor:
    """The log-probability of action 0 in some state of CartPole, at the start of an episode."""
    mask = torch.from_numpy(agent.tasks["CartPole-v1"].mask)[None]
    stepper = Stepper(agent.network, agent.spec, 1, reward_clip="none", column="evaluate")
    frame = np.zeros((1, *agent.spec.observation.frame_shape), np.float32)
    frame[0, :4] = 0.3
    stepper.begin(slice(None), frame)
    with torch.inference_mode():
        noise = agent.network.head.noise(np.random.default_rng(0), mask.numpy(), 1)[0]
        policy = torch.from_numpy(stepper.decide(noise).policy)
        return agent.network.head.distribution(policy, mask).log_prob(torch.zeros(1, dtype=torch.int64))


def test_weights_of_a_switch_before_the_growth_play_as_they_did(first: Path, copy: Path, capsys: Any) -> None:
    run(go_on(copy, None, ACROBOT), copy, console=False)
    assert SwitchWeights(copy).segments() == [0, 1]
    then, opened_now = clearl.load_agent(first), Trained.open(copy)
    grown = at_segment_end(opened_now, copy, 0).agent
    assert grown.spec == opened_now.agent.spec != then.spec
    probabilities = [pole_probability(agent) for agent in (then, grown, opened_now.agent)]
    torch.testing.assert_close(probabilities[0], probabilities[1], atol=1e-6, rtol=1e-6)
    assert not torch.equal(probabilities[1], probabilities[2]), "training went on"
    for task in ("CartPole-v1", "Acrobot-v1"):
        assert main(["video", str(copy), "--switch", "1", "--task", task, "--max-steps", "5"]) == 0
        assert f"{task}-switch-1.gif" in capsys.readouterr().out


def test_the_agent_grows_and_answers_as_before_on_what_it_has_stored(first: Path, tmp_path: Path) -> None:
    before, out = files(first), tmp_path / "b"
    extension = plan_extension(first, ACROBOT)
    assert str(extension.growth) == "observations (4,) -> (6,), actions (2,) -> (3,)"
    fork_run(extension, out)
    assert assert_same_answers(first, out) == 4 * 300 // (5 * 4)
    result = clearl.run(resume_from=first, out=out, **ACROBOT)
    assert result.status == "finished" and files(first) == before
    assert {row["task"] for row in rows(out, "eval") if row["frames"] > 400} == {"CartPole-v1", "Acrobot-v1"}
    factory, _ = opened(out)
    sequences = [sequence for _, sequence, _ in stored(out, factory)]
    assert min(sequences) < 20 <= max(sequences), "old unrolls and new ones are in the buffer"
    agent = clearl.load_agent(out)
    assert agent.act(np.zeros(4, np.float32), task="CartPole-v1") in (0, 1)
    assert agent.act(np.zeros(6, np.float32), task="Acrobot-v1") in (0, 1, 2)
    make_report([out], tmp_path / "report")


def test_a_run_that_has_grown_resumes_exactly(first: Path, tmp_path: Path) -> None:
    clearl.run(resume_from=first, out=tmp_path / "whole", **ACROBOT)

    def stop(row: dict[str, Any]) -> None:
        if row["kind"] == "train" and row["frames"] >= 500:
            os.kill(os.getpid(), signal.SIGTERM)

    halves = tmp_path / "halves"
    assert clearl.run(resume_from=first, out=halves, listeners=[stop], **ACROBOT).status == "interrupted"
    assert clearl.run(resume_from=first, out=halves, **ACROBOT).status == "finished"
    # Gymnasium's environments cannot give their state: what is compared is what was restored, not what came after.
    assert state(halves)["learner"]["state"]["counters"] == state(tmp_path / "whole")["learner"]["state"]["counters"]


@pytest.mark.parametrize(
    "method", ["l2-init+clear", "ewc+clear", "progress-compress+clear", "continual-backprop+clear"]
)
def test_other_methods_grow_in_place_twice(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_suite, "SPACES", {
        "a": (spaces.Box(-1, 1, (4,)), spaces.Discrete(2)),
        "b": (spaces.Dict({"pose": spaces.Box(-1, 1, (3,)), "tag": spaces.Discrete(3)}), spaces.MultiDiscrete([3, 2])),
        "c": (spaces.Dict({"pose": spaces.Box(-1, 1, (5,)), "speed": spaces.Box(-1, 1, (2,))}),
              spaces.MultiDiscrete([2, 4, 2])),
    })  # fmt: skip
    spec = {**SMALL, "suite": "spaces", "imports": ("space_suite",), "tasks": ("a",), "frames_per_visit": 200}
    spec |= {"method": method, "compress_on_top": False, "compress_frames": 100}
    out = tmp_path / "run"
    run(RunConfig(**spec), out, console=False)
    for task in ("b", "c"):
        before = Path(shutil.copytree(out, tmp_path / f"before-{task}"))
        extend_run(plan_extension(out, {"tasks": (task,)}))
        assert assert_same_answers(before, out) > 10
        assert run(from_yaml(RunDir(out).config_text), out, console=False).status == "finished"
    assert rows(out, "train")[-1]["frames"] == 600
    assert [len(each["sequences"]) for each in RunDir(out).meta["replay"]["earlier"]] == [4, 4]


def test_growth_in_worker_processes(first: Path, tmp_path: Path) -> None:
    result = clearl.run(resume_from=first, out=tmp_path / "b", runtime="local", workers=2, **ACROBOT)
    assert result.status == "finished"
    replay = rows(tmp_path / "b", "train")[-1]["replay"]
    assert replay["held"] == 60 and not replay.get("quarantined"), "old unrolls are read, none is taken for damaged"


def test_fewer_actions_and_numbers_need_no_growth(first: Path, tmp_path: Path) -> None:
    clearl.run(resume_from=first, out=tmp_path / "b", **ACROBOT)
    assert plan_extension(tmp_path / "b", {"suite": "gym:MountainCar-v0"}).growth is None


def test_another_kind_of_action_is_one_line_and_changes_nothing(first: Path, tmp_path: Path) -> None:
    before = files(first)
    with pytest.raises(ClearlError) as caught:
        fork_run(plan_extension(first, {"suite": "gym:MountainCarContinuous-v0"}), tmp_path / "b")
    assert "CartPole-v1 has discrete actions, MountainCarContinuous-v0 continuous ones" in str(caught.value)
    assert "\n" not in str(caught.value) and files(first) == before and not list(tmp_path.iterdir())


def test_a_dtype_that_would_change_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_suite, "SPACES", {
        "a": (spaces.Box(0, 255, (4,), np.uint8), spaces.Discrete(2)),
        "b": (spaces.Box(-1, 1, (4,)), spaces.Discrete(2)),
    })  # fmt: skip
    spec = {**SMALL, "suite": "spaces", "imports": ("space_suite",), "tasks": ("a",), "frames_per_visit": 100}
    run(RunConfig(**spec), tmp_path / "a", console=False)
    before = files(tmp_path)
    with pytest.raises(ClearlError, match="the observations: uint8 so far, float32 with the next tasks"):
        plan_extension(tmp_path / "a", {"tasks": ("b",)})
    assert files(tmp_path) == before


# In place: in the checkpoint, after it, after the meta data, after the settings. As a copy: in the copying, at its end.
@pytest.mark.filterwarnings("ignore:.* belongs to an extension of the run that was cut off")
@pytest.mark.parametrize(
    ("in_place", "stop_at"), [(True, 5), (True, 9), (True, 12), (True, 15), (False, 20), (False, 34)]
)
def test_a_kill_while_growing_leaves_the_old_run_and_a_new_one_that_starts(
    copy: Path, first: Path, tmp_path: Path, in_place: bool, stop_at: int
) -> None:
    before = files(copy)
    out = copy if in_place else tmp_path / "b"
    extend_and_end(copy, None if in_place else out, ACROBOT, stop_at)
    if not in_place:
        assert files(copy) == before
    clearl.load_agent(copy)  # whatever happened, it can be read
    if in_place and not RunDir(copy).meta.get("extensions"):
        assert run(from_yaml(RunDir(copy).config_text), copy, console=False).status == "finished", "as it was"
    config = go_on(copy, None if in_place else out, ACROBOT)
    assert_same_answers(first, out)
    assert run(config, out, console=False).status == "finished"
    assert state(out)["learner"]["state"]["counters"]["frames"] == 690


def test_forgetting_after_a_growth_that_was_cut_off_leaves_the_old_agent(copy: Path) -> None:
    weights = as_module(clearl.load_agent(copy).network).state_dict()
    saved_checkpoints(RunDir(copy)).save(plan_extension(copy, ACROBOT).tree)  # a kill comes before the meta data
    assert read_memory(copy).unrolls == 60
    forget(plan_forgetting(copy, "CartPole-v1"))
    assert read_memory(copy).unrolls == 0
    after = as_module(clearl.load_agent(copy).network).state_dict()
    assert after.keys() == weights.keys() and all(torch.equal(after[name], weights[name]) for name in weights)
    assert run(go_on(copy, None, ACROBOT), copy, console=False).status == "finished"
