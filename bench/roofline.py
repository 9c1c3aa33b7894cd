"""Roofline pictures as SVG: arithmetic intensity against speed, both logarithmic, below the measured ceilings."""
import math
import statistics

PANEL_WIDTH, PANEL_HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 330, 230, 58, 26, 34, 44
INK, GRID, ROOF = "#222222", "#e4e4e4", "#555555"


class Panel:
    """One roofline. roofs: (label, GOP/s, dashed); points: (OP/byte, least, median, most GOP/s, colour, cluster)."""

    def __init__(self, title, bandwidth, roofs, points):
        self.title, self.bandwidth, self.roofs, self.points = title, bandwidth, roofs, points
        ridges = [roof[1] / bandwidth for roof in roofs]
        intensities = [point[0] for point in points] + ridges
        speeds = [value for point in points for value in point[1:4]] + [roof[1] for roof in roofs]
        self.x_range = min(intensities) / 2, max(intensities) * 2
        self.y_range = min(speeds) / 2.5, max(speeds) * 1.8

    def x(self, intensity):
        return LEFT + PANEL_WIDTH * position(intensity, self.x_range)

    def y(self, speed):
        return TOP + PANEL_HEIGHT * (1 - position(speed, self.y_range))

    def draw(self):
        return "\n".join([*self.frame(), *self.roof_lines(), *self.marks(), *self.cluster_labels()])

    def frame(self):
        yield f'<text x="{LEFT}" y="18" font-size="14" font-weight="bold" fill="{INK}">{self.title}</text>'
        bottom, right = TOP + PANEL_HEIGHT, LEFT + PANEL_WIDTH
        for value in ticks(self.x_range):
            x = self.x(value)
            yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="{INK}">{number(value)}</text>'
        for value in ticks(self.y_range):
            y = self.y(value)
            yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{GRID}"/>'
            yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}">{number(value)}</text>'
        yield f'<rect x="{LEFT}" y="{TOP}" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}" fill="none" stroke="#999999"/>'
        yield f'<text x="{(LEFT + right) / 2}" y="{bottom + 34}" text-anchor="middle" fill="{INK}">OP per byte read</text>'
        middle = TOP + PANEL_HEIGHT / 2
        yield (f'<text x="14" y="{middle}" text-anchor="middle" fill="{INK}" '
               f'transform="rotate(-90 14 {middle})">GOP/s</text>')

    def roof_lines(self):
        """The slope of the memory up to the lowest solid roof, and that and the others as far as they limit."""
        low_x, high_x = self.x_range
        low_y = self.y_range[0]
        begin = max(low_x, low_y / self.bandwidth)
        top = max(speed for _, speed, _ in self.roofs)
        yield self.line(begin, begin * self.bandwidth, top / self.bandwidth, top, "")
        middle = math.sqrt(begin * top / self.bandwidth)
        angle = -math.degrees(math.atan2(self.y(low_y) - self.y(low_y * 10), self.x(low_x * 10) - self.x(low_x)))
        x, y = self.x(middle), self.y(middle * self.bandwidth) - 7
        yield (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="11" fill="{ROOF}" '
               f'transform="rotate({angle:.1f} {x:.1f} {y:.1f})">memory {self.bandwidth:.1f} GB/s</text>')
        for label, speed, dashes in self.roofs:
            yield self.line(speed / self.bandwidth, speed, high_x, speed, dashes)
            yield (f'<text x="{LEFT + PANEL_WIDTH - 4}" y="{self.y(speed) - 4:.1f}" text-anchor="end" font-size="11" '
                   f'fill="{ROOF}">{label} {speed:.0f}</text>')

    def line(self, x1, y1, x2, y2, dashes):
        return (f'<line x1="{self.x(x1):.1f}" y1="{self.y(y1):.1f}" x2="{self.x(x2):.1f}" y2="{self.y(y2):.1f}" '
                f'stroke="{ROOF}" stroke-width="1.5" stroke-dasharray="{dashes or "none"}"/>')

    def marks(self):
        for intensity, least, median, most, colour, _ in self.points:
            x = self.x(intensity)
            yield (f'<line x1="{x:.1f}" y1="{self.y(least):.1f}" x2="{x:.1f}" y2="{self.y(most):.1f}" '
                   f'stroke="{colour}" stroke-opacity="0.35"/>')
            yield (f'<circle cx="{x:.1f}" cy="{self.y(median):.1f}" r="3.4" fill="{colour}" fill-opacity="0.85" '
                   'stroke="#ffffff" stroke-width="0.6"/>')

    def cluster_labels(self):
        """Under the lowest point of each cluster."""
        clusters = {}
        for point in self.points:
            clusters.setdefault(point[5], []).append(point)
        for label, points in clusters.items():
            x = self.x(statistics.geometric_mean(point[0] for point in points))
            y = min(max(self.y(point[1]) for point in points) + 15, TOP + PANEL_HEIGHT - 5)
            yield (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="11" fill="{INK}" stroke="#ffffff" '
                   f'stroke-width="3" paint-order="stroke">{label}</text>')


def position(value, limits):
    return (math.log10(value) - math.log10(limits[0])) / (math.log10(limits[1]) - math.log10(limits[0]))


def ticks(limits):
    """Round numbers in the range: powers of ten, and twice and five times as much where there is room."""
    first, last = math.floor(math.log10(limits[0])), math.ceil(math.log10(limits[1]))
    steps = [1, 2, 5] if math.log10(limits[1] / limits[0]) < 3.2 else [1]
    values = [step * 10.0 ** exponent for exponent in range(first, last + 1) for step in steps]
    return [value for value in values if limits[0] <= value <= limits[1]]


def number(value):
    return f"{value:g}" if value < 1e4 else f"{value / 1e3:g}k"


def picture(title, legend, panels):
    """Panels in two columns below a legend of (label, colour)."""
    cell_width, cell_height, head = LEFT + PANEL_WIDTH + RIGHT, TOP + PANEL_HEIGHT + BOTTOM, 62
    columns = min(2, len(panels))
    width, height = columns * cell_width, head + math.ceil(len(panels) / columns) * cell_height + 8
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             'font-size="12" role="img">', f"<title>{title}</title>",
             '<rect width="100%" height="100%" fill="#ffffff"/>',
             f'<text x="14" y="24" font-size="15" font-weight="bold" fill="{INK}">{title}</text>']
    x = 20
    for label, colour in legend:
        parts.append(f'<circle cx="{x}" cy="43" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 10}" y="47" fill="{INK}">{label}</text>')
        x += 34 + 6.6 * len(label)
    for index, panel in enumerate(panels):
        x, y = index % columns * cell_width, head + index // columns * cell_height
        parts.append(f'<g transform="translate({x} {y})">\n{panel.draw()}\n</g>')
    return "\n".join(parts + ["</svg>", ""])
