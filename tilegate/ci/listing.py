"""Which cases the samples of a pull request must have: those that the default branch's suite lists."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tilegate.ci.github import TOKEN_VARIABLE
from tilegate.ci.plan import suite_path
from tilegate.config import load_config
from tilegate.files import UsageError
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.session import WorkerError
from tilegate.measuring.workspace import make_workspace
from tilegate.schemas.samples import Target, Tier


@contextlib.contextmanager
def _without_token() -> Iterator[None]:
    """Keep the token out of the environment that processes started meanwhile get."""
    token = os.environ.pop(TOKEN_VARIABLE, None)
    try:
        yield
    finally:
        if token is not None:
            os.environ[TOKEN_VARIABLE] = token


def cases_of(checkout: Path, target: Target, tier: Tier) -> tuple[str, ...]:
    """Import the suite of a checkout in a process of its own, which needs no device; return the ids of its cases.

    Args:
        checkout: the files; trusted, for they are imported.
        target, tier: what the suite is told to select.

    Raises:
        UsageError: the suite, or a module of it, cannot be imported, or has no cases for that target and tier.
    """
    config = load_config((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="tilegate-ci-") as folder:
        workspace = make_workspace(
            Path(folder, "base"),
            config,
            exported=checkout.resolve(),
            suite_root=checkout.resolve() / suite_path(config),
            target=target,
            tier=tier,
        )
        with _without_token(), WorkerPool({"base": workspace}, Path(folder, "logs"), config, label="list") as pool:
            try:
                listed = pool.worker("base").catalogue()
            except WorkerError as error:
                raise UsageError(f"the suite cannot be listed: {error}") from None
    if listed["broken"]:
        named = ", ".join(name or "the suite" for name in listed["broken"])
        raise UsageError(f"the suite cannot be listed: {named} cannot be imported")
    if not listed["cases"]:
        raise UsageError(f"the suite has no cases for target {target} and tier {tier}")
    return tuple(case["id"] for case in listed["cases"])
