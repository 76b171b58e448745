"""Settings: an engine that reads them off annotated dataclasses, and those of a run."""

from clearl.config.engine import (
    Between,
    Count,
    Lambda,
    Positive,
    Setting,
    Share,
    Tag,
    Weight,
    load_yaml,
    parse_yaml,
    settings_of,
    shown,
)
from clearl.config.layers import (
    PRESETS_DIR,
    diff,
    from_yaml,
    load_preset,
    load_settings,
    parse_settings,
    preset_names,
    resolve,
    to_yaml,
    with_alternatives_unset,
)
from clearl.config.owners import owned_settings, used_settings
from clearl.config.run import FOREVER, RunConfig, may_change, names_tagged, settings

__all__ = [
    "FOREVER", "PRESETS_DIR", "Between", "Count", "Lambda", "Positive", "RunConfig", "Setting", "Share", "Tag",
    "Weight", "diff", "from_yaml", "load_preset", "load_settings", "load_yaml", "may_change", "names_tagged",
    "owned_settings", "parse_settings", "parse_yaml", "preset_names", "resolve", "settings", "settings_of", "shown",
    "to_yaml", "used_settings", "with_alternatives_unset",
]  # fmt: skip
