"""`import tilekernels` must cost nothing: it is paid by every command that only wants a table or a tile."""

import subprocess
import sys

import pytest

import tilekernels


def test_tiles_can_be_chosen_without_torch_or_tilelang() -> None:
    script = (
        "import sys, tilekernels as t\n"
        "t.choose_tiles(t.AttentionProblem(1, 28, 4, 64, 64, 128, 'float16', True), t.chip_by_name('gfx942'))\n"
        "from tilekernels import attention, forward_kernel, lower\n"
        "assert callable(attention)\n"
        "import tilekernels.functional\n"
        "assert t.attention is tilekernels.functional.attention\n"
        "print([name for name in ('torch', 'tilelang', 'tvm', 'rich', 'numpy') if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


def test_what_is_exported() -> None:
    for name in tilekernels.__all__:
        assert getattr(tilekernels, name) is not None
        assert name in dir(tilekernels)
    with pytest.raises(AttributeError, match="has no attribute 'flash'"):
        _ = tilekernels.flash
