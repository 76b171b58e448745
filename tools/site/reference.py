"""Reference pages generated from the code: commands, settings, presets, Python names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, is_dataclass
from importlib import import_module
from typing import Any, Literal, get_args, get_origin, get_type_hints

from clearl.cli.arguments import POSITIONAL
from clearl.cli.main import VERBS
from clearl.config import PRESETS_DIR, RunConfig, Setting, Tag, owned_settings, settings, settings_of

HEADING = "# {}\n\n{}\n"


def pages() -> dict[str, str]:
    """Return the text of each page by its path below docs/."""
    return {
        "reference/commands.md": commands(),
        "reference/settings.md": run_settings(),
        "reference/presets.md": presets(),
        "reference/python.md": python_names(),
    }


def commands() -> str:
    """Return every verb with its arguments and flags."""
    parts = [HEADING.format("Commands", "`clearl VERB --help` prints the same. Exit codes: [Install](../install.md).")]
    for verb, summary in VERBS.items():
        module = import_module(f"clearl.cli.{verb}")
        kind = _arguments(module)
        parts.append(f"## clearl {verb}\n\n*{_sentence(summary)}*\n\n{_about(module.ABOUT)}\n")
        rows = [_flag_row(setting, _positional(kind, name)) for name, setting in settings_of(kind).items()]
        if rows:
            parts.append(_table(("argument", "meaning", "default", "takes"), rows))
        if verb in ("run", "resume"):
            parts.append("Takes every [setting](settings.md) as a flag as well.\n")
    return "\n".join(parts)


def run_settings() -> str:
    """Return every setting of a run, in the groups of the code."""
    about = (
        "A setting is a flag of `clearl run` (`--frames-per-visit`), a key of a config file and an argument of "
        "`clearl.run` (`frames_per_visit`). Settings marked * may change when a run is resumed."
    )
    parts = [HEADING.format("Settings", about)]
    core = settings_of(RunConfig)
    groups: dict[str, list[Setting]] = {}
    for name, heading in _core_groups():
        groups.setdefault(heading, []).append(core[name])
    for setting in owned_settings().values():
        groups.setdefault(setting.group, []).append(setting)
    for heading, members in groups.items():
        parts += [f"## {heading}\n", _table(("setting", "meaning", "default", "takes"), map(_setting_row, members))]
    return "\n".join(parts)


def presets() -> str:
    """Return every preset, as its file."""
    parts = [HEADING.format("Presets", "`--preset NAME` starts from these settings; flags and files come on top.")]
    for path in sorted(PRESETS_DIR.glob("*.yaml")):
        parts.append(f"## {path.stem}\n\n```yaml\n{path.read_text(encoding='utf-8')}```\n")
    return "\n".join(parts)


def python_names() -> str:
    """Public names: `clearl`, the classes that it returns, `clearl.interfaces` and `clearl.testing`."""
    from clearl.acting.agent import Agent
    from clearl.experiment import RunResult
    from clearl.records.table import MetricsTable

    top, seams, checks = (import_module(name) for name in ("clearl", "clearl.interfaces", "clearl.testing"))
    parts = [HEADING.format("Python API", "These names keep their meaning within a major version.")]
    parts.append("## clearl\n")
    parts += [_entry(name, getattr(top, name)) for name in ("run", "load_agent")]
    parts += [_entry(kind.__name__, kind, methods=True) for kind in (RunResult, Agent, MetricsTable)]
    parts.append("## clearl.interfaces\n\n" + _paragraphs(inspect.getdoc(seams) or "") + "\n")
    parts += [_entry(name, getattr(seams, name), methods=True) for name in sorted(seams.__all__, key=str.lower)]
    parts.append("## clearl.testing\n\n" + _paragraphs(inspect.getdoc(checks) or "") + "\n")
    parts += [_entry(name, getattr(checks, name)) for name in checks.__all__]
    return "\n".join(parts)


def _arguments(module: Any) -> type:
    (kind,) = (it for it in vars(module).values() if is_dataclass(it) and it.__module__ == module.__name__)
    assert isinstance(kind, type)
    return kind


def _positional(kind: type, name: str) -> bool:
    return POSITIONAL in getattr(get_type_hints(kind, include_extras=True)[name], "__metadata__", ())


def _flag_row(setting: Setting, positional: bool) -> list[str]:
    name = setting.name.upper() if positional else "--" + setting.name.rstrip("_").replace("_", "-")
    return [f"`{name}`", setting.help, _default(setting), _takes(setting)]


def _setting_row(setting: Setting) -> list[str]:
    changeable = "\\*" if setting.tags & {Tag.PLACEMENT, Tag.CHANGEABLE} else ""
    return [f"`{setting.name}`{changeable}", setting.help, _default(setting), _takes(setting)]


def _takes(setting: Setting) -> str:
    if get_origin(setting.kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(setting.kind)) + (", `none`" if setting.optional else "")
    if setting.kind is bool:
        return "yes or no"
    text = re.sub(r"^an? |(?<=^list) of texts without empty ones", "", setting.expected.removeprefix("a "))
    return re.sub(r"\d[\d_]{6,}", lambda number: _power(int(number[0])), text)


def _power(number: int) -> str:
    """Return a long bound as a power."""
    exponent = len(str(number)) - 1
    return "2^63 - 1" if number == 2**63 - 1 else f"10^{exponent}" if number == 10**exponent else f"{number:_}"


def _default(setting: Setting) -> str:
    default = setting.default
    if default is MISSING:
        return "required"
    if default is None or default == ():
        return ""
    if isinstance(default, bool):
        return "yes" if default else "no"
    shown = ",".join(default) if isinstance(default, tuple) else f"{default:_}" if type(default) is int else default
    return f"`{shown}`"


def _core_groups() -> Iterator[tuple[str, str]]:
    """Return the fields of `RunConfig`, each with the comment that heads its group."""
    heading = ""
    for line in inspect.getsource(RunConfig).splitlines():
        if comment := re.match(r"    # (.+?)\.?$", line):
            heading = comment[1]
        elif (field := re.match(r"    (\w+): Annotated", line)) and field[1] in settings():
            yield field[1], heading


def _entry(name: str, value: Any, *, methods: bool = False) -> str:
    """Return a heading, the signature, the docstring, and the public methods of a class."""
    parts = [f"### {name}\n"]
    if (signature := _signature(name, value)) is not None:
        parts.append(f"```python\n{_wrapped(signature)}\n```\n")
    if text := _own_doc(value):
        parts.append(_paragraphs(text) + "\n")
    if methods and isinstance(value, type):
        parts += [f"- {line}" for line in _members(value)] + [""]
    return "\n".join(parts)


def _members(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name.startswith("_") or not (inspect.isfunction(plain) or isinstance(plain, property)):
            continue
        text = _first_line(inspect.getdoc(plain) or "")
        shown = name if isinstance(plain, property) else _signature(name, plain)
        yield f"`{shown}`" + (f": {text}" if text else "")


def _signature(name: str, value: Any) -> str | None:
    if not callable(value) or (isinstance(value, type) and issubclass(value, BaseException)):
        return None
    try:
        text = f"{name}{inspect.signature(value)}"
    except (TypeError, ValueError):
        return None
    text = re.sub(r"<[^<>]*>", "...", text)  # defaults that have no source form
    text = re.sub(r"\b(?:clearl|numpy|pathlib|collections|typing|torch)\.(?:\w+\.)*", "", text).replace("'", "")
    return re.sub(r"\((?:self|cls)(?:, )?", "(", text)


def _wrapped(signature: str) -> str:
    """Return a long signature with one parameter a line."""
    if len(signature) <= 100:
        return signature
    name, _, rest = signature.partition("(")
    inner, depth, lines = rest[: rest.rindex(")")], 0, [""]
    for mark in inner:
        depth += (mark in "([{") - (mark in ")]}")
        lines[-1] += mark
        if mark == "," and not depth:
            lines.append("")
    return f"{name}(\n" + "\n".join(f"    {line.strip()}" for line in lines) + "\n" + rest[rest.rindex(")") :]


def _own_doc(value: Any) -> str:
    """Return the docstring, unless it is that of the value's class, as of a constant, or one that Python made up."""
    text = inspect.getdoc(value) or ""
    made_up = is_dataclass(value) and text.startswith(f"{getattr(value, '__name__', '')}(")
    inherited = not isinstance(value, type) and not inspect.isroutine(value) and not inspect.ismodule(value)
    return "" if made_up or (inherited and text != inspect.getdoc(type(value))) else text


def _paragraphs(text: str) -> str:
    """Return a docstring as Markdown: indented lines after a blank one are code already; formulas are left."""
    return inspect.cleandoc(text).replace("$", r"\$")


def _about(text: str) -> str:
    """Return the text of `--help`: a paragraph, and a list of the lines that are indented."""
    paragraph, *items = re.split(r"\n  (?=\S)", text)
    listed = [f"- `{name}`: {' '.join(rest.split())}" for name, _, rest in (item.partition(":") for item in items)]
    return "\n".join([" ".join(paragraph.split()).rstrip(".") + ".", "", *listed])


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _first_line(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
