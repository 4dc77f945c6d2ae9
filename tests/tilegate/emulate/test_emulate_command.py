"""`tilegate emulate` and its diff on a small library of real HIP kernels."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
from hip_toy import BARRIER, EMULATED, KERNELS, lines_with

from tilegate.emulate import survey, trial
from tilegate.files import load_schema

pytestmark = pytest.mark.usefixtures("clang")


def test_good_kernels_pass_on_every_chip_and_problem(emulate):
    status, out, err = emulate("--arch", "gfx942,gfx90a")
    assert status == 0, out + err
    assert out.count("gfx942, emulated") == out.count("gfx90a, emulated") == 1
    rows = lines_with(out, r"^pass ")
    assert len(rows) == 4
    assert all(row.split()[2:] == ["2", str(2 * trial.RUNS)] for row in rows)
    assert "PASS: nothing wrong was found in 4 kernels executed." in out
    assert "emulate 4/4" in err


def test_json_fits_its_schema_on_screen_and_in_a_file(emulate, tmp_path):
    status, out, _ = emulate(
        "--json", "--counters", "--schedules", "first", "--out", str(tmp_path / "x.json"), "--rev", "HEAD"
    )
    document = json.loads(out)
    jsonschema.validate(document, load_schema("emulate-1.json"))
    assert document == json.loads((tmp_path / "x.json").read_text())
    assert (status, document["exit_code"], document["verdict"]) == (0, 0, "pass")
    kernel = document["kernels"]["gfx942"]["double"]
    assert kernel["cases"] == ["toy.Run.latency_run('double')"]
    total = kernel["problems"]["rows"]["counters"]["reverse_kernel"]["total"]
    assert (total["barriers"], total["lds_writes"], total["global_stores"]) == (3, 6, 6)
    assert kernel["problems"]["rows"]["runs"] == 1


def test_a_dropped_barrier_is_a_race_at_two_lines_of_the_source(toy, emulate):
    toy.replace(BARRIER, "")
    status, out, _ = emulate("double")
    assert status == 3
    assert lines_with(out, r"^ +race: line [57] (reads|writes)")
    assert "line 7: B[row * n + t] = 2.0f * tile[n - 1 - t];" in out
    assert "line 5: tile[t] = t < n ? A[row * n + t] : 0.0f;" in out
    assert "at one row and 1 more of 2 problems" in out
    assert "BROKEN: 1 broken (race" in out
    jsonschema.validate(json.loads(emulate("double", "--json")[1]), load_schema("emulate-1.json"))


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("n - 1 - t", "(t == 3 ? 0 : n - 1 - t)", "wrong-result: B: largest error"),
        ("t < n ? A[row * n + t]", "t <= n ? A[row * n + t]", "out-of-bounds"),
        ("  __syncthreads();", "  if (t < 64) __syncthreads();", "divergent-barrier"),
        ("tile[t] = t < n ? A[row * n + t] : 0.0f", "if (t > 0 && t < n) tile[t] = A[row * n + t]", "uninitialised"),
    ],
)
def test_what_is_wrong_is_named(toy, emulate, old, new, text):
    toy.replace(old, new)
    status, out, _ = emulate("triple", "--schedules", "first")
    assert status == 3
    assert text in out


def test_an_endless_kernel_is_stopped_and_the_others_are_still_executed(toy, emulate, monkeypatch):
    # The worker reads the limit from its own copy of the module, so it is set there.
    toy.write(
        "hipbench/emulated.py",
        EMULATED
        + "\nfrom tilegate.emulate import trial\nfrom tilegate.emulator import Limits\ntrial.LIMITS = Limits(seconds=2.0)\n",
    )
    toy.replace(
        '    return KERNEL.replace("FACTOR"',
        '    text = KERNEL if name == "double" else KERNEL.replace("  int row", "  while (((volatile int*)&n)[0] > 0);\\n  int row")\n    return text.replace("FACTOR"',
    )
    status, out, _ = emulate()
    assert status == 3
    assert "time-limit: not done after 2 s" in out
    assert lines_with(out, r"^pass +double")
    assert lines_with(out, r"^broken +triple +1 +1$")  # once is enough


def test_a_library_that_kills_its_process_takes_one_kernel_along(toy, emulate):
    toy.replace(
        "def source(name):",
        'import os, signal\n\n\ndef source(name):\n    if name == "double":\n        os.kill(os.getpid(), signal.SIGSEGV)',
    )
    status, out, _ = emulate("--schedules", "first")
    assert status == 4
    assert "not executed (crash): the process that generates it was killed by SIGSEGV" in out
    assert lines_with(out, r"^pass +triple")


def test_what_the_emulator_does_not_know_is_never_a_pass(toy, emulate):
    toy.replace("  int row", "  __builtin_amdgcn_s_sethalt(3);\n  int row")
    status, out, _ = emulate("double", "--schedules", "first")
    assert status == 4
    assert "__builtin_amdgcn_s_sethalt" in out
    assert "INCONCLUSIVE: 1 could not be judged of 1 kernel executed." in out


def test_arguments_that_do_not_fit_are_the_suites_fault_and_never_a_pass(toy, emulate):
    toy.replace('"n": n, ', "", "hipbench/emulated.py")
    status, out, _ = emulate("double")
    assert status == 4
    assert "no argument for the kernel's parameter n" in out


def test_the_second_run_executes_nothing_and_a_comment_only_generates_again(toy, emulate, monkeypatch):
    first = emulate("--schedules", "first")
    assert first[0] == 0
    toy.write("hiptoy/notes.py", "# nothing generated follows from this")
    asked = []
    whole = survey.Lowering.ask
    monkeypatch.setattr(
        survey.Lowering,
        "ask",
        lambda self, request, timeout: asked.append(request["op"]) or whole(self, request, timeout),
    )
    assert emulate("--schedules", "first")[:2] == first[:2]
    assert set(asked) == {"configurations", "lower"}
    asked.clear()
    assert emulate("--schedules", "first")[:2] == first[:2]
    assert asked == []


def test_counters_are_shown_by_line_with_its_text(emulate):
    _, out, _ = emulate("double", "--counters", "--schedules", "first")
    (store,) = lines_with(out, r"B\[row \* n \+ t\] = ")
    assert store.split()[0] == "8"
    assert "unique bytes by XCD" in out
    assert "a model" in out


def test_findings_are_of_the_lines_of_the_sources_that_are_written(toy, emulate, tmp_path):
    toy.replace(BARRIER, "")
    _, out, _ = emulate("double|triple", "--schedules", "first", "--sources", str(tmp_path / "hip"))
    written = sorted((tmp_path / "hip/gfx942").iterdir())
    assert [path.name.split()[0] for path in written] == ["double", "triple"]
    (number, text) = re.search(r"^      line (\d+): (.+)$", out, re.MULTILINE).groups()
    assert written[0].read_text().splitlines()[int(number) - 1].strip() == text
    assert emulate("diff", "--base", "base", "--head", "HEAD", "--sources", str(tmp_path))[0] == 2


def test_progress_is_shown_before_the_first_kernel_is_done(emulate):
    _, _, err = emulate("double", "--schedules", "first")
    assert err.index("emulate: 1 kernel to generate and execute") < err.index("emulate 1/1")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--arch", "gfx900"), "gfx90a, gfx942, gfx950"),
        (("(",), "'(' is not a regular expression"),
        (("one", "two"), "'one' and 'two'"),
        (("nothing",), "no kernel or case matches 'nothing'; there are the kernels"),
        (
            ("diff", "--base", "HEAD", "--head", "HEAD", "-b", "nothing"),
            "no kernel or case matches 'nothing'; there are the kernels",
        ),
        (("--rev", "nowhere"), "nowhere"),
        (("--base", "HEAD"), "belong to `tilegate emulate diff`"),
        (("diff", "--base", "HEAD"), "tilegate emulate diff --base main --head HEAD"),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(emulate, arguments, text):
    status, _, err = emulate(*arguments)
    assert status == 2
    assert text in err


def test_a_suite_without_problems_says_what_is_missing(toy, emulate):
    (toy.path / "hipbench/emulated.py").unlink()
    status, _, err = emulate()
    assert status == 2
    assert "no module emulated" in err
    assert "docs/protocol.md" in err


def diff(emulate, *arguments):
    status, out, _ = emulate(
        "diff", "--base", "base", "--head", "WORKTREE", "--schedules", "first", "--json", *arguments
    )
    document = json.loads(out)
    jsonschema.validate(document, load_schema("emulate-diff-1.json"))
    assert document["exit_code"] == status
    return status, document


def test_diff_shows_counters_worst_first_and_passes_what_is_right(toy, emulate):
    toy.replace(BARRIER, 3 * BARRIER)
    toy.replace("FACTOR * tile[n - 1 - t]", "FACTOR * tile[n - 1 - t] + 0.0f * tile[t]")
    status, document = diff(emulate, "-b", "double")
    (pair,) = document["pairs"]
    assert (status, pair["verdict"]) == (0, "changed")
    assert pair["changes"]["barriers"] == {"base": 4, "head": 12}
    assert next(iter(pair["changes"])) == "barriers"
    _, out, _ = emulate("diff", "double", "--base", "base", "--head", "WORKTREE", "--schedules", "first")
    assert "changed  gfx942  double, 1 cases" in out
    assert "    barriers 4 -> 12 (+200.0 %)" in out
    assert "PASS: 1 changed." in out


def test_diff_of_a_broken_head_is_broken_and_of_a_broken_base_is_not_the_heads_fault(toy, emulate):
    toy.replace(BARRIER, "")
    status, document = diff(emulate)
    assert (status, document["verdict"]) == (3, "broken")
    toy.commit("Drop the barrier")
    toy.git("tag", "-f", "base")
    toy.replace("  if (t < n) {", "  if (t < n) {  // still")
    status, document = diff(emulate)
    assert (status, document["verdict"]) == (4, "inconclusive")
    assert {pair["verdict"] for pair in document["pairs"]} == {"inconclusive"}


def test_diff_names_the_lines_that_differ_where_values_are_wrong(toy, emulate):
    toy.replace("n - 1 - t", "(t == 3 ? 0 : n - 1 - t)")
    status, document = diff(emulate, "-b", "double")
    (pair,) = document["pairs"]
    assert (status, pair["verdict"]) == (3, "broken")
    assert pair["source"] == [
        "lines of the generated source that differ from the base's:",
        "  - 8: B[row * n + t] = 2.0f * tile[n - 1 - t];",
        "  + 8: B[row * n + t] = 2.0f * tile[(t == 3 ? 0 : n - 1 - t)];",
    ]
    _, out, _ = emulate("diff", "double", "--base", "base", "--head", "WORKTREE", "--schedules", "first")
    assert "\n      + 8: B[row * n + t] = 2.0f * tile[(t == 3 ? 0 : n - 1 - t)];\n" in out
    toy.replace("n - 1 - t)", "n - 1 - t) \x1b[31m")
    _, out, _ = emulate("diff", "double", "--base", "base", "--head", "WORKTREE", "--schedules", "first")
    assert "\x1b" not in out


def test_diff_leaves_the_lines_out_where_a_finding_has_its_own_or_the_base_is_wrong(toy, emulate):
    toy.replace(BARRIER, "")
    assert [pair["source"] for pair in diff(emulate)[1]["pairs"]] == [[], []]
    toy.replace("n - 1 - t", "t")
    toy.commit("Two faults")
    toy.git("tag", "-f", "base")
    toy.replace("tile[t];", "tile[t] + 1.0f;")
    assert [pair["source"] for pair in diff(emulate)[1]["pairs"]] == [[], []]


def test_diff_uses_the_suite_of_the_base(toy, emulate):
    toy.replace("n - 1 - t", "t")
    toy.write("hipbench/emulated.py", EMULATED.replace("1e-6", "1e6"))
    toy.write("hipbench/kernels.py", KERNELS)
    assert diff(emulate)[0] == 3
    assert emulate("--schedules", "first")[0] == 0  # by the head's own
