"""Many machines: the learner, workers and evaluators are actors of a Ray cluster; this process supervises them."""

from __future__ import annotations

import logging
import math
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clearl.errors import ConfigError, MissingExtraError
from clearl.runtimes.cluster.driver import Driver
from clearl.runtimes.host import cores
from clearl.runtimes.runtime import RunSpec

WORKER_CPUS = 1.0
EVALUATOR_CPUS = 0.1
_KNOCK_S = 5.0

_QUIET = {"RAY_DEDUP_LOGS_SKIP_REGEX": ".", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# The first is Ray's switch for "this machine only": without it, it listens everywhere, also when told 127.0.0.1.
# The second: by default Ray runs all actors at a low priority.
_OUR_OWN = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}


def run_ray(spec: RunSpec) -> None:
    """Train with the actors of a cluster; they never outlive this call."""
    with connected(spec.config.address, cpus=math.ceil(needed_cpus(spec, spec.config.workers or cores()))):
        from clearl.runtimes.cluster.ray_host import RayHost  # Ray is an extra

        Driver(spec, RayHost(spec)).run()


def needed_cpus(spec: RunSpec, workers: int) -> float:
    """Return the CPUs to declare to Ray, which counts them and does not measure."""
    return WORKER_CPUS * workers + EVALUATOR_CPUS * len(spec.plan.evaluate)


@contextmanager
def connected(address: str | None, *, cpus: int) -> Iterator[None]:
    """Connect to a cluster: the one that was joined already, that at `address`, or a new one of this machine alone.

    A new one admits only clients with its token, drawn for it and written nowhere (Ray 2.52 and later). Without one,
    other users of the machine could run code as this user; Ray's own token lies in a file that they may be able to
    read.
    """
    joined = sys.modules.get("ray")
    if joined is not None and joined.is_initialized():
        yield  # in the environment as it is: nodes may be added from this process
        return
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with _environment({**_QUIET, **({} if address else _OUR_OWN | token)}):
        try:
            import ray
        except ImportError:
            raise MissingExtraError("runtime ray", "ray", "install it with: pip install 'clearl[ray]'") from None
        options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            options |= {"address": "local", "num_cpus": cpus, "include_dashboard": False}
        with _own_signals():
            try:
                _knock(address)
                _reread_authentication()
                ray.init(**options)
            except (OSError, RuntimeError, ValueError) as error:
                raise ConfigError(
                    f"no Ray cluster at address {address or 'local'}: {str(error).splitlines()[0]}. Is it running, "
                    "with the same RAY_AUTH_MODE and token? docs/cluster.md shows how"
                ) from error
    try:
        yield
    finally:
        ray.shutdown()
        _reread_authentication()


def _reread_authentication() -> None:
    """Make Ray read its mode and token again: else a process keeps those of its first cluster."""
    from ray import _raylet

    if (loader := getattr(_raylet, "AuthenticationTokenLoader", None)) is not None:
        # In this order: threads that are still ending would look for a token that is gone.
        vars(_raylet)["Config"].initialize("")
        loader.instance().reset_cache()


def _knock(address: str | None) -> None:
    """Fail at once where nothing listens: Ray itself would retry for minutes, with warnings all the time."""
    host, _, port = (address or "").rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables that Ray reads when it is imported and started; the user's own values stay."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our handler of SIGTERM, which Ray replaces by its own."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
