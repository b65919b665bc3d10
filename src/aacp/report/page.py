"""The page: one self-contained HTML file about one run or several."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aacp.disk.reading import read_text
from aacp.errors import NothingToReport
from aacp.report.headline import headline, headline_of, remarks
from aacp.report.html import Markup, details, escaped, joined, packed_plotly, tag
from aacp.report.registry import sections
from aacp.report.repeats import over_seeds, repetitions_in
from aacp.report.run import Run, read_run
from aacp.report.sweep import comparison
from aacp.report.thinning import limit_per_figure
from aacp.runs.files import RUN, TRAINING
from aacp.runs.folder import RunFolder
from aacp.runs.repeats import Repetition
from aacp.user.values import counted, paths
from aacp.version import __version__

FILE = "report.html"
AnyPath = str | os.PathLike[str]


def write_report(folders: AnyPath | Sequence[AnyPath], path: AnyPath | None = None) -> Path:
    """Write a report of one or more runs, and return its path.

    Args:
        folders: a run folder, several, or a folder that contains run folders, such as that of a sweep or of a
            repetition with several seeds.
        path: a file or a folder. By default, report.html in the run's folder or, with several runs, in the folder
            that contains all of them.
    """
    given = [folders] if isinstance(folders, (str, os.PathLike)) else list(paths("folders", folders))
    places = list(dict.fromkeys(place for folder in given for place in runs_in(folder)))
    if not places:
        raise NothingToReport("No run folder was given. Give one or more.")
    runs = [read_run(place, name) for place, name in zip(places, _names(places), strict=True)]
    page = page_of(runs, [found for folder in given for found in repetitions_in(folder)])
    target = _default(places) if path is None else Path(path)
    target = target / FILE if target.is_dir() else target
    RunFolder(target.parent).write_text(target.name, page)
    return target


def runs_in(place: AnyPath) -> list[Path]:
    """The folder itself if it is a run folder; otherwise the run folders inside it.

    They lie directly inside it, as in a sweep, or one folder deeper, as in a sweep repeated with several seeds.
    """
    folder = Path(place)
    if (folder / RUN).exists():
        return [folder]
    for depth in ("*", "*/*"):
        within = sorted(path.parent for path in folder.glob(f"{depth}/{RUN}") if path.parent.name != TRAINING)
        if within:
            return within
    return [folder]


def _names(places: Sequence[Path]) -> list[str]:
    """The name of each folder, with that of the folder around it if two have the same name."""
    paths = [place.resolve() for place in places]
    names = [path.name for path in paths]
    return [
        name if names.count(name) == 1 else f"{path.parent.name}/{name}"
        for path, name in zip(paths, names, strict=True)
    ]


def _default(places: Sequence[Path]) -> Path:
    if len(places) == 1:
        return places[0] / FILE
    return Path(os.path.commonpath([place.resolve().parent for place in places])) / FILE


def page_of(runs: Sequence[Run], repetitions: Sequence[Repetition] = ()) -> str:
    """The whole page as HTML."""
    shown = _thinned([run for run in runs if not run.is_empty])
    if not shown and not repetitions:
        names = ", ".join(run.name for run in runs)
        reasons = " ".join(f"{trouble.rstrip('.')}." for run in runs for trouble in run.troubles)
        raise NothingToReport(f"There is nothing to show in {names}. {reasons or 'Give the folder of a run.'}")
    body = _several(shown) if len(shown) > 1 else joined(sections(run, "run0-") for run in shown)
    title = _title(shown, repetitions)
    empty = [] if repetitions else [f"{run.name} contains nothing to show." for run in runs if run.is_empty]
    troubles = [*empty, *(f"{run.name}: {trouble}" for run in shown for trouble in run.troubles)]
    return document(title, joined([_header(title, shown), _troubles(troubles), over_seeds(repetitions), body]))


def _thinned(runs: Sequence[Run]) -> list[Run]:
    """The runs, with the most points that each figure about one of them may have, so that the page stays small."""
    figures = 2 + sum(1 + len(run.costs) for run in runs)  # two of them show the candidates of all runs
    points = sum((3 + len(run.costs)) * len(run.history) for run in runs)
    return [replace(run, most_points=limit_per_figure(points, figures)) for run in runs]


def _title(shown: Sequence[Run], repetitions: Sequence[Repetition]) -> str:
    if not shown:
        return ", ".join(f"{found.name}: {counted(len(found.finished), 'seed')}" for found in repetitions)
    return headline(shown[0]) if len(shown) == 1 else headline_of(shown)


def _header(title: str, runs: Sequence[Run]) -> Markup:
    name, _, achieved = title.partition(": ")
    heading = tag("h1", tag("span", f"{name}: " if achieved else name), achieved)
    return tag("header", heading, _remarks(runs[0]) if len(runs) == 1 else "")


def _remarks(run: Run) -> Markup:
    kinds = {True: {"class": "good"}, False: {"class": "bad"}, None: {}}
    marked = [tag("li", remark.text, attributes=kinds[remark.is_good]) for remark in remarks(run)]
    return tag("ul", *marked, attributes={"class": "remarks"}) if marked else Markup()


def _troubles(troubles: Sequence[str]) -> Markup:
    if not troubles:
        return Markup()
    items = tag("ul", *(tag("li", trouble) for trouble in troubles))
    return tag("aside", tag("p", "Some files could not be read."), items, attributes={"class": "troubles"})


def _several(runs: Sequence[Run]) -> Markup:
    """The comparison, then each run in a part that opens on a click; its figures are drawn when it is opened."""
    each = [_folded(run, f"run{place}") for place, run in enumerate(runs)]
    return joined([comparison(runs), tag("section", tag("h2", "Each run"), *each)])


def _folded(run: Run, identity: str) -> Markup:
    summary = joined([tag("strong", run.name), " ", headline(run)])
    inside = details(summary, _remarks(run), sections(run, f"{identity}-"))
    return tag("div", inside, attributes={"id": identity, "class": "run"})


def document(title: str, body: Markup) -> str:
    """A page with a title and a body that works without the network: style, scripts and data are inside it."""
    here = Path(__file__).parent
    style = read_text(here / "page.css")
    script = read_text(here / "page.js")
    # The page forbids network access itself: a request would show up as an error in the browser's console.
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
    return f"""<!doctype html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="aacp {__version__}">
<title>{escaped(title)}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
<footer>Made by aacp {__version__}. This file is self-contained.</footer>
<noscript>The figures need JavaScript, which is disabled here. The tables contain the same numbers.</noscript>
<script type="application/zlib">{packed_plotly()}</script>
<script>{script}</script>
</body>
</html>
"""
