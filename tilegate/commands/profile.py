"""`tilegate profile`: hardware counters of one case, in the same terms on NVIDIA and AMD; and of two revisions."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tilegate import files, invocation
from tilegate.config import GateConfig
from tilegate.evidence import counters, emulated, environment, profile_table, profiling
from tilegate.evidence.cases import one_case
from tilegate.files import UsageError
from tilegate.isa import ptxas
from tilegate.isa.analysis import analyse
from tilegate.isa.toolchain import ToolchainError, find_toolchain
from tilegate.lowering.store import default_store
from tilegate.measuring import device_lock, trees
from tilegate.measuring.environment import describe
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.session import WorkerError
from tilegate.measuring.workspace import Workspace, workspace_of
from tilegate.progress import Reporter
from tilegate.protocol import JSON, TARGETS, Artifact
from tilegate.schemas.samples import Target
from tilegate.showing.markup import code, plain

SCHEMA = "tilegate-profile/1"
EXIT_DONE, EXIT_ENVIRONMENT = 0, 5

_DESCRIPTION = """\
Launch one case under the vendor's profiler (ncu on CUDA, rocprofv3 on ROCm) and show where its time goes: matrix units,
vector arithmetic, LDS or shared memory, L2, memory, occupancy, bank conflicts, bytes against the ideal, instructions. The
same terms on both vendors, each with the counter that it comes from; beside them the compiled code's figures, what the
emulator counts (AMD alone), and the roofline. profile.json goes into a history: `tilegate history import`.

examples:
  tilegate profile "latency_forward('prefill-7b-b4-s4096', 'adaptive')"         the files as they are
  tilegate profile 's4096.*adaptive' --base main                          before and after
  tilegate profile 's4096.*adaptive' --rev v1.0 --json --out profile-v1
