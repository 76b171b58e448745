"""Mirrors of `metrics.jsonl` at TensorBoard, Weights & Biases and others; the file can rebuild each at any time."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from clearl.errors import ConfigError, MissingExtraError
from clearl.records.reader import scan_rows
from clearl.records.run_dir import IDENTITIES_DIR, read_meta
from clearl.records.schema import METRICS_FILE, Row
from clearl.records.shield import Shield
from clearl.registry import Registry
from clearl.storage.files import write_atomically


class Mirror(Protocol):
    """Receives the rows of a run, one by one.

    Its class may have a `label` for messages, and a static `check` that raises if it cannot work here. An instance
    whose `wants_history` is False does not receive the rows that were recorded before it was opened.
    """

    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


class WandbMirror:
    """A run at Weights & Biases, or below `RUN/wandb` where WANDB_MODE=offline. A resume continues the same one.

    Rows that a resume dropped stay there beside their replacements: W&B cannot delete rows.
    """

    label = "Weights & Biases"

    @staticmethod
    def check() -> None:
        _check_wandb_login(_wandb_module())

    def __init__(self, run_dir: Path) -> None:
        wandb = _wandb_module()
        identity = run_identity(run_dir, "wandb")
        settings, self._scalars = run_settings(run_dir), Scalars()
        self._run: Any = wandb.init(
            project="clearl", dir=str(run_dir), name=Path(run_dir).absolute().name, group=settings["arm"],
            config=settings, id=identity.id, resume="allow",
        )  # fmt: skip
        # A run that W&B does not know, because it was killed before its first rows arrived, gets them all; offline, W&B
        # knows none, and keeps what it has below the run directory.
        self.wants_history = identity.is_new if self._run.offline else not self._run.resumed
        # W&B's own step must never decrease; but tasks share frame counts, and evaluation lags training.
        self._run.define_metric("frames")
        self._run.define_metric("*", step_metric="frames")

    def write(self, row: Row) -> None:
        values = self._scalars(row)
        if values:
            self._run.log({**values, "frames": row["frames"]})

    def close(self) -> None:
        self._run.finish()


@dataclass(frozen=True)
class RunIdentity:
    """The name of a run at a service, which no other run has."""

    id: str
    is_new: bool


def run_identity(run_dir: Path, service: str, *, prefix: str = "") -> RunIdentity:
    """Return the identity of this run at a service; the first call makes it, and the run directory keeps it.

    A resume finds it again, also where the directory was moved; `--overwrite` deletes it with the run.
    """
    path = Path(run_dir) / IDENTITIES_DIR / f"{service}.txt"
    try:
        return RunIdentity(path.read_text(encoding="utf-8").strip(), is_new=False)
    except FileNotFoundError:
        made = prefix + secrets.token_hex(4)
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, made.encode())
        return RunIdentity(made, is_new=True)


def run_settings(run_dir: Path) -> dict[str, Any]:
    """Collect the meta data of a run that a service receives."""
    meta = read_meta(run_dir)
    return {key: meta.get(key) for key in ("method", "suite", "protocol", "seed", "arm", "plan")}


class Scalars:
    """Maps eval and train rows to scalars with tags such as `eval/return/breakout` and `train/loss/value`.

    `train/shares/TASK` is the share of training that a task has; 0 once training has left the task.
    """

    def __init__(self) -> None:
        self._trained: dict[str, None] = {}

    def __call__(self, row: Row) -> dict[str, float]:
        if row["kind"] == "eval":
            return dict(_evaluated(row))
        return {**dict(_trained(row)), **self._shares(row)} if row["kind"] == "train" else {}

    def _shares(self, row: Row) -> dict[str, float]:
        tasks = row["tasks"]
        self._trained |= dict.fromkeys(tasks)
        given = row.get("shares") or dict.fromkeys(tasks, 1 / max(1, len(tasks)))
        return {f"train/shares/{task}": float(given.get(task, 0.0)) for task in self._trained}


def _evaluated(row: Row) -> Iterator[tuple[str, float]]:
    for name in ("return", "std", "success_rate"):
        if isinstance(value := row.get(name), (int, float)):
            yield f"eval/{name}/{row['task']}{_column(row)}", float(value)


def _trained(row: Row) -> Iterator[tuple[str, float]]:
    skipped = {"v", "kind", "tasks", "shares", "frames", "wall_s"}
    yield from _flatten("train", {key: value for key, value in row.items() if key not in skipped})


def _column(row: Row) -> str:
    """Return a suffix that names the column, for the rows of a task's second column, which is not plotted."""
    return f"/{row['column']}" if row.get("secondary") else ""


