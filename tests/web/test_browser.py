"""The pages in a real browser: opened, clicked through, looked at. TICKLAKE_SCREENSHOTS=DIR keeps two pictures."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe

from ticklake.config.options import HttpOptions
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.topics import Database
from ticklake.web import rendering
from ticklake.web.server import HttpServer, open_site
from ticklake.web.site import Site

TOKEN = "a-token-for-these-tests-only"
PATHS = [entry.path for entry in rendering.MENU]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if binary is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(run_site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TICKLAKE_TOKEN", TOKEN)
        server = open_site(run_site, HttpOptions(port=0), tmp_path_factory.mktemp("token"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address; whatever the browser complains about fails the test."""
    contexts, complaints = [], []

    def open_(url: str, width: int = 1360, height: int = 900, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


def until(page: Any, condition: str) -> None:
    """Asks from outside: Playwright's own waiting would need eval in the page, which the page forbids."""
    deadline = time.monotonic() + 60
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


def flaws(page: Any) -> list[str]:
    """What axe-core finds: names, roles, contrast, order."""
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html']}" for one in found for node in one["nodes"]]


def keep(page: Any, name: str) -> None:
    if folder := os.environ.get("TICKLAKE_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


@pytest.mark.parametrize(
    ("width", "scheme"),
    [pytest.param(1920, "light", marks=pytest.mark.slow), (360, "dark")],
    ids=["wide and light", "narrow and dark"],
)
def test_every_page_fits_and_can_be_used_by_everybody(
    open_page: Callable[..., Any], address: str, tmp_path: Path, width: int, scheme: str
) -> None:
    page = open_page(address, width=width, scheme=scheme)
    for path in PATHS:
        page.goto(address + path)
        page.locator("h1").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        until(page, "!document.querySelector('.loading') && !document.body.textContent.includes('Examining')")
        assert flaws(page) == [], path
        assert page.title() != "taken over"
        page.screenshot(path=str(tmp_path / "page.png"), full_page=True)
        assert (tmp_path / "page.png").stat().st_size > 5_000


def test_the_overview_is_live(open_page: Callable[..., Any], address: str) -> None:
    page = open_page(address)
    assert page.locator("svg.wide .stage").count() == 9
    page.evaluate("document.querySelector('#live').dataset.old = '1'; document.querySelector('.tile').remove()")
    until(page, "document.querySelectorAll('.tile').length === 7")  # a sample has replaced what was there
    keep(page, "overview")


def test_the_world_is_played_zoomed_and_clicked(open_page: Callable[..., Any], address: str) -> None:
    page = open_page(f"{address}/world?tick=60", scheme="dark")
    shown = "document.querySelector('#world').dataset.shown"
    until(page, f"{shown} === '60'")
    colours = """() => { const canvas = document.querySelector('#canvas'); const data = canvas.getContext('2d')
        .getImageData(0, 0, canvas.width, canvas.height).data; return new Set(new Uint32Array(data.buffer)).size; }"""
    assert page.evaluate(colours) > 10
    canvas = page.locator("#canvas")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    until(page, f"{shown} === '61'")
    assert "tick=61" in page.url
    page.keyboard.press("+")
    page.keyboard.press("0")
    page.keyboard.press(" ")
    until(page, f"Number({shown}) > 63")
    page.keyboard.press(" ")
    assert page.locator("#play").inner_text() == "Play"
    page.locator("#colour").select_option("value")
    legend = "document.querySelector('#legend').textContent"
    until(page, f"{legend}.includes(' to ')")
    page.locator("#colour").select_option("owner")
    until(page, f"{legend}.includes('each owner')")
    page.locator("#colour").select_option("type")
    until(page, f"{legend}.includes('energy')")
    page.locator("#organisms").uncheck()
    canvas.click(position={"x": 300, "y": 300})
    until(page, "document.querySelector('#chosen h2').textContent.startsWith('Cell')")
    page.locator("#organisms").check()
    page.goto(f"{address}/world?tick=0")
    until(page, f"{shown} === '0'")
    click_an_organism(page)
    until(page, "document.querySelector('#chosen h2').textContent.startsWith('Organism')")
    assert "alive" in page.locator("#chosen").inner_text()


def test_a_chart_is_zoomed_read_and_taken_home(open_page: Callable[..., Any], address: str) -> None:
    page = open_page(f"{address}/charts")
    shown = "document.querySelector('#charts').dataset.shown"
    until(page, f"{shown} === '0-119'")
    canvas = page.locator("canvas.chart").first
    assert "population from" in canvas.get_attribute("aria-label")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 90)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 90, steps=4)
    page.mouse.up()
    until(page, f"{shown} !== '0-119'")
    start, end = map(int, page.evaluate(shown).split("-"))
    assert 25 < start < 50 and 65 < end < 90
    assert f"from={start}&to={end}" in page.url
    canvas.focus()
    page.keyboard.press("ArrowRight")
    assert f"tick {start}" in page.locator(".readout").first.inner_text()
    assert f"tick {start}" in page.locator(".readout").nth(3).inner_text(), "all charts share the cursor"
    page.keyboard.press("0")
    until(page, f"{shown} === '0-119'")
    assert "from=" not in page.url
    page.get_by_text("As a table").first.click()
    assert page.locator(".past").first.locator("tbody tr").count() == 120
    for button, name in (("[aria-label='Download Population as PNG']", "population.png"), ("#csv", "series.csv")):
        with page.expect_download() as download:
            page.locator(button).click()
        assert download.value.suggested_filename.endswith(name)
        assert Path(download.value.path()).stat().st_size > 1000


