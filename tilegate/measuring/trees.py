"""The two commits as folders on disk, without a trace in the user's repository.

No `git worktree` and no checkout: a tree is read into a private index and written to a cache keyed by its hash. The
user's index, refs, hooks and working tree stay as they are, and an interrupted export leaves only an unnamed folder in
the cache.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilegate import files
from tilegate.files import UsageError
from tilegate.measuring import git
from tilegate.measuring.git import Repository

WORKTREE = "WORKTREE"
"""The revision that stands for the files as they are, uncommitted changes and untracked files included."""

_KEPT_TREES = 24  # exported trees; older ones that no run has used for a week are deleted
_KEPT_SECONDS = 7 * 86_400
_FOLDER, _LINK = "040000", "120000"  # how `git ls-tree` begins their entries
_POINTER, _LONGEST_POINTER = b"version https://git-lfs.github.com/spec/", 1024  # git-lfs, docs/spec.md


@dataclass(frozen=True)
class Revision:
    """What is measured on one side.

    Attributes:
        rev: as the user named it.
        commit: its hash; None for WORKTREE.
        tree: the hash of its tree.
        objects: where the tree's new objects lie if not in the repository (WORKTREE).
        ahead: commits of the branch `rev` after this one, where it has moved on; 0 else.
    """

    rev: str
    commit: str | None
    tree: str
    objects: Path | None = None
    ahead: int = 0

    @property
    def short(self) -> str:
        """Twelve digits of the commit, or of the tree where there is no commit."""
        return self.commit[:12] if self.commit else f"worktree-{self.tree[:12]}"


def open_repository(path: Path) -> Repository:
    """Find the repository that `path` lies in.

    Raises:
        UsageError: there is none, or git is not installed.
    """
    found = git.run(["rev-parse", "--is-bare-repository", "--absolute-git-dir"], path, check=False)
    if found.returncode != 0:
        if "dubious ownership" in found.stderr:
            raise UsageError(
                f"{path} is in a repository of another user, which git does not read; if you trust its files:\n"
                f"  git config --global --add safe.directory {shlex.quote(str(path))}"
            )
        reason = git.last_line(found.stderr)
        raise UsageError(f"{path} is not in a git repository ({reason}); run this inside one, or name it with --repo")
    bare, _, git_dir = found.stdout.removesuffix("\n").partition("\n")  # a path may hold newlines of its own
    if bare == "true":
        return Repository(Path(git_dir), None)
    top = git.run(["rev-parse", "--show-toplevel"], path, check=False)
    # Inside .git itself there is no working tree, though the repository has one.
    folder = top.stdout.removesuffix("\n") if top.returncode == 0 else str(Path(git_dir).parent)
    return Repository(Path(git_dir), Path(folder))


def resolve(repository: Repository, rev: str, scratch: Path) -> Revision:
    """Find the commit and tree that `rev` names.

    Args:
        repository: where to look.
        rev: anything `git rev-parse` understands, or WORKTREE.
        scratch: a folder for the objects of WORKTREE; must live as long as the revision is used.

    Raises:
        UsageError: no such revision, with what is likely to help.
    """
    if rev == WORKTREE:
        return _snapshot(repository, scratch)
    found = None
    if rev and not rev.startswith("-"):
        warn = ["-c", "core.warnAmbiguousRefs=true"]  # for which --quiet must be left out
        found = git.in_repository(repository, [*warn, "rev-parse", "--verify", f"{rev}^{{commit}}"], check=False)
    if found is None or found.returncode != 0:
        raise UsageError(_unknown_revision(repository, rev))
    if "is ambiguous" in found.stderr:
        raise UsageError(
            f"{rev!r} is ambiguous: more than one branch, tag or commit has that name; "
            f"say refs/heads/{rev} for the branch, refs/tags/{rev} for the tag"
        )
    commit = found.stdout.strip()
    tree = git.in_repository(repository, ["rev-parse", "--verify", "--quiet", f"{commit}^{{tree}}"]).stdout.strip()
    return Revision(rev, commit, tree)


def fork_point(repository: Repository, base: Revision, head: Revision) -> Revision:
    """Return what a head's change is to be measured against: where it left `base`, if that is a branch that has moved on.

    What others have added to the branch since is not the head's doing. `base` itself for anything but a branch (a tag, a
    commit), and where no common commit is here (unrelated history, a shallow clone).
    """
    name = git.in_repository(repository, ["rev-parse", "--symbolic-full-name", base.rev], check=False).stdout.strip()
    if not name.startswith(("refs/heads/", "refs/remotes/")):
        return base
    of_head = head.commit or "HEAD"  # WORKTREE lies on what is checked out
    found = git.in_repository(repository, ["merge-base", str(base.commit), of_head], check=False)
    commit = found.stdout.strip()
    if found.returncode != 0 or commit == base.commit:
        return base
    tree = git.in_repository(repository, ["rev-parse", "--verify", "--quiet", f"{commit}^{{tree}}"]).stdout.strip()
    ahead = int(git.in_repository(repository, ["rev-list", "--count", f"{commit}..{base.commit}"]).stdout)
    return Revision(base.rev, commit, tree, ahead=ahead)


def dirty_files(repository: Repository, commit: str, paths: Sequence[str]) -> list[str]:
    """Return the modified and untracked files under `paths` if `commit` is checked out, else nothing."""
    if repository.top is None:
        return []
    checked_out = git.in_repository(
        repository, ["rev-parse", "--verify", "--quiet", "HEAD"], check=False
    ).stdout.strip()
    if checked_out != commit:
        return []
    listed = git.in_repository(
        repository,
        [
            "--no-optional-locks",
            "status",
            "--porcelain=v1",
            "-z",
            "--untracked-files=all",
            "--no-renames",
            "--",
            *paths,
        ],
    )
    return sorted(entry[3:] for entry in listed.stdout.split("\0") if entry)


def export(repository: Repository, revision: Revision, needed: Sequence[str], cache: Path) -> Path:
    """Write the files of `revision` to a folder and return it; nothing is written if it is there and unchanged.

    Args:
        repository: where the revision lives.
        revision: which tree.
        needed: paths in the tree (package, suite) that must be complete: submodules in or above them are exported too.
        cache: the folder that holds one folder per tree.

    Raises:
        UsageError: a needed submodule is not here, or the files cannot be written.
    """
    submodules = _needed_submodules(repository, revision, needed)
    if revision.commit is None and repository.top is not None:
        _refuse_dirty_submodules(repository.top, [path for path, _ in submodules])
    name = "-".join([revision.tree, *(commit[:12] for _, commit in submodules)])
    folder = cache / name
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if folder.is_dir() and _is_intact(repository, revision, folder):
            os.utime(folder)  # in use: not to be pruned
            return folder
        temporary = cache / f".new-{secrets.token_hex(8)}"
        temporary.mkdir()
        try:
            _write_tree(repository.git_dir, revision.tree, temporary, revision.objects)
            for path, commit in submodules:
                _export_submodule(repository, revision, path, commit, temporary)
            _refuse_pointers(temporary, needed, revision)
            if folder.exists():
                folder.rename(cache / f".old-{secrets.token_hex(8)}")
            with contextlib.suppress(FileExistsError):  # another run was faster, with the same content
                temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        _prune(cache, keep=folder)
    except OSError as error:
        raise UsageError(f"cannot export {revision.rev} to {cache}: {error.strerror or error}") from error
    return folder


def ignored_files(repository: Repository, paths: Sequence[str]) -> list[str]:
    """Return the files under `paths` that are in the working tree and that git ignores, compiled Python left out."""
    if repository.top is None:
        return []
    listing = ["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--", *paths]
    listed = git.in_repository(repository, listing, check=False).stdout
    return [path for path in listed.split("\0") if path and "__pycache__" not in path and not path.endswith(".pyc")]


def read_file(repository: Repository, revision: Revision, path: str) -> str:
    """Return the text of one file of the revision.

    Raises:
        UsageError: it has no such file.
    """
    shown = git.in_repository(
        repository, ["cat-file", "blob", f"{revision.tree}:{path}"], _objects(repository, revision), check=False
    )
    if shown.returncode != 0:
        raise UsageError(f"there is no {path}")
    return shown.stdout


def file_if_any(repository: Repository, revision: Revision, path: str) -> str | None:
    """Return the text of one file of the revision, None if it has no such file."""
    return read_file(repository, revision, path) if has_path(repository, revision, path) else None


def has_path(repository: Repository, revision: Revision, path: str) -> bool:
    """Return whether the revision has that file or folder."""
    return _entry(repository, revision, path) != ""


def same_path(repository: Repository, one: Revision, other: Revision, path: str) -> bool:
    """Return whether a file or folder is the same in both revisions; also if neither has it.

    Of a symbolic link that is not known, and so it is not the same: the link may be, and what it leads to another.
    """
    places = [_above(repository, revision, path) for revision in (one, other)]
    return places[0] == places[1] and not places[0].startswith(_LINK)


def cache_folder() -> Path:
    """Return where exported trees are kept: $XDG_CACHE_HOME/tilegate/trees, by default under ~/.cache."""
    return files.cache_folder("trees")


@contextlib.contextmanager
def scratch_folder(cache: Path) -> Iterator[Path]:
    """Make a folder for the length of the context. One that a killed run leaves is deleted later, like its exports.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix=".scratch-", dir=cache)
    except OSError as error:
        raise UsageError(f"cannot write to {cache}: {error.strerror or error}; XDG_CACHE_HOME names another") from error
    with made as folder:
        yield Path(folder)


