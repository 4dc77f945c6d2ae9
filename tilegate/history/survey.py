"""Which code every case has at a commit, by generating it: no device, and no timing."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import cast

from tilegate.files import UsageError
from tilegate.history.records import CodeVersion, Versions
from tilegate.history.view import SUITE
from tilegate.measuring import git, trees
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.session import WorkerError
from tilegate.measuring.workspace import workspace_of
from tilegate.protocol import is_call
from tilegate.schemas.samples import Target, Tier


def survey(
    repository: git.Repository,
    commit: str,
    *,
    target: Target,
    tier: Tier,
    toolchain: str,
    logs: Path,
    pattern: str | None = None,
) -> Versions:
    """Ask a commit's own suite for the identity of every kernel case. What fails is a reason, never an exception.

    Args:
        repository: has the commit.
        commit: its hash.
        target, tier: what the suite selects.
        toolchain: what the generated code depends on beside the commit.
        logs: for what the worker prints.
        pattern: regular expression for the ids of the cases that are asked; None: all.
    """
    cases: dict[str, CodeVersion] = {}
    failed: dict[str, str] = {}
    record = Versions(kind="versions", commit=commit, target=target, toolchain=toolchain, cases=cases, failed=failed)
    if pattern is not None:
        record["only"] = pattern
    with tempfile.TemporaryDirectory(prefix="tilegate-history-") as scratch:
        revision = trees.resolve(repository, commit, Path(scratch, "objects"))
        try:
            workspace, config = workspace_of(
                repository, revision, revision, Path(scratch, "side"), target=target, tier=tier
            )
        except UsageError as error:
            failed[SUITE] = str(error)[:500]
            return record
        with WorkerPool({workspace.name: workspace}, logs, config, label=f"survey-{commit[:12]}") as pool:
            try:
                catalogue = pool.worker(workspace.name).catalogue()
            except WorkerError as error:
                failed[SUITE] = error.message[:500]
                return record
            for module, failure in catalogue["broken"].items():
                if failure["kind"] not in ("missing", "skipped"):  # these say that the device does not have its cases
                    failed[module or SUITE] = f"{failure['kind']}: {failure['message']}"[:500]
            for case in catalogue["cases"]:
                if is_call(case["benchmark"]) or (pattern is not None and not re.search(pattern, case["id"])):
                    continue
                try:
                    worker = pool.worker(workspace.name)
                    answer = worker.request("artifacts", config.compile_timeout, case=case["id"])
                except WorkerError as error:
                    failed[case["id"]] = f"{error.kind}: {error.message}"[:500]
                    continue
                if answer["identity"] is None:
                    failed[case["id"]] = "its suite cannot tell which code it runs"
                    continue
                entry = CodeVersion(identity=answer["identity"], method=case["version"])
                if work := case.get("work"):
                    entry["work"] = cast("dict[str, float | str]", dict(**work))
                cases[case["id"]] = entry
    return record
