"""Bisecting: a simulated branch whose truth is known, and a toy library from end to end."""

import itertools
import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from history_records import CASE, comparison
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sample_builder import case, document

from tilegate import cli
from tilegate.history import bisecting, update
from tilegate.history.bisecting import CannotMeasureError, OutOfTimeError, Search, decide
from tilegate.history.network import Edge, solve
from tilegate.history.store import Store
from tilegate.history.update import load
from tilegate.history.view import version_of, view

KERNELS = "toykernels/kernels.py"
TOTAL = "sums.Total.latency_total(1000)"


class Branch:
    """A branch in memory: `code` of each commit (None: does not build), `level` of each code in log ratio."""

    def __init__(self, code, level, *, error=0.001, seed=0, broken_pairs=(), time_for=math.inf):
        self.code, self.level, self.error = code, level, error
        self.rng = np.random.default_rng(seed)
        self.seen, self.known = 0, None
        self.records, self.pairs, self.broken, self.left = [], [], set(broken_pairs), time_for

    def compare(self, base, head):
        if self.left <= 0:
            raise OutOfTimeError
        self.left -= 1
        if {base, head} & self.broken:
            raise CannotMeasureError("it hangs")
        assert self.code[base] != self.code[head], "identical code was measured"
        self.pairs.append((base, head))
        ratio = self.level[self.code[head]] - self.level[self.code[base]] + self.rng.normal(0, self.error)
        made = comparison(
            self.code[base], self.code[head], ratio, error=self.error, created=f"2026-01-01T{len(self.pairs):06d}"
        )
        self.records.append({**made, "run": str(len(self.records))})

    def segment(self):
        if len(self.records) != self.seen:
            self.seen = len(self.records)
            case = view(self.records).series(CASE, "1")
            self.known = case.segments[0]
        return self.known

    def search(self):
        def version(place):
            code = self.code[place]
            return (None, "does not build") if code is None else (version_of(code, "1"), "")

        names = [str(place) for place in range(len(self.code))]
        contents = {place: f"tree {place}" for place in range(len(self.code))}
        return Search(
            names=names,
            load=self.segment,
            version=version,
            free=lambda place: version(place)[0],
            contents=contents,
            compare=self.compare,
            say=lambda _: None,
        )

    def run(self):
        return self.search().run(0, len(self.code) - 1)


def stepped(count, at, step, *, every=1):
    """`count` commits with new code every `every` commits, slower by `step` from `at` on."""
    code = [f"v{place // every}" for place in range(count)]
    return code, {code[place]: step if place >= at else 0.0 for place in range(count)}


@given(st.integers(2, 60), st.data())
@settings(max_examples=20)
def test_a_large_step_is_found_wherever_it_is(count, data):
    at = data.draw(st.integers(1, count - 1))
    code, level = stepped(count, at, data.draw(st.sampled_from([0.03, -0.03])))
    branch = Branch(code, level, seed=at)
    result = branch.run()
    assert (result.state, result.good, result.bad) == ("commit", at - 1, at)
    assert len(branch.pairs) <= 2 * (1 + math.ceil(math.log2(count)))


def test_identical_code_is_never_measured():
    code, level = stepped(400, 200, 0.03, every=100)
    branch = Branch(code, level)
    result = branch.run()  # `compare` refuses equal code
    assert (result.state, result.good, result.bad) == ("commit", 199, 200)
    assert len(branch.pairs) <= 3
    assert any(answer.why == "identical code" for answer in result.answers)


def test_ends_that_do_not_differ_are_refused():
    branch = Branch(*stepped(30, 15, 0.0))
    result = branch.run()
    assert result.state == "same"
    assert set(branch.pairs) == {(0, 29)}  # and nothing else was measured
    same_code = Branch(["a", "b", "a"], {"a": 0, "b": 0.1})
    result = same_code.run()
    assert (result.state, same_code.pairs) == ("same", [])


def test_nobody_is_blamed_after_a_broken_range():
    """catapult 3895: the first commit that builds again was blamed for what happened in a range that did not."""
    code = [f"v{place}" for place in range(25)]
    level = {each: 0.03 if place >= 20 else 0.0 for place, each in enumerate(code)}
    for place in range(17, 24):
        code[place] = None
    result = Branch(code, level).run()
    assert (result.state, result.good, result.bad) == ("range", 16, 24)
    assert {answer.place for answer in result.answers if answer.answer == "skipped"} == set(range(17, 24))