def find_module(tree: Path, name: str) -> Path | None:
    """Return the folder or file of the top-level module `name` in `tree`, at its root or under src/; None if absent."""
    for root in (tree, tree / "src"):
        if (root / name).is_dir():
            return root / name
        if (root / f"{name}.py").is_file():
            return root / f"{name}.py"
    return None


def refuse_links_out(tree: Path, module: Path) -> None:
    """Check that `module`, in the exported `tree`, is not a link to files that are in no commit.

    Raises:
        UsageError: it leads out of the tree.
    """
    if not module.resolve().is_relative_to(tree.resolve()):
        raise UsageError(
            f"{module.relative_to(tree)} is a symbolic link to {module.resolve()}, outside of the commit's tree, so what "
            "it holds would be measured for every commit alike; put the files themselves into the repository"
        )


def _entry(repository: Repository, revision: Revision, path: str) -> str:
    return git.in_repository(
        repository, ["ls-tree", "-z", revision.tree, "--", path], _objects(repository, revision)
    ).stdout


def _above(repository: Repository, revision: Revision, path: str) -> str:
    """Return the entry of a path, or of the symbolic link or submodule that it lies in, whose content has no entries."""
    entry = ""
    for depth in range(1, path.count("/") + 2):
        entry = _entry(repository, revision, "/".join(path.split("/")[:depth]))
        if not entry.startswith(_FOLDER):
            break
    return entry


