"""The plot of a benchmark run, as SVG without any library."""

import html
import re

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720, 360, 56, 46, 44
COLOURS = ("#1b6ca8", "#c8553d", "#4c8b4a", "#7d5ba6", "#b8860b", "#555555")
DECODE = re.compile(r"decode B=(\d+) context (\d+)$")


def series_of(lines):
    """{(context, threads): [(batch, fraction)]} of the engine's decode lines."""
    found = {}
    for entry in lines:
        match = DECODE.match(entry["name"])
        if entry["part"] == "engine" and match and entry["fraction"] is not None:
            found.setdefault((int(match[2]), entry["threads"]), []).append((int(match[1]), entry["fraction"]))
    return {key: sorted(points) for key, points in sorted(found.items())}


def fractions(lines, machine):
    """Fraction of the limit that binds, by batch; one line per context and number of threads."""
    series = series_of(lines)
    batches = sorted({batch for points in series.values() for batch, _ in points})
    right, bottom = WIDTH - 150, HEIGHT - BOTTOM

    def x(batch):
        return LEFT + (right - LEFT) * batches.index(batch) / max(1, len(batches) - 1)

    def y(fraction):
        return bottom - (bottom - TOP) * min(fraction, 1.0)

    title = f"Decode: fraction of the limit that binds ({machine.get('isa', '?')})"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           f'font-size="12"><rect width="100%" height="100%" fill="white"/>'
           f'<text x="{LEFT}" y="24" font-size="15">{html.escape(title)}</text>']
    for tenth in range(0, 11, 2):
        level = y(tenth / 10)
        out.append(f'<line x1="{LEFT}" y1="{level:.1f}" x2="{right}" y2="{level:.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{tenth / 10:.1f}</text>')
    for batch in batches:
        out.append(f'<text x="{x(batch):.1f}" y="{bottom + 18}" text-anchor="middle">{batch}</text>')
    out.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">sequences in the batch</text>')
    for i, ((context, threads), points) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x(batch):.1f},{y(fraction):.1f}" for batch, fraction in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x(b):.1f}" cy="{y(f):.1f}" r="3" fill="{colour}"/>' for b, f in points]
        out.append(f'<text x="{right + 14}" y="{TOP + 8 + 18 * i}" fill="{colour}">context {context}, '
                   f'{threads} thr.</text>')
    return "\n".join(out) + "\n</svg>\n"
