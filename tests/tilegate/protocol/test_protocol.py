"""Selection, artifacts, origin, and what importing the protocol costs."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import types

import pytest

from tilegate.protocol import (
    Artifact,
    Selection,
    WrongResult,
    WrongTreeError,
    digest,
    register,
    selection,
    verified_work,
    verify_origin,
)


def test_importing_the_protocol_imports_nothing_heavy():
    program = "import sys, tilegate.protocol; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "tilegate.protocol.clocks" in loaded
    assert not {"torch", "tilelang", "numpy", "scipy", "asv", "asv_runner"} & set(loaded)


@pytest.mark.parametrize(
    ("target", "tier", "expected"),
    [
        ("cpu", None, Selection("cpu", "smoke")),
        ("cuda", None, Selection("cuda", "pr")),
        ("hip", "", Selection("hip", "pr")),
        ("cpu", "full", Selection("cpu", "full")),
    ],
)
def test_selection_comes_from_the_environment(monkeypatch, target, tier, expected):
    monkeypatch.setenv("TILEGATE_TARGET", target)
    monkeypatch.delenv("TILEGATE_TIER", raising=False)
    if tier is not None:
        monkeypatch.setenv("TILEGATE_TIER", tier)
    assert selection() == expected


@pytest.mark.parametrize(
    ("available", "hip", "target"), [(False, None, "cpu"), (True, None, "cuda"), (True, "6.2", "hip")]
)
def test_auto_asks_torch(monkeypatch, available, hip, target):
    torch = types.SimpleNamespace(
        cuda=types.SimpleNamespace(is_available=lambda: available), version=types.SimpleNamespace(hip=hip)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("TILEGATE_TARGET", "auto")
    assert selection().target == target


def test_auto_without_torch_is_the_cpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delenv("TILEGATE_TARGET", raising=False)
    assert selection().target == "cpu"


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [("TILEGATE_TARGET", "rocm", "cpu, cuda, hip"), ("TILEGATE_TIER", "nightly", "smoke")],
)
def test_a_bad_selection_is_refused_with_the_choices(monkeypatch, variable, value, named):
    monkeypatch.setenv("TILEGATE_TARGET", "cpu")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=named) as error:
        selection()
    assert variable in str(error.value)
    assert value in str(error.value)


def test_a_wrong_result_is_an_assertion():
    assert issubclass(WrongResult, AssertionError)


KERNEL = Artifact("forward", "int main;", {"grid": [1, 2, 3], "shared": 34816}, {"registers": 128})


def test_digest_is_the_sha256_of_canonical_json():
    text = '[["forward","int main;",{"grid":[1,2,3],"shared":34816}]]'
    assert digest([KERNEL]) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        Artifact("backward", KERNEL.source, KERNEL.launch),
        Artifact(KERNEL.name, KERNEL.source + " ", KERNEL.launch),
        Artifact(KERNEL.name, KERNEL.source, {**KERNEL.launch, "grid": [1, 3, 2]}),
    ],
)
def test_digest_covers_name_source_and_launch(other):
    assert digest([other]) != digest([KERNEL])


def test_digest_ignores_resources_and_the_order_of_keys():
    launch = dict(reversed(KERNEL.launch.items()))
    assert digest([Artifact(KERNEL.name, KERNEL.source, launch, {"registers": 1})]) == digest([KERNEL])


def test_digest_tells_one_kernel_from_two_and_their_order():
    second = Artifact("combine", "int x;")
    digests = {digest(kernels) for kernels in ([KERNEL], [KERNEL, second], [second, KERNEL], [KERNEL, KERNEL])}
    assert len(digests) == 4


def test_nothing_has_no_identity():
    with pytest.raises(ValueError, match="no artifacts"):
        digest([])


def test_a_module_of_the_measured_tree_is_accepted(monkeypatch, tmp_path):
    module = types.ModuleType("package")
    module.__file__ = str(tmp_path / "package" / "__init__.py")
    monkeypatch.setenv("TILEGATE_PACKAGE_ROOT", str(tmp_path))
    verify_origin(module)


def test_a_link_into_the_measured_tree_is_accepted(monkeypatch, tmp_path):
    (tmp_path / "tree" / "package").mkdir(parents=True)
    (tmp_path / "staged").symlink_to(tmp_path / "tree")
    module = types.ModuleType("package")
    module.__file__ = str(tmp_path / "staged" / "package" / "__init__.py")
    monkeypatch.setenv("TILEGATE_PACKAGE_ROOT", str(tmp_path / "tree"))
    verify_origin(module)


def test_an_installed_copy_is_refused(monkeypatch, tmp_path):
    module = types.ModuleType("package")
    module.__file__ = str(tmp_path / "site-packages" / "package" / "__init__.py")
    monkeypatch.setenv("TILEGATE_PACKAGE_ROOT", str(tmp_path / "site"))
    with pytest.raises(WrongTreeError, match="site-packages"):
        verify_origin(module)


def test_outside_a_measurement_any_copy_will_do(monkeypatch):
    monkeypatch.delenv("TILEGATE_PACKAGE_ROOT", raising=False)
    verify_origin(types.ModuleType("package"))


def test_registering_without_asv_runner_does_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "asv_runner", None)
    monkeypatch.setitem(sys.modules, "asv_runner.benchmarks", None)
    register()


@pytest.mark.parametrize("stated", [{"flops": 1}, {"bytes": 2.5}, {"flops": 10**9, "bytes": 1},
                                    {"bytes": 1, "shape": "s1"}])  # fmt: skip
def test_work_that_makes_sense(stated):
    assert verified_work(stated) == stated


@pytest.mark.parametrize(
    "stated",
    [None, {}, 7, {"flop": 1}, {"flops": 0}, {"flops": -1}, {"flops": True}, {"bytes": float("nan")}, {"bytes": 1e31},
     {"flops": "1"}, {"flops": 10**400}, {"shape": "s1"}, {"flops": 1, "shape": 3}, {"flops": 1, "shape": ""},
     {"flops": 1, "shape": "s" * 41}, {"flops": 1, "shape": "s\n"}],
)  # fmt: skip
def test_work_that_makes_none(stated):
    with pytest.raises(ValueError, match="work\\(\\) must return"):
        verified_work(stated)
