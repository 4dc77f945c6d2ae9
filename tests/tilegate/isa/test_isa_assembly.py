"""Reading assembler text, on what clang 19 and clang 22 really wrote for tests/data/isa/loop.hip."""

from __future__ import annotations

import pytest
from isa_fixtures import DATA, listing

from tilegate.isa.assembly import AssemblyError, parse
from tilegate.isa.loops import innermost_loops


@pytest.mark.parametrize(
    ("arch", "registers", "agprs", "vgprs", "sgprs", "lds", "code"),
    [
        ("gfx942", 28, 4, 21, 18, 4096, 708),
        ("gfx90a", 28, 4, 21, 14, 4096, 708),
        ("gfx950", 24, 0, 24, 20, 4096, 816),
    ],
)
def test_resources_are_read(  # noqa: PLR0917 - the columns above
    arch: str, registers: int, agprs: int, vgprs: int, sgprs: int, lds: int, code: int
) -> None:
    found = listing(f"loop-{arch}.s")
    assert found.name == "loop_kernel"
    assert found.number("vgpr_count") == registers
    assert found.number("agpr_count") == agprs
    assert found.vgprs == vgprs
    assert found.number("sgpr_count") == sgprs
    assert found.number("group_segment_fixed_size") == lds
    assert found.number("vgpr_spill_count") == 0
    assert found.number("max_flat_workgroup_size") == 256
    assert found.code_bytes == code


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "gfx950"])
def test_every_instruction_is_in_exactly_one_block(arch: str) -> None:
    text = (DATA / f"loop-{arch}.s").read_text()
    body = text.partition("loop_kernel:")[2].partition(".Lfunc_end0:")[0]
    written = [
        line.split()[0]
        for line in body.splitlines()
        if line.startswith("\t") and line.strip() and line.strip()[0] not in ".;"
    ]
    found = [instruction.mnemonic for instruction in listing(f"loop-{arch}.s").instructions]
    assert found == written
    assert found[-1] == "s_endpgm"


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "gfx950"])
def test_the_loop_is_found_and_its_guard_belongs_to_every_round(arch: str) -> None:
    blocks = listing(f"loop-{arch}.s").blocks
    (loop,) = innermost_loops(blocks)

    def holds(part: frozenset[int], mnemonic: str) -> bool:
        return any(mnemonic in i.mnemonic for index in part for i in blocks[index].instructions)

    assert holds(loop.blocks, "mfma")
    assert holds(loop.steady, "mfma")
    assert holds(loop.steady, "global_load")  # behind a bounds check of each lane
    # clang 22 took the last round's work out of the loop; clang 19 left it behind a uniform branch.
    assert holds(loop.blocks, "v_cndmask") == (arch != "gfx950")
    assert not holds(loop.steady, "v_cndmask")


def test_two_kernels_in_one_text() -> None:
    text = (DATA / "loop-gfx942.s").read_text()
    entry = text.partition("amdhsa.kernels:\n")[2].partition("amdhsa.target")[0]
    other = text.partition("loop_kernel:")[2].partition(".section\t.AMDGPU")[0].replace("loop_kernel", "other_kernel")
    both = text.replace("\t.section\t.AMDGPU", f"other_kernel:{other}\t.section\t.AMDGPU", 1)
    both = both.replace("amdhsa.target", entry.replace("loop_kernel", "other_kernel") + "amdhsa.target", 1)
    first, second = parse(both)
    assert (first.name, second.name) == ("loop_kernel", "other_kernel")
    assert [i.mnemonic for i in first.instructions] == [i.mnemonic for i in second.instructions]


@pytest.mark.parametrize(
    "text", ["", "int main() {}", "\t.amdgpu_metadata\n---\namdhsa.kernels:\n...\n\t.end_amdgpu_metadata\n"]
)
def test_text_without_kernels_is_refused(text: str) -> None:
    with pytest.raises(AssemblyError, match="no kernel"):
        parse(text)


def test_metadata_without_code_is_refused() -> None:
    text = (DATA / "loop-gfx942.s").read_text().replace("loop_kernel:  ", "elsewhere:  ")
    with pytest.raises(AssemblyError, match="loop_kernel"):
        parse(text)


def test_a_count_that_is_no_number_is_refused() -> None:
    (found,) = parse((DATA / "loop-gfx942.s").read_text().replace(".sgpr_count:     18", ".sgpr_count:     many"))
    with pytest.raises(AssemblyError, match="many"):
        found.number("sgpr_count")
