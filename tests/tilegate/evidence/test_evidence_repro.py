"""`tilegate repro`: a folder that runs with torch and tilelang alone, and says when a result is wrong."""

import json
import runpy
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.families import families
from tilegate import cli
from tilegate.commands import repro as repro_command
from tilegate.evidence import repro
from tilegate.evidence.cases import one_case
from tilegate.files import UsageError

ROOT = Path(__file__).parents[3]
CASE = "latency_forward('cpu-g6-d64-s127', 'adaptive')"
CASE_PATTERN = CASE.replace("(", r"\(").replace(")", r"\)")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repro") / "out"
    arguments = ["repro", CASE.replace("(", r"\(").replace(")", r"\)"), "--base", "WORKTREE", "--target", "cpu"]
    assert cli.main([*arguments, "--lengths", "33,64", "--no-run", "--out", str(folder), "--repo", str(ROOT)]) == 0
    return folder


@pytest.fixture(scope="module")
def clean_python(tmp_path_factory):
    """An environment with everything that is installed here but this project."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            ours = entry.name.startswith(("tilekernels", "tilegate", "__editable__"))
            if not ours and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def run(python, folder, *arguments):
    command = [str(python), "repro.py", "--rounds", "7", "--json", "seen.json", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
    )


def test_it_needs_nothing_of_ours(written, clean_python):
    for package in ("tilekernels", "tilegate", "benchmarks"):
        there = subprocess.run(
            [str(clean_python), "-c", f"import {package}"], capture_output=True, check=False, cwd="/"
        )
        assert there.returncode != 0, package
    done = run(clean_python, written, "--lengths", "33")
    assert done.returncode == 0, done.stderr
    seen = json.loads((written / "seen.json").read_text())
    (row,) = seen["rows"]
    assert row["head_error"] <= 1
    assert row["ratio"][1] <= row["ratio"][0] <= row["ratio"][2]
    assert not seen["wrong"]
    text = "".join(file.read_text() for file in written.rglob("*.py"))
    assert "from tilekernels" not in text
    assert "import tilegate" not in text


def test_a_wrong_kernel_is_not_passed(written, clean_python, tmp_path):
    wrong = tmp_path / "wrong"
    subprocess.run(["cp", "-r", str(written), str(wrong)], check=True)
    kernel = wrong / "head" / "kernel.py"
    kernel.write_text(kernel.read_text().replace("(column <= (", "(column - 1 <= ("))  # one key too many
    done = run(clean_python, wrong, "--lengths", "64")
    assert done.returncode == 1
    assert "WRONG" in done.stderr
    seen = json.loads((wrong / "seen.json").read_text())
    assert seen["rows"][0]["base_error"] <= 1 < seen["rows"][0]["head_error"]
    assert repro.table(seen)[-1] == "**A result is wrong.**"


def test_the_readme_shows_what_was_seen(written):
    environment = json.loads((written / "environment.json").read_text())
    row = {
        "length": 64,
        "base_us": 10.0,
        "base_TFLOP/s": 1.5,
        "base_error": 0.25,
        "head_us": 12.0,
        "head_TFLOP/s": 1.25,
    }
    row |= {"head_error": 0.5, "ratio": [1.2, 1.1, 1.3]}
    text = repro.readme("case", {"base": "abc", "head": "def"}, environment, {"rows": [row], "wrong": False})
    assert "| 64 | 10.0 | 1.5 | 0.25 of 1 | 12.0 | 1.25 | 0.50 of 1 | 1.200 (1.100 to 1.300) |" in text
    assert environment["device"]["name"] in text
    assert "has not been run" in (written / "README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["repro", "nothing-of-that-name"], "no case matches; some that there are"),
        (["repro", "adaptive", "--lengths", "0"], "no list of lengths"),
        (["repro", "adaptive", "--rounds", "0"], "at least one launch"),
        (["repro", "latency_serving('cpu-chat', 'fixed')"], "reproduce one of its kernels instead"),
    ],
)
def test_a_wrong_call_is_refused(arguments, said, capsys):
    try:
        status = cli.main([*arguments, "--target", "cpu", "--repo", str(ROOT)])
    except SystemExit as stopped:
        status = stopped.code
    assert status == 2
    assert said in capsys.readouterr().err


def test_two_policies_take_turns(tmp_path):
    """The field story: one tile for everything beside the tiles that the problem asks for."""
    other = CASE.replace("adaptive", "fixed")
    call = [
        "repro",
        CASE_PATTERN,
        "--against",
        other.replace("(", r"\(").replace(")", r"\)"),
        "--lengths",
        "33",
        "--no-run",
    ]
    assert cli.main([*call, "--target", "cpu", "--out", str(tmp_path), "--repo", str(ROOT)]) == 0
    sides = json.loads((tmp_path / "settings.json").read_text())["sides"]
    assert sides["base"]["tiles"].keys() == sides["head"]["tiles"].keys() == {"33"}
    assert sides["base"]["tiles"] != sides["head"]["tiles"]
    readme = (tmp_path / "README.md").read_text()
    assert "'fixed') of worktree" in readme


@pytest.mark.parametrize("row", ["cpu-decode-g7-d64-k200-p16", "cpu-mla-h16-k83-p16"])
def test_a_decode_kernel_runs_alone_split_and_whole_and_a_wrong_one_is_not_passed(row, clean_python, tmp_path):
    """Its launch is two kernels under one policy and one under the other."""
    case = f"('{row}', '{{}}')"
    pattern = case.replace("(", r"\(").replace(")", r"\)")
    call = ["repro", pattern.format("adaptive"), "--against", pattern.format("fixed"), "--lengths", "70", "--no-run"]
    assert cli.main([*call, "--target", "cpu", "--out", str(tmp_path), "--repo", str(ROOT)]) == 0
    sides = json.loads((tmp_path / "settings.json").read_text())["sides"]
    assert sides["base"]["tiles"]["70"]["splits"] == 8
    assert sides["head"]["tiles"]["70"]["splits"] == 1
    kernel = tmp_path / "base" / "kernel.py"
    kernel.write_text(kernel.read_text().replace("key + n < visible[m]", "key + n <= visible[m]"))  # one key too many
    done = run(clean_python, tmp_path)
    assert done.returncode == 1, done.stderr
    (row,) = json.loads((tmp_path / "seen.json").read_text())["rows"]
    assert row["head_error"] <= 1 < row["base_error"]


def smoke_rows():
    rows = [(family, work) for family in families().values() for work in family.workloads]
    return [(family, work) for family, work in rows if "cpu" in work.targets and work.tier == "smoke"]


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "work"), smoke_rows(), ids=lambda value: getattr(value, "id", None))
def test_every_case_runs_alone(family, work, clean_python, tmp_path):
    call = ["repro", family.case_of(work, "adaptive"), "--against", family.case_of(work, "fixed"), "--no-run"]
    assert cli.main([*call, "--target", "cpu", "--out", str(tmp_path), "--repo", str(ROOT)]) == 0
    lengths = json.loads((tmp_path / "settings.json").read_text())["lengths"]
    done = run(clean_python, tmp_path, "--lengths", lengths[-1])
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "seen.json").read_text())["rows"]
    assert 0 < row["head_error"] <= 1
    assert 0 < row["base_error"] <= 1


WRONG = {
    "backward": ("cpu-backward-g7-d64-s95", "softmax_scale", "(1.01 * softmax_scale)"),
    "varlen": ("cpu-varlen-g7-d64-n4", "softmax_scale", "(1.01 * softmax_scale)"),
    "varlen_backward": ("cpu-varlen-backward-g7-d64-n4", "softmax_scale", "(1.01 * softmax_scale)"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", WRONG)
def test_another_kernel_is_not_passed(name, clean_python, tmp_path):
    row, right, wrong = WRONG[name]
    call = ["repro", f"'{row}', 'adaptive'", "--lengths", "70", "--no-run", "--out", str(tmp_path)]
    assert cli.main([*call, "--target", "cpu", "--repo", str(ROOT)]) == 0
    kernel = tmp_path / "head" / "kernel.py"
    lines = kernel.read_text().splitlines(keepends=True)
    changed = [line.replace(right, wrong) if " = " in line or "*= " in line else line for line in lines]
    assert changed != lines
    kernel.write_text("".join(changed))
    done = run(clean_python, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG" in done.stderr


def test_a_length_without_a_tile_is_refused(written, clean_python):
    done = run(clean_python, written, "--lengths", "33,77")
    assert done.returncode == 2
    assert "no tiles are known for 77; there are 33, 64" in done.stderr


def test_cases_of_other_shapes_do_not_take_turns(tmp_path, capsys):
    call = ["repro", CASE_PATTERN, "--against", "cpu-g5-d64-s128', 'fixed'", "--no-run", "--out", str(tmp_path / "x")]
    assert cli.main([*call, "--target", "cpu", "--repo", str(ROOT)]) == 2
    assert "another problem" in capsys.readouterr().err


class Listing:
    """A worker that lists two policies of one shape, and a call."""

    def catalogue(self):
        shape = {"work": {"flops": 1.0, "shape": "b4 h28/4 s4096 d128 causal"}}
        cases = [{"id": f"m.A.latency_x('w', '{policy}')", "benchmark": "m.A.latency_x", **shape} for policy in "pq"]
        return {"cases": [*cases, {"id": "m.A.call_y()", "benchmark": "m.A.call_y"}], "broken": {}}


def test_a_case_is_found_by_its_shape():
    assert one_case(Listing(), "b4 h28/4 s4096 d128 causal 'q'")["id"] == "m.A.latency_x('w', 'q')"
    with pytest.raises(UsageError, match="2 cases match"):
        one_case(Listing(), "h28/4 s4096")
    with pytest.raises(UsageError, match="no case matches"):
        one_case(Listing(), "h28/4 s409")  # a word of a shape is a whole one
    with pytest.raises(UsageError, match="no kernel to show by itself"):
        one_case(Listing(), "call_y")
    with pytest.raises(UsageError, match="not a regular expression"):
        one_case(Listing(), "*(")


def test_another_folder_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("years of work")
    case = CASE.replace("(", r"\(").replace(")", r"\)")
    assert cli.main(["repro", case, "--target", "cpu", "--out", str(tmp_path), "--repo", str(ROOT), "--no-run"]) == 2
    assert "another folder with --out" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_results_of_an_earlier_call_do_not_stay(tmp_path):
    (tmp_path / "base").mkdir()
    for name in ("repro.py", "results.json", "README.md", "base/kernel.py"):
        (tmp_path / name).write_text("old")
    repro_command._refuse(tmp_path)  # it is one of ours
    repro_command._clear(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["repro.py"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert cli.main(["repro", CASE, "--target", "cpu", "--out", str(tmp_path / "file"), "--repo", str(ROOT)]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_the_interval_holds_the_median_with_95_percent(written):
    interval = runpy.run_path(str(written / "repro.py"), run_name="repro")["interval"]

    @given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=60))
    def holds(ratios):
        middle, low, high = interval(ratios)
        assert low <= middle <= high

    holds()
    # 20 values: the 6th and the 15th, P(outside) = 2 * P(Bin(20, 1/2) <= 5) = 4.1 %
    assert interval(list(range(20)))[1:] == (5, 14)
