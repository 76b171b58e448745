"""A settings engine: fields of annotated dataclasses as settings with a type, a range, a help text and tags."""

from __future__ import annotations

import dataclasses
import math
import re
import reprlib
import types
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

import yaml

from clearl.errors import ConfigError, CorruptFileError
from clearl.storage.files import read_plain

_MAX_FILE_BYTES = 1_000_000
Declared = TypeVar("Declared")


@dataclass(frozen=True)
class Between:
    """The range of a number, both ends included."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"between {_number(self.low)} and {_number(self.high)}"


def _number(value: float) -> str:
    return f"{value:_}" if isinstance(value, int) else f"{value:g}"


@dataclass(frozen=True)
class Word:
    """A word that a number may be given as, outside of its range."""

    text: str
    value: int


@dataclass(frozen=True)
class Size:
    """Marks a number of bytes, which may be given with a unit: 20GB, 512MiB."""


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


@dataclass_transform(frozen_default=True)
def settings_class(kind: type[Declared]) -> type[Declared]:
    """Make a class that declares settings a dataclass without methods: it is read, never made.

    It takes a third of the time of a whole one, in every process of a run.
    """
    return dataclass(frozen=True, init=False, repr=False, eq=False)(kind)


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
    words: tuple[Word, ...] = ()
    is_size: bool = False

    def checked(self, value: Any) -> Any:
        """Return the value in the field's own type, or an error that names the field and what it takes."""
        if value is None and self.optional:
            return None
        for word in self.words:
            if value in (word.text, word.value) and not isinstance(value, bool):
                return word.value
        converted = _converted(as_bytes(value) if self.is_size else value, self.kind)
        if converted is None or (self.limits and not self.limits.low <= converted <= self.limits.high):
            raise ConfigError(f"{self.name} must be {self.expected}, got {shown(value)}")
        return converted

    @property
    def expected(self) -> str:
        """The accepted values, in words."""
        if get_origin(self.kind) is Literal:
            text = "one of " + ", ".join(get_args(self.kind))
        else:
            text = ("a size such as 20GB, in bytes" if self.is_size else _IN_WORDS[self.kind]) + (
                f" {self.limits}" if self.limits else ""
            )
            text += "".join(f" or {word.text}" for word in self.words)
        return text + (" or none" if self.optional else "")


