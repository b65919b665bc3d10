"""The page in a real browser: all charts are drawn, without errors, requests or content wider than a phone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from aacp.report.page import write_report
from report.runs import Made, nasty, sweep_of

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PHONE = 375  # pixels across

# Pages are looked at from a frame around them. The image and the message are controls: they must be noticed.
FRAMES = """<!doctype html><img src="http://control.invalid/x.png"><script>console.log("control message")</script>
{frames}<pre></pre><script>
const look = (frame) => {{
  const inside = frame.contentDocument, plots = [...inside.querySelectorAll(".plot")];
  const open = plots.filter((plot) => !plot.closest("details:not([open])"));
  const marks = "svg.main-svg :is(.point, .js-line, .hm, .heatmaplayer image)";
  return {{
    title: inside.title, plots: plots.length, open: open.length,
    drawn: open.filter((plot) => plot.querySelector(marks)).length,
    early: plots.filter((plot) => !open.includes(plot) && plot.querySelector("svg")).length,
    overflow: inside.documentElement.scrollWidth - inside.documentElement.clientWidth,
    footer: inside.querySelector("footer").textContent,
    fetched: frame.contentWindow.performance.getEntriesByType("resource").map((entry) => entry.name),
  }};
}};
onload = () => setTimeout(() => {{
  const control = performance.getEntriesByType("resource").map((entry) => entry.name);
  const seen = [...document.querySelectorAll("iframe")].map(look);
  document.querySelector("pre").textContent = JSON.stringify({{ control, seen }});
}}, 1000);
</script>"""


def look_at(pages: list[str], folder: Path) -> tuple[dict[str, Any], list[str]]:
    """What the frame around the pages sees, and every message to the console."""
    frames = "".join(f'<iframe width={PHONE} height=800 src="{page}"></iframe>' for page in pages)
    (folder / "frames.html").write_text(FRAMES.format(frames=frames))
    switches = "headless=new no-sandbox disable-gpu allow-file-access-from-files enable-logging=stderr v=0 no-first-run"
    command = [str(BROWSER), *(f"--{switch}" for switch in switches.split()), "--virtual-time-budget=20000"]
    command += [f"--user-data-dir={folder / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += ["--dump-dom", (folder / "frames.html").as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    found = re.search(r"<pre>(.*?)</pre>", result.stdout, re.DOTALL)
    assert found, result.stderr[-2000:]
    console = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(unescape(found[1])), console


needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs Debian's chromium")


@pytest.mark.slow
@needs_browser
def test_pages_draw_every_chart_without_complaint_without_the_network_and_within_a_phone(
    made: Made, tmp_path: Path
) -> None:
    whole = write_report(made.path, tmp_path / "whole.html")
    several = write_report([run.path for run in sweep_of(made, tmp_path / "sweep")], tmp_path / "sweep.html")
    hostile = write_report(nasty(made, tmp_path / "nasty").path, tmp_path / "nasty.html")
    found, console = look_at([whole.as_uri(), f"{several.as_uri()}#run1", hostile.as_uri()], tmp_path)

    assert found["control"] == ["http://control.invalid/x.png"]
    assert len(console) == 1, console
    assert "control message" in console[0]
    one, all_of_them, strange = found["seen"]
    assert one["plots"] == one["open"] == 9  # channels, blocks, search, five costs, training
    # Five charts of all runs, and those of the run the address names; the other runs' wait until they are opened.
    assert all_of_them["open"] == 5 + 9
    assert all_of_them["plots"] == 5 + 4 * 9
    assert strange["title"] != "touched"
    for page in found["seen"]:
        assert page["drawn"] == page["open"]
        assert page["early"] == 0
        assert page["overflow"] <= 0
        assert page["fetched"] == []
        assert "browser" not in page["footer"]


@pytest.mark.slow
@needs_browser
def test_an_old_browser_says_that_it_cannot_draw_charts(made: Made, tmp_path: Path) -> None:
    page = write_report(made.path, tmp_path / "page.html")
    page.write_text(page.read_text().replace("<body>", "<body><script>delete window.DecompressionStream</script>"))
    found, console = look_at([page.as_uri()], tmp_path)
    (seen,) = found["seen"]
    assert "need a browser of 2023 or newer" in seen["footer"]
    assert (seen["open"], seen["drawn"]) == (9, 0)
    assert len(console) == 1, console  # the control message