def _snapshot(repository: Repository, scratch: Path) -> Revision:
    """Hash the working tree as it is into a tree whose new objects go to `scratch`."""
    if repository.top is None:
        raise UsageError(f"{WORKTREE} needs a working tree, and {repository.git_dir} is a bare repository")
    objects = scratch / "worktree-objects"
    objects.mkdir(parents=True, exist_ok=True)
    with git.private_index() as environment:
        index = Path(git.in_repository(repository, ["rev-parse", "--git-path", "index"]).stdout.strip())
        index = index if index.is_absolute() else repository.top / index
        if index.exists():  # start from the user's: it knows which files are tracked although they match .gitignore
            shutil.copyfile(index, environment["GIT_INDEX_FILE"])
        private = environment | git.object_variables(repository.git_dir, objects)
        added = git.run([*git.QUIET, "add", "--all"], repository.top, private, check=False)
        if added.returncode != 0:
            raise UsageError(f"git cannot read the working tree: {git.last_line(added.stderr)}")
        tree = git.run([*git.QUIET, "write-tree"], repository.top, private).stdout.strip()
    return Revision(WORKTREE, None, tree, objects)


def _write_tree(git_dir: Path, tree: str, folder: Path, objects: Path | None = None) -> None:
    with git.private_index() as environment:
        private = environment | git.object_variables(git_dir, objects)
        private |= {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(folder)}
        git.run([*git.QUIET, "read-tree", tree], folder, private)
        git.run([*git.QUIET, "checkout-index", "--all", "--force"], folder, private)