class ShieldedMirror:
    """A mirror that is switched off when it fails: a full disk or a lost network must not end the training."""

    def __init__(self, name: str, open_mirror: Callable[[], Mirror]) -> None:
        self._shield = Shield(name)
        self._mirror: Mirror | None = None
        self._shield.call(self._open, open_mirror)

    def write(self, row: Row) -> None:
        if self._mirror is not None:
            self._shield.call(self._mirror.write, row)

    @property
    def wants_history(self) -> bool:
        return getattr(self._mirror, "wants_history", True)

    def close(self) -> None:
        if self._mirror is not None:
            self._shield.call(self._mirror.close)

    def _open(self, open_mirror: Callable[[], Mirror]) -> None:
        self._mirror = open_mirror()


def _shielded(name: str, run_dir: Path) -> ShieldedMirror:
    kind = MIRRORS.get(name)
    return ShieldedMirror(f"the mirror to {getattr(kind, 'label', name)}", lambda: kind(run_dir))


def rebuild(rows: Iterable[Row], mirror: Mirror) -> None:
    """Feed a mirror with rows that were recorded before it was opened."""
    for row in rows:
        mirror.write(row)


MIRRORS: Registry[Callable[[Path], Mirror]] = Registry(
    "mirror",
    {
        "tensorboard": "clearl.records.tensorboard:TensorBoardMirror",
        "wandb": "clearl.records.mirrors:WandbMirror",
        "trackio": "clearl.records.trackio:TrackioMirror",
    },
    group="clearl.mirrors",
)


def check_mirrors(names: Iterable[str]) -> None:
    """Raise, before anything is created, if a requested mirror cannot work here."""
    for name in names:
        check = getattr(MIRRORS.get(name), "check", None)
        if check is not None:
            check()


def open_mirrors(run_dir: Path, names: Iterable[str]) -> list[ShieldedMirror]:
    """Open the mirrors of these names, and feed each the rows that the run directory already holds."""
    mirrors = [_shielded(name, run_dir) for name in dict.fromkeys(names)]
    for mirror in mirrors:
        if mirror.wants_history:
            rebuild(scan_rows(Path(run_dir) / METRICS_FILE).rows, mirror)
    return mirrors


def _wandb_module() -> Any:
    try:
        return import_module("wandb")
    except ImportError:
        raise MissingExtraError("--wandb", "wandb", "pip install 'clearl[wandb]'") from None


def _check_wandb_login(wandb: Any) -> None:
    """Raise, before a run directory is made, if W&B has no API key: it would prompt for one, or fail later."""
    if os.environ.get("WANDB_MODE", "online") != "online":
        return
    remedy = "run `wandb login`, set WANDB_API_KEY, or set WANDB_MODE=offline to keep the rows below the run directory"
    try:
        known = _has_wandb_key(wandb)
    except Exception as error:  # of kinds that differ between versions of W&B
        line = " ".join(f"{error}".split())
        raise ConfigError(f"--wandb: {line}; {remedy}") from error
    if not known:
        raise ConfigError(f"--wandb: no API key of Weights & Biases is set; {remedy}")


def _has_wandb_key(wandb: Any) -> bool:
    try:
        return wandb.login(prompt=False, verify=False)
    except TypeError:  # before W&B 0.31 it prompts; since then `wandb.api` is deprecated
        return bool(wandb.api.api_key)


def _flatten(prefix: str, values: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}/{key}", value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}/{key}", float(value)
