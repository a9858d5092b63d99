"""A report as a page of HTML that stands alone: no script, nothing fetched, charts as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topk_bandit.commands.operate.reports import Chart, Section

__all__ = ["to_html"]

WIDTH, HEIGHT = 640, 120

_STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff }
main { max-width: 44rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { text-align: left; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid #ccc }
figure { margin: 1rem 0 }
svg { width: 100%; height: auto; border-bottom: 1px solid #767676 }
polyline { fill: none; stroke: #0b57d0; stroke-width: 2 }
"""


def to_html(name: str, sections: Sequence[Section]) -> Iterator[str]:
    """Yield the lines of the page."""
    title = escape(f"What {name} is worth")
    yield "<!doctype html>"
    yield f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<style>\n{_STYLE}</style></head><body><main><h1>{title}</h1>"
    for section in sections:
        yield f"<h2>{escape(section.title)}</h2>"
        yield from (f"<p>{escape(one.removeprefix('- '))}</p>" for one in section.sentences)
        yield from _table(section)
        for chart in section.charts:
            yield from _figure(chart)
    yield "</main></body></html>"


def _table(section: Section) -> Iterator[str]:
    if not section.titles:
        return
    heads = "".join(f'<th scope="col">{escape(one)}</th>' for one in section.titles)
    yield f"<table><thead><tr>{heads}</tr></thead><tbody>"
    yield from (f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in section.rows)
    yield "</tbody></table>"


def _figure(chart: Chart) -> Iterator[str]:
    """Yield a line chart; of less than two numbers there is nothing to see."""
    known = [(place, value) for place, value in enumerate(chart.values) if value is not None]
    if len(known) < 2:
        return
    low, high = (pick(value for _, value in known) for pick in (min, max))
    across, up = WIDTH / (len(chart.values) - 1), HEIGHT / ((high - low) or 1.0)
    points = " ".join(f"{place * across:.1f},{HEIGHT - (value - low) * up:.1f}" for place, value in known)
    said = escape(f"{chart.title}: from {known[0][1]:.4g} to {known[-1][1]:.4g}, between {low:.4g} and {high:.4g}")
    yield f'<figure><svg viewBox="0 -4 {WIDTH} {HEIGHT + 8}" role="img" aria-label="{said}">'
    yield f'<polyline points="{points}"/></svg><figcaption>{said}</figcaption></figure>'
