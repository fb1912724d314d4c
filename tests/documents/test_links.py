"""Every link of the documents leads somewhere in the repository, anchors included."""

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
