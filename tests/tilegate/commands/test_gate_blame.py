"""Who is blamed for a failure: the head only for what the base, tried alone, does not show, too."""

from __future__ import annotations

import pytest
import toy_repository

pytestmark = pytest.mark.usefixtures("toy_surroundings")

SUITE, KERNELS = "toybench/sums.py", toy_repository.KERNELS
STEPS = ("-b", "step")
STEP = "sums.Step.latency_step('{}')"


def _base(toy, message="Base"):
    toy.commit(message)
    toy.git("tag", "--force", "base")


def _step(toy, body, setup=""):
    """Let every step's launch begin with `body`, and its making with `setup`."""
    toy.replace(KERNELS, r"^def step\(name\):", f"""
import os, time

class Own(Kernel):
    def launch(self, values, out):
        {body or "pass"}
        super().launch(values, out)


def step(name):
    {setup or "pass"}
    return Own(1.0)


def original_step(name):""")  # fmt: skip


def _other_code(toy):
    toy.replace(KERNELS, r"Own\(1\.0\)", "Own(1.001)")
    toy.commit("Equal work in other code")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_fails_at_both_commits_is_never_the_heads_fault_whoever_was_first(toy, seed):
    # Not in check(), which makes its launch in another process: the timed method itself is wrong.
    toy.replace(
        SUITE, r"(def latency_step\(self, param\):)\n", "def latency_step(self, param):\n        raise RuntimeError\n"
    )
    _step(toy, "")
    _base(toy)
    _other_code(toy)
    outcome = toy.gate("base", "HEAD", *STEPS, "--seed", str(seed))
    assert outcome.status == 4, outcome
    found = outcome.verdict["cases"]
    assert {entry["verdict"] for entry in found.values()} == {"inconclusive"}
    assert all("and so does the head: the suite or the base" in entry["reason"] for entry in found.values())


def test_what_fails_at_the_head_alone_is_the_heads_fault(toy):
    _step(toy, "")
    _base(toy)
    toy.replace(
        KERNELS,
        "        pass\n        super",
        "        self.n = getattr(self, 'n', 0) + 1; 1 / (self.n < 4)\n        super",
    )
    _other_code(toy)
    outcome = toy.gate("base", "HEAD", "-b", "first|second")
    assert outcome.status == 3, outcome
    assert {entry["verdict"] for entry in outcome.verdict["cases"].values()} == {"broken"}


ALONE = """
    held = {path!r}
    try:
        descriptor = os.open(held, os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        raise {error} from None
    import weakref
    made = Own(1.0)
    weakref.finalize(made, os.unlink, held)
    return made
"""


@pytest.mark.parametrize("error", ["MemoryError", "OSError('the device is in use')"])
@pytest.mark.parametrize("slower", [False, True])
def test_what_one_process_at_a_time_can_hold_is_measured_one_side_after_the_other(toy, tmp_path, error, slower):
    _step(toy, "", ALONE.format(path=str(tmp_path / "held"), error=error).strip())
    # What generates code must not hold it.
    toy.replace(SUITE, r"return \[Artifact\(\"sum\", self", 'return [Artifact("sum", self if False else self')
    toy.replace(SUITE, r"self\.kernel\(param\)\.source", "toykernels.kernels.SOURCE")
    toy.replace(KERNELS, r"^TOTAL_MS", "SOURCE = 'base'\nTOTAL_MS")
    _base(toy)
    toy.replace(KERNELS, "'base'", "'head'")
    toy.replace(KERNELS, r"Own\(1\.0\)", "Own(1.5)" if slower else "Own(1.001)")
    toy.commit("Change")
    outcome = toy.gate("base", "HEAD", "-b", "first")
    assert outcome.status == (1 if slower else 0), outcome
    assert "needs the device alone" in outcome.err
    (entry,) = outcome.verdict["cases"].values()
    assert entry["apart"] is True
    assert entry["smallest_detectable_effect"] > 0
    (report,) = toy.path.glob(".tilegate/*/report.md")
    assert "needs the device alone" in report.read_text()


def test_a_hang_at_import_is_a_hang_whichever_clock_ends_it(toy):
    toy.config(import_timeout=3.0)
    toy.write("toykernels/__init__.py", "import time\nwhile True: pass\n")
    toy.commit("Hang")
    outcome = toy.gate("base", "HEAD", "-b", "first")
    assert outcome.status == 3, outcome
    (entry,) = outcome.verdict["cases"].values()
    assert entry["failure"]["kind"] == "hang", entry


def _moved_main(toy, commits=2):
    """Let main become faster after a branch has left it; return where it left."""
    left = toy.git("rev-parse", "main")
    toy.git("checkout", "--quiet", "-b", "topic")
    toy.replace(KERNELS, "MEAN_MS = 3.0", "MEAN_MS = 3.001")
    toy.commit("A change of no consequence")
    toy.git("checkout", "--quiet", "main")
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 3.0")
    for number in range(commits):
        toy.commit(f"Faster {number}")
    return left


BOTH = ("-b", r"latency_(total|mean)\(1000\)")


def test_a_base_that_is_a_branch_which_moved_on_is_taken_where_the_head_left_it(toy):
    left = _moved_main(toy)
    outcome = toy.gate("main", "topic", *BOTH)
    assert outcome.status == 0, outcome
    assert f"main is 2 commits ahead of where topic left it: comparing with that commit, {left[:12]}" in outcome.err
    assert outcome.verdict["base"] == {**outcome.verdict["base"], "rev": "main", "commit": left, "ahead": 2}
    (report,) = toy.path.glob(".tilegate/*/report.md")
    assert "2 ahead" in report.read_text()

    outcome = toy.gate("main", "topic", *BOTH, "--base-exact")
    assert outcome.status == 1, outcome
    assert outcome.verdict["base"]["commit"] == toy.git("rev-parse", "main")
    assert "ahead" not in outcome.verdict["base"]


def test_a_branch_without_a_change_is_not_slower_than_a_main_that_became_faster(toy):
    left = _moved_main(toy, commits=1)
    outcome = toy.gate("main", left, *BOTH)
    assert outcome.status == 0, outcome
    assert "main is 1 commit ahead" in outcome.err
    toy.git("checkout", "--quiet", left)
    assert toy.gate("main", "WORKTREE", *BOTH).status == 0


def test_a_tag_and_a_commit_are_taken_as_they_are(toy):
    _moved_main(toy)
    toy.git("tag", "v1", "main")
    for base in ("v1", toy.git("rev-parse", "main"), "main~0"):
        outcome = toy.gate(base, "topic", *BOTH, "--fresh")
        assert outcome.status == 1, outcome
        assert "ahead" not in outcome.err


@pytest.mark.parametrize(("seconds", "status", "verdict"), [(0.001, 1, "regressed"), (0.0, 0, "unchanged")])
def test_a_package_that_waits_around_equal_kernels_is_to_blame_and_not_the_machine(toy, seconds, status, verdict):
    toy.replace(KERNELS, r"^        time\.sleep\(self\._seconds\)", f"        time.sleep(self._seconds + {seconds})")
    toy.commit("Wait")
    outcome = toy.gate("base", "HEAD", "-b", r"latency_total\(1000\)")
    assert outcome.status == status, outcome
    (entry,) = outcome.verdict["cases"].values()
    assert (entry["role"], entry["verdict"]) == ("control", verdict)
    assert ("itself" in outcome.verdict["stages"]) == (seconds > 0)
