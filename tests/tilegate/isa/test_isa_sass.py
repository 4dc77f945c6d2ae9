"""Instructions of CUDA kernels: reading nvdisasm's listing, finding the main loop, counting by class."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilegate.isa import ptxas, sass
from tilegate.isa.explain import explain
from tilegate.isa.toolchain import ToolchainError
from tilegate.lowering.store import Store
from tilegate.protocol import Artifact
from tilegate.tools import compiler_path

DATA = Path(__file__).parents[2] / "data" / "isa"

# The shape of a Hopper kernel: a waiting loop behind the end jumps back into the main one. Cut from nvdisasm 13.0.
LISTING = """\
//--------------------- .text.other --------------------------
.text.other:
        /*0000*/                   EXIT ;
//--------------------- .text.attention --------------------------
.text.attention:
.L_x_0:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/               @P0 BRA `(.L_x_9) ;
.L_x_14:
.L_x_30:
        /*0020*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR12], RZ, !UPT ;
        /*0030*/                   FFMA R3, R4, R5, -R6 ;
        /*0040*/                   MUFU.EX2 R7, R3 ;
        /*0050*/                   F2FP.BF16.F32.PACK_AB R8, R9, R7 ;
        /*0060*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*0070*/                   LDL R10, [R1+0x4] ;
        /*0080*/              @!UP1 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0090*/              @!P0 BRA `(.L_x_14) ;
.L_x_9:
        /*00a0*/                   STG.E desc[UR6][R2.64], R7 ;
        /*00b0*/                   EXIT ;
.L_x_11:
        /*00c0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R0+URZ], R3 ;
        /*00d0*/              @!P0 BRA `(.L_x_11) ;
        /*00e0*/                   BRA `(.L_x_30) ;
.L_x_71:
        /*00f0*/                   BRA `(.L_x_71);
"""


def test_the_listing_is_read() -> None:
    found = sass.parse(LISTING, "attention")
    assert [each.opcode for each in found][:4] == ["LDC", "BRA", "HGMMA", "FFMA"]
    assert found[1] == sass.Instruction(0x10, "BRA", 0xA0)
    assert sass.parse(LISTING, "other") == [sass.Instruction(0, "EXIT")]
    assert sass.parse("", "attention") == []


def test_the_main_loop_is_the_one_with_the_matrix_instructions() -> None:
    loop = sass.main_loop(sass.parse(LISTING, "attention"))
    assert (loop[0].address, loop[-1].address) == (0x20, 0x90)
    counts = {name: count for name, count in sass.counts(loop).items() if count}
    assert counts == {
        "matrix": 1,
        "exp2, reciprocal and the like": 1,
        "fp32 arithmetic": 1,
        "conversions": 1,
        "spills (local memory)": 1,
        "waits and barriers": 1,
        "branches": 1,
        sass.REST: 1,
    }


def test_without_matrix_instructions_the_longest_innermost_loop_counts() -> None:
    loop = sass.main_loop(sass.parse(LISTING.replace("HGMMA", "FADD"), "attention"))
    assert loop[0].address == 0x20
    assert sass.main_loop(sass.parse(LISTING, "other")) == [sass.Instruction(0, "EXIT")]


def test_no_opcode_has_two_classes() -> None:
    opcodes = [opcode for group in sass.CLASSES.values() for opcode in group]
    assert len(opcodes) == len(set(opcodes))


@pytest.mark.parametrize(
    ("launch", "flags"),
    [
        ({}, []),
        ({"pass_configs": {"tl.enable_fast_math": True}}, ["--use_fast_math"]),
        (
            {"pass_configs": {"tl.enable_fast_math": False}, "compile_flags": ["-maxrregcount 64"]},
            ["-maxrregcount", "64"],
        ),
        ({"pass_configs": {"tl.device_compile_flags": "-G -lineinfo"}}, ["-G", "-lineinfo"]),
    ],
)
def test_a_kernel_is_compiled_as_tilelang_compiles_it(launch: dict[str, object], flags: list[str]) -> None:
    assert ptxas.flags_of(Artifact("k", "", launch)) == flags


def _has_nvdisasm() -> bool:
    try:
        return bool(sass.disassembler())
    except ToolchainError:
        return False


SOFTMAX = """
extern "C" __global__ void kernel(const float *s, float *p, float m, float scale, int n) {
  float sum = 0;
  #pragma unroll 8
  for (int i = threadIdx.x; i < n; i += 128) sum += exp2f(EXPRESSION);
  p[threadIdx.x] = sum;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(compiler_path("cuda") is None, reason="nvcc is not installed; it comes with the CUDA toolkit")
@pytest.mark.skipif(not _has_nvdisasm(), reason=f"nvdisasm is not installed: {sass.INSTALL}")
def test_a_lost_fused_multiply_add_is_named(store: Store) -> None:
    """+2.4 to +3.1 % on an H200: neither registers nor spills show it."""
    launch = {"pass_configs": {"tl.enable_fast_math": True}}
    fused, not_fused = (
        Artifact("kernel", SOFTMAX.replace("EXPRESSION", expression), launch)
        for expression in ("s[i] * scale - m * scale", "(s[i] - m) * scale")
    )
    sentences = explain(fused, not_fused, "sm_90", store)
    (named,) = [sentence for sentence in sentences if "fp32 arithmetic" in sentence]
    before, after = (int(number) for number in named.rpartition(": ")[2].split(" -> "))
    assert after > before


@pytest.fixture
def compiled_before(monkeypatch: pytest.MonkeyPatch) -> tuple[Artifact, Artifact]:
    """SOFTMAX with and without the fused multiply-add as nvcc and nvdisasm 13.5 gave them for sm_90a, kept in tests/data/isa."""

    def kept(source: str, *_: object) -> tuple[str, str]:
        stem = DATA / f"exp2-{source}"
        return stem.with_suffix(".ptxas").read_text(), stem.with_suffix(".sass").read_text()

    monkeypatch.setattr(ptxas, "compiler_path", lambda target: "nvcc")
    monkeypatch.setattr(ptxas, "tool_version", lambda path: "13.5")
    monkeypatch.setattr(ptxas, "_disassembler_version", lambda: "13.5")
    monkeypatch.setattr(ptxas, "_compile", kept)
    return Artifact("kernel", "fused", {}), Artifact("kernel", "unfused", {})


def test_a_lost_fused_multiply_add_is_a_cause_in_one_direction_alone(
    compiled_before: tuple[Artifact, Artifact], store: Store
) -> None:
    fused, unfused = compiled_before
    assert explain(fused, unfused, "sm_90", store) == ["instructions in the main loop, fp32 arithmetic: 16 -> 24"]
    back = explain(unfused, fused, "sm_90", store)
    assert back == ["registers a thread 20 -> 26"]  # fewer instructions are no reason to be slower
    assert "instructions in the main loop, fp32 arithmetic: 24 -> 16" in explain(
        unfused, fused, "sm_90", store, slower=False
    )
