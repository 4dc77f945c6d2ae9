"""`tilegate ci image`: builds the container in which everything is measured, and proposes its digest for .github/bench.toml.

What is measured with is what a maintainer has merged: nothing here changes the default branch. The change waits on a branch
of its own, and an issue leads to it. Not a pull request: the setting by which workflows may open some is the one by which
they may approve any (docs/security.md, settings), and the checks of one that a workflow opened wait for an approval.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from tilegate.ci import container, settings
from tilegate.ci.github import TOKEN_VARIABLE, Client
from tilegate.files import UsageError
from tilegate.showing.markup import code

REGISTRY = "ghcr.io"
BRANCH = "tilegate/runner-image"
LABEL = "tilegate-runner-image"
_BASE = re.compile(r"^ARG BASE=(\S+)$", re.MULTILINE)
_MARKER = "<!-- tilegate runner image -->"


def base_of(dockerfile: Path) -> str:
    """Return the image that a Dockerfile builds on, which it must name with its digest. Raises UsageError."""
    try:
        found = _BASE.findall(dockerfile.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {dockerfile}: {error}") from None
    if len(found) != 1:
        raise UsageError(
            f"{dockerfile} has {len(found)} lines `ARG BASE=…`; it must have one, the image that it builds on"
        )
    try:
        return container.checked_image(found[0])
    except UsageError:
        raise UsageError(
            f"{dockerfile} builds on {found[0][:200]}, without a digest; `docker buildx imagetools inspect {found[0][:200]}` "
            "shows it: ARG BASE=name:tag@sha256:…"
        ) from None


def build(folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Build the image of a folder with a Dockerfile; return its tag.

    Nothing of the token is in the environment or the configuration of what is built.

    Args:
        folder: the build's context.
        environment: GITHUB_REPOSITORY and GITHUB_SHA name what it is built from.

    Raises:
        UsageError: the base is not pinned, or Docker fails.
    """
    base_of(folder / "Dockerfile")
    repository, commit = (_needed(environment, name) for name in ("GITHUB_REPOSITORY", "GITHUB_SHA"))
    tag = f"{REGISTRY}/{repository.lower()}-bench:{commit[:12]}"
    # By the first of these the registry knows the repository.
    labels = {"source": f"{_server(environment)}/{repository}", "revision": commit}
    words = [word for key, value in labels.items() for word in ("--label", f"org.opencontainers.image.{key}={value}")]
    clean = {key: value for key, value in environment.items() if key != TOKEN_VARIABLE}
    _docker(["build", "--pull", "--tag", tag, *words, str(folder)], clean)
    return tag


def push(tag: str, environment: Mapping[str, str] = os.environ) -> str:
    """Push an image; return its name with the digest by which the registry knows it.

    Raises:
        UsageError: there is no token, or Docker fails.
    """
    token = _needed(environment, TOKEN_VARIABLE)
    clean = {key: value for key, value in environment.items() if key != TOKEN_VARIABLE}
    with tempfile.TemporaryDirectory(prefix="tilegate-ci-") as folder:  # where Docker writes the token down
        inside = {**clean, "DOCKER_CONFIG": folder}
        user = environment.get("GITHUB_ACTOR") or "token"
        _docker(["login", REGISTRY, "--username", user, "--password-stdin"], inside, given=token)
        _docker(["push", "--quiet", tag], inside)
    shown = _docker(["image", "inspect", "--format", "{{json .RepoDigests}}", tag], clean, captured=True)
    name = tag.rpartition(":")[0]
    found = [digest for digest in json.loads(shown or "null") or [] if digest.startswith(f"{name}@")]
    if not found:
        raise UsageError(f"Docker does not say by which digest the registry knows {tag}")
    return container.checked_image(found[0])


def propose(client: Client, image: str, base: str, url: str) -> int | None:
    """Put the change that enters an image on a branch, and open or update the issue that leads to it.

    Args:
        client: may write to branches that are not protected, and issues.
        image: with its digest.
        base: what it was built on.
        url: of the run that built it.

    Returns:
        The number of the issue; None if the image is entered already.

    Raises:
        UsageError: GitHub refuses, or the file is not as expected.
    """
    image = container.checked_image(image)
    target = str(client.get("")["default_branch"])
    tip = client.get(f"/git/ref/heads/{quote(target)}")["object"]["sha"]
    before = client.text(f"/{settings.FILE}", tip)
    if before is None:
        raise UsageError(f"{target} has no {settings.FILE}")
    after = settings.with_image(before, image)
    if after == before:
        return None
    known = client.pages("/issues", state="open", labels=LABEL, creator=client.bot)
    issue = next((found for found in known if (found["body"] or "").startswith(_MARKER)), None)
    values = {"title": "Measure in a newly built container", "body": _body(client, target, image, base, url)}
    if issue is None:
        issue = client.post("/issues", {**values, "labels": [LABEL]})
    else:
        client.patch(f"/issues/{issue['number']}", values)
    message = f"Measure in {image}\n\nBuilt on {base} by {url}\n\nCloses #{issue['number']}"
    file = {"path": settings.FILE, "mode": "100644", "type": "blob", "content": after}
    root = client.get(f"/git/commits/{tip}")["tree"]["sha"]
    tree = client.post("/git/trees", {"base_tree": root, "tree": [file]})["sha"]
    commit = client.post("/git/commits", {"message": message, "tree": tree, "parents": [tip]})["sha"]
    if client.find(f"/git/ref/heads/{BRANCH}") is None:
        client.post("/git/refs", {"ref": f"refs/heads/{BRANCH}", "sha": commit})
    else:
        client.patch(f"/git/refs/heads/{BRANCH}", {"sha": commit, "force": True})  # an older proposal is obsolete
    return int(issue["number"])


def _body(client: Client, target: str, image: str, base: str, url: str) -> str:
    compare = f"{_server(os.environ)}/{client.repository}/compare/{quote(target)}...{BRANCH}?expand=1"
    return (
        f"{_MARKER}\n"
        f"[**Open the pull request**]({compare}) that enters this image in `{settings.FILE}`. From then on everything is "
        "measured in it.\n\n"
        f"| | |\n|---|---|\n| image | {code(image)} |\n| built on | {code(base)} |\n| by | {url} |\n\n"
        "Whoever may push can change that branch: the pull request must enter the image named here, to the "
        "last digit, and do nothing else. Is the base the one that was reviewed? Can the runner pull the image without credentials (package settings, "
        "visibility public)? Then `tilegate doctor --runner` on the machine, after a pull, finds nothing left to do.\n"
    )


def _docker(
    words: Sequence[str], environment: Mapping[str, str], *, given: str | None = None, captured: bool = False
) -> str:
    try:
        done = subprocess.run(
            ["docker", *words],
            env=dict(environment),
            input=given or "",
            stdout=subprocess.PIPE if captured else None,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError("docker is not installed or not on PATH") from None
    if done.returncode != 0:
        raise UsageError(f"docker {words[0]} ended with status {done.returncode}; what it said is above")
    return done.stdout or ""


def _server(environment: Mapping[str, str]) -> str:
    return environment.get("GITHUB_SERVER_URL") or "https://github.com"


def _needed(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise UsageError(f"{name} must be set in the environment, as GitHub does")
    return value
