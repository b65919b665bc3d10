"""The registry of report sections: the parts of a page about one run, and `register_section` to add your own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from aacp.errors import first_line
from aacp.report.blocks import blocks_of_run
from aacp.report.channels import channels_figure
from aacp.report.curves import cost_figures, search_figure, training_figures
from aacp.report.finalists import finalists_table
from aacp.report.html import Figure, Grid, Markup, joined, section, tag
from aacp.report.run import Run
from aacp.report.tables import (
    before_and_after,
    channel_table,
    frozen_table,
    limits_table,
    recovery_notes,
    recovery_table,
    reproduction,
    tracing_notes,
    trainings_table,
)
from aacp.user.options import require_known

# What a section shows: text, HTML, a figure, several of these, or None for nothing.
Content: TypeAlias = "str | Markup | Figure | Grid | Sequence[Content] | None"


@dataclass(frozen=True)
class Section:
    """A part of the page: a name to place others after it, and functions from the run to its heading and content."""

    name: str
    heading: Callable[[Run], str]
    content: Callable[[Run], Content]
    is_built_in: bool = True

    def markup(self, run: Run, prefix: str) -> Markup:
        """The section as HTML; `prefix` keeps the names of its figures distinct from those of other runs."""
        if self.is_built_in:
            return section(self.heading(run), *_rendered(self.content(run), prefix))
        try:
            content = self.content(run)
        except Exception as error:  # a report of a long run must not be lost to a mistake in one section
            content = f"This section could not be drawn. Its function raised {first_line(error)}."
        return section(self.heading(run), *_rendered(content, f"{prefix}{'-'.join(self.name.split())}-"))


def _costs_heading(run: Run) -> str:
    return "Before and after" if run.after or run.exported else "Costs"


def _channels(run: Run) -> Content:
    return [channels_figure(run), blocks_of_run(run), channel_table(run)]


SECTIONS = [
    Section("costs", _costs_heading, before_and_after),
    Section("limits", lambda _: "Limits", limits_table),
    Section("channels", lambda _: "Channels", _channels),
    Section("search", lambda _: "Search", search_figure),
    Section("finalists", lambda _: "Finalists", finalists_table),
    Section("trade-off", lambda run: f"{run.metric.capitalize()} against cost", lambda run: Grid(cost_figures(run))),
    Section("training", lambda _: "Training", lambda run: [trainings_table(run), *training_figures(run)]),
    Section("recovery", lambda _: "Recovery without training", lambda run: [recovery_table(run), recovery_notes(run)]),
    Section("frozen", lambda _: "Channels that are not pruned", lambda run: [frozen_table(run), tracing_notes(run)]),
    Section("reproduction", lambda _: "How to reproduce", reproduction),
]


def register_section(heading: str, content: Callable[[Run], Content], *, after: str = "reproduction") -> None:
    """Add a section of your own to every report that this process writes from now on.

    `content` receives an `aacp.report.run.Run`, the folder as the report has read it, and returns what to show:
    text, which is escaped; HTML, as a `Markup` made with the functions of `aacp.report.html` (`tag`, `table`, ...); a
    `Figure` of plotly traces; a list of these; or None, and the section is left out. If it raises an exception, the
    report shows the exception in place of the section.

    Args:
        heading: the heading of the section, which is also its name. A section of the same name is replaced.
        content: a function from the run to what the section shows.
        after: the name of the section to follow: "costs", "limits", "channels", "search", "finalists", "trade-off",
            "training", "recovery", "frozen", "reproduction", or the heading of a registered section.
    """
    names = [known.name for known in SECTIONS if known.name != heading]
    require_known("section to follow called", after, names)
    SECTIONS[:] = [known for known in SECTIONS if known.name != heading]
    SECTIONS.insert(names.index(after) + 1, Section(heading, lambda _: heading, content, is_built_in=False))


def sections(run: Run, prefix: str) -> Markup:
    """All sections about one run; `prefix` keeps the names of its figures distinct from those of other runs."""
    return joined(known.markup(run, prefix) for known in SECTIONS)


def _rendered(content: Content, prefix: str) -> list[Markup]:
    if content is None:
        return []
    if isinstance(content, (Figure, Grid)):
        return [content.markup(prefix)]
    if isinstance(content, Markup):
        return [content]
    if isinstance(content, str):
        return [tag("p", content)]
    return [markup for part in content for markup in _rendered(part, prefix)]
