"""What a gate compares, where, and how."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from tilegate.config import GateConfig, to_dict
from tilegate.files import UsageError
from tilegate.judging import noise_file
from tilegate.judging.noise import NoiseProfile
from tilegate.judging.waivers import Waiver
from tilegate.measuring import trees
from tilegate.measuring.workspace import Workspace, make_workspace
from tilegate.schemas.samples import Ahead, Asked, Described, Environment, Target, Tier


@dataclass(frozen=True)
class Comparison:
    """What is compared, where, and how.

    Attributes:
        base, head: the revisions.
        base_tree, head_tree: their exported files.
        config: the base's.
        target, tier: what the suite selects.
        pattern: regular expression for case ids, or None.
        environment: see `tilegate.measuring.environment.describe`.
        out: output folder.
        same_suite: base and head have the same suite, or only the head has one.
        same_package: no file of the package differs.
        waived: the waivers of both.
        allow_head_waivers: those that only the head has count, too.
        noise: what calibration found out about this machine, if it was calibrated.
        emulate: execute changed kernels for chips that are not here.
        asked: the options of the command line that decide what a run gives or where it goes; None: as by default.
    """

    base: trees.Revision
    head: trees.Revision
    base_tree: Path
    head_tree: Path
    config: GateConfig
    target: Target
    tier: Tier
    pattern: str | None
    environment: Environment
    out: Path
    same_suite: bool
    same_package: bool
    waived: tuple[Waiver, ...] = ()
    allow_head_waivers: bool = False
    emulate: bool = True
    noise: NoiseProfile | None = None
    asked: Asked | None = None

    @property
    def arch(self) -> str | None:
        """The GPU's architecture ("gfx942", "sm_90"); None on the CPU, whose compiled code nobody counts."""
        arch = self.environment["device"]["arch"]
        return None if self.target == "cpu" or arch is None else str(arch)

    @property
    def emulated(self) -> tuple[str, ...]:
        """The chips whose changed kernels are executed before anything is timed; not the one that is here."""
        return tuple(arch for arch in self.config.emulate if arch != self.arch) if self.emulate else ()

    @property
    def _ahead(self) -> Ahead:
        return {"ahead": self.base.ahead} if self.base.ahead else {}

    def describe(self) -> Described:
        """Return the part of the samples document that is known before anything is measured."""
        described: Described = {
            "base": {"rev": self.base.rev, "commit": self.base.commit, "tree": self.base.tree, **self._ahead},
            "head": {"rev": self.head.rev, "commit": self.head.commit, "tree": self.head.tree},
            "target": self.target,
            "tier": self.tier,
            "filter": self.pattern,
            "config": json.loads(json.dumps(to_dict(self.config))),
            "environment": dict(self.environment),
            "waivers": [waiver.to_json() for waiver in self.waived],
            "allow_head_waivers": self.allow_head_waivers,
            "asked": self.asked or {"emulate": self.emulate},
        }
        if self.noise is not None:
            described["noise_profile"] = noise_file.to_samples(self.noise, list(self.noise.cases))
        return described

    def workspaces(self) -> dict[str, Workspace]:
        """Make the workspaces of base and head with the base's suite, and the head with its own as "new" if that is another one.

        Raises:
            UsageError: there is no suite, or a link in it leads out of its tree.
        """
        work = self.out / "work"
        shutil.rmtree(work, ignore_errors=True)
        suite = self.config.suite.replace(".", "/")
        in_base, in_head = self.base_tree / suite, self.head_tree / suite

        for tree, root in ((self.base_tree, in_base), (self.head_tree, in_head)):
            if root.is_dir():
                trees.refuse_links_out(tree, root)

        def prepared(name: str, tree: Path, suite_root: Path) -> Workspace:
            return make_workspace(
                work / name,
                self.config,
                exported=tree,
                suite_root=suite_root,
                target=self.target,
                tier=self.tier,
            )

        if not in_base.is_dir() and not in_head.is_dir():
            raise UsageError(f"neither base nor head has the suite {self.config.suite!r} that [tool.tilegate] names")
        if not in_base.is_dir():  # the suite itself is new: there is nothing to compare with
            return {"head": prepared("head", self.head_tree, in_head)}
        workspaces = [
            prepared("base", self.base_tree, in_base),
            prepared("head", self.head_tree, in_base),
        ]
        if in_head.is_dir() and not self.same_suite:
            workspaces.append(prepared("new", self.head_tree, in_head))
        return {made.name: made for made in workspaces}
