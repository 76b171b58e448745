"""A settings engine: fields of annotated dataclasses as settings with a type, a range, a help text and tags."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from clearl.errors import ConfigError

_MAX_FILE_BYTES = 1_000_000


@dataclass(frozen=True)
class Between:
    """The range of a number, both ends included."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"between {_number(self.low)} and {_number(self.high)}"


def _number(value: float) -> str:
    return f"{value:_}" if isinstance(value, int) else f"{value:g}"


class Tag(Enum):
    """A property of a setting, written beside its type."""

    PLACEMENT = "says where a run happens, not what it is: a resumed run may come with another value"
    CHANGEABLE = "does not touch learning: a resumed run may come with another value"
    MACHINE = "says how a run is computed, not what is learnt: makes no new arm in a report"


Count = Annotated[int, Between(1, 10**13)]
Share = Annotated[float, Between(0, 1)]
Weight = Annotated[float, Between(0, 10**6)]
Lambda = Annotated[float, Between(0, 10**12)]  # Fishers differ by orders of magnitude: the range must not end a search
Positive = Annotated[float, Between(1e-12, 10**6)]

_IN_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "a list of texts without empty ones",
}


@dataclass(frozen=True)
class Setting:
    """One field: its type, range, help, tags and default, read from the annotation."""

    name: str
    kind: Any
    """str, int, float, bool, tuple (of str) or a Literal."""
    optional: bool
    limits: Between | None
    help: str
    tags: frozenset[Tag]
    default: Any
    """`dataclasses.MISSING` where it must be given."""
    group: str
    """The first line of the docstring of the class that declares it: the heading of its group in `--help`."""

    def checked(self, value: Any) -> Any:
        """The value in the field's own type, or an error that names the field and what it takes."""
        if value is None and self.optional:
            return None
        converted = _converted(value, self.kind)
        if converted is None or (self.limits and not self.limits.low <= converted <= self.limits.high):
            raise ConfigError(f"{self.name} must be {self.expected}, got {value!r}")
        return converted

    @property
    def expected(self) -> str:
        """What the field takes, in words."""
        if get_origin(self.kind) is Literal:
            text = "one of " + ", ".join(get_args(self.kind))
        else:
            text = _IN_WORDS[self.kind] + (f" {self.limits}" if self.limits else "")
        return text + (" or none" if self.optional else "")


@cache
def settings_of(kind: type) -> dict[str, Setting]:
    """Every field of an annotated dataclass by name, in order."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _setting(kind, field, hints[field.name]) for field in dataclasses.fields(kind)}


def _setting(kind: type, field: dataclasses.Field[Any], hint: Any) -> Setting:
    limits, text, tags, optional = None, "", set(), False
    declaring = next(part for part in reversed(kind.__mro__) if field.name in vars(part).get("__annotations__", {}))
    heading = (declaring.__doc__ or declaring.__name__).partition("\n")[0].rstrip(".")
    while True:
        if get_origin(hint) is Annotated:
            for extra in hint.__metadata__:
                limits = extra if isinstance(extra, Between) else limits
                text = extra if isinstance(extra, str) else text
                tags |= {extra} if isinstance(extra, Tag) else set()
            hint = hint.__origin__
        elif get_origin(hint) in (Union, types.UnionType):
            optional = True
            (hint,) = (part for part in get_args(hint) if part is not type(None))
        else:
            plain = tuple if get_origin(hint) is tuple else hint
            return Setting(field.name, plain, optional, limits, text, frozenset(tags), field.default, heading)


def _converted(value: Any, kind: Any) -> Any:
    """`value` as `kind`, or None. Numbers may come as text: YAML takes 6e-4 for one."""
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else None
    if kind is bool:
        return value if isinstance(value, bool) else None
    if kind is str:
        return value if isinstance(value, str) and value else None
    if kind is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        whole = isinstance(parts, (list, tuple)) and all(isinstance(part, str) and part.strip() for part in parts)
        return tuple(part.strip() for part in parts) if whole else None
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(value, bool) or not math.isfinite(number) or (not isinstance(value, str) and number != value):
        return None
    return number


def load_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, neither keys nor values checked."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"config file {path} is larger than {_MAX_FILE_BYTES} bytes: that is no config")
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"config file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"config file {path} is not text in UTF-8") from error


def parse_yaml(text: str, source: str = "config") -> dict[str, Any]:
    """The mapping in a YAML text, neither keys nor values checked."""
    try:
        loaded = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a number of thousands of digits
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise ConfigError(f"{source} is not valid YAML{line}") from error
    if not isinstance(loaded, dict | None):
        raise ConfigError(f"{source} must be a mapping of settings to values, got {type(loaded).__name__}")
    return loaded or {}


def dump_yaml(values: Mapping[str, Any]) -> str:
    """Settings as YAML, in their order."""
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
