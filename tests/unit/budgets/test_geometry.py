"""Sizes of hand-made geometries, and geometries that make no sense."""

import pytest
from pydantic import ValidationError

from budgets.geometry import Attention, Geometry, KvDtype, Recurrent


def grouped(**fields: int) -> Attention:
    return Attention.model_validate({"layers": 4, "heads": 8, "kv_heads": 2, "head_dim": 64, **fields})


def dense(*attention: Attention, recurrent: tuple[Recurrent, ...] = (), kv_dtype: KvDtype = "bf16") -> Geometry:
    return Geometry(
        attention=attention,
        recurrent=recurrent,
        hidden=512,
        total_params=1_000_000,
        active_params=1_000_000,
        kv_dtype=kv_dtype,
    )


@pytest.mark.parametrize(("dtype", "expected"), [("bf16", 2048), ("fp8", 1024), ("nvfp4", 576)])
def test_bytes_per_token_in_each_format(dtype: KvDtype, expected: int) -> None:
    assert dense(grouped(), kv_dtype=dtype).kv_bytes_per_token == expected  # 4 layers x 2 x 2 heads x 64 values


def test_a_latent_cache_replaces_keys_and_values() -> None:
    latent = Attention(layers=61, heads=128, head_dim=192, value_dim=128, latent_width=576)
    assert dense(latent).kv_bytes_per_token == 61 * 576 * 2
    assert dense(latent).kv_heads == 1
    assert latent.score_width == 320


def test_an_odd_width_is_rounded_up_to_whole_bytes() -> None:
    odd = Attention(layers=3, heads=1, head_dim=1)
    assert odd.kv_bytes("nvfp4") == 3 * 2  # two values of 9/16 byte are 1.125 bytes


def test_windows_grow_until_they_are_full() -> None:
    geometry = dense(grouped(), grouped(window_tokens=100))
    assert geometry.kv_bytes_per_token == 2048
    assert geometry.constant_bytes == 100 * 2048
    assert geometry.kept_bytes(40) == 40 * 4096
    assert geometry.kept_bytes(1000) == 1000 * 2048 + 100 * 2048


def test_recurrent_state_is_constant() -> None:
    state = Recurrent(layers=2, heads=4, key_dim=8, value_dim=16, conv_width=32)
    geometry = dense(grouped(), recurrent=(state,))
    assert geometry.state_bytes == 2 * (4 * 8 * 16 * 4 + 32 * 3 * 2)
    assert geometry.constant_bytes == geometry.state_bytes == geometry.kept_bytes(0)
    assert geometry.layers == 6


def test_an_index_is_kept_for_every_token_and_the_choice_is_read() -> None:
    sparse = grouped(top_k_tokens=16, index_bytes=132)
    assert dense(sparse).kv_bytes_per_token == 2048 + 4 * 132
    assert sparse.read_cap_tokens == 16
    assert grouped(top_k_tokens=16, window_tokens=8).read_cap_tokens == 8
    assert grouped().read_cap_tokens is None


def test_other_formats_make_another_geometry() -> None:
    geometry = dense(grouped())
    assert geometry.with_dtypes(kv="fp8").kv_bytes_per_token == 1024
    assert geometry.with_dtypes(weights="fp8").weight_bytes() == 1_000_000
    assert geometry.with_dtypes() == geometry


def test_other_formats_are_read_in_their_own_size_whatever_was_asked_before() -> None:
    geometry = Geometry(
        attention=(Attention(layers=2, heads=4, head_dim=8),), hidden=8, total_params=1, active_params=1
    )
    assert (geometry.reads, geometry.grows) == (((64, None),), ((64, None),))
    halved = geometry.with_dtypes(kv="fp8")
    assert (halved.reads, halved.grows, halved.new_token_bytes) == (((32, None),), ((32, None),), 32)


def test_a_dense_model_is_all_active() -> None:
    geometry = Geometry.model_validate(
        {"hidden": 8, "total_params": 100, "attention": [{"layers": 1, "heads": 1, "head_dim": 8}]}
    )
    assert geometry.active_params == 100


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"attention": []}, "at least one group"),
        ({"active_params": 101}, "above total_params"),
        ({"active_params": 50}, "needs experts"),
        ({"experts": 4}, "go together"),
        ({"experts": 4, "experts_per_token": 5}, "above experts"),
        ({"hidden": 0}, "greater than 0"),
        ({"layers": 3}, "Extra inputs"),
    ],
)
def test_a_geometry_that_makes_no_sense(fields: dict[str, object], expected: str) -> None:
    right = {"hidden": 8, "total_params": 100, "attention": [{"layers": 1, "heads": 1, "head_dim": 8}]}
    with pytest.raises(ValidationError, match=expected):
        Geometry.model_validate({**right, **fields})
