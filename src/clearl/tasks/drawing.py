"""Frames as pictures, for videos and reports."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clearl.spaces import ObservationSpec, field_name
from clearl.tasks.observations import TaskObservations

BAR_PIXELS = 8
LINE_PIXELS = 14
"""Height of a line of a caption; half as much again on a wide picture."""
_LEAST_WIDTH, _WIDE, _MOST_WIDTH = 160, 320, 480
_ROD_PIXELS = 80
_PAPER, _INK = (24, 24, 24), (240, 240, 240)


def draw_record(frame: np.ndarray, observations: TaskObservations, spec: ObservationSpec) -> np.ndarray:
    """Draw a frame of several parts: its first image, or all its vectors as bars."""
    own = []
    for part in observations.parts:
        corner = tuple(slice(0, size) for size in part.spec.shape)
        whole = frame[field_name(part.name)] if spec.is_record else frame
        own.append(whole[corner])
    images = [part for part in own if part.ndim == 3]
    return draw_frame(images[0] if images else np.concatenate([part.astype(np.float32) for part in own]))


def draw_frame(frame: np.ndarray, *, channels: Sequence[int] = (0, 1, 2)) -> np.ndarray:
    """Draw any frame as RGB [H, W, 3]: images as they are, vectors as bars left and right of a middle line."""
    if frame.ndim == 1:
        return _draw_bars(frame.astype(np.float32))
    if frame.dtype == np.uint8:
        levels = frame
    else:
        values = frame.astype(np.float32)
        low, high = float(values.min()), float(values.max())
        levels = ((values - low) * (255 / max(high - low, 1e-9))).astype(np.uint8)
    chosen = [c if len(levels) >= 3 else 0 for c in channels]
    return np.ascontiguousarray(levels[chosen].transpose(1, 2, 0))


def _draw_bars(values: np.ndarray) -> np.ndarray:
    half = 64
    lengths = np.round(np.tanh(values) * half).astype(int)
    picture = np.zeros((len(values) * BAR_PIXELS, 2 * half, 3), np.uint8)
    for index, length in enumerate(lengths):
        rows = slice(index * BAR_PIXELS, (index + 1) * BAR_PIXELS - 1)
        picture[rows, min(half, half + length) : max(half, half + length)] = (
            (0, 114, 178) if length > 0 else (230, 159, 0)
        )
    picture[:, half] = 255
    return picture


def draw_rod(cos: float, sin: float) -> np.ndarray:
    """Draw a rod on a pivot; (1, 0) points up, (0, 1) to the left."""
    from PIL import Image, ImageDraw

    middle, length = _ROD_PIXELS, 0.8 * _ROD_PIXELS
    image = Image.new("RGB", (2 * middle, 2 * middle), "white")
    draw, end = ImageDraw.Draw(image), (middle - length * sin, middle - length * cos)
    draw.line([(middle, middle), end], fill=(204, 77, 77), width=16)
    for (x, y), radius, colour in ((end, 7.5, (204, 77, 77)), ((middle, middle), 4, (24, 24, 24))):
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
    return np.asarray(image)


def with_caption(picture: np.ndarray, lines: Sequence[str]) -> np.ndarray:
    """Return the picture with lines of text above it.

    Small pictures are enlarged so that the text fits, very large ones reduced. Sides are even, as videos need.
    """
    from PIL import Image, ImageDraw, ImageFont

    large = _resized(picture)
    height, width = large.shape[:2]
    line_pixels = LINE_PIXELS if width < _WIDE else 3 * LINE_PIXELS // 2
    top = line_pixels * len(lines) + 4
    canvas = Image.new("RGB", (width + width % 2, top + height + (top + height) % 2), _PAPER)
    canvas.paste(Image.fromarray(large), (0, top))
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(line_pixels * 10 // LINE_PIXELS)
    for row, line in enumerate(lines):
        text = line.encode("ascii", "replace").decode()  # every default font has ASCII
        while draw.textlength(text, font) > width - 4:
            text = f"{text[:-4]}..." if len(text) > 4 else ""
        draw.text((2, 2 + line_pixels * row), text, _INK, font)
    return np.asarray(canvas)


def _resized(picture: np.ndarray) -> np.ndarray:
    from PIL import Image

    height, width = picture.shape[:2]
    if width > _MOST_WIDTH:
        size = (_MOST_WIDTH, max(1, round(height * _MOST_WIDTH / width)))
        return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BOX))
    factor = -(-_LEAST_WIDTH // width)
    return picture.repeat(factor, 0).repeat(factor, 1)


def side_by_side(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Join two pictures of the same height with a gap between them."""
    gap = np.full((left.shape[0], 8, 3), _PAPER, np.uint8)
    return np.concatenate([left, gap, right], axis=1)
