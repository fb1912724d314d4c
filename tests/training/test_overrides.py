"""``--set key=value`` gives values of the field's own type, or a sentence."""

import pytest

from sheafstate import SheafStateConfig
from sheafstate.errors import InputError
from sheafstate.training import parse_overrides

DEFAULTS = {
    "window": 32,
    "rope_theta": 1e4,
    "output_gate": True,
    "gluing": "sheaf",
    "heads": {"local": 2, "topic": 1},
    "pad_token_id": None,
}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["window=16"], {"window": 16}),
        (["window=16", "window=8"], {"window": 8}),
        (["rope_theta=500"], {"rope_theta": 500.0}),
        (["rope_theta=1e-3"], {"rope_theta": 1e-3}),
        (["output_gate=false"], {"output_gate": False}),
        (["output_gate=True"], {"output_gate": True}),
        (["gluing=plain"], {"gluing": "plain"}),
        (["gluing=3"], {"gluing": "3"}),
        (["gluing=a=b"], {"gluing": "a=b"}),
        (["pad_token_id=3"], {"pad_token_id": 3}),
        (["heads.local=4"], {"heads": {"local": 4, "topic": 1}}),
        (["heads.local=4", "heads.memory=1"], {"heads": {"local": 4, "topic": 1, "memory": 1}}),
        (['heads={"local": 1}'], {"heads": {"local": 1}}),
        (['heads={"local": 1}', "heads.topic=3"], {"heads": {"local": 1, "topic": 3}}),
    ],
)
def test_values_have_the_fields_type(settings: list[str], expected: dict) -> None:
    found = parse_overrides(settings, DEFAULTS)
    assert found == expected
    assert [type(value) for value in found.values()] == [type(value) for value in expected.values()]
    assert DEFAULTS["heads"] == {"local": 2, "topic": 1}


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("window", "key=value"),
        ("=3", "key=value"),
        ("windw=3", "did you mean 'window'"),
        ("zzz=3", "no field 'zzz'$"),
        ("window=wide", "a whole number, not 'wide'"),
        ("window=1.5", "a whole number"),
        ("window=true", "a whole number"),
        ("output_gate=1", "true or false"),
        ("rope_theta=big", "a number"),
        ("window.local=3", "window is one value"),
        ("heads.local=x", "heads.local must be a whole number"),
        ("heads=3", "a table"),
    ],
)
def test_bad_settings_are_refused(setting: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_overrides([setting], DEFAULTS)


def test_settings_reach_the_configuration() -> None:
    found = parse_overrides(["heads.local=7", "window=8"], SheafStateConfig.from_preset("tiny").to_dict())
    config = SheafStateConfig.from_preset("tiny", **found)
    assert (config.heads["local"], config.heads["retrieval"], config.window) == (7, 2, 8)
