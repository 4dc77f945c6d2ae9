"""`make demo`: its changes fit the kernel of today, it needs no git set-up, and it fails if the gate does."""

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("demo", ROOT / "scripts" / "demo.py")
demo = importlib.util.module_from_spec(SPEC)
sys.modules["demo"] = demo  # dataclasses look their module up
SPEC.loader.exec_module(demo)

CHANGES = pytest.mark.parametrize("change", [demo.SLOWER, demo.EQUAL], ids=lambda change: change.name)


def run_git(folder, *arguments):
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of two commits with today's kernel, on a machine where git knows nobody."""
    folder = tmp_path / "repository"
    (folder / demo.KERNEL).parent.mkdir(parents=True)
    (folder / demo.KERNEL).write_text((ROOT / demo.KERNEL).read_text())
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    run_git(folder, "add", ".")
    run_git(folder, *identity, "commit", "--quiet", "--message", "one")
    run_git(folder, *identity, "commit", "--quiet", "--allow-empty", "--message", "two")
    nobody = tmp_path / "home"
    nobody.mkdir()
    monkeypatch.setenv("HOME", str(nobody))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(nobody))
    return folder


def console():
    return Console(file=io.StringIO(), width=200)


@CHANGES
def test_the_change_fits_the_kernel_and_compiles(change):
    source = (ROOT / demo.KERNEL).read_text()
    assert source.count(change.before) == 1
    compile(source.replace(change.before, change.after), demo.KERNEL, "exec")


@CHANGES
def test_the_change_changes_the_generated_code(change, tmp_path, monkeypatch):
    pytest.importorskip("tilelang")
    import tilelang

    from tilekernels.dialect import dialect_for
    from tilekernels.forward import ForwardSpec
    from tilekernels.policy import TileConfig

    def generated(path):
        spec = importlib.util.spec_from_file_location("kernel_of_demo", path)
        kernel = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "kernel_of_demo", kernel)
        spec.loader.exec_module(kernel)
        spec = ForwardSpec(head_dim=64, dtype="float32", causal=True)
        function = kernel.build(spec, TileConfig(32, 32, 1), dialect_for("cpu"))
        with tilelang.tvm.target.Target("c") as target:
            return tilelang.lower(function, target=target, enable_device_compile=False).kernel_source

    changed = tmp_path / "changed.py"
    changed.write_text((ROOT / demo.KERNEL).read_text().replace(change.before, change.after))
    assert generated(changed) != generated(ROOT / demo.KERNEL)


@CHANGES
def test_a_commit_changes_the_kernel_alone_and_leaves_the_clone_at_the_base(change, repository, tmp_path):
    clone = demo.clone_head(repository, tmp_path / "clone", console())
    base = run_git(clone, "rev-parse", "HEAD")
    made = demo.commit(change, clone)
    assert run_git(clone, "rev-parse", "HEAD") == base == run_git(clone, "rev-parse", f"{made}^")
    assert run_git(clone, "diff", "--name-only", base, made) == demo.KERNEL
    assert run_git(clone, "status", "--porcelain") == ""
    assert change.after in run_git(clone, "show", f"{made}:{demo.KERNEL}")
    assert run_git(repository, "status", "--porcelain") == ""


def test_both_commits_start_from_the_same_base(repository, tmp_path):
    clone = demo.clone_head(repository, tmp_path / "clone", console())
    parents = {run_git(clone, "rev-parse", f"{demo.commit(change, clone)}^") for change in (demo.SLOWER, demo.EQUAL)}
    assert len(parents) == 1


def test_a_shallow_clone_and_a_detached_head_do(repository, tmp_path):
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", repository.as_uri(), str(shallow)], check=True)
    run_git(shallow, "checkout", "--quiet", "--detach")
    clone = demo.clone_head(shallow, tmp_path / "clone", console())
    assert run_git(clone, "rev-parse", "HEAD") == run_git(repository, "rev-parse", "HEAD")


