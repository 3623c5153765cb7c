"""The page in Chromium, with the journals of the demo: every view, a live tail, hostile names, dark, and 500 pixels.

LOGWRIGHT_WEB_SHOTS names a directory for pictures of the views. Chromium is that of the system: `apt-get install
chromium`. LOGWRIGHT_CHROMIUM names another one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from logwright import kestrel, sej, versioned
from tests.versioned.stores import journal
from tests.web.support import WAIT_SECONDS, Site, serving, wait_until


def chromium() -> str | None:
    """The path of a Chromium that starts: some systems have a program of this name that only says how to install it."""
    found = os.environ.get("LOGWRIGHT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        return None
    asked = subprocess.run([found, "--version"], capture_output=True, timeout=WAIT_SECONDS)
    return found if asked.returncode == 0 else None


CHROMIUM: Final = chromium()
SHOTS: Final = os.environ.get("LOGWRIGHT_WEB_SHOTS")
HOSTILE: Final = "<img src=x onerror=alert(1)>'\";--"

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: apt-get install chromium, or set LOGWRIGHT_CHROMIUM to its path"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


class Pages:
    """Opens pages, and fails if one reports an error or calls `alert`."""

    def __init__(self, browser: Browser, site: Site) -> None:
        self._browser = browser
        self.site = site
        self.errors: list[str] = []

    def open(self, place: str = "", *, width: int = 1280, height: int = 860, dark: bool = False, **more: Any) -> Page:
        page = self._browser.new_page(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        page.set_default_timeout(WAIT_SECONDS * 1000)
        expect.set_options(timeout=WAIT_SECONDS * 1000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))
        page.goto(f"{self.site.url}/#/{place}")
        return page


@pytest.fixture
def pages(browser: Browser, site: Site) -> Iterator[Pages]:
    found = Pages(browser, site)
    yield found
    assert found.errors == []


def keep(page: Page, name: str) -> None:
    """Keep a picture, if a directory for them is named."""
    if SHOTS is not None:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(SHOTS) / f"{name}.png")


def test_overview_shows_problems_before_journals(pages: Pages) -> None:
    page = pages.open()
    expect(page.locator(".problem").first).to_contain_text("message 1500 is missing")
    expect(page.locator(".problem code").first).to_contain_text("logwright repair")
    expect(page.locator(".stack tbody tr")).to_have_count(8)
    expect(page.locator(".stack tbody tr").first).to_contain_text("damaged")
    expect(page.locator("#root")).not_to_be_empty()
    keep(page, "overview")
    page.get_by_role("link", name="stores").click()
    expect(page.locator("h1")).to_have_text("stores")


def test_table_scrolls_to_any_row_and_shows_one_record(pages: Pages) -> None:
    page = pages.open("journal/orders")
    expect(page.locator(".row[data-number='0']")).to_be_visible()
    page.locator(".virtual").evaluate("table => table.scrollTop = 1500 * 30")
    expect(page.locator(".row[data-number='1500']")).to_be_visible()
    page.locator(".row[data-number='1502']").click()
    expect(page.locator(".record h2")).to_have_text("Record 1,502")
    expect(page.locator(".record .decoded")).to_contain_text('"order"')
    expect(page.locator(".record .hex")).to_contain_text("000000  7b 22 6f 72 64 65 72")
    expect(page.locator(".timeline")).to_be_visible()
    keep(page, "journal")
    page.get_by_role("button", name="Next →").click()
    expect(page.locator(".record h2")).to_have_text("Record 1,503")
    page.keyboard.press("Escape")
    expect(page.locator(".record")).to_be_hidden()


@pytest.mark.parametrize("name", ["events", "queues", "stores", "readings", "pages"])
def test_record_of_every_format_is_opened(pages: Pages, name: str) -> None:
    page = pages.open(f"journal/{name}")
    page.locator(".row[data-number]").nth(3).click()
    expect(page.locator(".record h2")).to_have_text("Record 3")


def test_table_is_used_by_keyboard(pages: Pages) -> None:
    page = pages.open("journal/orders")
    expect(page.locator(".row[data-number='0']")).to_be_visible()
    page.locator(".virtual").focus()
    page.keyboard.press("End")
    expect(page.locator(".row.current")).to_have_attribute("data-number", "2999")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".row.current")).to_have_attribute("data-number", "2998")
    page.keyboard.press("Enter")
    expect(page.locator(".record h2")).to_have_text("Record 2,998")


def test_dragging_on_the_timeline_chooses_a_range(pages: Pages) -> None:
    page = pages.open("journal/orders")
    box = page.locator(".timeline").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40, steps=5)
    page.mouse.up()
    expect(page.locator("[role=status].muted")).to_have_text(  # a quarter of four hours, give or take some pixels
        re.compile(r"^\d+ records from 2026-01-15T(08:5[5-9]|09:0[0-4]).* to 2026-01-15T(09:5[5-9]|10:0[0-4])")
    )
    first = int(page.locator(".virtual .row[data-number]").first.get_attribute("data-number") or 0)
    assert 600 < first < 900
    page.get_by_role("button", name="Show all times").click()
    expect(page.locator(".row[data-number='0']")).to_be_visible()


def test_time_that_is_entered_is_jumped_to(pages: Pages) -> None:
    page = pages.open("journal/orders")
    page.get_by_label("Go to time").fill("2026-01-15T10:00:00Z")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.locator(".row.current")).to_have_attribute("data-number", "1502")


def test_filter_shows_matching_records_only(pages: Pages) -> None:
    page = pages.open("journal/orders")
    page.get_by_label("Key").fill("customer/ada")
    page.get_by_label("SQL condition").fill("value.count > 38")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("records match")).to_be_visible()
    rows = page.locator(".list .row[data-number]")
    texts = rows.locator(".c4").all_inner_texts()
    assert texts
    assert all(json.loads(text)["count"] > 38 for text in texts)
    assert set(rows.locator(".c3").all_inner_texts()) == {"customer/ada"}
    page.get_by_label("SQL condition").fill("no_such_column = 1")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".list-place .notice.bad")).to_contain_text("no_such_column")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".row[data-number='0']")).to_be_visible()
    pages.errors = [error for error in pages.errors if "400" not in error]  # the browser reports the refusal


def test_live_tail_shows_what_a_writer_appends_and_can_be_paused(browser: Browser, tmp_path: Path) -> None:
    with sej.Writer(tmp_path / "orders") as writer, serving(tmp_path) as site:
        writer.append(b"before", key=b"k")
        writer.flush()
        pages = Pages(browser, site)
        page = pages.open("journal/orders")
        page.get_by_role("button", name="Live tail").click()
        expect(page.locator(".live.on")).to_be_visible()
        writer.append(b"first live value", key=b"k")
        writer.flush()
        expect(page.get_by_text("first live value")).to_be_visible()
        keep(page, "live")
        page.get_by_role("button", name="Pause").click()
        writer.append(b"second live value")
        writer.flush()
        expect(page.get_by_role("button", name="Continue (1 new)")).to_be_visible()
        assert page.get_by_text("second live value").count() == 0
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_text("second live value")).to_be_visible()
        page.close()
        assert pages.errors == []


def test_queue_shows_states_depth_and_the_life_of_an_item(pages: Pages) -> None:
    page = pages.open("journal/queues/queue?part=mail")
    expect(page.locator(".tile").first).to_contain_text("19")
    expect(page.locator("svg.lines")).to_be_visible()
    keep(page, "queue")
    page.locator("table button.link").first.click()
    expect(page.locator(".events li")).to_have_count(2)
    expect(page.locator(".events")).to_contain_text("reserved")


def test_slider_moves_the_whole_store_to_a_moment(pages: Pages) -> None:
    page = pages.open("journal/stores/store")
    expect(page.locator(".keys tbody tr")).to_have_count(10)
    now = page.locator(".keys tbody").inner_text()
    page.get_by_label("Moment").fill("300")
    expect(page.locator(".moment")).to_contain_text("2026-01-15 09:27")
    expect(page.locator(".keys tbody")).not_to_have_text(now, use_inner_text=True)
    page.get_by_role("button", name="Mark this moment").click()
    page.get_by_label("Moment").fill("600")
    page.get_by_role("button", name="Compare with the mark").click()
    expect(page.locator(".compare tbody tr").filter(has_text="changed")).not_to_have_count(0)
    keep(page, "store")
    page.get_by_role("button", name="truck/2", exact=True).first.click()
    expect(page.locator(".history h2")).to_have_text("History of truck/2")
    expect(page.locator(".history-line rect")).not_to_have_count(0)


def test_moments_within_a_millisecond_are_compared_in_their_order(browser: Browser, tmp_path: Path) -> None:
    store = tmp_path / "stores"
    store.mkdir()
    changes = [(1_700_000_000_000_000_100, "a", 1), (1_700_000_000_000_000_900, "a", 2)]
    (store / "s.jrn").write_bytes(journal(changes, 1_700_000_000_000_000_000))
    with serving(tmp_path) as site:
        pages = Pages(browser, site)
        page = pages.open("journal/stores/store")
        page.get_by_role("button", name="a", exact=True).click()
        times = page.locator(".history tbody button.link")
        expect(times).to_have_count(2)
        times.first.click()
        expect(page.locator(".keys tbody tr")).to_contain_text("2")
        page.get_by_role("button", name="Mark this moment").click()
        times.last.click()
        expect(page.locator(".keys tbody tr")).to_contain_text("1")
        page.get_by_role("button", name="Compare with the mark").click()
        expect(page.locator(".compare tbody td")).to_have_text(["a", "changed", "1", "2"])
        page.close()
        assert pages.errors == []


def test_segments_pages_consumers_and_files_are_drawn(pages: Pages) -> None:
    page = pages.open("journal/readings/segments")
    expect(page.locator(".segment-recovered")).to_have_count(3)
    keep(page, "segments")
    page = pages.open("journal/pages/pages")
    expect(page.locator(".byte.changed").first).to_be_visible()
    keep(page, "pages")
    page = pages.open("journal/orders/shards")
    expect(page.locator(".lane")).to_have_count(2)
    expect(page.locator(".lane-lag.late")).to_have_text("1,800 behind")
    page = pages.open("journal/damaged/files")
    expect(page.locator(".map-damage")).to_have_count(1)
    keep(page, "files")


def test_check_shows_problems_and_the_plan_and_changes_nothing(pages: Pages, journals: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in journals.rglob("*"))
    page = pages.open("journal/damaged/check")
    page.get_by_role("button", name="Verify").click()
    expect(page.locator(".plan li").first).to_contain_text("lost 1 record: message 1500")
    expect(page.locator(".command code")).to_contain_text("logwright repair")
    keep(page, "check")
    assert sorted((path, path.stat().st_mtime_ns) for path in journals.rglob("*")) == before


def test_sql_shows_a_table_a_plot_and_downloads(pages: Pages) -> None:
    page = pages.open("sql")
    page.get_by_label("Query").fill("SELECT k, count(*) AS changes FROM 'stores' GROUP BY k ORDER BY changes DESC")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".result tbody tr")).to_have_count(12)
    expect(page.locator(".plot .bar-records")).to_have_count(12)
    keep(page, "sql")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert Path(download.value.path()).read_text().splitlines()[0] == "k,changes"


def test_hostile_names_and_values_are_text(browser: Browser, tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "")
    with sej.Writer(tmp_path / name) as writer:
        writer.append(b"<script>alert(2)</script>", key=HOSTILE.encode())
        writer.append(b"\xff\xfe\x00binary\x1b[31m")
    with kestrel.Queue(tmp_path / "queues", "q<b>") as queue:
        queue.put(HOSTILE.encode())
    with versioned.VersionedKVStore(tmp_path / "stores", "s") as store:
        store.insert(HOSTILE, {HOSTILE: "<svg onload=alert(3)>"})
    with serving(tmp_path) as site:
        pages = Pages(browser, site)
        page = pages.open()
        page.get_by_role("link", name=name).click()
        expect(page.locator("h1")).to_have_text(name)
        expect(page.locator(".row[data-number='0'] .c4")).to_have_text("<script>alert(2)</script>")
        page.locator(".row[data-number='0']").click()
        expect(page.locator(".record .decoded")).to_have_text("<script>alert(2)</script>")
        page.goto(f"{site.url}/#/journal/queues/queue")
        expect(page.get_by_role("region", name="Queue", exact=True)).to_contain_text(HOSTILE)
        page.goto(f"{site.url}/#/journal/stores/store")
        expect(page.locator(".keys")).to_contain_text("<svg onload=alert(3)>")
        for tag in ("img[src=x]", "script:not([src])", "svg[onload]", "b"):
            assert page.locator(f"main {tag}").count() == 0
        page.close()
        assert pages.errors == []


def test_slow_view_is_not_drawn_after_it_was_left(pages: Pages) -> None:
    page = pages.open()
    waiting: list[Route] = []
    page.route("**/api/journal?name=queues*", lambda route: waiting.append(route))
    with page.expect_request("**/api/journal?name=queues*"):
        page.goto(f"{pages.site.url}/#/journal/queues/queue")
    with page.expect_event(
        "requestfailed", lambda request: "name=queues" in request.url
    ):  # it is ended, not only ignored
        page.goto(f"{pages.site.url}/#/journal/stores/store")
    expect(page.locator(".keys tr").first).to_be_visible()
    expect(page.locator("h1")).to_have_text("stores")
    assert len(waiting) == 1


def test_last_of_quick_changes_of_the_address_is_shown(pages: Pages) -> None:
    page = pages.open()
    expect(page.locator(".stack tbody tr")).to_have_count(8)
    places = ["queues/queue", "stores/store", "orders", "orders", "pages/pages"]
    page.evaluate("(places) => places.forEach((place) => { location.hash = `#/journal/${place}`; })", places)
    expect(page.locator("h1")).to_have_text("pages")
    expect(page.locator(".byte.changed").first).to_be_visible()
    page.evaluate("() => { location.hash = '#/journal/orders'; history.back(); }")
    expect(page.locator("h1")).to_have_count(1)
    page.evaluate("location.hash = '#/journal/readings/segments'")
    expect(page.locator("h1")).to_have_text("readings")
    expect(page.locator(".segment").first).to_be_visible()


def test_address_that_cannot_be_read_is_an_error_and_not_the_view_before(pages: Pages) -> None:
    page = pages.open("journal/orders")
    expect(page.locator("h1")).to_have_text("orders")
    for place in ("journal/%ZZ", "nothing", "journal/no-such-journal"):
        page.goto(f"{pages.site.url}/#/{place}")
        expect(page.locator("main .notice.bad")).to_be_visible()
        expect(page.locator("h1")).to_have_count(0)
    page.goto(f"{pages.site.url}/#/journal/stores/store")
    expect(page.locator(".keys tr").first).to_be_visible()
    pages.errors = [error for error in pages.errors if "404" not in error]  # the browser reports the refusal


def test_error_of_a_view_leaves_the_other_views_of_the_journal(pages: Pages) -> None:
    page = pages.open()
    page.route("**/api/store?*", lambda route: route.fulfill(status=422, json={"error": "it cannot be read"}))
    page.route("**/api/timeline?name=stores*", lambda route: route.fulfill(status=422, json={"error": "no timeline"}))
    page.goto(f"{pages.site.url}/#/journal/stores/store")
    expect(page.get_by_text("no timeline")).to_be_visible()
    page.get_by_role("link", name="Files", exact=True).click()
    expect(page.locator(".bytemap").first).to_be_visible()
    pages.errors = [error for error in pages.errors if "422" not in error]


def test_only_the_last_of_two_answers_is_drawn(pages: Pages) -> None:
    page = pages.open("journal/stores/store")
    expect(page.locator(".keys tbody tr")).to_have_count(10)
    held: list[Route] = []
    page.route("**/api/history?*key=truck%2F1", lambda route: held.append(route))
    with page.expect_request("**/api/history?*key=truck%2F1"):
        page.get_by_role("button", name="truck/1", exact=True).click()
    with page.expect_event("requestfailed", lambda request: request.url.endswith("key=truck%2F1")):
        page.get_by_role("button", name="truck/2", exact=True).click()
    expect(page.locator(".history h2")).to_have_text("History of truck/2")
    assert len(held) == 1


def test_streams_of_a_view_end_when_it_is_left(browser: Browser, tmp_path: Path) -> None:
    with sej.Writer(tmp_path / "orders") as writer, serving(tmp_path) as site:
        writer.append(b"before")
        writer.flush()
        pages = Pages(browser, site)
        page = pages.open()
        live = site.server.api.live
        expect(page.locator(".stack tbody tr")).to_have_count(1)
        wait_until(lambda: live.followers == 1)
        page.goto(f"{site.url}/#/journal/orders")
        wait_until(lambda: live.followers == 0)
        page.get_by_role("button", name="Live tail").click()
        expect(page.locator(".live.on")).to_be_visible()
        wait_until(lambda: live.followers == 1)
        page.goto(f"{site.url}/#/journal/orders/files")
        wait_until(lambda: live.followers == 0)
        page.close()
        assert pages.errors == []


def test_overview_has_no_stream_in_a_hidden_tab_and_reports_a_silent_server(browser: Browser, tmp_path: Path) -> None:
    hide = "(is) => { Object.defineProperty(document, 'hidden', { get: () => is, configurable: true }); }"
    with sej.Writer(tmp_path / "orders") as writer:
        writer.append(b"before")
    with serving(tmp_path) as site:
        pages = Pages(browser, site)
        page = pages.open()
        expect(page.locator(".stack tbody tr")).to_have_count(1)
        live = site.server.api.live
        change = "document.dispatchEvent(new Event('visibilitychange'))"
        page.evaluate(hide, True)
        page.evaluate(change)
        wait_until(lambda: live.followers == 0)
        page.evaluate(hide, False)
        page.evaluate(change)
        wait_until(lambda: live.followers == 1)
        expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(page.locator(".stack tbody tr")).to_have_count(1)
    page.close()


def test_large_journal_is_read_to_its_end_while_its_page_is_shown(browser: Browser, tmp_path: Path) -> None:
    with kestrel.Queue(tmp_path / "queues", "jobs") as queue:
        for _ in range(100):
            queue.put_many([b"%d" % number for number in range(5000)])
    with serving(tmp_path) as site:
        pages = Pages(browser, site)
        page = pages.open("journal/queues")
        expect(page.locator(".title")).to_contain_text("500,000 records · ")
        page.locator(".virtual").focus()
        page.keyboard.press("End")
        expect(page.locator(".row.current")).to_have_attribute("aria-rowindex", "500000")
        page.close()
        assert pages.errors == []


def test_live_tail_and_matches_are_used_by_keyboard(pages: Pages) -> None:
    page = pages.open("journal/orders")
    page.get_by_label("Text", exact=True).fill('"count": 39')
    page.keyboard.press("Enter")
    expect(page.get_by_text("records match")).to_be_visible()
    page.locator(".list").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    second = page.locator(".list .row[data-number]").nth(1)
    expect(second).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".record .decoded")).to_contain_text('"count": 39')
    page.get_by_role("button", name="Next →").press("Enter")
    expect(page.get_by_role("button", name="Next →")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".record")).to_be_hidden()
    expect(page.locator(".list")).to_be_focused()


def test_row_after_damage_says_so_where_records_are_not_numbered(browser: Browser, tmp_path: Path) -> None:
    with kestrel.Queue(tmp_path / "queues", "jobs") as queue:
        for number in range(50):
            queue.put(b"item %04d" % number)
    file = tmp_path / "queues" / "jobs"
    data = bytearray(file.read_bytes())
    at = data.index(b"item 0020")
    data[at - 24 : at] = b"\xff" * 24
    file.write_bytes(data)
    with serving(tmp_path) as site:
        pages = Pages(browser, site)
        page = pages.open("journal/queues")
        expect(page.locator(".row[data-number]").first).to_be_visible()
        page.locator(".virtual").evaluate("table => table.scrollTop = 15 * 30")
        expect(page.get_by_text("after damage")).to_have_count(1)
        page.close()
        assert pages.errors == []


def test_skip_link_jumps_to_the_contents_of_the_view(pages: Pages) -> None:
    page = pages.open("sql")
    expect(page.locator("h1")).to_have_text("SQL")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    expect(page.locator("h1")).to_have_text("SQL")


@pytest.mark.parametrize("place", ["", "journal/orders", "journal/queues/queue", "journal/stores/store", "sql"])
@pytest.mark.parametrize("width", [400, 500, 800])
def test_narrow_screens_have_no_sideways_scrolling(pages: Pages, place: str, width: int) -> None:
    page = pages.open(place, width=width, height=900, dark=True)
    expect(page.locator(".page")).to_be_visible()
    expect(page.locator(".tile, .row[data-number], .keys tr, textarea").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    if place == "" and width == 500:
        keep(page, "narrow")


VIEWS: Final = [
    *("", "sql", "journal/orders", "journal/queues/queue", "journal/stores/store", "journal/readings/segments"),
    *("journal/pages/pages", "journal/orders/shards", "journal/damaged/files", "journal/damaged/check"),
]
NAMELESS: Final = """
[...document.querySelectorAll("a, button, input, select, textarea, progress, [tabindex='0'], svg[role]")]
  .filter((one) => one.checkVisibility() && !(one.getAttribute("aria-label") || one.textContent.trim()
    || [...one.labels || []].some((label) => label.textContent.trim())))
  .map((one) => one.outerHTML.slice(0, 120))
