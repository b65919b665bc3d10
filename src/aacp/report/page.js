"use strict";
// Unpacks plotly.js, then draws every figure from the data beside it: those in sight at once, those behind a name when
// it is opened.
(async () => {
  const PAPER = 660; // pixels of a printed page
  const coarse = matchMedia("(pointer: coarse)").matches; // a finger scrolls the page, it does not zoom the figure
  const style = getComputedStyle(document.documentElement);
  const font = { family: style.getPropertyValue("--sans"), size: 12.5 };

  function draw(place) {
    if (place.dataset.drawn) return;
    place.dataset.drawn = "yes";
    const { data, layout } = JSON.parse(document.getElementById(`${place.id}-data`).textContent);
    Object.assign(layout, { font, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" });
    if (coarse) {
      layout.dragmode = false;
      for (const key of Object.keys(layout)) if (/^[xy]axis/.test(key)) layout[key].fixedrange = true;
    }
    Plotly.newPlot(place, data, layout, { responsive: true, displayModeBar: false });
  }

  const isSeen = (place) => !place.closest("details:not([open])");
  const drawSeen = () => document.querySelectorAll(".plot").forEach((place) => isSeen(place) && draw(place));
  const resize = (width) => document.querySelectorAll(".plot[data-drawn]").forEach((place) =>
    isSeen(place) && Plotly.relayout(place, width ? { width } : { width: null, autosize: true }));

  async function unpackPlotly() {
    const text = document.querySelector("script[type='application/zlib']").textContent;
    const packed = new Response(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)));
    const script = document.createElement("script"); // not eval, which the page's policy forbids
    script.textContent = await new Response(packed.body.pipeThrough(new DecompressionStream("deflate"))).text();
    document.body.append(script);
  }

  // A link to a run opens it.
  const open = () => document.getElementById(location.hash.slice(1))?.querySelector("details")?.setAttribute("open", "");
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => resize(PAPER));
  addEventListener("afterprint", () => resize(null));
  open();
  if (!("DecompressionStream" in window)) {
    document.querySelector("footer").append(
      " The figures need a browser of 2023 or newer. The tables contain the same numbers.");
    return;
  }
  await unpackPlotly();
  drawSeen();
  document.querySelectorAll("details").forEach((part) => part.addEventListener("toggle", drawSeen));
})();