def test_uncommitted_changes_are_left_out_and_it_says_so(repository, tmp_path):
    clean, dirty = console(), console()
    demo.clone_head(repository, tmp_path / "before", clean)
    (repository / demo.KERNEL).write_text("broken")
    clone = demo.clone_head(repository, tmp_path / "after", dirty)
    assert "broken" not in (clone / demo.KERNEL).read_text()
    assert "uncommitted changes" not in clean.file.getvalue()
    assert "uncommitted changes" in dirty.file.getvalue()


def test_git_variables_of_a_hook_do_not_mislead_it(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    demo.clone_head(repository, tmp_path / "clone", console())
    assert (tmp_path / "clone" / demo.KERNEL).is_file()


def test_a_kernel_that_has_moved_on_is_named(repository, tmp_path):
    clone = demo.clone_head(repository, tmp_path / "clone", console())
    (clone / demo.KERNEL).write_text("# rewritten\n")
    with pytest.raises(demo.DemoError, match=r"attention_forward\.py does not hold .* exactly once"):
        demo.commit(demo.SLOWER, clone)


def test_it_gates_masked_cases_and_an_unmasked_one():
    from benchmarks.workloads import select
    from tilegate.protocol import Selection

    chosen = [
        work
        for work in select(Selection("cpu", "smoke"))
        if re.search(demo.CASES, f"attention.Forward.latency_forward({work.id!r}, 'adaptive')")
    ]
    assert [work.causal for work in chosen].count(True) >= 2
    assert [work.causal for work in chosen].count(False) == 1


def gate_that_exits(folder, monkeypatch, statuses):
    """Put a `tilegate` beside a stand-in for Python: its exit status goes by the folder that the report goes to."""
    tool = folder / "bin" / "tilegate"
    tool.parent.mkdir()
    tool.write_text(
        f"#!{sys.executable}\nimport json, pathlib, sys\nout = pathlib.Path(sys.argv[sys.argv.index('--out') + 1])\n"
        "out.mkdir(parents=True)\n(out / 'verdict.json').write_text(json.dumps({'reason': 'because [of] this'}))\n"
        f"sys.exit({statuses!r}[out.name])\n"
    )
    tool.chmod(0o755)
    monkeypatch.setattr(demo.sys, "executable", str(tool.with_name("python")))


@pytest.mark.parametrize(
    ("slower", "equal"), [(1, 0), (0, 0), (1, 1), (4, 0), (1, 4), (1, 5), (2, 0), (3, 0), (137, 0)]
)
def test_exit_status_is_zero_only_for_red_then_green(repository, tmp_path, monkeypatch, slower, equal):
    monkeypatch.setattr(demo, "ROOT", repository)
    monkeypatch.setattr(demo, "Console", lambda: screen)
    screen = console()
    gate_that_exits(tmp_path, monkeypatch, {"slower": slower, "equal": equal})
    out = tmp_path / "out"
    status = demo.main(["--out", str(out)])
    assert status == (0 if (slower, equal) == (1, 0) else 1)
    shown = screen.file.getvalue()
    assert "because [of] this" in shown
    assert ("It should have" in shown) == (status != 0)
    assert json.loads((out / "equal" / "verdict.json").read_text())


def test_without_the_installed_tool_it_says_what_to_do(repository, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "ROOT", repository)
    monkeypatch.setattr(demo.sys, "executable", str(tmp_path / "python"))
    assert demo.main(["--out", str(tmp_path / "out")]) == 1
    assert "make setup" in capsys.readouterr().out


def test_the_temporary_clone_is_removed(repository, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "ROOT", repository)
    monkeypatch.setattr(demo.tempfile, "tempdir", str(tmp_path))
    gate_that_exits(tmp_path, monkeypatch, {"slower": 1, "equal": 0})
    demo.main(["--out", str(tmp_path / "out")])
    assert [name for name in os.listdir(tmp_path) if name.startswith("tilegate-demo-")] == []
