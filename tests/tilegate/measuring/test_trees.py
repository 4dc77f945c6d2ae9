"""Exporting trees: what git knows, in the cases that users meet, and nothing of the repository changed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import toy_repository

from tilegate.files import UsageError
from tilegate.measuring import git, trees


@pytest.fixture
def toy(tmp_path):
    return toy_repository.make(tmp_path / "toy")


def _open(toy) -> git.Repository:
    return trees.open_repository(toy.path)


def _export(toy, revision: str, tmp_path: Path, needed=("toykernels", "toybench")) -> Path:
    repository = _open(toy)
    found = trees.resolve(repository, revision, tmp_path / "scratch")
    return trees.export(repository, found, needed, tmp_path / "cache")


def _state(toy) -> tuple[str, bytes, list[str]]:
    """Everything that a run must leave as it is: refs and worktrees, the index, the object files."""
    git = toy.path / ".git"
    objects = sorted(str(file) for file in (git / "objects").rglob("*") if file.is_file())
    return toy.git("for-each-ref") + toy.git("worktree", "list"), (git / "index").read_bytes(), objects


def test_the_files_of_the_commit_whatever_is_checked_out(toy, tmp_path):
    toy.write("toykernels/added.py", "x = 1\n")
    (toy.path / "toykernels/run.sh").symlink_to("added.py")
    toy.commit("Add")
    toy.write("toykernels/added.py", "x = 2\n")
    before = _state(toy)
    old, new = _export(toy, "base", tmp_path), _export(toy, "HEAD", tmp_path)
    assert _state(toy) == before
    assert not (old / "toykernels/added.py").exists()
    assert (new / "toykernels/added.py").read_text() == "x = 1\n"
    assert (new / "toykernels/run.sh").is_symlink()
    assert not (new / ".git").exists()


def test_an_export_is_reused_while_it_is_intact(toy, tmp_path):
    folder = _export(toy, "base", tmp_path)
    inode = folder.stat().st_ino
    assert _export(toy, "base", tmp_path).stat().st_ino == inode
    for file, text in (("kernels.py", "TOTAL_MS = 0\n"), ("kernels.py", None), ("extra.py", "")):
        if text is None:
            (folder / "toykernels" / file).unlink()
        else:
            (folder / "toykernels" / file).write_text(text)
        folder = _export(toy, "base", tmp_path)
        assert "TOTAL_MS = 4.0" in (folder / "toykernels/kernels.py").read_text()
        assert not (folder / "toykernels/extra.py").exists()


def test_a_tree_that_is_not_checked_out_is_reused_as_well(toy, tmp_path):
    toy.write("toykernels/kernels.py", "changed\n")
    toy.commit("Change")
    inode = _export(toy, "base", tmp_path).stat().st_ino
    assert _export(toy, "base", tmp_path).stat().st_ino == inode
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_name_that_means_two_commits_is_refused(toy, tmp_path):
    commit = toy.commit("Second")
    toy.git("tag", "twice", "base")
    toy.git("branch", "twice")
    with pytest.raises(UsageError, match=r"'twice' is ambiguous.*refs/heads/twice"):
        trees.resolve(_open(toy), "twice", tmp_path)
    assert trees.resolve(_open(toy), "refs/heads/twice", tmp_path).commit == commit


def test_a_repository_under_any_name(tmp_path):
    toy = toy_repository.make(tmp_path / "two\nlines, 'quotes\" and a space ")
    toy.write("toykernels/new\nline.txt", "")
    assert (_export(toy, "base", tmp_path) / "toykernels/kernels.py").exists()
    assert (_export(toy, "WORKTREE", tmp_path) / "toykernels/new\nline.txt").exists()
    assert trees.open_repository(toy.path / ".git").top == toy.path


def test_a_link_out_of_the_tree_is_refused(tmp_path):
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    for folder in (tree / "inside", outside):
        folder.mkdir(parents=True)
    (tree / "good").symlink_to("inside")
    (tree / "bad").symlink_to(outside)
    (tree / "dangling").symlink_to("nowhere")
    for name in ("inside", "good", "dangling", "missing"):
        trees.refuse_links_out(tree, tree / name)
    with pytest.raises(UsageError, match=r"bad is a symbolic link to .*outside"):
        trees.refuse_links_out(tree, tree / "bad")


def test_the_working_tree_as_it_is(toy, tmp_path):
    toy.write(".gitignore", "*.log\nkept.log\n")
    toy.write("kept.log", "tracked although ignored\n")
    toy.git("add", "--force", "kept.log")
    toy.commit("Ignore")
    toy.write("toykernels/kernels.py", "changed\n")
    toy.write("toykernels/untracked.py", "")
    toy.write("noise.log", "")
    (toy.path / "toybench/sums.py").unlink()
    before = _state(toy)
    folder = _export(toy, "WORKTREE", tmp_path)
    assert _state(toy) == before
    assert (folder / "toykernels/kernels.py").read_text() == "changed\n"
    assert (folder / "toykernels/untracked.py").exists()
    assert (folder / "kept.log").exists()
    assert not (folder / "noise.log").exists()
    assert not (folder / "toybench/sums.py").exists()
    revision = trees.resolve(_open(toy), "WORKTREE", tmp_path / "scratch")
    assert revision.commit is None
    assert revision.short.startswith("worktree-")


def test_dirty_is_what_the_checked_out_commit_does_not_have(toy):
    repository = _open(toy)
    commit = toy.git("rev-parse", "HEAD")
    assert trees.dirty_files(repository, commit, ["toykernels"]) == []
    toy.write("toykernels/kernels.py", "changed\n")
    toy.write("toykernels/new/file.py", "")
    toy.write("elsewhere.py", "")
    assert trees.dirty_files(repository, commit, ["toykernels", "missing"]) == [
        "toykernels/kernels.py",
        "toykernels/new/file.py",
    ]
    toy.git("stash", "--include-untracked")
    other = toy.commit("Empty")
    toy.git("stash", "pop")
    assert trees.dirty_files(repository, commit, ["toykernels"]) == []  # no longer checked out
    toy.git("checkout", "--quiet", "--detach")
    assert trees.dirty_files(repository, other, ["toykernels"]) != []


@pytest.mark.parametrize("rev", ["nowhere", "", "--all", "HEAD~9", "a b", "0" * 40])
def test_an_unknown_revision_is_named(toy, tmp_path, rev):
    with pytest.raises(UsageError, match="git fetch") as caught:
        trees.resolve(_open(toy), rev, tmp_path)
    assert repr(rev) in str(caught.value)


def test_a_shallow_clone_says_how_to_deepen_it(toy, tmp_path):
    toy.commit("Second")
    shallow = tmp_path / "shallow"
    clone = ["git", "clone", "--quiet", "--depth", "1", f"file://{toy.path}", str(shallow)]
    subprocess.run(clone, check=True, capture_output=True, timeout=30)
    with pytest.raises(UsageError, match=r"fetch-depth: 0"):
        trees.resolve(trees.open_repository(shallow), "HEAD~1", tmp_path)


def test_not_a_repository_and_no_commits(tmp_path):
    with pytest.raises(UsageError, match="not in a git repository"):
        trees.open_repository(tmp_path)
    with pytest.raises(UsageError, match="there is no folder"):
        trees.open_repository(tmp_path / "missing")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True, timeout=30)
    with pytest.raises(UsageError, match="no commits yet"):
        trees.resolve(trees.open_repository(tmp_path), "HEAD", tmp_path)


def test_without_git_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="git is not installed"):
        trees.open_repository(tmp_path)


def test_a_bare_repository_has_commits_and_no_working_tree(toy, tmp_path):
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", str(toy.path), str(bare)], check=True, timeout=30)
    repository = trees.open_repository(bare)
    assert repository.top is None
    revision = trees.resolve(repository, "base", tmp_path)
    folder = trees.export(repository, revision, ["toykernels"], tmp_path / "cache")
    assert (folder / "toykernels/kernels.py").exists()
    assert trees.export(repository, revision, ["toykernels"], tmp_path / "cache") == folder
    assert trees.dirty_files(repository, revision.commit or "", ["toykernels"]) == []
    with pytest.raises(UsageError, match="bare"):
        trees.resolve(repository, "WORKTREE", tmp_path)


def test_inside_a_git_hook(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert (_export(toy, "base", tmp_path) / "pyproject.toml").exists()


def test_a_hook_of_the_users_does_not_run(toy, tmp_path):
    for name in ("post-checkout", "post-index-change"):
        hook = toy.path / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    _export(toy, "base", tmp_path)
    toy.write("toykernels/kernels.py", "changed\n")
    _export(toy, "WORKTREE", tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_needed_submodule_is_exported_and_others_are_not_asked_for(toy, tmp_path):
    library = toy_repository.make(tmp_path / "library")
    library.git("rm", "-r", "--quiet", "toybench")
    library.commit("A library alone")
    allow = ("-c", "protocol.file.allow=always")
    toy.git(*allow, "submodule", "--quiet", "add", str(library.path), "extern")
    toy.git(*allow, "submodule", "--quiet", "add", str(library.path), "toykernels/vendored")
    toy.commit("Add submodules")
    first = _export(toy, "HEAD", tmp_path)
    assert (first / "toykernels/vendored/toykernels/kernels.py").exists()
    assert not (first / "extern/pyproject.toml").exists()

    toy.write("toykernels/vendored/toykernels/kernels.py", "changed\n")
    with pytest.raises(UsageError, match="submodule toykernels/vendored has uncommitted changes"):
        _export(toy, "WORKTREE", tmp_path)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(toy.path), str(clone)], check=True, timeout=30)
    repository = trees.open_repository(clone)
    revision = trees.resolve(repository, "HEAD", tmp_path)
    with pytest.raises(UsageError, match=r"git submodule update --init -- toykernels/vendored"):
        trees.export(repository, revision, ["toykernels"], tmp_path / "other cache")
    assert trees.export(repository, revision, ["toykernels"], tmp_path / "cache") == first  # nothing to fetch
    assert trees.export(repository, revision, ["toybench"], tmp_path / "cache").is_dir()


def test_old_trees_are_pruned_and_used_ones_kept(toy, tmp_path):
    cache = tmp_path / "cache"
    week = 8 * 86_400
    now = (cache.parent).stat().st_mtime
    for number in range(30):
        (cache / f"{number:040d}").mkdir(parents=True)
        os.utime(cache / f"{number:040d}", (now - week - number, now - week - number))
    (cache / ".new-killed").mkdir()
    os.utime(cache / ".new-killed", (now - week, now - week))
    folder = _export(toy, "base", tmp_path)
    assert folder.exists()
    assert not (cache / ".new-killed").exists()
    assert not (cache / f"{29:040d}").exists()
    assert (cache / f"{0:040d}").exists()


def test_an_unwritable_cache_is_a_usage_error(toy, tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(UsageError, match="cannot export base"):
        _export(toy, "base", tmp_path)


def test_what_git_refuses_is_told_with_the_command(toy):
    revision = trees.Revision("HEAD", "0" * 40, "0" * 40)
    with pytest.raises(UsageError, match="git ls-tree failed: fatal"):
        trees.has_path(_open(toy), revision, "toykernels")
    with pytest.raises(UsageError, match="git read-tree failed: fatal"):
        trees._write_tree(_open(toy).git_dir, "0" * 40, toy.path)


def test_a_scratch_folder_that_a_killed_run_left_is_deleted_later(toy, tmp_path):
    cache = tmp_path / "cache"
    with trees.scratch_folder(cache) as folder:
        assert folder.parent == cache
    assert not folder.exists()
    (folder / "objects").mkdir(parents=True)  # as if this process had been killed before
    os.utime(folder, (0, 0))
    _export(toy, "base", tmp_path)
    assert not folder.exists()
    with pytest.raises(UsageError, match="XDG_CACHE_HOME"), trees.scratch_folder(toy.path / "pyproject.toml"):
        pass


def test_a_module_is_found_at_the_root_or_under_src(tmp_path):
    (tmp_path / "src/deep").mkdir(parents=True)
    (tmp_path / "flat.py").write_text("")
    assert trees.find_module(tmp_path, "deep") == tmp_path / "src/deep"
    assert trees.find_module(tmp_path, "flat") == tmp_path / "flat.py"
    assert trees.find_module(tmp_path, "absent") is None


def test_files_and_paths_of_a_revision(toy, tmp_path):
    toy.write("toybench/sums.py", "changed\n")
    toy.commit("Change the suite")
    repository = _open(toy)
    base, head = (trees.resolve(repository, rev, tmp_path) for rev in ("base", "HEAD"))
    assert trees.read_file(repository, head, "toybench/sums.py") == "changed\n"
    with pytest.raises(UsageError, match=r"there is no nothing\.txt"):
        trees.read_file(repository, head, "nothing.txt")
    assert trees.has_path(repository, base, "toybench")
    assert not trees.has_path(repository, base, "nothing")
    assert trees.same_path(repository, base, head, "toykernels")
    assert not trees.same_path(repository, base, head, "toybench")


def test_what_a_link_or_a_submodule_holds_is_not_taken_to_be_the_same(toy, tmp_path):
    (toy.path / "linked").symlink_to("toykernels")
    toy.git("update-index", "--add", "--cacheinfo", f"160000,{'a' * 40},outer")
    toy.git("add", "linked")
    toy.git("commit", "--quiet", "-m", "Link")
    toy.git("update-index", "--cacheinfo", f"160000,{'b' * 40},outer")
    toy.git("commit", "--quiet", "-m", "Another commit of the submodule")
    one, other = (trees.resolve(_open(toy), rev, tmp_path) for rev in ("HEAD^", "HEAD"))
    assert not trees.same_path(_open(toy), one, other, "linked")
    assert not trees.same_path(_open(toy), one, other, "linked/kernels.py")
    assert not trees.same_path(_open(toy), one, other, "outer/toykernels")
    assert trees.same_path(_open(toy), one, other, "toykernels/kernels.py")
    assert trees.same_path(_open(toy), one, other, "nothing/at/all")


def test_a_folder_inside_git_itself(toy):
    assert trees.open_repository(toy.path / ".git").top == toy.path


def test_the_private_index_leaves_nothing_behind(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    _export(toy, "base", tmp_path)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert [f.name for f in (tmp_path / "cache").iterdir()] == [toy.git("rev-parse", "base^{tree}")]
