"""How the HTML report looks: light and dark, on a screen and on paper.

Colours are those of the page (web/static/tokens.css). Phases differ in lightness too, heights tell
work from waiting, findings carry words: nothing is told by colour alone.
"""

from __future__ import annotations

import base64
import hashlib

_LIGHT = """
color-scheme:light;--paper:#f4f6f8;--surface:#fff;--ink:#14202c;--ink-2:#465564;--ink-3:#5c6875;--link:#1a5a92;
--line:#d3dae1;--line-2:#e9edf1;--bad:#b8400a;--bad-soft:#fdf0e8;--good:#0f6b74;--good-soft:#e6f3f3;
--note:#5a4a9c;--note-soft:#efecf9;--none:#5c6875;--none-soft:#eceff2;
--host:#aab4be;--input:#f0c04a;--forward:#86c1ec;--backward:#2a76b8;--optimizer:#3c3a86;
--copy:#d98b3a;--checkpoint:#7d9a6a;--work:#5d8fb8;--comm:#38a89d;--wait:#9eabb8;
--heat-0:#f4f8fb;--heat-1:#d5e4f0;--heat-2:#a9cbe4;--heat-3:#7bb0da;--heat-4:#528dbb;
--heat-5:#336592;--heat-6:#143d66;
"""
LIGHT = dict(
    one.strip().removeprefix("--").split(":", 1)
    for one in _LIGHT.replace("\n", "").split(";")
    if one.startswith("--")
)
"""Colours by name, for pictures that no style sheet reaches."""
_DARK = """
color-scheme:dark;--paper:#0d1218;--surface:#141b23;--ink:#e7edf3;--ink-2:#aab7c4;--ink-3:#93a1af;--link:#7db0ff;
--line:#2e3a46;--line-2:#212b35;--bad:#ff9457;--bad-soft:#33211a;--good:#5cc8c4;--good-soft:#12292c;
--note:#b3a6f5;--note-soft:#231f3b;--none:#a3afbb;--none-soft:#202932;
--host:#78858f;--input:#e2b545;--forward:#9fd2f5;--backward:#4391d4;--optimizer:#7a6fd8;
--copy:#d98b3a;--checkpoint:#8fb07a;--work:#6fa3cd;--comm:#3fb5a6;--wait:#55646f;
--heat-0:#0e151c;--heat-1:#14293c;--heat-2:#1a3b59;--heat-3:#1f4d75;--heat-4:#37709f;
--heat-5:#4f8fc7;--heat-6:#67aee6;
"""
_RULES = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 20px 48px}
section,header.card{background:var(--surface);border:1px solid var(--line);border-radius:8px;
padding:16px 20px;margin:0 0 16px}
.top{display:flex;flex-wrap:wrap;gap:4px 20px;margin:0 0 14px;
color:var(--ink-2)}
.top b{color:var(--ink)}
h1{font-size:22px;line-height:1.3;margin:6px 0 8px}
h2{font-size:16px;margin:0 0 10px}
h3{font-size:15px;margin:16px 0 4px}
.minor{font-size:14px;margin:14px 0 4px}
p{margin:0 0 8px}
ul{margin:0 0 8px;padding-left:20px}
li{overflow-wrap:anywhere}
a{color:var(--link)}
.quiet{color:var(--ink-3);fill:var(--ink-3)}
.label{display:inline-block;padding:1px 10px;border-radius:10px;font-weight:600;font-size:13px}
.card.tone-bad{border-left:5px solid var(--bad)}
.tone-bad .label{background:var(--bad-soft);color:var(--bad)}
.card.tone-good{border-left:5px solid var(--good)}
.tone-good .label{background:var(--good-soft);color:var(--good)}
.card.tone-note{border-left:5px solid var(--note)}
.tone-note .label{background:var(--note-soft);color:var(--note)}
.card.tone-none{border-left:5px solid var(--none)}
.tone-none .label{background:var(--none-soft);color:var(--none)}
pre{margin:6px 0 4px;padding:10px 12px;background:var(--line-2);border-radius:6px;overflow-x:auto;
white-space:pre-wrap;overflow-wrap:anywhere;
font:13px/1.45 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px;margin:0}
dl div{border:1px solid var(--line);border-radius:6px;padding:8px 12px;background:var(--surface)}
dt{color:var(--ink-3);font-size:12px}
dd{margin:0;font-size:19px;font-variant-numeric:tabular-nums}
dd small{display:block;font-size:12px;color:var(--ink-3)}
.facts{border:0;padding:0;background:none}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:13px}
th,td{text-align:left;padding:4px 10px;border-bottom:1px solid var(--line-2);vertical-align:middle}
th{color:var(--ink-3);font-weight:500;border-bottom-color:var(--line);white-space:nowrap}
table+p,table+ul,table+.legend{margin-top:8px}
.number{text-align:right;white-space:nowrap}
tr.bad td{background:var(--bad-soft)}
tr.bad td:first-child{color:var(--bad);font-weight:600}
svg{display:block}
svg.chart{width:100%;min-width:680px;height:auto;margin:4px 0 6px;
font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
svg.bar{width:90px;height:10px}
svg.wide{width:220px}svg.change{width:150px}
svg.swatch{display:inline-block;width:14px;height:12px;margin-right:5px;vertical-align:-1px}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:12px;color:var(--ink-2)}
text{fill:var(--ink)}
text.quiet{fill:var(--ink-3)}
text.end{text-anchor:end}text.middle{text-anchor:middle}
.arrived{color:var(--bad)}text.bad,.last{fill:var(--bad)}text.bad{font-weight:600}
.last{stroke:var(--surface);stroke-width:1.2;paint-order:stroke}
text.mark{fill:var(--bad)}
.barrier,.grid{stroke:var(--line);fill:none}
.since{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:4 3;fill:none}
.band{fill:var(--forward);opacity:.45}
.line{fill:none;stroke:var(--backward);stroke-width:1.5}
.line.before{stroke:var(--ink-3);stroke-dasharray:5 3}
.lost{fill:var(--bad);stroke:var(--surface)}.unknown{fill:var(--ink-3)}
svg.wider{width:26px}.worse{fill:var(--bad)}
footer{color:var(--ink-3);font-size:13px}
@media print{
@page{margin:12mm}
:root{LIGHT}
body{font-size:11px;background:#fff}main{max-width:none;padding:0}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
section,header.card{break-inside:avoid;padding:10px 12px;margin-bottom:8px}
section.long{break-inside:auto}tr,svg{break-inside:avoid}thead{display:table-header-group}
svg.chart{min-width:0}h1{font-size:17px}dd{font-size:14px}.scroll{overflow:visible}
dl{grid-template-columns:repeat(6,1fr)}table,.legend,.quiet,dt,dd small,footer{font-size:10px}
pre{font-size:10px}
}
"""
_KINDS = (
    "host", "input", "forward", "backward", "optimizer", "copy", "checkpoint", "work", "comm",
    "wait", "heat-0", "heat-1", "heat-2", "heat-3", "heat-4", "heat-5", "heat-6",
)  # fmt: skip


def _style() -> str:
    light = _LIGHT.replace("\n", "")
    parts = [
        f":root{{{light}}}",
        f"@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}".replace("\n", ""),
        *(f".{kind}{{fill:var(--{kind})}}" for kind in _KINDS),
        _RULES.replace("LIGHT", light).strip(),
    ]
    return "\n".join(parts) + "\n"


STYLE = _style()
STYLE_HASH = "sha256-" + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
"""Of the style as it stands in the file: no other style, and no script at all, is allowed."""
POLICY = f"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'"