"""
_EPILOG = "exit code: 0 done, 2 usage error, 5 no profiler here, or no right to read counters"


@dataclass(frozen=True)
class _Side:
    """One revision of the case, profiled."""

    revision: trees.Revision
    profile: profiling.Profile
    static: dict[str, JSON]
    work: Mapping[str, Any]
    emulated: JSON


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate profile` to the command line."""
    parser = subparsers.add_parser(
        "profile",
        help="read hardware counters of one case, by ncu or rocprofv3",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "case", metavar="CASE", help="the id of one case, a part of it, an expression, or a shape and a policy"
    )
    parser.add_argument("--rev", default=trees.WORKTREE, metavar="REV", help="the revision (default: WORKTREE)")
    parser.add_argument("--base", metavar="REV", help="also profile this revision, and show what differs")
    parser.add_argument(
        "--target", choices=("auto", *TARGETS), default="auto", help="default: the GPU that torch finds"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the files go (default: a folder in .tilegate)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table, for an issue")
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="the repository (default: this one)")


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate profile`; return the exit code. Raises UsageError."""
    reporter = Reporter()
    target = invocation.target_named(args.target)
    try:
        profiling.profiler(target)
        if args.out:
            _prepared(args.out)
        with invocation.ending_on_signals():
            sides, case, folder = _profile(args, target, reporter)
    except profiling.NoProfilerError as error:
        print(f"tilegate: {error}\n{_without(args.case)}", file=sys.stderr)
        return EXIT_ENVIRONMENT
    document = _document(sides, case, target)
    for role, side in sides.items():
        for name, text in side.profile.raw.items():
            files.write_text(folder / f"{role}-{name}", text)
    files.write_json(folder / "profile.json", document)
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        show(document, markdown=args.markdown)
    reporter.note(f"profile: {folder / 'profile.json'}")
    return EXIT_DONE


def _profile(args: argparse.Namespace, target: Target, reporter: Reporter) -> tuple[dict[str, _Side], str, Path]:
    repository = trees.open_repository(args.repo.resolve())
    arch = str(_mapping(describe(target)["device"]).get("arch"))
    wanted = {**({"base": args.base} if args.base else {}), "head": args.rev}
    sides: dict[str, _Side] = {}
    profiled: dict[str, tuple[profiling.Profile, dict[str, JSON], Mapping[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="tilegate-profile-") as scratch:
        revisions = {
            role: trees.resolve(repository, rev, Path(scratch, f"objects-{role}")) for role, rev in wanted.items()
        }
        suite = next(iter(revisions.values()))
        found = {
            role: workspace_of(
                repository, revision, suite, Path(scratch, role, "workspace"), target=target, tier="full"
            )
            for role, revision in revisions.items()
        }
        case = ""
        who = f"tilegate profile {args.case}"
        with (
            device_lock.hold(target, wait=True, who=who, say=reporter.note),
            reporter.phase("profile", 2 * len(found)) as phase,
        ):
            for role, (workspace, config) in found.items():
                phase.doing(f"{role}: compiling")
                case, work, static = _about(workspace, config, args.case, Path(scratch, role), arch)
                phase.done(f"{role}: compiled")
                phase.doing(f"{role}: under the profiler")
                place = Path(scratch, role, "profile")
                place.mkdir()
                profiled[role] = (profiling.profile(workspace, case, place), static, work)
                phase.done(f"{role}: profiled")
        for role, (workspace, _) in found.items():  # needs the device no more
            counted = emulated.counts(workspace, case, arch, Path(scratch, role, "emulated"), default_store())
            sides[role] = _Side(revisions[role], *profiled[role], counted)
    head = revisions["head"].short
    name = f"profile-{head}-{hashlib.sha256(case.encode()).hexdigest()[:8]}"
    return sides, case, args.out or invocation.default_folder(repository, name)


def _about(
    workspace: Workspace, config: GateConfig, pattern: str, scratch: Path, arch: str
) -> tuple[str, Mapping[str, Any], dict[str, JSON]]:
    """Return the case that the expression names, its work, and the figures of its compiled code."""
    with WorkerPool({workspace.name: workspace}, scratch / "logs", config, label="profile") as pool:
        try:
            worker = pool.worker(workspace.name)
            found = one_case(worker, pattern)
            names = [str(found["id"])]
            made = worker.request("generated", config.compile_timeout, case=names[0])
            with contextlib.suppress(WorkerError):
                worker.request("precompile", config.compile_timeout, cases=names)
        except WorkerError as error:
            raise UsageError(f"the case cannot be profiled: {error.kind}: {error.message}") from None
    static = {str(values["name"]): _static(Artifact(**values), arch) for values in made}
    return names[0], found.get("work", {}), static


def _static(artifact: Artifact, arch: str) -> JSON:
    """Return what the compiler made of a kernel, or the sentence that says why that is not known."""
    try:
        if arch.startswith("sm_"):
            return asdict(ptxas.report(artifact, arch, default_store()))
        figures = analyse(artifact, find_toolchain(arch), default_store()).figures
        return None if figures is None else figures.to_json()
    except (ToolchainError, UsageError, ValueError) as error:
        return str(error)


def _document(sides: Mapping[str, _Side], case: str, target: str) -> dict[str, JSON]:
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "case": case,
        "target": target,
        "environment": environment.collect(target),
        **{
            role: {
                "revision": {"rev": side.revision.rev, "commit": side.revision.commit, "tree": side.revision.tree},
                "tool": side.profile.tool,
                "work": dict(side.work),
                "kernels": [counters.to_json(launch, target) for launch in side.profile.launches],
                "static": side.static,
                "emulated": side.emulated,
            }
            for role, side in sides.items()
        },
    }


def show(document: Mapping[str, Any], *, markdown: bool) -> None:
    """Print the table and what limits each kernel."""
    roles = [role for role in ("base", "head") if role in document]
    columns = ("what", *roles, *(["change"] if len(roles) == 2 else []), "counter")
    print(f"{plain(document['case'])} on {plain(document['environment']['device']['name'])}")
    if markdown:
        print("\n| " + " | ".join(columns) + " |\n|---|" + "--:|" * (len(columns) - 2) + "---|")
        for row in profile_table.rows(document):
            print("| " + " | ".join((plain(row[0]), *row[1:-1], code(row[-1]))) + " |")
        print()
    else:
        table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
        table.columns[-1].overflow = "fold"
        for row in profile_table.rows(document):
            table.add_row(*map(plain, row))
        Console(markup=False, highlight=False, soft_wrap=True).print(table)
    for sentence in [*profile_table.limits(document), *profile_table.notes(document)]:
        print(plain(sentence, limit=400))


def _prepared(folder: Path) -> None:
    """Make the folder before minutes are spent on what is to go there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write into {folder}: {error.strerror or error}; name another folder with --out"
        ) from None


def _mapping(value: JSON) -> Mapping[str, JSON]:
    return value if isinstance(value, Mapping) else {}


def _without(pattern: str) -> str:
    return (
        "What you can learn without a profiler:\n"
        f"  tilegate isa -b '{pattern}'                  registers, LDS, occupancy, the main loop's instructions (AMD)\n"
        f"  tilegate emulate '{pattern}' --counters      what it executes: matrix instructions, LDS cycles, coalescing (AMD)\n"
        "  tilegate gate --base REV --head REV          times, rates and the roofline, on any device"
    )