def test_a_query_is_drawn_and_can_be_shared(open_page: Callable[..., Any], address: str) -> None:
    page = open_page(f"{address}/charts")
    page.get_by_role("button", name="Example").click()
    page.locator("#answer").wait_for()
    assert "oldest" in page.locator("#own .readout").inner_text()
    assert "sql=SELECT" in page.url
    page.goto(page.url)
    page.locator("#answer").wait_for()
    page.locator("#sql").fill("SELECT is_dead::VARCHAR AS state, count(*) AS organisms FROM organism_data GROUP BY 1")
    page.keyboard.press("Control+Enter")
    until(page, "document.querySelector('#own canvas').ariaLabel.includes('organisms')")


def test_a_query_that_is_wrong_says_why(browser: Any, address: str) -> None:
    page = browser.new_page()  # the browser itself reports that the answer was no
    page.goto(f"{address}/charts?sql=SELECT+nope+FROM+organism_data")
    page.get_by_text('"nope" not found').wait_for()
    page.close()


def click_an_organism(page: Any) -> None:
    """Where the canvas has the colour of one."""
    x, y = page.evaluate("""() => { const canvas = document.querySelector('#canvas');
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        for (let at = 0; at < data.length; at += 4)
            if (data[at] === 255 && data[at + 1] === 209 && data[at + 2] === 102)
                return [at / 4 % canvas.width, Math.floor(at / 4 / canvas.width) + 2]; }""")
    page.locator("#canvas").click(position={"x": x, "y": y})


def test_the_picture_for_the_readme(open_page: Callable[..., Any], address: str) -> None:
    page = open_page(f"{address}/world?tick=100&colour=value", scheme="dark")
    until(page, "document.querySelector('#world').dataset.shown === '100'")
    click_an_organism(page)
    until(page, "document.querySelector('#chosen h2').textContent.startsWith('Organism')")
    keep(page, "world")


@pytest.mark.warns("DEAD_LETTER")
def test_a_dead_letter_is_replayed_once_the_token_is_given(
    browser: Any, serve_site: Callable[..., httpx.Client], indexed: Any, tmp_path: Path
) -> None:
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        indexed.make_topic(database)
        client = serve_site(Site(databases=[database]))
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{str(client.base_url).rstrip('/')}/dead-letters")
        page.locator("summary").click()
        assert "Traceback" in page.locator("form.card").last.inner_text()
        page.get_by_role("checkbox", name="Select").check()
        page.get_by_role("button", name="Replay selected").click()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("1 dead letters replayed.").wait_for()
        assert database.run(indexed.RUN_ID).dead_letters.count() == 0
        page.goto(f"{str(client.base_url).rstrip('/')}/topics")
        page.get_by_role("button", name="Dry run").click()
        page.get_by_text("would have 2 messages of batch-topic ahead").wait_for()
        context.close()


def test_the_token_of_a_link_is_taken_out_of_the_address(open_page: Callable[..., Any], address: str) -> None:
    page = open_page(f"{address}/#token=secret-of-the-link")
    assert "secret" not in page.url
    assert "secret-of-the-link" in page.evaluate("Object.values(sessionStorage)")


def test_from_elsewhere_one_signs_in_and_sees_what_one_asked_for(
    browser: Any, serve_strangers: Callable[..., HttpServer]
) -> None:
    server = serve_strangers("/lake")
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/tables?run=20261014-143025-550e8400")
    assert flaws(page) == []
    page.get_by_label("Token").fill("not-the-token-at-all")
    page.keyboard.press("Enter")
    page.get_by_text("Wrong token.").wait_for()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.locator("#environment_data").wait_for()
    assert page.url.endswith("/lake/tables?run=20261014-143025-550e8400")
    (cookie,) = context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/lake")
    assert TOKEN not in cookie["value"]
    page.goto(f"{server.url}/topics")
    page.get_by_role("button", name="Dry run").first.click()
    page.get_by_text("would have").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    assert context.cookies() == []
    context.close()


