"""Algorithms and off-policy corrections by name; `make_method` builds methods around each other from a config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.registry import Registry

if TYPE_CHECKING:
    from clearl.methods.corrections import ConfiguredCorrection
    from clearl.methods.method import Method, Wrapper

METHODS: Registry[type[Method]] = Registry(
    "method",
    {
        "baseline": "clearl.methods.baseline:Baseline",
        "clear": "clearl.methods.clear:Clear",
        "ewc": "clearl.methods.ewc:Ewc",
        "online-ewc": "clearl.methods.ewc:OnlineEwc",
        "progress-compress": "clearl.methods.progress_compress:ProgressCompress",
        "l2-init": "clearl.methods.l2_init:L2Init",
        "continual-backprop": "clearl.methods.continual_backprop:ContinualBackprop",
        "trust": "clearl.methods.trust:Trust",
    },
    settings={
        "baseline": "clearl.methods.settings:ClearSettings",
        "clear": "clearl.methods.settings:ClearSettings",
        "ewc": "clearl.methods.settings:EwcSettings",
        "online-ewc": "clearl.methods.settings:OnlineEwcSettings",
        "progress-compress": "clearl.methods.settings:ProgressCompressSettings",
        "l2-init": "clearl.methods.settings:L2InitSettings",
        "continual-backprop": "clearl.methods.settings:ContinualBackpropSettings",
        "trust": "clearl.methods.settings:TrustSettings",
    },
    group="clearl.methods",
)
CORRECTIONS: Registry[type[ConfiguredCorrection]] = Registry(
    "correction",
    {
        "vtrace": "clearl.methods.corrections:Vtrace",
        "leaky-vtrace": "clearl.methods.corrections:LeakyVtrace",
        "trust-region": "clearl.methods.corrections:TrustRegion",
    },
    settings={
        "vtrace": "clearl.methods.settings:VtraceSettings",
        "leaky-vtrace": "clearl.methods.settings:LeakyVtraceSettings",
        "trust-region": "clearl.methods.settings:TrustRegionSettings",
    },
    group="clearl.corrections",
)
DEFAULT_BASE = "baseline"
"""The base of a wrapper whose spelling names none."""


def make_method(config: RunConfig) -> Method:
    """Return the method spelled `config.method`.

    A base, or wrappers around one (`l2-init+ewc+clear`), outermost first.
    """
    wrappers, base = parse_method(config.method)
    method = base.from_config(config)
    for wrapper in reversed(wrappers):
        method = wrapper.around(method, config)
    return method


def parse_method(spelling: str) -> tuple[list[type[Wrapper]], type[Method]]:
    """Return the wrappers, outermost first, and the base that a spelling names."""
    from clearl.methods.method import Wrapper

    names = spelling.split("+")
    kinds = [METHODS.get(name) for name in names]
    if issubclass(kinds[-1], Wrapper):
        kinds.append(METHODS.get(DEFAULT_BASE))
    if len(set(names)) < len(names):
        raise ConfigError(f"method {spelling!r} names one method twice")
    for name, kind in zip(names, kinds[:-1], strict=False):
        if not issubclass(kind, Wrapper):
            raise ConfigError(f"method {spelling!r}: {name!r} wraps no other method, so it must come last")
    return [kind for kind in kinds[:-1] if issubclass(kind, Wrapper)], kinds[-1]


def method_spellings() -> list[str]:
    """Return every registered method, and each wrapper around each base."""
    from clearl.methods.method import Wrapper

    wrappers = [name for name in METHODS if issubclass(METHODS.get(name), Wrapper)]
    bases = [name for name in METHODS if name not in wrappers]
    around = [f"{wrapper}+{base}" for base in bases if base != DEFAULT_BASE for wrapper in wrappers]
    return [*bases, *wrappers, *around]
