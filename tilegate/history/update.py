"""What is still to be known of a branch, and finding it out: code versions first, then the comparisons that tell most."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilegate import tools
from tilegate.config import load_config
from tilegate.files import UsageError, load_samples
from tilegate.history import branch, importing
from tilegate.history.bisecting import OutOfTimeError
from tilegate.history.network import next_edge
from tilegate.history.records import Commit, Versions, resolved
from tilegate.history.store import Store
from tilegate.history.survey import survey
from tilegate.history.view import Case, History, view
from tilegate.measuring import git, trees
from tilegate.schemas.samples import Target, Tier

TYPICAL_ERROR = 0.002
"""Standard error that a new comparison is expected to have: two replicates of a GPU kernel above 50 us (docs/gate-statistics.md)."""

WIDE = 0.005
"""Half an interval of head against release, above which a direct comparison is worth its time."""


@dataclass(frozen=True)
class Wanted:
    """A comparison to be measured.

    Attributes:
        base, head: places of commits.
        cases: that it tells something of.
        reason: for people.
    """

    base: int
    head: int
    cases: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Range:
    """Which part of a branch, and how its cases are selected.

    Attributes:
        folder: the repository.
        range_, limit: as `git log` takes them.
        tags: a glob for those that are releases.
        target, tier: what the suite selects.
        pattern: regular expression for the ids of cases; None: all.
        case: the one case that matters, if it is one: what is known of others alone need not be known of it.
    """

    folder: Path
    range_: str
    limit: int
    tags: str
    target: Target
    tier: Tier
    pattern: str | None = None
    case: str | None = None

    def covers(self, record: Versions) -> bool:
        """Whether a record of a commit's versions says all that matters here."""
        only = record.get("only")
        return only in (None, self.pattern) or (self.case is not None and re.search(only or "", self.case) is not None)


def survey_all(surveyor: Surveyor, *, until: float) -> tuple[Commit, ...]:
    """Find the code versions of all commits that have none yet, the newest first; return the commits, the oldest first.

    What is found stays, whenever this is interrupted.

    Args:
        surveyor: has the commits.
        until: on time.monotonic's clock; no survey begins later.
    """
    missing = [commit["sha"] for commit in reversed(surveyor.commits) if not surveyor.knows(commit["sha"])]
    for number, sha in enumerate(missing, 1):
        if time.monotonic() > until and not surveyor.shared(sha):
            surveyor.say(f"out of time: {len(missing) - number + 1} commits have no code versions yet")
            break
        surveyor.versions(sha, f"{number}/{len(missing)} ")
    return surveyor.commits


@dataclass(frozen=True)
class Surveyor:
    """Finds the code versions of commits, and keeps them.

    Commits whose package, suite and settings are the same as another's share its versions without being generated.

    Attributes:
        store: gets the records.
        where: the range.
        commits: of the range, the oldest first.
        contents: by hash, what decides a commit's code versions: equal contents need one survey.
        say: told what is done.
    """

    store: Store
    where: Range
    commits: tuple[Commit, ...]
    contents: Mapping[str, str]
    say: Callable[[str], None]
    _repository: git.Repository
    _known: dict[str, Versions]
    _by_contents: dict[str, Versions]
    _whole: dict[str, str]  # by commit, the one whose record says all

    @staticmethod
    def of(store: Store, where: Range, say: Callable[[str], None], boundary: str | None = None) -> Surveyor:
        """Record the range's commits and releases, and see what is known of them.

        Args:
            store, where, say: see the attributes.
            boundary: a commit that is looked at beside the range's, before them: `good..bad` has no good.

        Raises:
            UsageError: there is no such repository or range.
        """
        repository = trees.open_repository(where.folder)
        commits = branch.commits(where.folder, where.range_, where.limit)
        if boundary is not None:
            commits = [*branch.commits(where.folder, boundary, 1), *commits]
        for commit in commits:
            store.add(commit)
        for release in branch.releases(where.folder, where.tags):
            store.add(release)
        kept = [found for found in store.read()[0] if found["kind"] == "versions"]
        others = {found["target"] for found in kept} - {where.target}
        if others:
            raise UsageError(
                f"{store.folder} is a history of {', '.join(sorted(others))}, whose kernels are others than those of {where.target}; "
                "--store DIR begins another history"
            )
        kept = [found for found in kept if where.covers(found)]
        # Of a commit that was asked for all of its cases, that record.
        known = {found["commit"]: found for found in sorted(resolved(kept), key=lambda found: "only" not in found)}
        contents = {commit["sha"]: _contents(repository, where.folder, commit["sha"]) for commit in commits}
        by_contents: dict[str, Versions] = {}
        for sha, record in known.items():
            if sha in contents:
                by_contents.setdefault(contents[sha], record)
        whole = {found["commit"]: found["same"] for found in kept if "same" in found}
        return Surveyor(store, where, tuple(commits), contents, say, repository, known, by_contents, whole)

    def knows(self, sha: str) -> bool:
        """Whether the commit's versions are kept already."""
        return sha in self._known

    def shared(self, sha: str) -> bool:
        """Whether the commit's versions are known without generating anything."""
        return self.knows(sha) or self.contents[sha] in self._by_contents

    def versions(self, sha: str, progress: str = "") -> Versions:
        """Return the code versions at a commit of the range, generating its kernels if nothing else says."""
        if sha in self._known:
            return self._known[sha]
        same = self._by_contents.get(self.contents[sha])
        if same is None:
            self.say(f"{progress}{sha[:12]}: generating its kernels")
            toolchain = f"tilelang {tools.package_version('tilelang')}"
            same = survey(
                self._repository,
                sha,
                target=self.where.target,
                tier=self.where.tier,
                toolchain=toolchain,
                logs=self.store.folder / "logs",
                pattern=self.where.pattern,
            )
        own: Versions = {**same, "commit": sha}
        self.store.add(self._shortened(own))
        self._known[sha] = own
        self._by_contents.setdefault(self.contents[sha], own)
        return own

    def _shortened(self, record: Versions) -> Versions:
        """Return a record that names an earlier one which says the same; most do."""
        for other in self._known.values():
            if {**other, "commit": ""} == {**record, "commit": ""}:
                whole = self._whole.get(other["commit"], other["commit"])
                self._whole[record["commit"]] = whole
                return {**record, "cases": {}, "failed": {}, "same": whole}
        return record