"""


@pytest.mark.parametrize("place", VIEWS)
def test_every_control_has_a_name_and_a_visible_focus(pages: Pages, place: str) -> None:
    page = pages.open(place)
    expect(page.locator("main h1")).to_be_attached()
    expect(page.get_by_text("Looking at the journals")).to_have_count(0)
    assert page.evaluate(NAMELESS) == []
    outline = "(one) => getComputedStyle(document.activeElement).outlineStyle"
    seen = []
    for _ in range(6):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("() => document.activeElement.outerHTML.slice(0, 60)"))
        assert page.evaluate(outline) not in ("none", ""), seen[-1]
    assert "Skip to the contents" in seen[0] or 'class="skip"' in seen[0]
    assert len(set(seen)) == len(seen)


def test_dark_is_dark_and_light_is_light(pages: Pages) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    assert pages.open(dark=True).evaluate(back) == "rgb(16, 21, 27)"
    assert pages.open().evaluate(back) == "rgb(245, 247, 250)"
    page = pages.open("journal/damaged", dark=True)
    expect(page.locator(".timeline .mark-damage")).to_have_count(1)
    keep(page, "dark")


def test_token_is_entered_once(browser: Browser, journals: Path, tmp_path: Path) -> None:
    from tests.web.test_guard import TOKEN, protection_with

    with serving(journals, protection_with(tmp_path)) as site:
        pages = Pages(browser, site)
        page = pages.open()
        page.get_by_label("Token").fill("wrong-wrong-wrong-wrong")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("alert")).to_have_text("This token is not known.")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Open").click()
        expect(page.locator(".stack tbody tr")).to_have_count(8)
        page.close()
        assert pages.errors == []
