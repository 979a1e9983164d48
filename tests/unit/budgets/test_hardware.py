"""Peaks by format, and devices in parallel."""

import pytest

from budgets.geometry import WeightDtype
from budgets.hardware import Hardware

GPU = Hardware(
    name="test",
    bf16_flops=100.0,
    fp8_flops=200.0,
    fp4_flops=400.0,
    memory_bytes=10,
    memory_bytes_per_second=5.0,
)


@pytest.mark.parametrize(("dtype", "flops"), [("fp32", 100), ("bf16", 100), ("fp8", 200), ("fp4", 400)])
def test_peak_by_format(dtype: WeightDtype, flops: float) -> None:
    assert GPU.flops(dtype) == flops


def test_a_format_without_units_of_its_own_runs_at_the_next_wider_one() -> None:
    old = GPU.model_copy(update={"fp8_flops": None, "fp4_flops": None})
    assert old.flops("fp8") == old.flops("fp4") == 100
    assert GPU.model_copy(update={"fp4_flops": None}).flops("fp4") == 200


def test_devices_in_parallel_add_up() -> None:
    four = GPU.scaled(4)
    assert four.flops("bf16") == 400
    assert four.total_memory_bytes == 40
    assert four.total_memory_bytes_per_second == 20
    assert four.scaled(1) == GPU


def test_no_device_is_no_hardware() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        GPU.scaled(0)