def test_what_builds_but_cannot_be_measured_is_no_culprit_either():
    code, level = stepped(16, 8, 0.03)
    result = Branch(code, level, broken_pairs=(7, 8)).run()
    assert (result.state, result.good, result.bad) == ("range", 6, 9)
    ends = Branch(code, level, broken_pairs=(15,)).run()
    assert (ends.state, ends.good, ends.bad) == ("unfinished", 0, 15)
    assert "hangs" in ends.reason


def test_wrong_commits_are_blamed_less_often_than_is_said():
    """A step of 2.5 standard errors of one comparison among 32 commits: much is undecided, little is wrong."""
    wrong = found = 0
    for seed in range(25):
        at = 1 + seed % 31
        code, level = stepped(32, at, 0.0025)
        result = Branch(code, level, seed=seed).run()
        if result.state in ("commit", "range"):
            found += 1
            wrong += not result.good < at <= result.bad
    assert found >= 12
    assert wrong / found <= bisecting.WRONG


def test_no_change_is_rarely_taken_for_one():
    assert (
        sum(Branch(*stepped(32, 16, 0.0), seed=seed).run().state != "same" for seed in range(25))
        <= 25 * bisecting.WRONG
    )


def test_two_equal_steps_give_one_of_them():
    """The commits between lie in the very middle, where the larger half is never sure; but both halves are changes."""
    for seed in range(6):
        code, level = stepped(30, 10, 0.02)
        for each in code[20:]:
            level[each] = 0.04
        result = Branch(code, level, seed=seed).run()
        assert result.state == "commit"
        assert result.bad in (10, 20)


def test_an_undecided_commit_is_gone_around():
    """One version is as unlike either end as the noise is large: it stays in the range, and the rest is decided."""
    code, level = stepped(9, 5, 0.01)
    level["v4"] = 0.005
    branch = Branch(code, level, error=0.003)
    outcomes = {Branch(code, level, error=0.003, seed=seed).run() for seed in range(6)}
    assert branch
    assert all(each.good < 5 and each.bad >= 4 for each in outcomes if each.state in ("commit", "range"))
    assert any(each.state == "range" for each in outcomes)


def test_a_revert_inside_the_range_costs_nothing_and_misleads_nobody():
    code = ["a", "b", "a", "c", "d", "e"]
    level = {"a": 0, "b": 0.05, "c": 0.0, "d": 0.03, "e": 0.03}
    result = Branch(code, level).run()
    assert (result.state, result.good, result.bad) == ("commit", 3, 4)


def test_a_search_goes_on_where_it_ran_out_of_time():
    code, level = stepped(50, 33, 0.03)
    whole = Branch(code, level)
    assert whole.run().bad == 33
    pieces = Branch(code, level)
    for _ in range(25):
        pieces.left = 1
        result = pieces.run()
        if result.state == "commit":
            break
        assert (result.state, result.reason) == ("unfinished", "out of time")
        assert result.good < 33 <= result.bad
    assert (result.good, result.bad) == (32, 33)
    assert pieces.pairs == whole.pairs  # nothing twice


@given(st.lists(st.floats(-0.01, 0.01), min_size=3, max_size=3), st.floats(0.0005, 0.003))
@settings(max_examples=30)
def test_a_decision_is_the_same_in_the_mirror(levels, error):
    """Swap the ends, or turn slower into faster: the same decision, mirrored."""
    assume(abs(levels[2] - levels[0]) > 3 * error)  # the ends differ
    pairs = list(itertools.combinations("gmb", 2))
    value = dict(zip("gmb", levels, strict=True))

    def decided(names, sign):
        swapped = dict(zip("gmb", names, strict=True))
        edges = [Edge(swapped[a], swapped[b], sign * (value[b] - value[a]), error) for a, b in pairs]
        return decide(solve(list("gmb"), edges), *(swapped[n] for n in "gmb"), chance=0.01)

    plain = decided("gmb", 1)
    assert decided("gmb", -1) == plain
    assert decided("xyz", 1) == plain
    reverse = decide(
        solve(list("gmb"), [Edge(a, b, value[b] - value[a], error) for a, b in pairs]), "b", "m", "g", chance=0.01
    )
    if abs(2 * value["m"] - value["g"] - value["b"]) > 1e-9:
        assert reverse == {"good": "bad", "bad": "good", None: None}[plain]