def plan(history: History, shas: Sequence[str], pattern: str | None = None) -> list[Wanted]:
    """Return the comparisons that are missing, the most informative first.

    Head against the last release where its interval is wide or unknown; then each change of a case's code that nothing has
    compared, the newest first; then, for cases whose head is still not compared well with the release, the comparison that
    narrows it most.

    Args:
        history: as the store has it.
        shas: of the commits that may be measured.
        pattern: regular expression for the cases that may be; None: all.
    """
    measurable = {place for place, commit in enumerate(history.commits) if commit.sha in set(shas)}
    if not measurable:
        return []
    head = max(measurable)
    found: dict[tuple[int, int, str], list[str]] = {}
    release = history.last_release
    for case in history.cases.values():
        if "[method " in case.id or (pattern is not None and not re.search(pattern, case.id)):
            continue
        for base, other in _changes(case, measurable):
            contrast = case.contrast(base, other)
            if contrast is None:
                found.setdefault((base, other, "its code changed here"), []).append(case.id)
        if release in measurable and release != head and _wide(case, release, head):
            best = _best(case, release, head, measurable)
            if best is not None:
                found.setdefault((*best, "head against the last release"), []).append(case.id)
    order = sorted(found.items(), key=lambda item: (item[0][2] != "head against the last release", -item[0][1]))
    return [Wanted(base, other, tuple(cases), reason) for (base, other, reason), cases in order]


def attempt(history: History, wanted: Wanted) -> str:
    """Return a name for measuring a comparison once more, "" if it was not measured yet: its gate would only be read again."""
    done = 0
    for id in wanted.cases:
        case = history.cases[id]
        pair = {case.versions[wanted.base], case.versions[wanted.head]}
        edges = case.segments[0].edges if case.segments else ()
        done = max(done, sum({edge.record["base"], edge.record["head"]} == pair for edge in edges))
    return str(done) if done else ""


def measure(
    store: Store,
    base: str,
    head: str,
    where: Range,
    *,
    minutes: float,
    attempt: str = "",
    bench: str | None = None,
) -> int:
    """Measure one comparison by a gate, and add what it says to the store; return how many comparisons it gave.

    The gate runs in a process of its own, in a folder beside the store: interrupted, the same comparison continues.

    Args:
        store: gets the comparisons.
        base, head: hashes of the commits.
        where: repository, target, tier.
        minutes: the budget of the gate.
        attempt: another name measures the same commits again.
        bench: regular expression for the cases; None: those of `where`.

    Raises:
        UsageError: the gate refused; its message is part of this one.
        OutOfTimeError: it had no time left to say anything.
        KeyboardInterrupt: interrupted.
    """
    out = store.folder / "runs" / (f"{base[:12]}-{head[:12]}" + (f"-{attempt}" if attempt else ""))
    command = [
        *(sys.executable, "-m", "tilegate", "gate", "--base", base, "--head", head, "--base-exact", "--no-emulate"),
        *("--repo", str(where.folder), "--target", where.target, "--tier", where.tier, "--out", str(out)),
        *("--budget", f"{max(minutes, 0.1):.2f}", "--ignore-dirty"),
    ]
    if (chosen := bench or where.pattern) is not None:
        command += ["--bench", chosen]
    done = _tilegate(command)
    samples = out / "samples.json"
    if done.returncode == 2 or not samples.is_file():
        raise UsageError(f"{base[:12]} against {head[:12]}: {_last_line(done)}")
    found = load_samples(samples)
    got = sum(store.add(record) and record["kind"] == "comparison" for record in importing.from_samples(found))
    if not got and any("stopped" in case for case in found["cases"].values()):
        raise OutOfTimeError
    return got


