"""The page's style sheet: light and dark by the reader's setting, and print."""

from __future__ import annotations

MARK = b'<div class="mark">clearl report</div>'
"""A mark near the beginning of every page that clearl wrote."""

CSS = """
:root {
  color-scheme: light dark;
  --paper: #fbfcfd; --card: #ffffff; --ink: #1b2330; --soft: #5a6577; --faint: #8b95a5; --line: #e3e7ed;
  --accent: #0072b2; --tint: #eaf3f9; --good: #00694d; --good-tint: #e2f4ee; --bad: #a83f00; --bad-tint: #fcece2;
  --open: #5a6577; --open-tint: #eef1f5; --shade: #1b233038;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12161d; --card: #191f29; --ink: #e8ecf2; --soft: #a9b4c4; --faint: #76839a; --line: #2b3442;
    --accent: #63b7ea; --tint: #1a2c3a; --good: #52cda5; --good-tint: #13302a; --bad: #f2945a; --bad-tint: #3a2417;
    --open: #a9b4c4; --open-tint: #242c38; --shade: #000000a0;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif; }
main, header, footer { max-width: 1120px; margin: 0 auto; padding: 0 28px; }
header { padding-top: 52px; }
.mark { font-size: 13px; letter-spacing: .08em; text-transform: uppercase; color: var(--accent); font-weight: 650; }
h1 { font-size: 34px; line-height: 1.2; margin: 6px 0 0; letter-spacing: -.015em; text-wrap: balance; }
.headline { font-size: 21px; line-height: 1.5; margin: 18px 0 0; max-width: 56em; text-wrap: pretty; }
.facts { display: flex; flex-wrap: wrap; gap: 8px 28px; margin: 26px 0 0; padding: 16px 0 0; list-style: none;
  border-top: 1px solid var(--line); }
.facts li { font-size: 14px; color: var(--soft); }
.facts b { display: block; font-size: 19px; line-height: 1.3; color: var(--ink); font-weight: 620;
  font-variant-numeric: tabular-nums; }
nav { margin-top: 22px; display: flex; flex-wrap: wrap; gap: 4px 20px; font-size: 14px; }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: 3px; }
section { margin-top: 56px; }
h2 { font-size: 23px; letter-spacing: -.01em; margin: 0 0 6px; line-height: 1.3; }
h3 { font-size: 16px; margin: 28px 0 4px; }
p { margin: 8px 0; max-width: 48em; }
.soft { color: var(--soft); font-size: 14.5px; }
.notes { margin: 26px 0 0; padding: 12px 18px 12px 36px; border-radius: 10px; background: var(--open-tint);
  color: var(--soft); font-size: 14.5px; }
.scroll { overflow-x: auto; margin: 12px 0; border: 1px solid var(--line); border-radius: 12px;
  background: linear-gradient(to right, var(--card) 30%, transparent) left / 40px 100% no-repeat local,
    linear-gradient(to left, var(--card) 30%, transparent) right / 40px 100% no-repeat local,
    linear-gradient(to right, var(--shade), transparent) left / 14px 100% no-repeat scroll,
    linear-gradient(to left, var(--shade), transparent) right / 14px 100% no-repeat scroll, var(--card); }
table { border-collapse: collapse; width: 100%; font-size: 14.5px; font-variant-numeric: tabular-nums; }
th, td { padding: 9px 16px; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
thead th { border-top: 0; white-space: normal;
  color: var(--soft); font-weight: 600; font-size: 13px; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
td.text, th.text { text-align: left; }
tbody th { font-weight: 560; }
td.best { font-weight: 700; }
td .dev { color: var(--faint); font-weight: 400; font-size: .92em; }
td.wrap { white-space: normal; min-width: 16em; }
figure { margin: 20px 0 34px; padding: 20px 20px 14px; background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; }
figure svg { display: block; width: 100%; height: auto; max-width: calc(1.2 * var(--natural)); }
figcaption { margin-top: 12px; font-size: 14px; color: var(--soft); max-width: 62em; }
figcaption a { margin-left: 6px; }
details { margin: 12px 0; }
summary { cursor: pointer; font-weight: 560; font-size: 15px; padding: 4px 0; }
.findings { display: grid; gap: 12px; margin: 18px 0; }
.finding { display: grid; grid-template-columns: 9.2em minmax(0, 1fr) 270px; gap: 6px 22px; align-items: start;
  padding: 16px 20px; background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.finding h3 { margin: 0; font-size: 16px; line-height: 1.4; }
.finding p { margin: 3px 0 0; font-size: 14px; color: var(--soft); }
.verdict { display: inline-block; padding: 3px 11px; border-radius: 99px; font-size: 13px; font-weight: 640;
  white-space: nowrap; }
.holds { background: var(--good-tint); color: var(--good); }
.fails { background: var(--bad-tint); color: var(--bad); }
.undecided { background: var(--open-tint); color: var(--open); }
.tasks { list-style: none; margin: 8px 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: 4px 18px;
  font-size: 13.5px; color: var(--soft); font-variant-numeric: tabular-nums; }
.tasks .verdict { padding: 0 8px; font-size: 12px; }
.effect .p { margin-left: 8px; }
.effect { font-size: 13.5px; color: var(--soft); font-variant-numeric: tabular-nums; }
.effect b { color: var(--ink); font-size: 15px; }
.effect svg { display: block; width: 100%; height: 38px; margin-top: 4px; overflow: visible; }
.effect svg text { font-size: 10px; fill: var(--faint); }
pre { margin: 10px 0; padding: 14px 18px; overflow-x: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; font: 13.5px/1.6 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { font: .92em ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 6px 22px; font-size: 14.5px; }
dt { font-weight: 600; } dd { margin: 0; color: var(--soft); }
footer { margin-top: 64px; padding-top: 18px; padding-bottom: 48px; border-top: 1px solid var(--line);
  color: var(--soft); font-size: 13.5px; }
@media (max-width: 760px) {
  main, header, footer { padding-left: 16px; padding-right: 16px; }
  header { padding-top: 28px; } h1 { font-size: 27px; } .headline { font-size: 18px; }
  .finding { grid-template-columns: minmax(0, 1fr); } dl { grid-template-columns: 1fr; } dt { margin-top: 6px; }
  figure { padding: 12px; overflow-x: auto; } figure svg { min-width: calc(.62 * var(--natural)); }
  .minor { display: none; } table { font-size: 13px; } th, td { padding: 7px 9px; }
  tbody th { white-space: normal; max-width: 30vw; overflow-wrap: anywhere; }
}
@media print {
  :root { --paper: #fff; --card: #fff; --ink: #000; --soft: #333; --line: #ccc; }
  nav { display: none; } section { break-before: auto; } figure, .finding { break-inside: avoid; }
  details > * { display: revert; }
}
"""