@pytest.fixture
def bisect(toy, toy_surroundings, capsys):
    def run(*arguments):
        status = cli.main(["bisect", "--repo", str(toy.path), "--target", "cpu", "--minutes", "5", *arguments])
        return status, capsys.readouterr()

    return run


def grown(toy):
    """Good, prose, another kernel, a broken commit in which Total gets slower, still broken, mended, more prose."""
    toy.git("tag", "good")
    toy.write("README", "prose")
    toy.commit("Prose")
    toy.replace(KERNELS, "MEAN_MS = 3.0", "MEAN_MS = 3.1")
    before = toy.commit("Another kernel")
    good = (toy.path / KERNELS).read_text()
    toy.write(KERNELS, "this is no Python")
    toy.commit("Break everything")
    toy.write(KERNELS, "nor is this")
    toy.commit("Still broken")
    toy.write(KERNELS, good.replace("TOTAL_MS = 4.0", "TOTAL_MS = 4.4"))
    mended = toy.commit("Mend it")
    toy.write("README", "more prose")
    toy.commit("More prose")
    return before, mended


def test_a_branch_is_bisected(toy, bisect):
    before, mended = grown(toy)
    status, shown = bisect("--good", "good", "--bad", "HEAD", "-b", TOTAL, "--json")
    assert status == 0, shown.err
    found = json.loads(shown.out)
    assert (found["state"], found["last_good"], found["first_bad"]) == ("range", before, mended)
    assert len(found["suspects"]) == 3
    assert found["measured"] == 1  # the ends; all other code is that of one of them, or does not build
    assert 1.08 < found["change"]["ratio"] < 1.12
    edges = load(Store(toy.path / ".tilegate" / "history")).cases[TOTAL].segments[0].edges
    assert len(edges) == 1
    status, shown = bisect("--good", "good", "--bad", "HEAD", "-b", "latency_total.1000")
    assert status == 0
    assert "one of the 3 commits" in shown.out
    assert len(load(Store(toy.path / ".tilegate" / "history")).cases[TOTAL].segments[0].edges) == 1  # nothing again

    for arguments, said in (
        (("--good", "HEAD", "--bad", "good", "-b", TOTAL), "first-parent line"),
        (("--good", "good", "--bad", "good", "-b", TOTAL), "the same commit"),
        (("--good", "nowhere", "--bad", "good", "-b", TOTAL), "no commit is called"),
        (("--good", "good", "--bad", "HEAD", "-b", "latency_total"), "2 cases match"),
        (("--good", "good", "--bad", "HEAD", "-b", "nothing"), "no case of both ends"),
        (("--good", "good", "--bad", "HEAD", "-b", "("), "not a regular expression"),
        (("--good", "good", "--bad", "HEAD~3", "-b", TOTAL), "cannot be measured"),
    ):
        status, shown = bisect(*arguments)
        assert status == 2, (arguments, shown)
        assert said in shown.err
        assert "Traceback" not in shown.err
    status, shown = bisect("--good", "good", "--bad", "HEAD", "-b", "sums.Step.latency_step('first')")
    assert status == 4
    assert "the same code" in shown.out


def test_a_gate_that_had_no_time_is_out_of_time_and_says_nothing_of_the_case(toy, bisect, monkeypatch):
    grown(toy)
    cut = {TOTAL: {**case(screen=False), "stopped": "budget"}}

    def gate(command):
        out = Path(command[command.index("--out") + 1])
        out.mkdir(parents=True)
        (out / "samples.json").write_text(json.dumps(document(cut)))
        return subprocess.CompletedProcess(command, 4, "", "")

    monkeypatch.setattr(update, "_tilegate", gate)
    status, shown = bisect("--good", "good", "--bad", "HEAD", "-b", TOTAL)
    assert status == 4
    assert "not found: out of time" in shown.out
    assert "to continue: " in shown.out
