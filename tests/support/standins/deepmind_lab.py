"""A stand-in for the package of that name, with its documented methods and its traps; no game inside.

The picture shows the episode's own colour in the first row and the last action in the second.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

EPISODE_FRAMES = 80
LIMITS = [(-512, 512), (-512, 512), (-1, 1), (-1, 1), (0, 1), (0, 1), (0, 1)]
LEVELS = {
    f"contributed/dmlab30/{name}"
    for name in (
        "explore_object_locations_small",
        "rooms_collect_good_objects_train",
        "rooms_keys_doors_puzzle",
        "natlab_varying_map_randomized",
    )
}
made: list[Lab] = []


class Lab:
    def __init__(
        self,
        level: str,
        observations: list[str],
        config: dict[str, str] | None = None,
        renderer: str = "software",
        level_cache: Any = None,
    ) -> None:
        if level not in LEVELS:
            raise RuntimeError(f"Level not found: {level}")
        for key, value in (config or {}).items():
            if not (isinstance(key, str) and isinstance(value, str)):
                raise TypeError("config must be a dict of strings to strings")
        if renderer not in ("software", "hardware"):
            raise ValueError(f"unknown renderer {renderer}")
        settings = {"width": "320", "height": "240", **(config or {})}
        self.level, self.names, self.cache, self.settings = level, list(observations), level_cache, settings
        self.compiled = 0
        self._buffer = np.zeros((int(settings["height"]), int(settings["width"]), 3), np.uint8)
        self._status, self._frames, self._episode = "fresh", 0, 0
        made.append(self)

    def reset(self, episode: int = -1, seed: int | None = None) -> None:
        self._require("fresh", "running", "over", call="reset")
        if seed is not None and type(seed) is not int:
            raise TypeError("seed must be an integer")
        self._episode = self._episode + 1 if episode < 0 else episode
        self._rng = np.random.default_rng(None if seed is None else [seed, self._episode])
        self._compile(f"{self.level}/{seed}/{self._episode}")
        self._buffer[:] = 0
        self._buffer[0] = self._rng.integers(0, 256, self._buffer[0].shape)
        self._status, self._frames = "running", 0

    def is_running(self) -> bool:
        return self._status == "running"

    def num_steps(self) -> int:
        return self._frames

    def step(self, action: np.ndarray, num_steps: int = 1) -> float:
        self._require("running", call="step")
        if not isinstance(action, np.ndarray) or action.dtype != np.intc or action.shape != (7,):
            raise ValueError("action must be an array of 7 np.intc")
        if any(not low <= value <= high for value, (low, high) in zip(action, LIMITS, strict=True)):
            raise ValueError("action out of its range: behaviour is undefined")
        self._frames += num_steps
        self._buffer[1, :7, 0] = action.astype(np.int64) % 256
        self._buffer[2] = self._rng.integers(0, 256, self._buffer[2].shape)
        if self._frames >= EPISODE_FRAMES:
            self._status = "over"
        return float(num_steps * action[3])

    def observations(self) -> dict[str, np.ndarray]:
        self._require("running", call="observations")
        return dict.fromkeys(self.names, self._buffer)

    def close(self) -> None:
        self._status = "closed"

    def _require(self, *allowed: str, call: str) -> None:
        if self._status not in allowed:
            raise RuntimeError(f"Environment in wrong status for call to {call}()")

    def _compile(self, key: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "level.pk3"
            if self.cache is not None and self.cache.fetch(key, str(path)):
                assert path.read_bytes() == key.encode()
                return
            self.compiled += 1
            path.write_bytes(key.encode())
            if self.cache is not None:
                self.cache.write(key, str(path))
