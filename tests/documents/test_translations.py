"""The READMEs in other languages are short, and show nothing that the English one does not."""

import pytest

from .markdown import DOCUMENTS, ROOT, Document

ENGLISH = Document(ROOT / "README.md")
TRANSLATIONS = [document for document in DOCUMENTS if document.path.name.startswith("README.")]
TRANSLATIONS.remove(next(document for document in TRANSLATIONS if document.path == ENGLISH.path))


def test_there_are_two() -> None:
    assert [document.path.name for document in TRANSLATIONS] == ["README.ja.md", "README.zh.md"]


@pytest.mark.parametrize("document", TRANSLATIONS, ids=repr)
def test_they_show_the_same_commands(document: Document) -> None:
    for program in ("make", "sheafstate", ".venv/bin/pip"):
        shown = document.commands(program)
        assert shown
        assert all(words in ENGLISH.commands(program) for words in shown), shown
    assert len(document.text.splitlines()) < len(ENGLISH.text.splitlines()) / 2


@pytest.mark.parametrize("document", [ENGLISH, *TRANSLATIONS], ids=repr)
def test_they_lead_to_one_another(document: Document) -> None:
    others = {other.path.name for other in [ENGLISH, *TRANSLATIONS]} - {document.path.name}
    assert others <= set(document.links)
