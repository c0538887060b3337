"""The style sheet of the page of traces."""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

STYLE: Final = """
:root {
  color-scheme: light dark;
  --ink: #1c2126; --soft: #5c6670; --paper: #f4f5f7; --card: #fff; --rule: #dfe3e8; --grid: #eceff2;
  --answer: #3d9a6d; --answer-pale: #c5e6d5; --attempt: #b9c4d3; --request: #2f7fc1; --request-pale: #b5d4ec; --tool: #8a5cc2; --wait: #c3c9d0;
  --good: #18794e; --bad: #c6282f; --warn: #a15c00; --first: #18794e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e4e8ec; --soft: #98a3ae; --paper: #14171a; --card: #1d2125; --rule: #343a41; --grid: #282d33;
    --answer: #3f9e72; --answer-pale: #204a37; --attempt: #45505e; --request: #4a9bdc; --request-pale: #274b66; --tool: #a98ae0; --wait: #555e68;
    --good: #4cc38a; --bad: #ff6369; --warn: #f1a10d; --first: #4cc38a;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 75rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
.summary { margin: 0 0 .5rem; color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 0 0 1rem; color: var(--soft); font-size: .8rem; }
.legend b { margin-right: .35em; }
.swatch { display: inline-block; width: 1.4em; height: .8em; border-radius: 2px; margin-right: .4em; }
.swatch.answer { background: linear-gradient(to right, var(--answer-pale) 40%, var(--answer) 40%); }
.swatch.request { background: linear-gradient(to right, var(--request-pale) 40%, var(--request) 40%); }
section {
  background: var(--card); border: 1px solid var(--rule); border-left: 4px solid var(--good);
  border-radius: 6px; padding: .9rem 1.1rem; margin: 0 0 1rem;
}
section.failed { border-left-color: var(--bad); }
section.cancelled { border-left-color: var(--warn); }
section.skipped { border-left-color: var(--soft); }
h2 { display: flex; flex-wrap: wrap; align-items: baseline; gap: .25rem .75rem; font-size: 1.05rem; margin: 0 0 .4rem; }
.status { font-size: .8rem; font-weight: 600; color: var(--good); }
.failed .status, .error b { color: var(--bad); }
.cancelled .status { color: var(--warn); }
.skipped .status { color: var(--soft); }
.figures { margin-left: auto; font-size: .85rem; font-weight: 400; color: var(--soft); font-variant-numeric: tabular-nums; }
section p { margin: .1rem 0; display: grid; grid-template-columns: 4.5rem minmax(0, 1fr); white-space: pre-wrap; overflow-wrap: anywhere; }
section p > b { font-weight: 600; }
section p:not(.error) > b { color: var(--soft); }
section p i { color: var(--soft); }
.chart { --names: 15rem; position: relative; margin: .8rem 0 0; font-size: .8rem; font-variant-numeric: tabular-nums; }
.row { display: grid; grid-template-columns: var(--names) minmax(0, 1fr); align-items: center; height: 1.6rem; position: relative; }
.name { overflow: hidden; white-space: nowrap; text-overflow: ellipsis; padding-right: .75rem; }
.name em { font-style: normal; color: var(--soft); }
.track, .axis { position: relative; height: 100%; }
.overlay { position: absolute; inset: 0 0 1.6rem var(--names); }
.grid, .line { position: absolute; top: 0; bottom: 0; width: 0; border-left: 1px solid var(--grid); }
.line { border-left: 1px dashed currentcolor; opacity: .55; padding-right: 5px; }
.bar { position: absolute; top: .3rem; height: 1rem; min-width: 3px; border-radius: 3px; }
.answer { background: linear-gradient(to right, var(--answer-pale) var(--waited), var(--answer) var(--waited)); }
.attempt { background: var(--attempt); }
.request { background: linear-gradient(to right, var(--request-pale) var(--waited), var(--request) var(--waited)); }
.tool { background: var(--tool); }
.wait { background: repeating-linear-gradient(135deg, var(--wait) 0 3px, transparent 3px 7px); }
.bar.failed { outline: 2px solid var(--bad); outline-offset: -1px; }
.bar.cut { border-right: 3px solid var(--warn); }
.bar.lost { opacity: .45; }
.note { position: absolute; top: 0; line-height: 1.6rem; padding: 0 .4rem; white-space: nowrap; color: var(--soft); }
.note.inside { right: .35rem; top: .4rem; line-height: .8rem; color: var(--ink); background: var(--card); border-radius: 3px; }
.symbol { position: absolute; top: 0; line-height: 1.6rem; transform: translateX(-50%); cursor: default; }
.first_chunk { color: var(--first); }
.switch, .hedge { color: var(--tool); }
.retry, .cancel { color: var(--warn); }
.tick { position: absolute; top: .15rem; padding-left: .3rem; color: var(--soft); white-space: nowrap; border-left: 1px solid var(--rule); }
.tick.last { transform: translateX(-100%); padding: 0 .3rem 0 0; border-left: 0; border-right: 1px solid var(--rule); }
.marks { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.25rem; margin: .5rem 0 0; padding: 0; font-size: .8rem; color: var(--soft); }
@media (max-width: 45rem) {
  .chart { --names: 7.5rem; }
  .figures { margin-left: 0; }
  .tick:not(:nth-child(3n + 1)) { display: none; }
}
"""
