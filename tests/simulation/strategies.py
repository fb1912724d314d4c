"""Small sequences of every kind."""

from hypothesis import strategies as st

from sheafstate.simulation import Budget, Rates

NONE = st.just(0.0)
SHARE = st.sampled_from([0.0, 0.02, 0.1, 0.2])
LENGTHS = st.one_of(st.integers(2, 40), st.integers(41, 600))
SEEDS = st.integers(0, 2**32)


@st.composite
def rates(draw, noise: st.SearchStrategy[float] = NONE) -> Rates:
    span = draw(st.integers(1, 6))
    preamble = draw(st.integers(0, 30))
    return Rates(
        local_links=draw(st.integers(0, span)),
        local_span=span,
        preamble=preamble,
        instructions=draw(st.integers(0, min(preamble, 6))),
        instruction_references=draw(SHARE),
        topic_anchors=draw(SHARE),
        live_topics=draw(st.integers(1, 5)),
        topic_references=draw(SHARE),
        mentions=draw(SHARE),
        entities=draw(st.integers(1, 8)),
        entity_skew=draw(st.sampled_from([0.0, 1.0, 3.0])),
        recurrence_depth=draw(st.integers(1, 4)),
        recurrence_decay=draw(st.sampled_from([0.0, 0.5, 1.0])),
        hidden_marks=draw(noise),
        false_marks=draw(noise),
    )


budgets = st.builds(
    Budget,
    window=st.integers(0, 6),
    kept_anchors=st.integers(0, 6),
    recent_anchors=st.integers(0, 8),
    recent_mentions=st.integers(0, 4),
)
