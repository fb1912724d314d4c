"""Damage to bytes and to JSON values, drawn from a seeded generator."""

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

__all__ = ["HOSTILE", "damaged_bytes", "damaged_json", "damaged_value", "json_text"]

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 255, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64, 10**30, 10**400),
    *(0.0, -0.0, 0.5, -1.5, 1e-320, 1e308, -1e308, float("nan"), float("inf"), -float("inf")),
    *("", " ", "0", "nan", "true", "none", "a\0b", "\ud800", "../../etc", "/", "🦜", "x" * 5000, "9" * 5000, "{{1/0}}"),
    *([], {}, [[]], [None], [0], [-1, 2**70], {"": None}, {"local": 1}, {"local": -1}, {"a": {"b": {"c": []}}}),
)
"""Values of every kind in places where some other kind is due."""

_WORDS = (b"\0", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"{", b"}", b"[", b'"', b"\\u", b"\\ud800", b"null", b"NaN")
_WORDS += (b"1e999", b"-", b"<|endoftext|>", b"\r\n", b"\n", b"\x7f\xff\xff\xff\xff\xff\xff\xff", b"9" * 5000)


def damaged_bytes(random: Random, raw: bytes) -> bytes:
    """Some bytes changed, cut off, put in, taken out or repeated, once or a few times."""
    damaged = bytearray(raw)
    for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
        at = _place(random, len(damaged))
        length = random.choice((1, 2, 8, 64, 1000))
        match random.randrange(7):
            case 0:
                damaged[at : at + 1] = bytes([(damaged[at] if at < len(damaged) else 0) ^ (1 << random.randrange(8))])
            case 1:
                del damaged[at:]
            case 2:
                del damaged[at : at + length]
            case 3:
                damaged[at:at] = damaged[at : at + length]
            case 4:
                damaged[at:at] = random.choice(_WORDS)
            case 5:
                word = random.choice(_WORDS)
                damaged[at : at + len(word)] = word
            case 6:
                damaged[at : at + length] = random.randbytes(length)
    return bytes(damaged)


def _place(random: Random, length: int) -> int:
    """A place in a file; half of them in its head, where formats keep what they live by."""
    return random.randrange((min(length, 64) if random.random() < 0.5 else length) + 1)


def damaged_value(random: Random, value: Any) -> Any:
    """A copy of a JSON value in which one or a few parts are replaced, removed, repeated or renamed."""
    damaged = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        places = list(_places(damaged))
        if not places:
            return random.choice(HOSTILE)
        holder, key = random.choice(places)
        match random.randrange(6):
            case 0 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 0 | 1:
                del holder[key]
            case 2 if isinstance(holder, dict):
                holder[random.choice((str(key)[:-1], str(key).upper(), "", "auto_map"))] = holder.pop(key)
            case 3:
                other, name = random.choice(places)
                holder[key] = copy.deepcopy(other[name]) if _has(other, name) else None
            case _:
                holder[key] = copy.deepcopy(random.choice(HOSTILE))
    return damaged


def json_text(value: Any) -> bytes:
    """A value as JSON; half of a surrogate pair stays written as an escape."""
    return json.dumps(value).encode("utf-8")


def damaged_json(random: Random, raw: bytes) -> bytes:
    """Damage to the values of a JSON text, or to its bytes, or a text that nests too deep."""
    chance = random.random()
    if chance < 0.02:
        return random.choice((b"[", b'{"a":')) * 100_000
    if chance < 0.2:
        return damaged_bytes(random, raw)
    return json_text(damaged_value(random, json.loads(raw)))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of a value, as what holds it and its key there."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)
