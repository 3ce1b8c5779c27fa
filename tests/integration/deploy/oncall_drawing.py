"""Pictures of what has no window here: a terminal, and a message of Slack from its blocks."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text
from rich.theme import Theme

COLUMNS = 100
_STYLE = """
main { font: 15px/1.46 system-ui, 'DejaVu Sans', sans-serif; color: #1d1c1d; background: #fff;
  padding: 18px 22px; width: 700px; box-sizing: border-box }
.who { font-weight: 700 } .app { font-size: 11px; background: #e8e8e8; border-radius: 3px;
  padding: 1px 4px; color: #616061; margin-left: 4px } h1 { font-size: 18px; margin: 10px 0 6px }
.fields { display: grid; grid-template-columns: 1fr 1fr; gap: 6px 18px; margin: 8px 0 }
section { margin: 8px 0; white-space: pre-wrap } pre { background: #f8f8f8; border: 1px solid #ddd;
  border-radius: 4px; padding: 8px; font: 12.5px/1.5 'DejaVu Sans Mono', monospace; margin: 4px 0;
  white-space: pre-wrap; overflow-wrap: anywhere } .context { color: #616061; font-size: 13px }
a { color: #1264a3 }
"""


def terminal(text: str, path: Path) -> None:
    """Draw what a terminal shows, as SVG with the fonts of whoever looks at it."""
    console = Console(width=COLUMNS, force_terminal=True, record=True, file=io.StringIO())
    console.print(Text.from_ansi(text.rstrip()))
    _save(console, path)


def runbook(markdown: str, path: Path) -> None:
    """Draw a runbook as a terminal shows it."""
    plain = Theme({"markdown.code": "bold", "markdown.h2": "bold", "markdown.link_url": "blue"})
    console = Console(
        width=COLUMNS, force_terminal=True, record=True, file=io.StringIO(), theme=plain
    )
    console.print(Markdown(markdown, code_theme="ansi_light", hyperlinks=False))
    _save(console, path)


def message_page(message: dict[str, Any]) -> str:
    """Return a page that shows the blocks of a message; Slack's own fonts differ."""
    blocks = "".join(_block(block) for block in message["blocks"])
    who = '<span class="who">Paceline</span><span class="app">APP</span>'
    return f"<!doctype html><style>{_STYLE}</style><main>{who}{blocks}</main>"


def _save(console: Console, path: Path) -> None:
    svg = console.export_svg(title=path.stem, theme=DEFAULT_TERMINAL_THEME)
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), encoding="utf-8")


def _block(block: dict[str, Any]) -> str:
    if block["type"] == "header":
        return f"<h1>{_words(block['text'])}</h1>"
    if block["type"] == "context":
        return f'<div class="context">{" ".join(map(_words, block["elements"]))}</div>'
    if "fields" in block:
        cells = "".join(f"<div>{_words(field)}</div>" for field in block["fields"])
        return f'<div class="fields">{cells}</div>'
    return f"<section>{_words(block['text'])}</section>"


def _words(text: dict[str, Any]) -> str:
    said = text["text"]
    if text["type"] == "plain_text":
        return html.escape(said)
    said = html.escape(html.unescape(said), quote=False)
    said = re.sub(
        r"&lt;(https?://[^|&]+(?:&amp;[^|&]+)*)\|([^&]+)&gt;", r'<a href="\1">\2</a>', said
    )
    said = re.sub(r"```(.*?)```", r"<pre>\1</pre>", said, flags=re.DOTALL)
    return re.sub(r"\*([^*\n]+)\*", r"<b>\1</b>", said)
