"""The page's section of findings: each claim with its verdict, and its interval drawn against the range."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from clearl.report.arms import label
from clearl.report.findings import Finding
from clearl.report.formatting import breakable, with_interval
from clearl.report.stats import DECIDING_SEEDS

_BADGES = {
    "holds": ("holds", "✓ holds"),
    "does not hold": ("fails", "✗ does not hold"),
    "undecided": ("undecided", "? undecided"),
    "rival not tuned": ("undecided", "rival not tuned"),
}
_WIDTH, _AXIS_Y = 270.0, 14.0
_TASKS_SHOWN = 12


def findings_section(findings: Sequence[Finding], *, with_missing: bool) -> str:
    """Return the claims that were measured and, `with_missing`, those that were not.

    Empty where there is nothing to show.
    """
    measured = [finding for finding in findings if finding.effect is not None]
    rest = [finding for finding in findings if finding.effect is None and with_missing]
    if not measured and not rest:
        return ""
    counts = {verdict: sum(f.verdict == verdict for f in measured) for verdict in _BADGES}
    tally = ", ".join(_tally(verdict, count) for verdict, count in counts.items() if count)
    cards = "".join(_card(finding) for finding in measured)
    missing = "".join(f"<li>{escape(f.claim.claim)}: {escape(f.why)}.</li>" for f in rest)
    intro = f"{len(measured)} of the paper's {len(findings)} claims were measured: {tally}." if measured else (
        "None of the paper's claims can be measured on these arms."
    )  # fmt: skip
    hidden = (
        f"<details><summary>{len(rest)} claims not measured here</summary><ul>{missing}</ul></details>" if rest else ""
    )
    return f"""<section id="findings"><h2>Findings</h2>
<p>{intro} A claim holds if its effect lies within the shaded range, which was fixed beforehand; it does not hold if
the effect lies outside; else it is undecided. Both at the 5 % level for all measured claims together.</p>
<p class="soft">Bars are 95 % t-intervals over seeds (ratios on the log scale, standard errors by leaving out one seed
at a time); p is corrected for the number of claims by Holm's method. Fewer than {DECIDING_SEEDS} seeds decide nothing.
Scores count from the return of an untrained network; the paper's own effects, from zero. The verdicts on single tasks
are corrected for the number of tasks.</p>
<div class="findings">{cards}</div>{hidden}</section>"""


def _card(finding: Finding) -> str:
    style, text = _BADGES[finding.verdict]
    claim = finding.claim
    told = "" if finding.paper_effect is None else f" The paper's own table gives {finding.paper_effect:.2f}."
    if finding.oracle is not None:
        told += f" Oracle: this schedule with no forgetting at all gives {finding.oracle:.2f}."
    if finding.sanity:
        shares = ", ".join(f"{label(name)} {share:.2f}" for name, share in finding.sanity.items())
        told += f" Beside the plain baseline: {shares}."
    p_value = "" if finding.p_value is None else f' <span class="p">p {_p_text(finding.p_value)}</span>'
    return f"""<article class="finding"><div><span class="verdict {style}">{text}</span></div>
<div><h3>{escape(claim.claim)}</h3><p>The paper: {escape(claim.paper)}.</p>
<p>Measured: {escape(claim.measure)}.{escape(told)} {escape(_sentence(finding.why))} ({escape(claim.reason)}).</p>
{_tasks(finding)}</div>
<div class="effect"><b>{escape(with_interval(finding.effect))}</b>{p_value}{_plot(finding)}</div></article>"""


def _tasks(finding: Finding) -> str:
    """Return the claim on each task: opposite effects cancel in the mean."""
    if not finding.tasks:
        return ""
    shown = list(finding.tasks.items())[:_TASKS_SHOWN]
    items = "".join(
        f'<li><span class="verdict {_BADGES[one.verdict][0]}">{_BADGES[one.verdict][1]}</span> '
        f"{breakable(task)} {escape(with_interval(one.effect))}</li>"
        for task, one in shown
    )
    rest = len(finding.tasks) - len(shown)
    return f'<ul class="tasks">{items}{f"<li>and {rest} more tasks in findings.json</li>" if rest else ""}</ul>'


def _p_text(p_value: float) -> str:
    return "&lt; 0.001" if p_value < 0.001 else f"= {p_value:.3f}" if p_value < 0.1 else f"= {p_value:.2f}"


def _tally(verdict: str, count: int) -> str:
    plural = {"holds": "hold", "does not hold": "do not hold", "undecided": "are undecided"}
    single = {"undecided": "is undecided"}
    if verdict == "rival not tuned":
        return f"{count} not judged, since a rival is not tuned"
    return f"{count} {plural[verdict] if count != 1 else single.get(verdict, verdict)}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _plot(finding: Finding) -> str:
    """Return a number line.

    The range as a shade, the interval as a bar, the estimate as a dot, the paper as a diamond.
    """
    effect = finding.effect
    assert effect is not None
    marks = [effect.value, *finding.claim.range, effect.low, effect.high, finding.paper_effect]
    known = [mark for mark in marks if mark is not None and np.isfinite(mark)]
    span = (max(known) - min(known)) or 1.0
    left, right = min(known) - 0.12 * span, max(known) + 0.12 * span

    def x(value: float) -> float:
        return float(np.clip((value - left) / (right - left), 0, 1) * _WIDTH)

    low, high = (x(edge) for edge in np.clip(finding.claim.range, left, right))
    parts = [
        f'<rect x="{low:.1f}" y="3" width="{high - low:.1f}" height="22" rx="3" fill="var(--good-tint)"/>',
        f'<line x1="0" x2="{_WIDTH}" y1="{_AXIS_Y}" y2="{_AXIS_Y}" stroke="var(--line)"/>',
    ]
    if effect.low is not None and effect.high is not None:
        parts.append(
            f'<line x1="{x(effect.low):.1f}" x2="{x(effect.high):.1f}" y1="{_AXIS_Y}" y2="{_AXIS_Y}" '
            'stroke="var(--accent)" stroke-width="4" stroke-linecap="round"/>'
        )
    parts.append(f'<circle cx="{x(effect.value):.1f}" cy="{_AXIS_Y}" r="5" fill="var(--accent)"/>')
    if finding.paper_effect is not None:
        at = x(finding.paper_effect)
        parts.append(
            f'<path d="M{at:.1f} {_AXIS_Y - 6} l5 6 l-5 6 l-5 -6 z" fill="none" stroke="var(--ink)" stroke-width="1.4">'
            "<title>the paper</title></path>"
        )
    for edge in finding.claim.range:
        if np.isfinite(edge):
            parts.append(f'<text x="{x(edge):.1f}" y="36" text-anchor="middle">{edge:g}</text>')
    text = f"{with_interval(effect)}; holds within the shaded range"
    return f'<svg viewBox="0 0 {_WIDTH:g} 38" role="img" aria-label="{escape(text)}">{"".join(parts)}</svg>'
