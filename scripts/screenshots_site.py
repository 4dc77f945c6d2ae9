"""Take the two pictures of the dashboard that README and docs/site.md show, from a made-up history. Needs Chromium and Playwright.

python scripts/screenshots_site.py        writes docs/images/site-*.png
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tilegate.history import inbox, synthetic
from tilegate.history.view import view
from tilegate.site.build import build
from tilegate.site.output import short

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def main() -> int:
    """Take them; return the exit status."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no Chromium is installed; on Debian and Ubuntu: apt-get install chromium", file=sys.stderr)
        return 1
    history = view(
        list(synthetic.records(synthetic.Size(commits=240, cases=40, versions=7, release_every=160, steps=4), seed=5))
    )
    # A step after a release, whose before and after both are in the picture.
    entry = max(inbox.entries(history), key=lambda entry: entry.first_bad)
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        index = build(history, Path(folder), title="a made-up history").index.as_uri()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, address, theme, height in (
            ("site-today", "#/today", "light", 1060),
            ("site-case", f"#/case/{short(entry.affected[0].case)}?mark={entry.first_bad}", "dark", 1130),
        ):
            page = browser.new_page(viewport={"width": 1200, "height": height}, color_scheme=theme)
            page.goto(f"{index}{address}")
            page.locator("main h1").wait_for()
            page.wait_for_timeout(500)
            page.screenshot(path=IMAGES / f"{name}.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
