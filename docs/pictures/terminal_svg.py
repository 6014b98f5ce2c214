#!/usr/bin/env python3
"""Draws what a program printed to a terminal as an SVG: terminal_svg.py TITLE < text > picture.svg

Understands the colour escapes that Baton uses. Standard library only.
"""

import html
import re
import sys

COLOURS = {"31": "#e06c75", "32": "#98c379", "33": "#e5c07b", "34": "#61afef", "35": "#c678dd", "36": "#56b6c2",
           "1": "bold", "2": "#7f848e"}
WIDTH, HEIGHT, LEFT, TOP = 7.8, 17, 18, 48


def spans(line):
    """(text, style) pairs of a line with escape sequences."""
    style = None
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        match = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if match:
            style = COLOURS.get(match.group(1))
        elif part:
            yield part, style


def main():
    lines = [line.rstrip() for line in sys.stdin.read().rstrip("\n").split("\n")]
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    width = int(max(map(len, plain)) * WIDTH + 2 * LEFT)
    height = TOP + len(lines) * HEIGHT + 14
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">')
    print(f'<rect width="{width}" height="{height}" rx="8" fill="#21252b"/>')
    for i, colour in enumerate(("#e06c75", "#e5c07b", "#98c379")):
        print(f'<circle cx="{20 + 18 * i}" cy="18" r="6" fill="{colour}"/>')
    print(f'<text x="{width / 2:.0f}" y="22" fill="#7f848e" font-family="monospace" font-size="12" '
          f'text-anchor="middle">{html.escape(sys.argv[1])}</text>')
    print('<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13" fill="#d7dae0" xml:space="preserve">')
    for number, line in enumerate(lines):
        y, column = TOP + number * HEIGHT, 0
        for text, style in spans(line):
            extra = ' font-weight="bold"' if style == "bold" else f' fill="{style}"' if style else ""
            print(f'<text x="{LEFT + column * WIDTH:.1f}" y="{y}" textLength="{len(text) * WIDTH:.1f}"{extra}>'
                  f"{html.escape(text)}</text>")
            column += len(text)
    print("</g></svg>")


if __name__ == "__main__":
    main()
