"""What is known of chips, and what the device has the last word on."""

import re
from types import SimpleNamespace

import pytest
import torch

from tilekernels.chips import CHIPS, chip_by_name, chip_from_properties, chip_of

MI300X = SimpleNamespace(
    name="AMD Instinct MI300X", gcnArchName="gfx942:sramecc+:xnack-", multi_processor_count=304, warp_size=64
)
H200 = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    warp_size=32,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
)


def like(device: SimpleNamespace, **changes: object) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(device), **changes})


def test_the_table_is_keyed_by_architecture() -> None:
    assert set(CHIPS) == {"gfx942", "gfx90a", "gfx950", "sm_90", "cpu"}
    for arch, chip in CHIPS.items():
        assert chip.arch == arch
        assert chip_by_name(arch) is chip
        assert chip.lds_bytes <= chip.lds_bytes_per_cu


def test_the_table_agrees_with_the_devices_it_describes() -> None:
    assert chip_from_properties(MI300X, hip=True) == CHIPS["gfx942"]
    assert chip_from_properties(H200, hip=False) == CHIPS["sm_90"]


def test_an_mi308x_is_a_gfx942_with_80_compute_units_and_rates_of_its_own() -> None:
    chip = chip_from_properties(like(MI300X, name="AMD Instinct MI308X", multi_processor_count=80), hip=True)
    assert (chip.arch, chip.compute_units, chip.lds_bytes, chip.wavefront) == ("gfx942", 80, 65536, 64)
    assert chip.half_tflops is None
    assert chip.memory_tbytes is None


def test_an_h100_is_not_credited_with_the_memory_of_an_h200() -> None:
    chip = chip_from_properties(like(H200, name="NVIDIA H100 80GB HBM3"), hip=False)
    assert chip.arch == "sm_90"
    assert chip.memory_tbytes is None


def test_lds_of_gfx950_does_not_depend_on_the_driver() -> None:
    device = like(MI300X, name="AMD Instinct MI355X", gcnArchName="gfx950", multi_processor_count=256)
    assert chip_from_properties(device, hip=True).lds_bytes == 163840


@pytest.mark.parametrize(
    ("device", "hip", "arch"),
    [(like(MI300X, gcnArchName="gfx1100"), True, "gfx1100"), (like(H200, major=8), False, "sm_80")],
)
def test_an_unknown_chip_is_named_and_what_to_do_is_said(device: SimpleNamespace, hip: bool, arch: str) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(device.name)}.*{arch}.*gfx942.*tilekernels/chips.py"):
        chip_from_properties(device, hip=hip)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'gfx9000' is not one of gfx942, gfx90a, gfx950, sm_90, cpu"):
        chip_by_name("gfx9000")


def test_the_cpu_and_what_is_no_device_of_ours() -> None:
    assert chip_of("cpu") is CHIPS["cpu"]
    with pytest.raises(ValueError, match="device meta is not supported"):
        chip_of("meta")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA or ROCm device")
def test_this_device_is_known() -> None:
    chip, device = chip_of(), torch.cuda.get_device_properties("cuda")
    assert chip.name == device.name
    assert chip.compute_units == device.multi_processor_count
