"""Laws 7 and 8: gluing fixes compatible sections; nothing jumps where h crosses the border of an address."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.nn.gluing import Gluing, compatibilities, normalize_section
from sheafstate.nn.records import Section
from sheafstate.patches import PatchType
from tests.variants import VARIANTS, examples, make_config, make_model, tokens


@given(heads=st.integers(1, 6), width=st.integers(1, 6))
def test_equal_restrictions_leave_the_licence(heads, width) -> None:
    section = torch.randn(2, 3, 1, width, dtype=torch.float64).expand(-1, -1, heads, -1)
    mass, licence = (torch.rand(2, 3, heads, dtype=torch.float64) for _ in range(2))
    strictness = torch.rand(heads, dtype=torch.float64) * 10
    compatibility, residual = compatibilities(section, mass, licence, strictness)
    torch.testing.assert_close(compatibility, licence, rtol=0, atol=1e-12)
    assert residual.max() <= 1e-12


def test_a_section_that_disagrees_is_held_back() -> None:
    section = torch.ones(1, 4, 5, dtype=torch.float64)
    section[0, 3] = -1
    one = torch.ones(1, 4, dtype=torch.float64)
    compatibility, residual = compatibilities(section, one, one, torch.ones(4, dtype=torch.float64))
    assert residual[0].tolist() == pytest.approx([0.25, 0.25, 0.25, 2.25])
    assert compatibility[0].tolist() == pytest.approx(torch.exp(-residual[0]).tolist())


def test_a_section_without_mass_has_no_vote() -> None:
    section = torch.randn(2, 4, 5, dtype=torch.float64)
    mass = torch.tensor([[1.0, 1.0, 1.0, 0.0]] * 2, dtype=torch.float64)
    licence, strictness = torch.rand(2, 4, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    four, errors = compatibilities(section, mass, licence, strictness)
    three, fewer = compatibilities(section[:, :3], mass[:, :3], licence[:, :3], strictness[:3])
    torch.testing.assert_close(four[:, :3], three)
    torch.testing.assert_close(errors[:, :3], fewer)


@given(st.floats(1e-9, 1.0))
def test_normalising_keeps_the_mass(mass) -> None:
    values = torch.randn(1, 2, 8, dtype=torch.float64) * mass
    y = normalize_section(values, torch.full((1, 2), mass, dtype=torch.float64))
    assert y.square().mean(-1).sqrt().flatten().tolist() == pytest.approx([mass, mass], rel=1e-3)
    assert normalize_section(values, torch.zeros(1, 2, dtype=torch.float64)).abs().max() == 0


def test_a_head_without_mass_has_no_vote() -> None:
    """Sections of mass 0 do not reach the proposed global section, so that the others' compatibility ignores them."""
    config = make_config("mixture", num_layers=1)
    gluing = Gluing(config).double()
    with torch.no_grad():
        for name, value in gluing.initial_values().items():
            getattr(gluing, name).copy_(value)
        gluing.out_proj.weight.copy_(gluing.out_proj.initial_values()["weight"])
    channels = {name: torch.randn(1, 4, width, dtype=torch.float64) for name, width in gluing.channels().items()}

    def glue(seed: int) -> torch.Tensor:
        generator, sections = torch.Generator().manual_seed(7), {}
        for kind, heads in config.covers.items():
            values = torch.randn(1, 4, heads, config.d_head, dtype=torch.float64, generator=generator)
            mass = None
            if kind is PatchType.RETRIEVAL:
                mass = torch.zeros(1, 4, heads, dtype=torch.float64)
                values = values * seed
            sections[kind] = Section(values, mass)
        return gluing(sections, channels)[1].compatibility.split(list(config.covers.values()), -1)

    changed = [kind for kind, a, b in zip(config.covers, glue(1), glue(5), strict=True) if not torch.equal(a, b)]
    assert changed in ([], [PatchType.RETRIEVAL])


@pytest.mark.parametrize("name", [n for n in VARIANTS if n != "complete"])
@examples(3)
@given(seed=st.integers(0, 1000), at=st.integers(0, 15))
def test_nothing_jumps_along_a_line(name, seed, at) -> None:
    """Halve an interval 48 times towards the larger change; what is left of the change would be a jump."""
    model = make_model(name, num_experts=0, retrieval_degree=32, num_anchors=32)
    generator = torch.Generator().manual_seed(seed)
    x = model.get_input_embeddings()(tokens(1, 20, seed)).detach()
    direction = torch.randn(x.shape[-1], dtype=torch.float64, generator=generator) * 2

    def output(s: float) -> torch.Tensor:
        moved = x.clone()
        moved[0, at] += s * direction
        with torch.no_grad():
            return model(inputs_embeds=moved, use_cache=False).logits

    low, high = 0.0, 1.0
    ends = [output(low), output(high)]
    whole = (ends[1] - ends[0]).abs().max()
    for _ in range(48):
        middle = (low + high) / 2
        between = output(middle)
        if (between - ends[0]).abs().max() >= (ends[1] - between).abs().max():
            high, ends = middle, [ends[0], between]
        else:
            low, ends = middle, [between, ends[1]]
    assert whole > 1e-3
    assert (ends[1] - ends[0]).abs().max() <= 1e-4 * max(1.0, whole.item())