def compile_missing(store: Store, surveyor: Surveyor, chips: str, *, until: float) -> None:
    """Keep what the compiler makes of the kernels at each commit for chips that need not be here, the newest first.

    Commits with the contents of one that is kept already are left out.

    Args:
        store: gets the figures.
        surveyor: has the commits.
        chips: as for `tilegate isa --arch`.
        until: on time.monotonic's clock; nothing is compiled later.

    Raises:
        UsageError: the chips or the compiler are not there.
    """
    wanted = set(chips.split(","))
    had: dict[str, set[str]] = {}
    for found in store.read()[0]:
        if found["kind"] == "figures" and found["source"] == "isa" and found["commit"] in surveyor.contents:
            had.setdefault(surveyor.contents[found["commit"]], set()).add(found["chip"])
    for commit in reversed(surveyor.commits):
        sha = commit["sha"]
        contents = surveyor.contents[sha]
        if wanted <= had.get(contents, set()) or not surveyor.versions(sha)["cases"]:
            continue
        left = until - time.monotonic()
        if left <= 0:
            surveyor.say("out of time: some commits have no figures of the compiler yet")
            return
        surveyor.say(f"{sha[:12]}: compiling its kernels for {chips}")
        command = [*(sys.executable, "-m", "tilegate", "isa", "--rev", sha, "--arch", chips, "--json")]
        done = _tilegate([*command, "--repo", str(surveyor.where.folder)])
        if done.returncode in (2, 5):
            raise UsageError(f"--isa {chips}: {_last_line(done)}")
        had.setdefault(contents, set()).update(wanted)
        try:
            document = json.loads(done.stdout)
        except ValueError:
            surveyor.say(f"  no figures: {_last_line(done)}")
            continue
        for record in importing.from_survey(document):
            store.add(record)


def _tilegate(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command of ours in a process of its own. Raises KeyboardInterrupt: it was interrupted."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode == -2 or done.returncode == 130:  # noqa: PLR1714 - one a signal, one an exit status
        raise KeyboardInterrupt
    return done


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    said = done.stderr.strip().splitlines()
    return said[-1].removeprefix("tilegate: ") if said else f"exit status {done.returncode}"


def load(store: Store) -> History:
    """Read and work out a store's history. Raises UsageError."""
    return view(*store.read())


def plan_to_json(history: History, wanted: Sequence[Wanted]) -> str:
    """Return a plan for machines."""
    return json.dumps(
        [
            {
                "base": history.commits[one.base].sha,
                "head": history.commits[one.head].sha,
                "cases": list(one.cases),
                "reason": one.reason,
            }
            for one in wanted
        ],
        indent=1,
    )


def _contents(repository: git.Repository, folder: Path, sha: str) -> str:
    """What decides a commit's code versions: equal contents need no second survey."""
    try:
        revision = trees.resolve(repository, sha, folder)
        config = load_config(trees.read_file(repository, revision, "pyproject.toml"))
    except UsageError:
        return sha
    package = config.package.partition(".")[0]
    paths = [package, f"src/{package}", f"{package}.py", config.suite.replace(".", "/"), "pyproject.toml"]
    return branch.contents(folder, sha, paths)


def _changes(case: Case, measurable: set[int]) -> Iterator[tuple[int, int]]:
    """Yield neighbouring places with other code: the last of the old and the first of the new version."""
    before: int | None = None
    for place, version in enumerate(case.versions):
        if version is None:
            continue
        if before is not None and case.versions[before] != version and {before, place} <= measurable:
            yield before, place
        before = place


def _wide(case: Case, release: int, head: int) -> bool:
    if case.versions[release] is None or case.versions[head] is None:
        return False
    contrast = case.contrast(release, head)
    return contrast is None or (contrast.high - contrast.low) / 2 > WIDE


def _best(case: Case, release: int, head: int, measurable: set[int]) -> tuple[int, int] | None:
    """The comparison that narrows head against release most, as places of commits."""
    last = {
        version: place for place, version in enumerate(case.versions) if version is not None and place in measurable
    }
    before, after = case.versions[release], case.versions[head]
    if not case.segments or before is None or after is None:
        return release, head
    network = case.segments[0].network
    if before not in network.component or after not in network.component:
        return release, head
    pair = next_edge(network, before, after, TYPICAL_ERROR, list(last))
    if pair is None:
        return None
    one, other = sorted(last[version] for version in pair)
    return one, other
