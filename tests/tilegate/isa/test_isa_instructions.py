"""Classes, widths and cycles of instructions."""

from __future__ import annotations

import pytest
from isa_fixtures import listing

from tilegate.isa.chips import CHIPS
from tilegate.isa.instructions import Kind, cycles, kind_of, matrix_operations


@pytest.mark.parametrize(
    ("mnemonic", "operands", "kind"),
    [
        ("v_mfma_f32_16x16x16_f16", "", Kind("matrix")),
        ("v_mfma_f32_32x32x8bf16_1k", "", Kind("matrix")),
        ("v_fma_f32", "", Kind("vector")),
        ("v_pk_mul_f32", "", Kind("vector")),
        ("v_exp_f32_e32", "", Kind("transcendental")),
        ("v_rcp_iflag_f32_e32", "", Kind("transcendental")),
        ("v_expand", "", Kind("vector")),
        ("v_accvgpr_write_b32", "", Kind("agpr_copy")),
        ("s_add_i32", "", Kind("scalar")),
        ("s_waitcnt", "vmcnt(0)", Kind("wait")),
        ("s_barrier", "", Kind("barrier")),
        ("s_cbranch_execz", ".LBB0_1", Kind("branch")),
        ("s_load_dwordx4", "", Kind("scalar_load")),
        ("s_nop", "1", Kind("other")),
        ("ds_read_u16", "", Kind("lds_read", 2)),
        ("ds_read_u16_d16_hi", "", Kind("lds_read", 2)),
        ("ds_read_i8", "", Kind("lds_read", 1)),
        ("ds_read_b32", "", Kind("lds_read", 4)),
        ("ds_read2_b32", "", Kind("lds_read", 8)),
        ("ds_read2st64_b64", "", Kind("lds_read", 16)),
        ("ds_read_b128", "", Kind("lds_read", 16)),
        ("ds_read_b64_tr_b16", "", Kind("lds_read", 8)),
        ("ds_write_b16", "", Kind("lds_write", 2)),
        ("ds_write_b8_d16_hi", "", Kind("lds_write", 1)),
        ("ds_write2_b64", "", Kind("lds_write", 16)),
        ("ds_bpermute_b32", "", Kind("lds_permute", 4)),
        ("ds_add_rtn_u32", "", Kind("lds_atomic", 4)),
        ("global_load_dwordx4", "v[0:3], v[4:5], off", Kind("global_load", 16)),
        ("global_load_ushort", "", Kind("global_load", 2)),
        ("global_load_short_d16_hi", "", Kind("global_load", 2)),
        ("global_load_ubyte", "", Kind("global_load", 1)),
        ("global_load_lds_dword", "", Kind("global_load", 4)),
        ("global_store_dwordx2", "", Kind("global_store", 8)),
        ("global_atomic_add_f32", "", Kind("global_atomic", 4)),
        ("flat_load_dword", "", Kind("global_load", 4)),
        ("buffer_load_dwordx4", "v[0:3], v4, s[4:7], 0 offen", Kind("global_load", 16)),
        ("buffer_load_dword", "v1, off, s[0:3], 0 offset:4", Kind("scratch", 4)),
        ("buffer_store_dword", "v1, off, s[8:11], 0 offset:1064", Kind("scratch", 4)),
        ("buffer_wbl2", "sc1", Kind("other")),
        ("scratch_store_dwordx2", "off, v[2:3], off", Kind("scratch", 8)),
    ],
)
def test_kind(mnemonic: str, operands: str, kind: Kind) -> None:
    assert kind_of(mnemonic, operands) == kind


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "gfx950"])
def test_nothing_but_idling_is_left_unclassified(arch: str) -> None:
    unknown = {i.mnemonic for i in listing(f"loop-{arch}.s").instructions if kind_of(i.mnemonic).name == "other"}
    assert unknown <= {"s_nop"}


@pytest.mark.parametrize(
    ("mnemonic", "operations"),
    [
        ("v_mfma_f32_16x16x16_f16", 8192),
        ("v_mfma_f32_16x16x16f16", 8192),
        ("v_mfma_f32_16x16x16bf16_1k", 8192),
        ("v_mfma_f32_32x32x8_bf16", 16384),
        ("v_mfma_f32_32x32x4_2b_bf16", 16384),
        ("v_mfma_f32_32x32x4bf16_1k", 16384),
        ("v_mfma_f32_32x32x4bf16", 8192),
        ("v_mfma_f32_16x16x4f32", 2048),
        ("v_mfma_f32_4x4x4_16b_f16", 2048),
        ("v_mfma_f32_16x16x32_fp8_fp8", 16384),
        ("v_mfma_scale_f32_16x16x128_f8f6f4", 65536),
        ("v_mfma_f64_16x16x4_f64", 2048),
        ("v_fma_f32", 0),
    ],
)
def test_matrix_operations(mnemonic: str, operations: int) -> None:
    assert matrix_operations(mnemonic) == operations


# Where llvm-mca 19 models the instruction, its passes times four.
@pytest.mark.parametrize(
    ("arch", "mnemonic", "unit", "expected"),
    [
        ("gfx942", "v_mfma_f32_16x16x16_f16", "matrix", 16),
        ("gfx942", "v_mfma_f32_32x32x8_f16", "matrix", 32),
        ("gfx90a", "v_mfma_f32_16x16x16f16", "matrix", 32),
        ("gfx90a", "v_mfma_f32_16x16x16bf16_1k", "matrix", 32),
        ("gfx90a", "v_mfma_f32_16x16x8bf16", "matrix", 32),
        ("gfx942", "v_mfma_f32_16x16x32_fp8_fp8", "matrix", 16),
        ("gfx950", "v_mfma_f32_16x16x32_f16", "matrix", 16),
        ("gfx950", "v_mfma_f32_16x16x16_f16", "matrix", 16),
        ("gfx942", "v_fma_f32", "vector", 4),
        ("gfx942", "v_accvgpr_read_b32", "vector", 4),
        ("gfx942", "v_exp_f32_e32", "vector", 16),
        ("gfx942", "v_mul_lo_u32", "vector", 16),
        ("gfx942", "ds_read_b128", "lds", 8),
        ("gfx942", "ds_read_u16", "lds", 2),
        ("gfx942", "global_load_dwordx4", "memory", 16),
    ],
)
def test_cycles(arch: str, mnemonic: str, unit: str, expected: float) -> None:
    assert cycles(mnemonic, kind_of(mnemonic), CHIPS[arch]) == (unit, expected)


@pytest.mark.parametrize("mnemonic", ["s_add_i32", "s_waitcnt", "s_barrier", "v_smfmac_f32_16x16x32_f16"])
def test_what_is_not_modelled_takes_no_cycles(mnemonic: str) -> None:
    assert cycles(mnemonic, kind_of(mnemonic), CHIPS["gfx942"]) is None
