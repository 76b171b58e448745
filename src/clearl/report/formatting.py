"""Format numbers for people."""

from __future__ import annotations

from html import escape

from clearl.report.stats import Interval, Stat


def number(value: float | None, *, like: float | None = None) -> str:
    """Format with about three digits, or as many decimals as `like` gets; an en dash for None."""
    if value is None:
        return "–"
    size = abs(value if like is None else like)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2
    text = f"{value:,.{decimals}f}"
    return text.replace("-", "−") if text.strip("-0.,") else text.lstrip("-")


def percent(share: float | None) -> str:
    """Return a share as a percentage."""
    return "–" if share is None else f"{round(100 * share)} %".replace("-", "−")


def with_deviation(stat: Stat | None) -> str:
    """Format as mean ± standard deviation over seeds."""
    if stat is None or stat.mean is None:
        return "–"
    return number(stat.mean) + (f" ± {number(stat.std, like=stat.mean)}" if stat.std is not None else "")


def with_interval(interval: Interval | None) -> str:
    """Format an estimate with its interval in brackets."""
    if interval is None:
        return "–"
    bounds = f" [{interval.low:.2f}, {interval.high:.2f}]" if interval.low is not None else ""
    return (f"{interval.value:.2f}{bounds}").replace("-", "−")


def frames(value: float) -> str:
    """Return a number of frames in short: 500k, 1.2M."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def breakable(name: str) -> str:
    """Return a name for HTML that may wrap after its underscores."""
    return escape(name).replace("_", "_<wbr>")
