"""Why a kernel may have become slower: the difference of its compiled code, in sentences, for the gate's report."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from tilegate.files import UsageError
from tilegate.isa import ptxas
from tilegate.isa.analysis import analyse
from tilegate.isa.rules import IMPROVED, INFO, compare, figures_changed
from tilegate.isa.toolchain import ToolchainError, find_toolchain
from tilegate.lowering.store import Store, default_store
from tilegate.protocol.artifacts import Artifact

_MOST_INFO = 4  # lines of mere information; the causes come first and are all shown
_SAME = "the compiled code differs in none of the numbers that are compared"
_NONE_WORSE = "none of the numbers of the compiled code that are compared got worse"


def explain(
    base_artifact: Artifact,
    head_artifact: Artifact,
    arch: str,
    store: Store | None = None,
    *,
    slower: bool = True,
) -> list[str]:
    """Return what changed in the compiled code, likeliest causes first; empty if nothing did.

    Never raises for what is missing here: without a compiler for the chip the one sentence says so.

    Args:
        base_artifact: the kernel at the base.
        head_artifact: the same at the head.
        arch: "gfx942", … (compiled with hipcc or clang) or "sm_90", … (ptxas's report, where nvcc is).
        store: the cache; the default one if None.
        slower: the kernel got slower, for which what got better is no reason; else, for one that is broken, all that
            changed may be one.
    """
    cache = store or default_store()
    try:
        if arch.startswith("sm_"):
            return _directed(ptxas.changes(base_artifact, head_artifact, arch, cache), slower=slower)
        toolchain = find_toolchain(arch)
        base, head = (analyse(artifact, toolchain, cache) for artifact in (base_artifact, head_artifact))
    except (ToolchainError, UsageError, ValueError) as error:
        return [f"the compiled code was not compared: {error}"]
    judged = [(c.severity == IMPROVED, c.message) for c in compare(base, head).changes if c.severity != INFO]
    others = list(figures_changed(base.figures, head.figures)) if base.figures and head.figures else []
    causes = _directed([*judged, *others], slower=slower)
    informing = {message for _, message in others}
    return [c for c in causes if c not in informing] + [c for c in causes if c in informing][:_MOST_INFO]


def _directed(changes: Sequence[tuple[bool, str]], *, slower: bool) -> list[str]:
    """Return the sentences of changes (did it get better, sentence) that may be a reason."""
    found = [message for better, message in changes if not (slower and better)]
    return [_NONE_WORSE] if changes and not found else found


def explain_all(
    pairs: Sequence[tuple[Artifact, Artifact]], arch: str, store: Store | None = None, *, slower: bool = True
) -> list[str]:
    """Explain each pair (base, head) of a case's kernels that differ, with their names where there are several."""
    lines = []
    for base, head in pairs:
        if (base.source, base.launch) != (head.source, head.launch):
            of = f"{head.name}: " if len(pairs) > 1 else ""
            lines += [f"{of}{line}" for line in explain(base, head, arch, store, slower=slower) or [_SAME]]
    return lines


def main() -> None:
    """Answer the gate, which runs this as a process that it can end: ``{"arch", "pairs", "slower"}`` in, a list of lines out."""
    request = json.load(sys.stdin)
    pairs = [(Artifact(**base), Artifact(**head)) for base, head in request["pairs"]]
    json.dump(explain_all(pairs, request["arch"], slower=request["slower"]), sys.stdout)


if __name__ == "__main__":
    main()
