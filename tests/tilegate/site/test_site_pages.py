"""The pages in a real Chromium, from file://: every view, every theme, clicks, zoom, deep links, the back button."""

import json
import re

import pytest
from history_records import commit
from hostile_history import HOSTILE, HOSTILE_CASE, kept

from tilegate.history import inbox
from tilegate.history.view import view
from tilegate.site.build import build
from tilegate.site.output import short
from tilegate.site.states import state_of

SHOWN = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 780}},
}


def worst(history):
    return inbox.entries(history)[0]


def address_of(history, view):
    entry = worst(history)
    return {
        "today": "#/today",
        "case": f"#/case/{short(entry.affected[0].case)}?mark={entry.first_bad}",
        "compare": "#/compare",
        "commit": f"#/commit/{history.commits[entry.first_bad].sha[:12]}",
        "inbox": "#/inbox?show=all",
        "entry": f"#/inbox/{entry.id}",
        "machine": "#/machine",
        "roofline": "#/roofline",
    }[view]


@pytest.mark.parametrize("how", SHOWN)
def test_every_view_opens_without_a_complaint_and_fits(opened, site, history, how):
    visit = opened(site, **SHOWN[how])
    for name in ("today", "case", "compare", "commit", "inbox", "entry", "machine", "roofline"):
        page = visit.go(address_of(history, name))
        assert page.locator("main h1").inner_text() not in ("", "This cannot be shown"), name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, how)
        # Whatever can be pressed or filled in has a name for those who cannot see it.
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('a, button, input, select')].filter(each => !each.closest('[aria-hidden=true]')
            && !(each.textContent.trim() || each.getAttribute('aria-label') || each.labels?.length || each.title || each.querySelector('title')))
            .map(each => each.outerHTML)"""
        )
        assert nameless == [], name


def test_one_look_says_what_how_much_since_when_and_whether_still(opened, site, history):
    entry = worst(history)
    page = opened(site).go("#/today")
    card = page.locator(f"#entry-{entry.id}")
    assert card.is_visible()
    text = card.inner_text()
    percent = 100 * (2.718281828459045**entry.worst.estimate - 1)
    assert f"+{percent:.2f}" in text or f"+{percent:.1f}" in text
    assert history.commits[entry.first_bad].sha[:9] in text
    assert history.commits[entry.first_bad].subject in text
    assert "Still so" in text
    assert "open" in page.locator("h1").inner_text()


def test_a_mark_opens_its_comparisons_and_back_closes_them(until, opened, site, history):
    entry = worst(history)
    address = f"#/case/{short(entry.affected[0].case)}"
    visit = opened(site)
    page = visit.go(address)
    assert page.locator("#detail").inner_text() == ""
    page.locator(f".dot[data-place='{entry.first_bad}']").click()
    detail = page.locator("#detail")
    detail.get_by_role("heading", name="Comparisons of this code").wait_for()
    shown = detail.inner_text()
    assert "32 pairs in 2 replicates" in shown
    assert f'tilegate repro "{entry.affected[0].case}" --base {history.commits[entry.last_good].sha[:12]}' in shown
    assert "null" not in shown
    page.evaluate("Tilegate.copy = async text => { window.copied = text; return true; }")
    buttons = detail.get_by_role("button", name="Copy repro")
    assert buttons.count() == detail.locator("table").last.locator("tbody tr").count()  # one for each edge
    buttons.first.click()
    assert page.evaluate("window.copied").startswith(f'tilegate repro "{entry.affected[0].case}" --base ')
    assert f"mark={entry.first_bad}" in page.url
    page.go_back()
    until(page, "document.getElementById('detail').children.length === 0")
    page.go_forward()
    detail.get_by_role("heading", name="Comparisons of this code").wait_for()


def test_a_drag_zooms_a_double_click_shows_all_and_a_link_keeps_it(until, opened, site, history):
    address = f"#/case/{short(worst(history).affected[0].case)}"
    page = opened(site).go(address)
    box = page.locator(".plot .u-over").bounding_box()
    middle = box["y"] + box["height"] - 12
    page.mouse.move(box["x"] + box["width"] * 0.3, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=4)
    page.mouse.up()
    until(page, "location.hash.includes('from=')")
    first, last = (int(re.search(rf"{key}=(\d+)", page.url).group(1)) for key in ("from", "to"))
    assert 12 <= first <= 24
    assert 30 <= last <= 42
    again = opened(site).go(page.evaluate("location.hash"))
    until(again, "document.querySelector('.strip .u-select').offsetWidth > 10")
    share = again.evaluate(
        "document.querySelector('.strip .u-select').offsetWidth / document.querySelector('.strip .u-over').offsetWidth"
    )
    assert share == pytest.approx((last - first) / 60, abs=0.05)
    page.mouse.dblclick(box["x"] + box["width"] * 0.45, middle)
    until(page, "!location.hash.includes('from=')")


def test_the_keyboard_goes_from_change_to_change(until, opened, site, history):
    case = history.cases[worst(history).affected[0].case]
    versions = [at for at in range(1, len(case.versions)) if case.versions[at] != case.versions[at - 1]]
    page = opened(site).go(f"#/case/{short(case.id)}")
    page.locator(".plot").first.focus()
    page.keyboard.press("ArrowRight")
    until(page, f"location.hash.includes('mark={versions[0]}')")
    page.keyboard.press("ArrowRight")
    until(page, f"location.hash.includes('mark={versions[1]}')")
    page.keyboard.press("Escape")
    until(page, "!location.hash.includes('mark=')")
    page.keyboard.press("+")
    until(page, "location.hash.includes('from=')")


def test_the_page_and_the_read_model_agree_on_any_two_commits(opened, site, history):
    """The page solves the network itself, for pairs that no build could foresee."""
    page = opened(site).go("#/today")
    pairs = [(3, 58), (10, 30), (25, 26), (0, 59)]
    found = page.evaluate(
        """async pairs => {
            const all = await Tilegate.histories(Tilegate.overview.cases.id.map((_, at) => at));
            return all.map(history => pairs.map(([base, head]) => {
                const c = Tilegate.contrast(history, Tilegate.versionAt(history, base), Tilegate.versionAt(history, head));
                return c && [c.log, c.error, c.low, c.high, Tilegate.stateOf(c)];
            }));
        }""",
        pairs,
    )
    for case, row in zip(history.cases.values(), found, strict=True):
        for (base, head), shown in zip(pairs, row, strict=True):
            contrast = case.contrast(base, head)
            assert shown[:4] == pytest.approx(
                [contrast.estimate, contrast.error, contrast.low, contrast.high], abs=2e-7
            )
            assert shown[4] == state_of(contrast)


def test_few_degrees_of_freedom_widen_an_interval_on_the_page_too(opened, hostile_site):
    case = view(kept()).cases[HOSTILE_CASE]
    contrast = case.contrast(0, 1)
    page = opened(hostile_site).go("#/today")
    low, high = page.evaluate(
        "async () => { const h = await Tilegate.history(0); const c = Tilegate.contrast(h, Tilegate.versionAt(h, 0), Tilegate.versionAt(h, 1)); return [c.low, c.high]; }"
    )
    assert (low, high) == pytest.approx((contrast.low, contrast.high), rel=2e-4)
    assert (high - low) / 2 > 3 * 0.001  # Student's t with 3 degrees of freedom, not the normal's 1.96


def test_compare_filters_sorts_and_copies(until, opened, site, history):
    visit = opened(site)
    page = visit.go("#/compare?base=v0.1&head=HEAD")
    rows = page.locator("main tbody tr")
    assert rows.count() == len(history.cases)
    page.get_by_role("button", name="change", exact=True).click()
    until(page, "location.hash.includes('sort=change')")
    page.locator("#compare-find").fill("decode")
    until(page, "location.hash.includes('find=decode')")
    page.wait_for_function(
        f"document.querySelectorAll('main tbody tr').length === {sum('decode' in id for id in history.cases)}"
    )
    assert page.evaluate("document.activeElement.id") == "compare-find"
    page.evaluate("Tilegate.copy = async text => { window.copied = text; return true; }")
    page.get_by_role("button", name="Copy as Markdown").click()
    copied = page.evaluate("window.copied")
    assert copied.startswith("| case | `HEAD` against `v0.1` | 95 % |\n|---|--:|---|\n| `attention.Decode")
    assert "tilegate gate --base" in page.locator("main").inner_text()
    page.get_by_role("button", name="Copy repro").first.click()
    assert page.evaluate("window.copied").startswith('tilegate repro "attention.Decode')


def test_search_finds_cases_and_commits(until, opened, site, history):
    page = opened(site).go("#/today")
    page.keyboard.press("/")
    page.keyboard.type(history.commits[17].sha[:8])
    page.locator("#found a").first.wait_for()
    page.keyboard.press("Enter")
    until(page, f"location.hash.startsWith('#/commit/{history.commits[17].sha[:12]}')")
    page.locator("#search").fill("varlen adaptive")
    page.locator("#found a").first.wait_for()
    assert "varlen" in page.locator("#found a").first.inner_text()


def test_the_theme_is_chosen_and_kept(opened, site):
    visit = opened(site, color_scheme="light")
    page = visit.go("#/today")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.locator("#theme").click()  # from the system's to light
    page.locator("#theme").click()  # to dark
    assert page.evaluate(background) != light
    assert visit.go("#/today").evaluate(background) != light


def test_what_does_not_exist_says_so_and_leads_back(opened, site):
    visit = opened(site)
    for address in ("#/case/0000000000", "#/commit/ffffffff", "#/inbox/none", "#/nothing", "#/case/%E0%A4%A"):
        page = visit.go(address)
        assert page.locator("h1").inner_text() == "This cannot be shown"
        page.get_by_role("link", name="Back to today").click()
        visit.settle("#/today")


def test_hostile_names_stay_text_on_every_view(opened, hostile_site):
    visit = opened(hostile_site)
    entry = json.loads((hostile_site / "json" / "inbox.json").read_text())[0]
    id = short(HOSTILE_CASE)
    addresses = (
        "#/today", f"#/case/{id}?mark=1", f"#/case/{id}?mark=3", f"#/case/{id}?mark=3&seam=1", f"#/case/{id}?unit=time", "#/compare",
        "#/commit/aaaaaaaa", "#/commit/bbbbbbbb", "#/inbox?show=all", f"#/inbox/{entry['id']}", "#/machine", "#/roofline",
    )  # fmt: skip
    for address in addresses:
        page = visit.go(address)
        page.wait_for_timeout(50)
        assert page.locator("h1").inner_text() != "This cannot be shown", address
        assert "owned" not in page.title().replace(HOSTILE, ""), address
        assert page.locator("main img, main script, header img, header script").count() == 0, address
    assert HOSTILE in visit.go("#/commit/aaaaaaaa").locator("h1").inner_text()


def test_the_policy_forbids_what_slips_through(until, chromium, hostile_site):
    page = chromium.new_page()
    page.goto((hostile_site / "index.html").as_uri())
    until(page, "document.getElementById('main').dataset.shown")
    page.evaluate(
        """() => { const script = document.createElement('script'); script.textContent = "window.slipped = true"; document.body.append(script); }"""
    )
    page.evaluate(
        """() => { document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="window.slipped = true">'); }"""
    )
    page.wait_for_timeout(200)
    assert page.evaluate("window.slipped") is None
    page.close()