@cache
def settings_of(kind: type) -> dict[str, Setting]:
    """Return every field of an annotated dataclass by name, in order."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _setting(kind, field, hints[field.name]) for field in dataclasses.fields(kind)}


def _setting(kind: type, field: dataclasses.Field[Any], hint: Any) -> Setting:
    limits, text, tags, optional, words, is_size = None, "", set(), False, (), False
    declaring = next(part for part in reversed(kind.__mro__) if field.name in vars(part).get("__annotations__", {}))
    heading = (declaring.__doc__ or declaring.__name__).partition("\n")[0].rstrip(".")
    while True:
        if get_origin(hint) is Annotated:
            for extra in hint.__metadata__:
                limits = extra if isinstance(extra, Between) else limits
                text = extra if isinstance(extra, str) else text
                tags |= {extra} if isinstance(extra, Tag) else set()
                words += (extra,) if isinstance(extra, Word) else ()
                is_size = is_size or isinstance(extra, Size)
            hint = hint.__origin__
        elif get_origin(hint) in (Union, types.UnionType):
            optional = True
            (hint,) = (part for part in get_args(hint) if part is not type(None))
        else:
            plain = tuple if get_origin(hint) is tuple else hint
            return Setting(
                field.name, plain, optional, limits, text, frozenset(tags), field.default, heading, words, is_size
            )  # fmt: skip


def _converted(value: Any, kind: Any) -> Any:
    """Convert `value` to `kind`, or return None. Numbers may come as text: YAML takes 6e-4 for text."""
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
        value = _as_number(value) if isinstance(value, str) else value
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(value, bool) or not math.isfinite(number) or number != value:
        return None
    return number


_THOUSANDS = {"k": 3, "m": 6, "g": 9, "b": 9}
_NUMBER_LENGTH = 64


def _as_number(text: str) -> int | float:
    """Parse a number as people write it: 100_000, 1e5, 100k, 2M, 2.5M. Whole ones are exact."""
    text = text.strip()
    power = _THOUSANDS.get(text[-1:].lower(), 0)
    digits = text[:-1] if power else text
    if len(digits) > _NUMBER_LENGTH or (power and not digits[-1:].isdigit()):
        raise ValueError(text[:_NUMBER_LENGTH])
    try:
        value = Decimal(digits.replace("_", "")) if "__" not in digits else Decimal("nan")
    except InvalidOperation:
        raise ValueError(text) from None
    if not value.is_finite() or abs(value.adjusted()) > _NUMBER_LENGTH:
        raise ValueError(text)
    value = value.scaleb(power)
    return int(value) if value == value.to_integral_value() else float(digits.replace("_", "")) * 10**power


_UNITS = {"k": 1, "m": 2, "g": 3, "t": 4}


def as_bytes(value: Any) -> Any:
    """Parse a size as people write it to bytes: 20GB, 1.5 TB, 512MiB, 512M; anything else stays as it is."""
    found = re.fullmatch(r"\s*([\d._]+)\s*([kmgt]?)(i?)b?\s*", value, re.IGNORECASE) if isinstance(value, str) else None
    if found is None or (found[3] and not found[2]):
        return value
    try:
        number = _as_number(found[1])
    except ValueError:
        return value
    return int(number * (1024 if found[3] else 1000) ** _UNITS.get(found[2].lower(), 0))


def shown(value: Any) -> str:
    """Return a value for an error message, cut where it is long: a stranger's file must not fill the terminal."""
    return _BRIEF.repr(value)


_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80


class _PlainLoader(yaml.SafeLoader):
    """Reads YAML without aliases and merge keys: a few hundred bytes of them stand for billions of entries."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise _not_plain("an alias (*name)", self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def flatten_mapping(self, node: Any) -> None:
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise _not_plain("a merge key (<<)", key.start_mark)
        super().flatten_mapping(node)


def _not_plain(what: str, mark: Any) -> yaml.YAMLError:
    error = yaml.constructor.ConstructorError(None, None, what, mark)
    error.clearl_hint = f": {what} is not allowed in settings; write the values out"  # pyright: ignore[reportAttributeAccessIssue]
    return error


def load_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, neither keys nor values checked."""
    try:
        return parse_yaml(read_plain(path, cap_nbytes=_MAX_FILE_BYTES).decode(), str(path))
    except CorruptFileError as error:
        raise ConfigError(f"config file {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"config file {path} is not text in UTF-8") from error


def parse_yaml(text: str, source: str = "config") -> dict[str, Any]:
    """Return the mapping in a YAML text, neither keys nor values checked."""
    return deepcopy(_parsed(text, source))


@lru_cache(maxsize=2)
def _parsed(text: str, source: str) -> dict[str, Any]:
    """Parse a text once: its settings are read for the modules that they name, then for their values."""
    try:
        loaded = yaml.load(text, _PlainLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a number of thousands of digits
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise ConfigError(f"{source} is not valid YAML{line}{getattr(error, 'clearl_hint', '')}") from error
    if not isinstance(loaded, dict | None):
        raise ConfigError(f"{source} must be a mapping of settings to values, got {type(loaded).__name__}")
    return loaded or {}


def dump_yaml(values: Mapping[str, Any]) -> str:
    """Write settings as YAML, in their order."""
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    # Unicode's own line breaks would be read back as spaces: then everything beyond ASCII is escaped.
    return yaml.safe_dump(plain, sort_keys=False) if re.search("[\x85\u2028\u2029]", text) else text
