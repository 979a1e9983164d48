"""Arrays of any JSON cut to their first and last items: still JSON, within the budget, and the same again."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.tokens import counter
from policies.conversation import Message
from policies.json_rows import MIN_ITEMS
from policies.trim_search import fit
from policies.trimmed_text import render

COUNT = counter()

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
arrays = st.lists(values, min_size=MIN_ITEMS, max_size=30).map(lambda items: items * 4)


@st.composite
def texts(draw: st.DrawFn) -> str:
    value: Any = draw(arrays)
    for name in draw(st.lists(st.sampled_from(["data", "rows", '"', "é"]), max_size=3)):
        value = {"a": draw(scalars), name: value, "z": draw(scalars)}
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    return json.dumps(
        value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 3])), separators=separators
    )


@given(texts(), st.integers(20, 600), st.floats(0, 1), st.sampled_from(["", "kvo_" + "b" * 16]))
def test_it_stays_json_fits_and_is_made_again(text: str, budget: int, head_share: float, handle: str) -> None:
    message = Message("tool", b"", COUNT(text) + 4, text)
    found = fit(message, budget, head_share, COUNT, handle)
    if found is None:
        return
    assert COUNT(found.text) <= found.tokens <= budget
    assert found.text == render(text, found.trim)
    json.loads(found.text).__repr__().encode("utf-8", "surrogatepass")
