"""Every link of the documents leads somewhere in the repository, anchors included."""

import re

import pytest

from .markdown import DOCUMENTS, ROOT, Document

OUTSIDE = ("https://",)


@pytest.mark.parametrize("document", DOCUMENTS, ids=repr)
def test_links_lead_somewhere(document: Document) -> None:
    for link in document.links:
        if link.startswith(OUTSIDE):
            continue
        name, _, anchor = link.partition("#")
        target = (document.path.parent / name).resolve() if name else document.path
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        if anchor:
            assert anchor in Document(target).anchors, link


def test_the_documents_are_linked_from_the_readme() -> None:
    """Directly, or by a document that is."""
    seen, ahead = set(), [ROOT / "README.md"]
    while ahead:
        document = Document(ahead.pop())
        seen.add(document.path)
        names = (link.partition("#")[0] for link in document.links if not link.startswith(OUTSIDE))
        targets = {(document.path.parent / name).resolve() for name in names if name.endswith(".md")}
        ahead += targets - seen
    assert {document.path for document in DOCUMENTS} <= seen


def test_pictures_are_small_and_used() -> None:
    used = {(document.path.parent / link).resolve() for document in DOCUMENTS for link in document.links}
    pictures = sorted((ROOT / "docs").rglob("*.png")) + sorted((ROOT / "docs").rglob("*.svg"))
    assert pictures
    for picture in pictures:
        assert picture in used, picture
        assert picture.stat().st_size < 200_000, picture


FOLDERS = ("src/", "tests/", "docs/", "examples/", "sheafstate/")
PATH = re.compile(r"`([\w./]+(?:\.py|\.md|\.json|/))`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=repr)
def test_paths_that_are_named_exist(document: Document) -> None:
    for path in PATH.findall(document.prose):
        if path.startswith(FOLDERS):
            place = ROOT / "src" / path if path.startswith("sheafstate/") else ROOT / path
            assert place.exists(), path


def test_the_house_as_it_is_drawn_stands() -> None:
    """Files and folders that docs/architecture.md draws as a tree are there, and no file of the package is left out."""
    drawn = next(text for text in Document(ROOT / "docs" / "architecture.md").code("") if "src/sheafstate/" in text)
    names = re.findall(r"^ {2,4}([a-z_]+(?:\.py|/))", drawn, re.MULTILINE)
    package = ROOT / "src" / "sheafstate"
    for name in names:
        assert (package / name).exists() or (package / "nn" / name).exists() or (package / "ops" / name).exists(), name
    top = {path.name + ("/" if path.is_dir() else "") for path in package.iterdir() if path.name[:2] != "__"}
    assert top - set(names) <= {"py.typed"}
