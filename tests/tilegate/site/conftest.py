"""Sites of made-up histories, and a Chromium that opens them from file://."""

import shutil
import time

import pytest
from hostile_history import HOSTILE, kept

from tilegate.history import synthetic
from tilegate.history.view import view
from tilegate.site.build import build


@pytest.fixture(scope="session")
def history():
    """Sixty commits, fourteen cases; three of them got slower once."""
    return view(
        list(synthetic.records(synthetic.Size(commits=60, cases=14, versions=5, busy_versions=20, steps=3), seed=3))
    )


@pytest.fixture(scope="session")
def site(history, tmp_path_factory):
    """Its site, in a folder whose path needs escapes."""
    return build(history, tmp_path_factory.mktemp("a site #1"), title="made up").index.parent


@pytest.fixture(scope="session")
def hostile_site(tmp_path_factory):
    return build(view(kept()), tmp_path_factory.mktemp("hostile"), title=HOSTILE).index.parent


@pytest.fixture(scope="session")
def chromium():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def until(page, expression, argument=None):
    """Wait until an expression is true in the page. Playwright's own way evaluates text there, which the policy forbids."""
    end = time.monotonic() + 20
    while not page.evaluate(expression, argument):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)


class Opened:
    """A page, with all that it complained about and all that it asked for."""

    def __init__(self, browser, folder, **options):
        self.folder = folder
        self.page = browser.new_page(**options)
        self.complaints, self.asked = [], []
        self.page.on(
            "console",
            lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None,
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def go(self, address):
        """Follow a deep link from outside."""
        self.page.goto("about:blank")
        self.page.goto(f"{(self.folder / 'index.html').as_uri()}{address}")
        return self.settle(address)

    def settle(self, address):
        until(self.page, "address => document.getElementById('main')?.dataset.shown === address", address)
        return self.page


@pytest.fixture(name="until")
def until_():
    return until


@pytest.fixture
def opened(chromium):
    pages = []

    def open_(folder, **options):
        pages.append(Opened(chromium, folder, **options))
        return pages[-1]

    yield open_
    for each in pages:
        assert each.complaints == []
        assert all(url.startswith(("file:", "about:", "data:")) for url in each.asked), each.asked
        each.page.close()
