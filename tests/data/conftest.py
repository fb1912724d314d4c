import pytest

from sheafstate.data import load_tokenizer, read_documents

SPECS = ("byte", "char", "bpe:400")

# what tokenizers are known to alter or to trip over
TRAPS = [
    "",
    " ",
    "  two  spaces , and n't clean 's up .  ",
    "\n",
    "\r\nCRLF\r\nand\rCR alone\n",
    "\t\x00\x01\x1b\x7f\x85\u2028\u2029 controls",
    "<|endoftext|> inside <|endoftext|>",
    "<0x41><0x0A> looks like bytes",
    "Ġ Ċ Ã the symbols that stand for bytes",
    "▁ and \ufeff and \ufffd",
    "e\u0301 é \u1e9b\u0323 not normalised",
    "漢字 ελληνικά עברית हिन्दी",
    "👩‍👩‍👧‍👦 🇺🇳 \U0010ffff \ue000",
]


@pytest.fixture(scope="session")
def excerpt() -> str:
    return read_documents("tinyshakespeare")[0][:20_000]


@pytest.fixture(scope="session")
def tokenizers(excerpt: str) -> dict:
    """Each kind, trained on a text that has a few characters beyond ASCII and learns runs of white space."""
    return {spec: load_tokenizer(spec, [excerpt, "é漢", "a    b\n\n\n\nc" * 400]) for spec in SPECS}
