"""Real compilations. They need a clang that knows the chip, and are skipped, with the line that installs it, without."""

from __future__ import annotations

from pathlib import Path

import pytest
from isa_fixtures import DATA, artifact, toolchain_or_skip

from tilegate.isa.analysis import Analysis, analyse
from tilegate.isa.assembly import parse
from tilegate.isa.explain import explain
from tilegate.isa.figures import Figures
from tilegate.isa.toolchain import CompileError
from tilegate.lowering.store import Store
from tilegate.protocol import Artifact


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """What several tests look at is compiled once; a new chip or source is another key."""
    return Store(tmp_path_factory.mktemp("shared"))


def look(made: Artifact, arch: str, store: Store) -> Analysis:
    return analyse(made, toolchain_or_skip(arch), store)


def figures_or_fail(analysis: Analysis) -> Figures:
    assert analysis.figures is not None, analysis.problems
    return analysis.figures


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "gfx950"])
def test_the_loop_kernel_on_each_chip(arch: str, store: Store) -> None:
    found = look(artifact("loop", 256), arch, store)
    assert found.problems == ()
    figures = figures_or_fail(found)
    assert figures.lds_static == 4096
    assert figures.counts.matrix >= 1
    assert figures.loop is not None
    assert figures.loop.counts.lds_reads == {"8": 1, "2": 4}


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a"])
def test_a_kernel_that_spills(arch: str, shared: Store) -> None:
    found = look(artifact("spills", 1024), arch, shared)
    figures = figures_or_fail(found)
    assert figures.vgpr_spills > 100
    assert figures.scratch > 400
    assert figures.counts.scratch > 100
    assert figures.counts.spills > 100
    assert [problem.check for problem in found.problems] == ["spills"]
    assert not found.broken


# Reference values of a plain FlashAttention-2 forward kernel (see reference_kernel.py), recorded with clang 19 on gfx942.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("head_dim", "block_m", "lds", "vgprs", "agprs", "waves_by_registers"),
    [(128, 128, 67584, 178, 96, 1), (128, 64, 51200, 118, 48, 3), (64, 128, 34816, 141, 64, 2)],
)
def test_reference_values(  # noqa: PLR0917 - the columns above
    head_dim: int, block_m: int, lds: int, vgprs: int, agprs: int, waves_by_registers: int, shared: Store
) -> None:
    from reference_kernel import lower

    toolchain = toolchain_or_skip("gfx942")
    figures = figures_or_fail(analyse(lower("gfx942", head_dim, block_m), toolchain, shared))
    assert figures.lds == lds
    assert figures.counts.matrix == block_m * head_dim * 64 * 2 // (16 * 16 * 16) // 4
    assert figures.vgpr_spills == 0
    if "19.1" not in toolchain.version or toolchain.hipcc:
        pytest.skip(f"registers were recorded with clang 19.1, this is {toolchain.version}")
    assert (figures.vgprs, figures.agprs, figures.waves_by_registers) == (vgprs, agprs, waves_by_registers)


@pytest.mark.slow
def test_the_reference_kernel_with_q_in_lds_cannot_launch(shared: Store) -> None:
    from reference_kernel import lower

    found = look(lower("gfx942", 128, 128), "gfx942", shared)
    assert found.broken
    assert found.problems[0].check == "lds"
    assert "Q_tile 32,768 + K_tile 16,384 + V_tile 16,384" in found.problems[0].message
    assert "= 67,584 bytes of LDS, a workgroup has 65,536" in found.problems[0].message


