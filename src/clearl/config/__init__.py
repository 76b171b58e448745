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
)
from clearl.config.owners import owned_settings
from clearl.config.run import (
    FOREVER,
    MAY_CHANGE,
    PRESETS_DIR,
    RunConfig,
    diff,
    from_yaml,
    load_preset,
    load_settings,
    names_tagged,
    parse_settings,
    preset_names,
    resolve,
    settings,
    to_yaml,
    with_alternatives_unset,
)

__all__ = [
    "FOREVER", "MAY_CHANGE", "PRESETS_DIR", "Between", "Count", "Lambda", "Positive", "RunConfig", "Setting", "Share",
    "Tag", "Weight", "diff", "from_yaml", "load_preset", "load_settings", "load_yaml", "names_tagged", "owned_settings",
    "parse_settings", "parse_yaml", "preset_names", "resolve", "settings", "settings_of", "to_yaml",
    "with_alternatives_unset",
]  # fmt: skip
