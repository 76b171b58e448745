"""From flags to checked values: errors are one line, as for a config file; tyro draws the help."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, make_dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from clearl.cli.output import fitted
from clearl.config import Setting, owned_settings, settings, settings_of
from clearl.errors import ConfigError, UnknownNameError
from clearl.plugins import import_plugins

POSITIONAL = object()
"""Mark a field with it, as in `Annotated[str, POSITIONAL, "help"]`, and it is given without a flag."""

Imports = Annotated[tuple[str, ...], "modules of yours to import first, as when the run was started"]
Trust = Annotated[bool, "import whatever modules the given run or file names: it then can run any code here"]

Args = TypeVar("Args")


def parse(kind: type[Args], argv: Sequence[str], *, verb: str, about: str) -> Args:
    """Return the flags of a verb as the dataclass that describes them."""
    return kind(**_given(kind, settings_of(kind), argv, verb=verb, about=about))


def parse_run(kind: type[Args], argv: Sequence[str], *, verb: str, about: str) -> tuple[Args, dict[str, Any]]:
    """Return the same for a verb that also takes every setting of a run; those that were given come second.

    Modules of `--imports` are imported first: the methods and suites that they register may declare flags.
    """
    import_plugins(_named_imports(argv))
    own = settings_of(kind)
    given = _given(kind, own | settings(), argv, verb=verb, about=about)
    return kind(**{name: given.pop(name) for name in own if name in given}), given


def _named_imports(argv: Sequence[str]) -> list[str]:
    following = [after for token, after in pairwise(argv) if token == "--imports"]
    joined = [token.removeprefix("--imports=") for token in argv if token.startswith("--imports=")]
    return [name.strip() for value in (*following, *joined) for name in value.split(",") if name.strip()]


def _given(kind: type, known: Mapping[str, Setting], argv: Sequence[str], *, verb: str, about: str) -> dict[str, Any]:
    """Return the values that `argv` gives, by name. `--help` prints and exits."""
    positionals = _positionals(kind)
    if any(token in ("-h", "--help") for token in argv):
        _print_help(known, positionals, verb=verb, about=about)
    texts = _texts(argv, known, positionals, verb)
    needed = [name for name, setting in known.items() if setting.default is MISSING and name not in texts]
    if needed:
        shown = " and ".join(name.upper() if name in positionals else _flag(name) for name in needed)
        raise ConfigError(f"{verb} needs {shown}; clearl {verb} --help says more")
    return {name: _value(setting, texts[name]) for name, setting in known.items() if name in texts}


def _texts(
    argv: Sequence[str], settings: Mapping[str, Setting], positionals: Sequence[str], verb: str
) -> dict[str, Any]:
    """Return the fields that `argv` gives, each as text, as a truth value or, where it takes many, as texts."""
    texts: dict[str, Any] = {}
    free = [name for name in positionals if settings[name].kind is not tuple]
    many = [name for name in positionals if settings[name].kind is tuple]
    tokens = iter(argv)
    for token in tokens:
        if not token.startswith("-"):
            if not (free or many):
                raise ConfigError(f"{verb} does not take {token!r}; {_remedy(list(texts), settings, token)}")
            if free:
                texts[free.pop(0)] = token
            else:
                texts[many[0]] = (*texts.get(many[0], ()), token)
            continue
        flag, has_value, value = token.partition("=")
        setting = _named(flag, settings, positionals, verb)
        if setting.kind is bool:
            if has_value:
                raise ConfigError(f"{flag} takes no value: say {_flag(setting.name)} or {_flag('no_' + setting.name)}")
            value = flag.replace("_", "-") == _flag(setting.name)
        elif not has_value:
            value = next(tokens, "")
            if not value or (value.startswith("-") and not _is_number(value)):
                raise ConfigError(f"{flag} needs a value: {setting.expected}")
        if setting.name in texts:
            raise ConfigError(f"{flag} is given twice")
        texts[setting.name] = value
    return texts


_HABITS = {
    **dict.fromkeys(("--lr", "--step-size", "--alpha"), "--learning-rate"),
    **dict.fromkeys(("-o", "--output", "--dir", "--logdir", "--log-dir", "--save-dir", "--run-dir"), "--out"),
    **dict.fromkeys(("--env", "--envs", "--env-id", "--environment", "-e"), "--suite"),
    **dict.fromkeys(("--algo", "--algorithm", "--agent", "-m"), "--method"),
    **dict.fromkeys(("--gamma", "--discount-factor"), "--discount"),
    **dict.fromkeys(("--num-envs", "--n-envs", "--num-actors"), "--slots"),
    **dict.fromkeys(("--num-workers", "-j", "--processes"), "--workers"),
    **dict.fromkeys(("--total-timesteps", "--timesteps", "--steps", "--frames", "--num-frames"), "--frames-per-visit"),
    **dict.fromkeys(("--batch-size", "-b"), "--batch-unrolls"),
    **dict.fromkeys(("--unroll-length", "--n-steps"), "--unroll-steps"),
    **dict.fromkeys(("--buffer-size", "--replay-size", "--replay-frames"), "--buffer-frames"),
    **dict.fromkeys(("--buffer-bytes", "--replay-bytes", "--buffer-budget"), "--replay-budget"),
    **dict.fromkeys(("--ent-coef", "--entropy", "--entropy-coef", "--entropy-cost"), "--entropy-weight"),
    **dict.fromkeys(("--vf-coef", "--value-coef", "--baseline-cost"), "--value-weight"),
    **dict.fromkeys(("--eval-freq", "--eval-every"), "--eval-every-frames"),
    **dict.fromkeys(("--network", "--policy", "--net"), "--torso"),
    **dict.fromkeys(("--resume", "--continue"), "--out"),
    "--seeds": "--seed",
    "-s": "--seed",
}
"""What other libraries call a flag of ours."""


def _remedy(given: Sequence[str], settings: Mapping[str, Setting], token: str) -> str:
    """Say what to write instead of a word that no flag takes."""
    last = given[-1] if given else None
    if last is not None and settings[last].kind is tuple:
        return f"a list has commas and no spaces, as in {_flag(last)} a,{token}"
    return "flags begin with --"


def _named(flag: str, settings: Mapping[str, Setting], positionals: Sequence[str], verb: str) -> Setting:
    """Return the setting that a flag sets; underscores are as good as hyphens."""
    known = dict(_flags(settings, positionals))
    name = flag.replace("_", "-")
    if name in known:
        return known[name]
    if _HABITS.get(name) in known:
        raise ConfigError(f"unknown flag {flag!r}; did you mean {_HABITS[name]!r}?")
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.7)
    if not near:
        raise ConfigError(f"unknown flag {flag!r}; clearl {verb} --help lists them")
    raise UnknownNameError("flag", flag, near)


def _flags(settings: Mapping[str, Setting], positionals: Sequence[str]) -> Iterator[tuple[str, Setting]]:
    for name, setting in settings.items():
        if name not in positionals:
            yield _flag(name), setting
            if setting.kind is bool:
                yield _flag("no_" + name), setting


def _print_help(known: Mapping[str, Setting], positionals: Sequence[str], *, verb: str, about: str) -> NoReturn:
    """Let tyro draw the help of a verb, and exit."""
    import tyro

    fields: list[Any] = []
    groups: dict[str, list[Any]] = {}
    owned_names = owned_settings().keys()
    for name, setting in sorted(known.items(), key=lambda item: item[1].default is not MISSING):
        field = _tyro_field(setting, name in positionals)
        groups.setdefault(setting.group, []).append(field) if name in owned_names else fields.append(field)
    for index, (heading, owned) in enumerate(groups.items()):
        group: Any = make_dataclass(f"Group{index}", owned)
        marked = Annotated[group, tyro.conf.arg(name=heading), tyro.conf.OmitArgPrefixes]
        fields.append((f"group_{index}", marked, dataclasses.field(default_factory=group)))
    whole = re.sub(r"\n(?=[A-Za-z])", " ", about)  # tyro joins such lines, but does not break long ones between words
    tyro.cli(make_dataclass("Flags", fields), args=["--help"], prog=f"clearl {verb}", description=fitted(whole))
    raise AssertionError("tyro exits after the help")


def _tyro_field(setting: Setting, positional: bool) -> Any:
    """Return a flag as a field of a dataclass for tyro."""
    import tyro

    many = setting.kind is tuple and positional
    form: Any = bool if setting.kind is bool else tuple[str, ...] if many else str
    named = setting.name.rstrip("_").replace("_", "-") if setting.name.endswith("_") else None
    hint = tyro.conf.arg(
        name=named, help=setting.help, help_behavior_hint=_default(setting), metavar=_metavar(setting, positional)
    )
    annotated = Annotated[(form, *((tyro.conf.Positional, hint) if positional else (hint,)))]
    if setting.default is MISSING:
        return setting.name, annotated
    return setting.name, annotated, bool(setting.default) if form is bool else () if many else ""


def _default(setting: Setting) -> str:
    """Write the default for the help; nothing where the text says it already."""
    default = setting.default
    if default is MISSING:
        return "(required)"
    if default is None or default == () or default is False or "default:" in setting.help:
        return ""
    shown = ",".join(default) if isinstance(default, tuple) else f"{default:_}" if type(default) is int else default
    return f"(default: {shown})"


def _metavar(setting: Setting, positional: bool) -> str | None:
    if setting.kind is bool:
        return None
    if positional:
        return setting.name.upper()
    if get_origin(setting.kind) is Literal:
        return "|".join(get_args(setting.kind))
    if setting.is_size:
        return "SIZE"
    return {int: "N", float: "X", tuple: "A,B,..."}.get(setting.kind, "TEXT")


def _value(setting: Setting, text: Any) -> Any:
    return None if setting.optional and text == "none" else setting.checked(text)


def _positionals(kind: type) -> list[str]:
    hints = get_type_hints(kind, include_extras=True)
    return [name for name, hint in hints.items() if POSITIONAL in getattr(hint, "__metadata__", ())]


def _flag(name: str) -> str:
    """Spell the flag of a field; `from_`, which must not be a keyword of Python, is `--from`."""
    return "--" + name.rstrip("_").replace("_", "-")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
