"""Takes the pictures that its argument asks for; it runs where the services are."""

from __future__ import annotations

import json
import sys
from typing import Any

from playwright.sync_api import sync_playwright

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
SETTLE_MS = 4000
PATIENCE_MS = 60_000


def take(browser: Any, token: str, wanted: dict[str, Any]) -> None:
    """Take one picture."""
    size = {"width": wanted.get("width", 1280), "height": wanted.get("height", 800)}
    page = browser.new_page(
        viewport=size, device_scale_factor=1, color_scheme=wanted.get("scheme", "light"),
        extra_http_headers={"Authorization": f"Bearer {token}"},
    )  # fmt: skip
    if "html" in wanted:
        page.set_content(wanted["html"])
    else:
        page.goto(wanted["url"])
        page.wait_for_timeout(SETTLE_MS)  # charts draw what the stream brings
        for what, where, *text in wanted.get("steps", []):
            if what == "click":
                found = page.locator("form") if text else page  # a form has a button of that name
                found.get_by_role("button", name=where, exact=True).first.click()
            else:
                page.get_by_label(where).first.fill(text[0])
        page.wait_for_timeout(SETTLE_MS if wanted.get("steps") else 0)
        page.get_by_text("loading the order").wait_for(state="hidden", timeout=PATIENCE_MS)
    path = f"/tmp/pictures/{wanted['name']}.png"
    if "selector" in wanted:
        page.locator(wanted["selector"]).first.screenshot(path=path)
    else:
        page.screenshot(path=path, full_page=wanted.get("full", False))
    page.close()


def main() -> None:
    """Take all of them."""
    task = json.loads(sys.argv[1])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        for wanted in task["pictures"]:
            take(browser, task["token"], wanted)
        browser.close()


if __name__ == "__main__":
    main()
