"""Every setting is checked at construction; layers are merged in order; presets say what the sources say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from clearl.config import (
    RunConfig,
    diff,
    from_yaml,
    load_settings,
    parse_settings,
    preset_names,
    resolve,
    settings,
    to_yaml,
)
from clearl.errors import ConfigError, UnknownNameError

RANGED = [(s.name, s.limits) for s in settings().values() if s.limits is not None]


@pytest.mark.parametrize(("name", "limits"), RANGED)
def test_a_value_beyond_its_range_is_refused_with_field_and_range(name, limits):
    step = max(1e-13, abs(limits.low) / 2) if settings()[name].kind is float else 1
    for value in (limits.low - step, limits.high * 2):
        with pytest.raises(ConfigError) as caught:
            RunConfig(**{name: settings()[name].kind(value)})
        assert str(caught.value).startswith(f"{name} must be ")
        assert str(limits) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("setting", settings().values(), ids=lambda s: s.name)
def test_a_value_of_another_type_is_refused(setting):
    wrong: Any = 3 if setting.kind is bool else {"a": 1}
    with pytest.raises(ConfigError, match=f"^{setting.name} must be "):
        RunConfig(**{setting.name: wrong})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), "many", True, None])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(ConfigError, match="^learning_rate must be a number between 0 and 10"):
        RunConfig(learning_rate=value)


@pytest.mark.parametrize("value", [1.5, "1.5", True, "", "5e5"])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(ConfigError, match="^slots must be a whole number"):
        RunConfig(slots=value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_unrolls": 65}, "batch_unrolls must be between 1 and slots (64), got 65"),
        ({"workers": 65}, "workers must be between 1 and slots (64), got 65"),
        ({"frames_per_visit": None}, "give either frames_per_visit or episodes_per_visit"),
        ({"episodes_per_visit": 5}, "give either frames_per_visit or episodes_per_visit"),
        ({"c_bar": 2.0}, "c_bar must be between 0 and rho_bar (1), got 2"),
        ({"tasks": ("breakout", "breakout")}, "tasks must differ from each other"),
        ({"protocol": "probe"}, "protocol probe needs probe_task"),
        ({"probe_task": "asterix"}, "probe_task is for protocol probe"),
        ({"address": "auto"}, "address is for runtime ray"),
        ({"anneal": True, "frames_per_visit": None, "episodes_per_visit": 5}, "anneal needs a length in frames"),
        ({"buffer_frames": 1279}, "buffer_frames must be at least 1280"),
        ({"buffer_frames": 1280, "action_repeat": 4}, "buffer_frames must be at least 5120"),
        ({"buffer_frames": 1280, "replay_budget": "1GB"}, "replay_budget is the size of the replay buffer in bytes"),
        ({"buffer_share": 0.1, "replay_budget": "1GB"}, "replay_budget is the size of the replay buffer in bytes"),
        (
            {"compress_frames": 500_000, "compress_on_top": False},
            "compress_frames must be less than frames_per_visit (500000)",
        ),
        ({"replay_state": "zero"}, "replay_state zero is for recurrent networks: set lstm to true"),
        ({"replay_state": "burn-in"}, "replay_state burn-in is for recurrent networks"),
        ({"lstm": True, "burn_in_steps": 3}, "burn_in_steps is for replay_state burn-in, but replay_state is stored"),
        (
            {"lstm": True, "replay_state": "burn-in", "burn_in_steps": 20},
            "burn_in_steps must be less than unroll_steps (20), got 20",
        ),
        (
            {"lstm": True, "replay_state": "burn-in", "unroll_steps": 1},
            "burn_in_steps must be less than unroll_steps (1), got 1",
        ),
        ({"replay_ratio": 1.0}, "replay_ratio is for pairs both"),
        ({"pairs": "both", "replay_fraction": 0.25}, "replay_fraction is for pairs either"),
        ({"pairs": "both", "replay_ratio": 0.2}, "replay_ratio must be a number between 0.25 and 4 or none, got 0.2"),
        ({"pairs": "neither"}, "pairs must be one of either, both"),
        ({"device": "cuda:x"}, "device must be cpu, cuda, cuda:N or mps"),
        ({"device": "mps", "scale_returns": True}, "scale_returns needs float64, which device mps has not: set scale"),
        ({"device": "mps", "normalise_observations": True}, "normalise_observations needs float64, which device mps"),
        ({"imports": ("os; rm",)}, "imports must be names of modules"),
    ],
)
def test_settings_at_odds_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as caught:
        RunConfig(**changes)
    assert str(caught.value).startswith(message)


def test_settings_that_only_look_at_odds_are_accepted():
    assert RunConfig(batch_unrolls=64, workers=64, buffer_frames=1280).buffer_frames == 1280
    assert RunConfig(compress_frames=500_000).compress_on_top
    assert RunConfig(protocol="probe", probe_task="asterix").probe_task == "asterix"
    assert RunConfig(device="mps").device == "mps" and RunConfig(device="cuda", scale_returns=True).scale_returns
    assert RunConfig(slots=1, batch_unrolls=1, unroll_steps=1, buffer_frames=1).slots == 1


def test_values_take_the_type_of_their_field():
    config = RunConfig(tasks=["a", "b"], learning_rate="6e-4", slots="1_024", discount=1)  # pyright: ignore[reportArgumentType]
    assert config.tasks == ("a", "b")
    assert config.learning_rate == 6e-4
    assert config.slots == 1024
    assert isinstance(config.discount, float)
    assert RunConfig(tasks="breakout, asterix").tasks == ("breakout", "asterix")  # pyright: ignore[reportArgumentType]


def test_default_then_preset_then_file_then_flag(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("entropy_weight: 0.5\nlearning_rate: 6e-4\npreset: minatar-schemes\n")
    config = resolve(file=file, flags={"learning_rate": 0.1})
    assert RunConfig().entropy_weight == 0.01
    assert resolve("minatar-schemes").entropy_weight == 0.03
    assert (config.entropy_weight, config.learning_rate, config.frames_per_visit) == (0.5, 0.1, 120_000)
    assert config.preset == "minatar-schemes"
    assert resolve(file=file, flags={"preset": "minatar"}).frames_per_visit == 500_000


def test_a_higher_layer_takes_back_the_alternative_of_a_lower_one(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("episodes_per_visit: 7\nbuffer_frames: 1000\n")
    by_episodes = resolve("minatar-schemes", file)
    assert (by_episodes.frames_per_visit, by_episodes.episodes_per_visit) == (None, 7)
    by_frames = resolve("minatar-schemes", file, {"frames_per_visit": 10, "buffer_share": 0.1})
    assert (by_frames.frames_per_visit, by_frames.episodes_per_visit) == (10, None)
    assert (by_frames.buffer_frames, by_frames.buffer_share) == (None, 0.1)
    with pytest.raises(ConfigError, match="either frames_per_visit or episodes_per_visit"):
        resolve(flags={"frames_per_visit": 10, "episodes_per_visit": 10})
    in_bytes = resolve("minatar-schemes", file, {"replay_budget": "2MB"})
    assert (in_bytes.buffer_frames, in_bytes.replay_budget) == (None, 2_000_000)
    on_top = resolve("paper-atari", flags={"pairs": "both", "replay_ratio": 0.5})
    assert (on_top.replay_fraction, on_top.replay_ratio) == (0.5, 0.5)
    assert resolve("paper-atari", flags={"replay_ratio": 0.5}) == on_top, "a ratio is of both, and says so"
    fraction = resolve("gym-classic", flags={"suite": "gym:CartPole-v1", "replay_fraction": 0.25})
    assert (fraction.pairs, fraction.replay_ratio) == ("either", None), "a fraction is of either"


def test_an_unknown_key_names_the_nearest(tmp_path: Path):
    with pytest.raises(UnknownNameError, match="unknown setting 'entropy_wieght'; did you mean 'entropy_weight'"):
        resolve(flags={"entropy_wieght": 1})
    file = tmp_path / "mine.yaml"
    file.write_text("slot: 3")
    with pytest.raises(UnknownNameError, match="did you mean 'slots'"):
        resolve(file=file)
    with pytest.raises(UnknownNameError, match="unknown preset 'minatr'; did you mean 'minatar'"):
        resolve("minatr")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1, 2]", "must be a mapping of settings to values, got list"),
        (b"a: b: c", "is not valid YAML at line 1"),
        (b"seed: !!python/object/apply:os.getpid []", "is not valid YAML"),
        (b"\xff\xfe\x00", "is not text in UTF-8"),
        (b"seed: 1\n" + b"# " * 600_000, "bytes; no more than"),
        (b"[" * 100_000, "is not valid YAML"),
    ],
)
def test_a_file_that_is_no_config_is_refused(tmp_path: Path, content: bytes, message: str):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_settings(path)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"gone\.yaml cannot be read: No such file"):
        load_settings(tmp_path / "gone.yaml")


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_valid_and_survive_the_file(name: str):
    config = resolve(name)
    assert from_yaml(to_yaml(config)) == config
    assert resolve(flags=parse_settings(to_yaml(config))) == config


def test_presets_say_what_the_sources_say():
    dmlab, atari, impala = (resolve(name) for name in ("paper-dmlab", "paper-atari", "impala-atari"))
    assert dmlab.frames_per_visit is not None and atari.frames_per_visit is not None
    assert len(dmlab.tasks) * dmlab.cycles * dmlab.frames_per_visit == 900_000_000
    assert dmlab.buffer_size_frames(900_000_000) == 450_000_000
    assert (atari.cycles, atari.frames_per_visit, len(atari.tasks)) == (5, 50_000_000, 6)
    assert [(c.unroll_steps, c.batch_unrolls) for c in (dmlab, atari, impala)] == [(100, 32), (20, 20), (20, 32)]
    assert [(c.learning_rate, c.rmsprop_eps) for c in (dmlab, atari, impala)] == [
        (4.8e-4, 0.1),
        (6e-4, 0.1),
        (6e-4, 0.01),
    ]
    assert [c.grad_norm_clip for c in (dmlab, atari, impala)] == [None, None, 40.0]
    assert [c.replay_fraction for c in (dmlab, atari, impala)] == [0.5, 0.25, 0.5]
    assert [c.value_weight for c in (dmlab, atari, impala)] == [0.5, 0.5, 0.25]


def test_atari_presets_end_episodes_as_their_sources_do():
    impala, paper, life_loss = (resolve(name) for name in ("impala-atari", "paper-atari", "paper-atari-life-loss"))
    assert (impala.life_loss_terminates, paper.life_loss_terminates, life_loss.life_loss_terminates) == (
        True,
        False,
        True,
    )
    # 108,000 frames, 30 minutes of play: the usual limit of Atari.
    assert [c.eval_max_steps * (c.action_repeat or 1) for c in (impala, paper, life_loss)] == [108_000] * 3


@pytest.mark.parametrize(
    ("name", "start", "changes"),
    [
        ("paper-dmlab-soft-clip", "paper-dmlab", {"reward_clip": ("unit", "soft_asymmetric")}),
        ("paper-atari-life-loss", "paper-atari", {"life_loss_terminates": (False, True)}),
    ],
)
def test_what_the_paper_leaves_open_is_a_preset_that_changes_nothing_else(name: str, start: str, changes: dict):
    assert diff(resolve(start), resolve(name)) == {"preset": (start, name), **changes}


@pytest.mark.parametrize("name", ["minatar", "minatar-schemes"])
def test_minatar_is_played_as_its_authors_play_it(name: str):
    config = resolve(name)
    assert (config.sticky_action_probability, config.reward_clip) == (0.1, "none")


def test_a_grid_of_lambdas_does_not_end_at_a_million():
    config = RunConfig(ewc_lambda=1e9, online_ewc_lambda=1e9)
    assert (config.ewc_lambda, config.online_ewc_lambda) == (1e9, 1e9)


def test_the_default_preset_of_the_demo_equals_the_defaults():
    changed = diff(RunConfig(), resolve("minatar"))
    # Outside of the suite that it was measured for, 64 episodes at a switch may take too long.
    own = {"torso": ("auto", "minatar"), "switch_episodes": (None, 64), "sticky_action_probability": (None, 0.1)}
    own |= {"pairs": ("either", "both")}
    assert changed == {"preset": (None, "minatar"), **own}


def test_diff_names_every_change():
    old = RunConfig()
    new = dataclasses.replace(old, seed=3, tasks=("breakout",))
    assert diff(old, new) == {"tasks": ((), ("breakout",)), "seed": (0, 3)}
    assert diff(old, RunConfig()) == {}


def test_the_buffer_is_a_share_of_all_frames_or_a_number():
    assert RunConfig(buffer_share=0.25).buffer_size_frames(1000) == 250
    assert RunConfig(buffer_frames=1400).buffer_size_frames(None) == 1400
    with pytest.raises(ConfigError, match="give buffer_frames"):
        RunConfig().buffer_size_frames(None)


def test_every_setting_has_a_help_text():
    assert [s.name for s in settings().values() if len(s.help) < 5] == []
