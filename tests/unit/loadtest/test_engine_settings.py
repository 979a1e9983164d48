"""Settings that do not fit together are told before anything starts."""

import pytest

from loadtest.engine_settings import Plant, Settings


def test_the_cache_is_what_fits_beside_the_weights() -> None:
    plant = Plant.build(Settings(model="llama-3.1-8b", gpu="h100-sxm"))
    assert 20_000 < plant.limits.blocks < 27_000
    two = Plant.build(Settings(model="llama-3.1-8b", gpu="h100-sxm", tensor_parallel_size=2))
    assert two.limits.blocks > 2 * plant.limits.blocks


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "no-such-model"}, "no model named 'no-such-model'"),
        ({"gpu": "abacus"}, "no GPU named 'abacus'"),
        ({"num_gpu_blocks_override": 10}, "does not fit the KV cache of 160 tokens"),
        ({"model": "llama-3.1-70b"}, "tensor-parallel-size"),
    ],
)
def test_what_cannot_work_is_one_line(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        Plant.build(Settings.model_validate(changes))
    assert "\n" not in str(raised.value)


def test_the_served_name_defaults_to_the_model() -> None:
    assert Settings().served == "llama-3.1-8b"
    assert Settings(served_model_name="demo").served == "demo"