def test_one_walks_through_the_pages_by_keyboard(open_page: Callable[..., Any], address: str) -> None:
    page = open_page(address)
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "World"
    page.keyboard.press("Enter")
    page.wait_for_url("**/world?run=*")


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A run with a sampling interval of 10 that records only the living, and lacks ticks 200 to 290."""
    spec = importlib.util.spec_from_file_location("stories", Path(__file__).with_name("stories.py"))
    assert spec is not None and spec.loader is not None
    stories = sys.modules["stories"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stories)
    root = tmp_path_factory.mktemp("sampled")
    lives = [stories.Life(1, None, 0), stories.Life(2, 1, 45, 155)]
    url = stories.write(stories.Story("sampled", 10, [TickRange(0, 190), TickRange(300, 500)], lives), root)
    with Database(url) as database, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TICKLAKE_TOKEN", TOKEN)
        server = open_site(Site(Storage(root / "storage"), root / "lake", [database]), HttpOptions(port=0), root)
        server.start()
        yield server.url
        server.stop()


def test_a_zoom_stays_on_sampled_ticks_and_says_what_is_not_exact(sampled: str, open_page: Callable[..., Any]) -> None:
    page = open_page(f"{sampled}/charts")
    shown = "document.getElementById('charts').dataset.shown"
    until(page, f"{shown} === '0-500'")
    page.fill("input[name=from]", "13")
    page.fill("input[name=to]", "147")
    page.click("#range button:has-text('Show')")
    until(page, f"{shown} === '20-140'")
    for asked, answered in ((("200", "200"), "200-200"), (("210", "200"), "200-210"), (("300", "330"), "300-330")):
        page.fill("input[name=from]", asked[0])
        page.fill("input[name=to]", asked[1])
        page.click("#range button:has-text('Show')")
        until(page, f"{shown} === '{answered}'")
    assert "at least, since the previous sampled tick" in page.inner_text(".charts")
    page.click("#whole")
    until(page, f"{shown} === '0-500'")
    assert "some ticks of this range are not in" in page.inner_text("#how")


def test_a_range_outside_the_run_is_refused_in_one_line(sampled: str, browser: Any) -> None:
    page = browser.new_page()  # the browser itself reports that the answer was no
    page.goto(f"{sampled}/charts")
    shown = "document.getElementById('charts').dataset.shown"
    until(page, f"{shown} === '0-500'")
    page.fill("input[name=from]", "5000")
    page.fill("input[name=to]", "6000")
    page.click("#range button:has-text('Show')")
    page.get_by_text("5,000–6,000").wait_for()
    assert "0–500" in page.inner_text("#how")
    assert page.evaluate(shown) == "0-500", "what is drawn is still the whole run"
    page.close()


def test_a_table_lists_the_values_themselves(sampled: str, open_page: Callable[..., Any]) -> None:
    sql = "SELECT 1 AS x, 1234.56 AS a, 0.001234 AS b, 100.75::DOUBLE AS c, 2026 AS year, 123456789.123 AS d"
    page = open_page(f"{sampled}/charts?sql={sql}")
    until(page, "document.getElementById('own').dataset.shown !== undefined")
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.inner_text("#own .past tbody").split() == [
        "1",
        "1234.56",
        "0.001234",
        "100.75",
        "2026",
        "123456789.123",
    ]


def test_a_query_of_text_is_shown_as_a_table(sampled: str, open_page: Callable[..., Any]) -> None:
    page = open_page(f"{sampled}/charts?sql=SELECT DISTINCT program_id FROM organism_data ORDER BY 1")
    until(page, "document.getElementById('own').dataset.shown !== undefined")
    assert page.inner_text("#own .past").split() == ["program_id", "p0", "p1"]
    assert not page.is_visible("#answer canvas")
    assert page.inner_text("#found").startswith("2 rows")


def test_a_tick_that_is_missing_is_said_to_be(sampled: str, open_page: Callable[..., Any]) -> None:
    page = open_page(f"{sampled}/world?tick=250")
    until(page, "document.getElementById('world').dataset.shown === '250'")
    assert page.inner_text("#facts").count("not in the table") == 2
    assert "so the world is unknown" in page.inner_text("#legend")
