"""The page's section on how the runs were made: settings of each arm, commands, versions, machine."""

from __future__ import annotations

from html import escape
from typing import Any

from clearl.records.names import clean_name
from clearl.report.arms import label
from clearl.report.markup import shell_line
from clearl.report.summary import Summary

_COMMANDS_SHOWN = 1
_LONGEST_VALUE = 400


def settings_section(summary: Summary, command: str) -> str:
    """Write the section with everything that is needed to run it again."""
    return f"""<section id="settings"><h2>Settings and commands</h2>
<h3>What differs between the arms</h3>{_differences(summary)}
<h3>How to run it again</h3><pre>{escape(_commands(summary))}
{escape(command)}</pre>
{_all_settings(summary)}{_versions(summary)}</section>"""


def _configs(summary: Summary) -> dict[str, dict[str, Any]]:
    return {name: arm.arm.runs[0].config for name, arm in summary.arms.items()}


def _differences(summary: Summary) -> str:
    configs = _configs(summary)
    keys = sorted(set().union(*configs.values()) - {"seed"})
    varying = [key for key in keys if len({repr(config.get(key)) for config in configs.values()}) > 1]
    if not varying:
        return '<p class="soft">Nothing but what their names say.</p>'
    head = "".join(f'<th class="text" scope="col"><code>{escape(key)}</code></th>' for key in varying)
    rows = "".join(
        f'<tr><th class="text" scope="row">{escape(label(name))}</th>'
        + "".join(f'<td class="text">{escape(_value(config.get(key)))}</td>' for key in varying)
        + "</tr>"
        for name, config in configs.items()
    )
    return (
        f'<div class="scroll"><table><thead><tr><th class="text" scope="col">arm</th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _all_settings(summary: Summary) -> str:
    blocks = []
    for name, config in _configs(summary).items():
        lines = "\n".join(f"{key}: {_value(value)}" for key, value in sorted(config.items()) if key != "seed")
        blocks.append(f"<details><summary>{escape(label(name))}</summary><pre>{escape(lines)}</pre></details>")
    return f"<h3>All settings</h3>{''.join(blocks)}"


def _commands(summary: Summary) -> str:
    lines = []
    for name, arm in summary.arms.items():
        made = [shell_line(run.meta["argv"]) for run in arm.arm.runs if run.meta.get("argv")]
        unique = list(dict.fromkeys(line for line in made if line is not None))
        if not unique:
            continue
        lines.append(f"# {label(name)}, seeds {', '.join(map(str, arm.arm.seeds))}")
        lines += unique[:_COMMANDS_SHOWN]
        if len(unique) > _COMMANDS_SHOWN:
            lines.append(f"# and {len(unique) - _COMMANDS_SHOWN} more, one for each seed")
    return "\n".join([*lines, "# this report"]) if lines else "# this report"


def _versions(summary: Summary) -> str:
    metas = [run.meta for arm in summary.arms.values() for run in arm.arm.runs]
    facts: dict[str, list[str]] = {}
    for meta in metas:
        known = {"clearl": meta.get("clearl"), **_mapping(meta.get("versions")), **_mapping(meta.get("machine"))}
        for key, value in known.items():
            if value is not None and clean_name(value) not in facts.setdefault(clean_name(key), []):
                facts[clean_name(key)].append(clean_name(value))
    speeds = [run.fps for arm in summary.arms.values() for run in arm.arm.runs if run.fps]
    if speeds:
        low, high = f"{min(speeds):,.0f}", f"{max(speeds):,.0f}"
        facts["frames/s in training"] = [low if low == high else f"{low} to {high}"]
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{escape(', '.join(values))}</dd>" for key, values in facts.items())
    return f"<h3>Versions and machine</h3><dl>{rows}</dl>" if rows else ""


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _value(value: Any) -> str:
    if value is None:
        return "–"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_LONGEST_VALUE])
