"""The page is whole, keeps to itself, escapes what comes from files, and holds the figures."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sheafstate.errors import InputError
from sheafstate.report.html import REPORT_NAME, render_report, write_report

from .conftest import write_run

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Reads a page; fails where tags do not close as they opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.text[tag] = self.text.get(tag, "") + data


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render_report(write_run(tmp_path_factory.mktemp("report") / "run <1>"))


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_the_page_is_well_formed_and_has_its_sections(page: Page) -> None:
    assert page.text["h1"] == "Run run <1>"
    headings = re.sub(r"(?=[A-Z])", "\n", page.text["h2"]).split("\n")[1:]
    titles = ["How much of a dense site is needed", "Training", "What it writes", "The site of a passage"]
    assert headings == [*titles, "All figures"]


def test_the_page_asks_for_nothing(text: str, page: Page) -> None:
    assert not re.search(r"https?:|//[a-z]|@import", text)
    assert re.findall(r"url\((?!#)", text) == []
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "iframe", "img", "object", "embed"}
    for _, attributes in page.tags:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)


def test_text_of_files_is_escaped(page: Page) -> None:
    assert page.text["pre"] == "ROMEO:\nWhat <script>alert(1)</script> & light\n"
    assert "<img src=x onerror=alert(1)>" in page.text["td"]


def test_the_figures_are_there(page: Page) -> None:
    assert page.text["dd"] == "1.62502.3444812,3451,536,0004 min 1 s"
    cells = page.text["td"]
    for figure in ("536,870,912", "75.00 %", "81.25 %", "50.00 %", "1.6250", "another & one: 1.88"):
        assert figure in cells


def test_every_drawing_says_what_it_shows(page: Page) -> None:
    drawings = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(drawings) == 5
    for attributes in drawings:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"] or "") > 20
    assert sum(tag == "figcaption" for tag, _ in page.tags) == 5


def test_ids_are_unique_and_colours_defined(text: str) -> None:
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"var\((--\w+)\)", text)) <= set(re.findall(r"(--\w+):", text))


def test_it_suits_a_phone_and_the_dark(page: Page, text: str) -> None:
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags
    assert text.count("prefers-color-scheme: dark") == 2
    assert [attributes for tag, attributes in page.tags if tag == "html"] == [{"lang": "en"}]


def test_the_same_run_is_the_same_page(run: Path, text: str) -> None:
    assert render_report(run) == text


@pytest.mark.parametrize("name", ["metrics.json", "simulation.json", "history.jsonl", "sample.json", "site.json"])
def test_any_one_file_makes_a_page(run: Path, name: str) -> None:
    for path in run.iterdir():
        if path.name != name:
            path.unlink()
    page = Page(render_report(run, title="alone"))
    assert page.text["h1"] == "alone"
    assert sum(tag == "section" for tag, _ in page.tags) == 1
    assert f"from {name} of this run" in page.text["footer"]


def test_a_history_without_losses_says_so(run: Path) -> None:
    (run / "history.jsonl").write_text("")
    assert "No curve" in Page(render_report(run)).text["main"]


def test_the_report_is_written_whole(run: Path) -> None:
    (run / "site.json").unlink()
    path = write_report(run, title="A run")
    assert path == run / REPORT_NAME
    assert Page(path.read_text(encoding="utf-8")).text["h1"] == "A run"
    assert not list(run.glob(".*"))


def test_an_old_report_survives_a_broken_run(run: Path) -> None:
    (run / "site.json").unlink()
    before = write_report(run).read_text(encoding="utf-8")
    (run / "site.json").write_text("{")
    with pytest.raises(InputError, match=r"site\.json"):
        write_report(run)
    assert (run / REPORT_NAME).read_text(encoding="utf-8") == before
    assert not list(run.glob(".*"))


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds none of metrics\.json"):
        write_report(tmp_path)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not the folder of a run"):
        write_report(tmp_path / "missing")


def test_references_must_be_losses(run: Path) -> None:
    (run / "metrics.json").write_text(json.dumps({"references": {"other": "good"}}))
    with pytest.raises(InputError, match="references must map names to losses"):
        render_report(run)