def test_the_second_time_comes_from_the_cache(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain = toolchain_or_skip("gfx942")
    first = analyse(artifact("loop", 256), toolchain, store)

    def refuse(*_: object) -> str:
        raise AssertionError("compiled again")

    monkeypatch.setattr(type(toolchain), "compile", refuse)
    assert analyse(artifact("loop", 256), toolchain, store) == first
    with pytest.raises(AssertionError, match="compiled again"):
        analyse(Artifact("k", "// another\n" + artifact("loop", 256).source, {"block": 256}), toolchain, store)


def test_source_that_does_not_compile_is_broken(store: Store) -> None:
    found = look(Artifact("k", "#include <hip/hip_runtime.h>\nthis is no kernel;\n", {"block": 64}), "gfx942", store)
    assert found.broken
    assert "kernel.hip:2" in found.problems[0].message
    assert found.figures is None


def test_source_without_a_kernel_is_broken(store: Store) -> None:
    found = look(Artifact("k", "#include <hip/hip_runtime.h>\n", {"block": 64}), "gfx942", store)
    assert "no kernel" in found.problems[0].message


def test_a_library_function_that_is_not_there_is_an_error() -> None:
    source = '#include <hip/hip_runtime.h>\nextern "C" __device__ float __ocml_nothing_f32(float);\n'
    source += 'extern "C" __global__ void k(float *x) { *x = __ocml_nothing_f32(*x); }\n'
    with pytest.raises(CompileError, match=r"__ocml_nothing_f32.*apt-get install -y rocm-device-libs"):
        toolchain_or_skip("gfx942").compile(source)


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "gfx950"])
def test_every_tilelang_template_compiles_with_the_lean_headers(arch: str) -> None:
    headers = ["gemm", "copy", "reduce", "scan", "ldsm", "threadblock_swizzle", "debug", "hip_fp8", "atomic"]
    source = "#include <hip/hip_runtime.h>\n" + "".join(f"#include <tl_templates/hip/{name}.h>\n" for name in headers)
    source += """
extern "C" __global__ void k(float *x, half_t *h, bfloat16_t *b, fp8_e4_t *e, fp8_e5_t *f, double *d) {
  const int i = threadIdx.x + blockIdx.x * blockDim.x;
  x[i] = tl::AllReduce<tl::SumOp, 64, 1, 0>::run(x[i]) + tl::warp_reduce_max(x[i + 1]) + float(h[i]) + float(b[i]);
  h[i] = tl::shfl_xor(h[i], 3), b[i] = tl::shfl_down(b[i], 2), d[i] = tl::shfl_up(d[i], 1);
  e[i] = fp8_e4_t(x[i]), f[i] = fp8_e5_t(x[i]), x[i] += float(e[i + 1]) + float(f[i + 1]);
  AtomicAdd(x + gridDim.x, x[i]), AtomicMax(reinterpret_cast<int *>(d), i), AtomicAddx4(x + 4, x);
  if (__any(i) && __all(i)) x[0] = __popc(i) + __clz(i) + exp2f(x[1]) + __log2f(x[2]) + powf(x[3], 2.5f);
  tl::cp_async_gs<16>(d, x), tl::cp_async_wait<0>(), __threadfence();
}
"""
    (listing,) = parse(toolchain_or_skip(arch).compile(source))
    assert listing.metadata.get("uses_dynamic_stack") != "true"
    assert listing.number("private_segment_fixed_size") == 0


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("__HIP_E4M3", "float8_e4m3fn"),
        ("__HIP_E5M2", "float8_e5m2"),
        ("__HIP_E4M3_FNUZ", "float8_e4m3fnuz"),
        ("__HIP_E5M2_FNUZ", "float8_e5m2fnuz"),
    ],
)
def test_software_fp8_is_torch_s(name: str, dtype: str) -> None:
    """Every code to float, and floats between and beyond them to codes, evaluated by the compiler itself."""
    import torch

    codes = torch.arange(256, dtype=torch.uint8)
    values = codes.view(getattr(torch, dtype)).float()
    finite = values[values.isfinite()].unique()
    between = torch.cat([finite, (finite[1:] + finite[:-1]) / 2, torch.nextafter(finite, torch.tensor(9e9))])
    limit = finite.max()
    between = between[between.abs() <= limit]
    wanted = between.to(getattr(torch, dtype)).view(torch.uint8)
    bits = [f"{v & 0xFFFFFFFF:#x}u" for v in values.view(torch.int32).tolist()]
    inputs = [f"{v & 0xFFFFFFFF:#x}u" for v in between.view(torch.int32).tolist()]
    source = f"""
#include <hip/hip_runtime.h>
#include <hip/amd_detail/amd_hip_fp8.h>
constexpr uint32_t bits[256] = {{{", ".join(bits)}}};
constexpr uint32_t inputs[] = {{{", ".join(inputs)}}};
constexpr unsigned char wanted[] = {{{", ".join(map(str, wanted.tolist()))}}};
using format = tg_fp8<{name}>;
constexpr __device__ int wrong_decoding() {{
  for (int i = 0; i < 256; ++i) {{
    const float want = __builtin_bit_cast(float, bits[i]), got = format::to_float_software(i);
    if (want == want ? __builtin_bit_cast(uint32_t, got) != bits[i] : got == got) return i;
  }}
  return -1;
}}
constexpr __device__ int wrong_encoding() {{
  for (int i = 0; i < {len(inputs)}; ++i)
    if (format::from_float_software(__builtin_bit_cast(float, inputs[i])) != wanted[i]) return i;
  return -1;
}}
static_assert(wrong_decoding() == -1);
static_assert(wrong_encoding() == -1);
static_assert(format::from_float_software(3e38f) == format::largest);
static_assert(format::from_float_software(-3e38f) == (format::largest | 0x80));
extern "C" __global__ void k() {{}}
"""
    toolchain_or_skip("gfx90a").compile(source)


def test_explain_names_the_cause(shared: Store) -> None:
    toolchain_or_skip("gfx942")
    base = artifact("spills", 1024)
    source = base.source.replace("[160]", "[24]").replace("160", "24").replace("159", "23")
    small = Artifact(base.name, source, base.launch)
    sentences = explain(small, base, "gfx942", shared)
    assert "spilled vector registers 0 -> " in sentences[0]
    assert explain(base, base, "gfx942", shared) == []


def test_headers_are_inside_the_package() -> None:
    import tilegate.isa

    assert (Path(tilegate.isa.__file__).parent / "include" / "hip" / "hip_runtime.h").is_file()
    assert DATA.is_dir()
