"""Lines on logarithmic axes, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 170, 40, 50
COLOURS = ("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#b6992d", "#b07aa1", "#ff9da7", "#9c755f", "#79706e")

Points = Sequence[tuple[float, float]]


def chart(title: str, x_title: str, y_title: str, lines: Mapping[str, Points]) -> str:
    """One line per name, with its points marked; names stand to the right, in the order of the lines' ends."""
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    to_x = _scale(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    to_y = _scale(min(1.0, *ys), max(ys), HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 20, title, size=14),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_title, anchor="middle"),
        _text(LEFT, TOP - 6, y_title),
    ]
    for x in sorted(set(xs)):
        parts += [_line(to_x(x), TOP, to_x(x), HEIGHT - BOTTOM)]
        parts += [_text(to_x(x), HEIGHT - BOTTOM + 16, _short(x), anchor="middle")]
    for y in _ticks(min(1.0, *ys), max(ys)):
        parts += [_line(LEFT, to_y(y), WIDTH - RIGHT, to_y(y)), _text(LEFT - 6, to_y(y) + 4, _short(y), anchor="end")]
    label_y = math.inf
    colours = dict(zip(lines, COLOURS * len(lines), strict=False))
    for name, points in sorted(lines.items(), key=lambda line: line[1][-1][1]):
        colour = colours[name]
        path = " ".join(f"{to_x(x):.1f},{to_y(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{to_x(x):.1f}" cy="{to_y(y):.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
        label_y = min(to_y(points[-1][1]) + 4, label_y - 13)
        parts.append(_text(WIDTH - RIGHT + 8, label_y, name, colour=colour))
    return "\n".join([*parts, "</svg>", ""])


def _scale(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    span = math.log(high / low) or 1.0
    return lambda value: start + (stop - start) * math.log(value / low) / span


def _ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for power in powers for step in (1, 2, 3, 5) if low <= (tick := step * 10.0**power) <= high]


def _short(value: float) -> str:
    return f"{value:g}" if value < 1e5 else f"10^{math.log10(value):g}"


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, colour: str = "#333333") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(text)}</text>'
    )
