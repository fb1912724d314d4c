"""Every promise is held by a test of this folder, and the table in the documents is the one that the markers give."""

import pytest

from .collection import holders
from .mutants import ROOT
from .promises import GROUPS, PROMISES, Mutation, contract
from .table import BEGIN, DOCUMENT, table

MUTATIONS = sorted({mutation for holder in holders() for mutation in holder.breaks}, key=lambda m: (m.file, m.fault))


def test_the_groups_hold_every_promise_once() -> None:
    assert [number for numbers in GROUPS.values() for number in numbers] == sorted(PROMISES)


@pytest.mark.parametrize("number", PROMISES)
def test_a_promise_is_held_here_by_a_test_that_was_seen_to_fail(number: int) -> None:
    here = [holder for holder in holders() if holder.path.startswith("tests/contract/") and number in holder.numbers]
    assert here
    assert any(holder.breaks for holder in here)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.fault)
def test_a_mutation_still_finds_its_place(mutation: Mutation) -> None:
    text = (ROOT / "src" / "sheafstate" / mutation.file).read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1
    assert mutation.new != mutation.old


def test_the_document_holds_the_table_of_the_markers() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert BEGIN in text
    assert text.endswith(table())


def test_a_promise_that_nobody_made_cannot_be_held() -> None:
    with pytest.raises(ValueError, match="28"):
        contract(28)