def test_environments_have_a_seam_with_their_differences(opened, hostile_site):
    page = opened(hostile_site).go(f"#/case/{short(HOSTILE_CASE)}")
    page.locator("button.seam").click()
    page.get_by_role("heading", name="Another environment begins here").wait_for()
    assert "device.name" in page.locator("#detail").inner_text()


def test_figures_of_the_code_stand_below_on_the_same_commits(opened, site, history, until):
    case = history.cases[worst(history).affected[0].case]
    page = opened(site).go(f"#/case/{short(case.id)}?mark={worst(history).first_bad}")
    assert page.locator(".under canvas").count() == 1
    assert "gfx942 isa" in page.locator("#detail").inner_text()
    page.locator("#figure").select_option("gfx942 isa lds")
    until(page, "location.hash.includes('figure=gfx942+isa+lds')")
    until(page, "document.querySelector('.under-title').textContent === 'gfx942 isa lds'")


def test_the_machine_page_shows_controls_bias_and_scatter(opened, site):
    page = opened(site).go("#/machine")
    shown = page.locator("main").inner_text()
    for title in ("Scatter factor of the controls", "Shift of the controls", "Bias between replicates"):
        assert title in shown
    assert page.locator(".chart canvas").count() == 4


def test_a_case_with_independent_runs_alone_shows_its_points(opened, tmp_path, until):
    found = [commit("a"), commit("b", "a"), commit("c", "b")]
    for sha, seconds in zip("abc", (1.0e-3, 1.1e-3, 1.2e-3), strict=True):
        found.append(
            {"kind": "observation", "case": "suite.time_x", "method": "1", "commit": sha * 8, "seconds": seconds, "error": 0.015,
             "environment": "e", "created": "2026-01-02T00:00:00+00:00", "source": "asv"}
        )  # fmt: skip
    folder = build(view(found), tmp_path / "site").index.parent
    page = opened(folder).go(f"#/case/{short('suite.time_x')}")
    until(page, "document.querySelector('.plot canvas') !== null")
    assert page.get_by_role("button", name="time", exact=True).first.get_attribute("aria-pressed") == "true"
    assert "Independent runs" in page.locator("main").inner_text()
    opened(folder).go("#/today")
