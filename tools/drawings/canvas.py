"""SVG drawings of boxes, arrows and words, on a white card that is readable on light and dark pages."""

from __future__ import annotations

from html import escape

INK, GREY, FAINT = "#1f2933", "#66727f", "#e4e8ec"
TASKS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
"""Okabe and Ito's colours, one for each task."""


class Canvas:
    """Collects shapes; `svg()` is the file."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._shapes: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, text: str = "", *, fill: str = "#f4f6f8",
            stroke: str = GREY, colour: str = INK, size: float = 14, radius: float = 5) -> None:  # fmt: skip
        """Draw a box with words in its middle; lines are separated by newlines."""
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" fill="{fill}" '
            f'stroke="{stroke}"/>'
        )
        lines = text.split("\n") if text else []
        for i, line in enumerate(lines):
            middle = y + height / 2 + (i - (len(lines) - 1) / 2) * size * 1.25
            self.text(x + width / 2, middle + size * 0.35, line, size=size, colour=colour, anchor="middle")

    def text(self, x: float, y: float, text: str, *, size: float = 14, colour: str = INK, anchor: str = "start",
             bold: bool = False, italic: bool = False) -> None:  # fmt: skip
        """Write words on a base line."""
        style = (' font-weight="600"' if bold else "") + (' font-style="italic"' if italic else "")
        self._shapes.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour}" text-anchor="{anchor}"{style}>'
            f"{escape(text, quote=False)}</text>"
        )

    def line(self, *points: tuple[float, float], colour: str = GREY, width: float = 1.6, arrow: bool = False,
             dashed: bool = False) -> None:  # fmt: skip
        """Draw a line through points, with an arrow at its end if asked for."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        extra = (' marker-end="url(#tip)"' if arrow else "") + (' stroke-dasharray="4 3"' if dashed else "")
        self._shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{extra}/>'
        )

    def area(self, *points: tuple[float, float], fill: str) -> None:
        """Draw a filled shape."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._shapes.append(f'<polygon points="{path}" fill="{fill}"/>')

    def svg(self) -> str:
        """Return the drawing as a file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" font-family="system-ui, sans-serif">\n'
            f"<title>{escape(self.title)}</title>\n"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker></defs>\n'
            f'<rect width="{self.width}" height="{self.height}" rx="8" fill="#fff"/>\n'
        )
        return head + "\n".join(self._shapes) + "\n</svg>\n"
