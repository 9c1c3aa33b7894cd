"""What the pages of docs/results share: the machine, medians with their spread, bars as SVG."""
import os
import statistics
from pathlib import Path

BAR_HEIGHT, GAP, SCALE_WIDTH, LETTER_WIDTH = 18, 8, 420, 7.2


def machine():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    else:
        cpu = "unknown processor"
    return f"{cpu}, {os.uname().sysname} {os.uname().release.split('-')[0]}"


def spread(values):
    return f"{statistics.median(values):.1f} [{min(values):.1f}–{max(values):.1f}]"


def bars(title, rows, mark=None):
    """An SVG of horizontal bars. rows: (label, value, text behind the bar, colour); mark: a value to compare with."""
    left = round(LETTER_WIDTH * max(len(label) for label, _, _, _ in rows)) + 20
    largest = max([value for _, value, _, _ in rows] + ([mark] if mark else []))
    unit = SCALE_WIDTH / largest
    height = 60 + len(rows) * (BAR_HEIGHT + GAP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + SCALE_WIDTH + 90}" height="{height}" '
             'font-family="sans-serif" font-size="13" role="img">', f"<title>{title}</title>",
             '<rect width="100%" height="100%" fill="#ffffff"/>',
             f'<text x="12" y="24" font-size="15" font-weight="bold" fill="#222">{title}</text>']
    for index, (label, value, text, colour) in enumerate(rows):
        y = 44 + index * (BAR_HEIGHT + GAP)
        parts.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end" fill="#222">{label}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{value * unit:.1f}" height="{BAR_HEIGHT}" fill="{colour}"/>')
        parts.append(f'<text x="{left + value * unit + 6:.1f}" y="{y + 14}" fill="#222">{text}</text>')
    if mark:
        x = left + mark * unit
        parts.append(f'<line x1="{x:.1f}" y1="38" x2="{x:.1f}" y2="{height - 12}" stroke="#222" stroke-dasharray="4 3"/>')
    return "\n".join(parts + ["</svg>", ""])
