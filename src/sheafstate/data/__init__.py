"""From files to rows: documents, tokenizers, token streams, packed rows and windows."""

from sheafstate.data.packing import IGNORED, PackedRows
from sheafstate.data.readers import END_OF_TEXT
from sheafstate.data.sources import PACKAGED, read_documents
from sheafstate.data.split import Corpus, read_corpus, split_documents
from sheafstate.data.tokenizers import load_tokenizer, saved_tokenizer
from sheafstate.data.tokens import TokenStream, encode
from sheafstate.data.windows import WindowBatch, Windows

__all__ = [
    "END_OF_TEXT",
    "IGNORED",
    "PACKAGED",
    "Corpus",
    "PackedRows",
    "TokenStream",
    "WindowBatch",
    "Windows",
    "encode",
    "load_tokenizer",
    "read_corpus",
    "read_documents",
    "saved_tokenizer",
    "split_documents",
]
