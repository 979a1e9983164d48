"""The closed forms equal the sums over single steps, for every kind of layer."""

from hypothesis import given
from hypothesis import strategies as st

from budgets.cost import attention_flops, capped_sum, kv_byte_seconds, kv_read_bytes, weight_read_bytes
from budgets.geometry import Attention, Geometry, Recurrent

small = st.integers(1, 8)
caps = st.none() | st.integers(1, 50)

attentions = st.builds(
    Attention,
    layers=small,
    heads=small,
    kv_heads=small,
    head_dim=small,
    value_dim=st.none() | small,
    latent_width=st.none() | small,
    window_tokens=caps,
    top_k_tokens=caps,
    index_bytes=st.integers(0, 9),
)
states = st.builds(Recurrent, layers=small, heads=small, key_dim=small, value_dim=small, conv_width=st.integers(0, 9))
geometries = st.builds(
    Geometry,
    attention=st.lists(attentions, min_size=1, max_size=3).map(tuple),
    recurrent=st.lists(states, max_size=2).map(tuple),
    hidden=small,
    total_params=st.just(1_000),
    active_params=st.just(1_000),
    kv_dtype=st.sampled_from(["bf16", "fp8", "nvfp4"]),
)


def read_in_one_step(geometry: Geometry, context: int) -> int:
    """What a single decode step reads, layer by layer."""
    read = sum(state.state_bytes for state in geometry.recurrent)
    for group in geometry.attention:
        kept = min(context, group.window_tokens) if group.window_tokens else context
        chosen = min(kept, group.top_k_tokens) if group.top_k_tokens else kept
        read += chosen * group.kv_bytes(geometry.kv_dtype) + kept * group.layers * group.index_bytes
    return read


@given(geometries, st.integers(0, 200), st.integers(0, 60))
def test_kv_read_bytes_is_the_sum_over_steps(geometry: Geometry, prompt: int, generated: int) -> None:
    by_step = sum(read_in_one_step(geometry, prompt + step) for step in range(generated))
    assert kv_read_bytes(geometry, prompt, generated) == by_step


@given(geometries, st.integers(0, 200), st.integers(0, 40), st.integers(0, 40))
def test_kv_read_bytes_adds_up_over_parts_of_a_reply(geometry: Geometry, prompt: int, first: int, then: int) -> None:
    parts = kv_read_bytes(geometry, prompt, first) + kv_read_bytes(geometry, prompt + first, then)
    assert parts == kv_read_bytes(geometry, prompt, first + then)


@given(st.integers(0, 99), st.integers(0, 99), caps)
def test_capped_sum_is_the_sum(first: int, count: int, cap: int | None) -> None:
    limit = first + count if cap is None else cap
    assert capped_sum(first, count, cap) == sum(min(first + step, limit) for step in range(count))


@given(geometries, st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_prefill_in_chunks_costs_what_it_costs_at_once(geometry: Geometry, cached: int, one: int, two: int) -> None:
    chunks = attention_flops(geometry, one, cached) + attention_flops(geometry, two, cached + one)
    assert chunks == attention_flops(geometry, one + two, cached)


@given(geometries, st.integers(0, 200), st.integers(1, 40))
def test_held_bytes_are_the_mean_over_the_growth(geometry: Geometry, context: int, new: int) -> None:
    mean = sum(geometry.kept_bytes(context + step) for step in range(new)) / new
    assert abs(kv_byte_seconds(geometry, context, new, 1.0) - mean) <= 1e-9 * mean


@given(st.integers(2, 256), st.data())
def test_a_larger_batch_never_reads_fewer_weights(experts: int, data: st.DataObject) -> None:
    geometry = Geometry(
        attention=(Attention(layers=1, heads=1, head_dim=1),),
        hidden=1,
        total_params=10**9,
        active_params=10**8,
        experts=experts,
        experts_per_token=data.draw(st.integers(1, experts)),
    )
    reads = [weight_read_bytes(geometry, batch) for batch in (1, 2, 8, 64, 4096)]
    assert reads == sorted(reads) and reads[0] == 2 * 10**8 and reads[-1] <= 2 * 10**9