def _is_intact(repository: Repository, revision: Revision, folder: Path) -> bool:
    """Whether nothing was changed or added since the export: a measurement must be of the commit, not of an accident."""
    with git.private_index() as environment:
        private = environment | _objects(repository, revision)
        private |= {"GIT_DIR": str(repository.git_dir), "GIT_WORK_TREE": str(folder)}
        git.run([*git.QUIET, "read-tree", revision.tree], folder, private)
        listing = ["status", "--porcelain", "-z", "--no-renames", "--ignored", "--untracked-files=all"]
        status = git.run([*git.QUIET, *listing], folder, private, check=False)
        # The first letter compares the tree with HEAD, which need not be the same; the second, the folder with the tree.
        return status.returncode == 0 and all(entry[1] == " " for entry in status.stdout.split("\0") if entry)


def _refuse_pointers(tree: Path, needed: Sequence[str], revision: Revision) -> None:
    """Refuse files that git-lfs should have replaced: what would be measured are the texts that stand for them."""
    if not any(b"filter=lfs" in found.read_bytes() for found in tree.rglob(".gitattributes")):
        return
    for root in filter(Path.exists, (tree / path for path in needed)):
        for file in [root] if root.is_file() else sorted(root.rglob("*")):
            small = file.is_file() and file.stat().st_size < _LONGEST_POINTER
            if small and file.read_bytes().startswith(_POINTER):
                raise UsageError(git.without_lfs(f"{file.relative_to(tree)} of {revision.rev}"))


def _needed_submodules(repository: Repository, revision: Revision, needed: Sequence[str]) -> list[tuple[str, str]]:
    listed = git.in_repository(
        repository, ["ls-tree", "-r", "-z", revision.tree], _objects(repository, revision)
    ).stdout
    found = []
    for entry in filter(None, listed.split("\0")):
        description, path = entry.split("\t", 1)
        mode, _, commit = description.split()
        if mode == "160000" and any(f"{path}/".startswith(f"{n}/") or f"{n}/".startswith(f"{path}/") for n in needed):
            found.append((path, commit))
    return found


def _refuse_dirty_submodules(top: Path, paths: Sequence[str]) -> None:
    for path in paths:
        if (top / path / ".git").exists() and git.run(["status", "--porcelain"], top / path).stdout:
            raise UsageError(
                f"the submodule {path} has uncommitted changes, which {WORKTREE} cannot see; commit them in it"
            )


def _export_submodule(repository: Repository, revision: Revision, path: str, commit: str, folder: Path) -> None:
    here = repository.top / path if repository.top else None
    fix = f"git submodule update --init -- {path}"
    if here is None or not (here / ".git").exists():
        raise UsageError(f"{revision.rev} needs the submodule {path}, which is not here; run `{fix}`")
    submodule = open_repository(here)
    if git.in_repository(submodule, ["cat-file", "-e", f"{commit}^{{commit}}"], check=False).returncode != 0:
        raise UsageError(
            f"{revision.rev} needs commit {commit[:12]} of the submodule {path}, which is not here; run `{fix}`"
        )
    (folder / path).mkdir(parents=True, exist_ok=True)
    _write_tree(submodule.git_dir, commit, folder / path)


def _prune(cache: Path, keep: Path) -> None:
    """Delete what interrupted exports left, and all but the newest trees, unless used within a week."""
    now = time.time()
    folders = sorted((f for f in cache.iterdir() if f.is_dir()), key=lambda f: f.stat().st_mtime, reverse=True)
    trees = [f for f in folders if not f.name.startswith(".")]
    left_over = [f for f in folders if f.name.startswith(".") and now - f.stat().st_mtime > 3600]
    old = [f for f in trees[_KEPT_TREES:] if now - f.stat().st_mtime > _KEPT_SECONDS and f != keep]
    for folder in left_over + old:
        shutil.rmtree(folder, ignore_errors=True)


def _unknown_revision(repository: Repository, rev: str) -> str:
    if git.in_repository(repository, ["rev-list", "--all", "-n", "1"], check=False).stdout.strip() == "":
        return f"there is no revision {rev!r}: the repository has no commits yet; make one first"
    if git.in_repository(repository, ["rev-parse", "--is-shallow-repository"], check=False).stdout.strip() == "true":
        return (
            f"there is no revision {rev!r} in this shallow clone; fetch the history: `git fetch --unshallow`, "
            "or `fetch-depth: 0` for actions/checkout"
        )
    return f"there is no revision {rev!r} in this repository; if it exists elsewhere, `git fetch` brings it here"


def _objects(repository: Repository, revision: Revision) -> dict[str, str]:
    return git.object_variables(repository.git_dir, revision.objects)
