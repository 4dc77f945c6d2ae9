"""`tilegate isa` and `tilegate isa diff` on a toy library, with a made-up compiler: everything but the real clang.

The compiler answers with clang 19's listing of loop.hip, edited as comments in the source ask: "//! .vgpr_spill_count: 25".
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from isa_fixtures import DATA

from tilegate import isa
from tilegate.files import UsageError, load_schema
from tilegate.isa import compare

COMPILER = f"""#!{sys.executable}
import re, sys
if "--version" in sys.argv:
    print("toy compiler version 1.0")
elif "-" not in sys.argv:
    out, source = sys.argv[sys.argv.index("-o") + 1], open(sys.argv[-1]).read()
    with open({{log!r}}, "a") as log:
        log.write("compiled\\n")
    if "#error" in source:
        sys.exit(f"{{{{sys.argv[-1]}}}}:1:1: error: the toy asked for it")
    text = open({str(DATA / "loop-gfx942.s")!r}).read()
    for key, value in re.findall(r"^//! (\\S+): +(\\d+)$", source, re.MULTILINE):
        text = re.sub(re.escape(key) + r":( +)\\d+", lambda found: f"{{{{key}}}}:{{{{found[1]}}}}{{{{value}}}}", text)
    text += "".join(re.findall(r"^//[+] (.*\\n)", source, re.MULTILINE))
    if complaints := re.findall(r"^//- (.*)$", source, re.MULTILINE):
        sys.exit("\\n".join(complaints))
    open(out, "w").write(text)
"""
LIBRARY = """
import os, signal
TILES = {"small": {}, "large": {}}
CHOICE = {"short": "small", "long": "large"}
def generate(tile):
    options = TILES[tile]
    if options.get("crash"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if options.get("raise"):
        raise RuntimeError("no layout for this tile")
    edits = "".join(f"//! {key}: {value}\\n" for key, value in options.get("edit", {}).items())
    return f"// {tile}\\n{edits}{options.get('text', '')}", options.get("threads", 256), options.get("lds", 0)
"""
SUITE = """
import hiptoy
from tilegate.protocol import Artifact
def configurations(arch):
    found = {tile: [] for tile in hiptoy.TILES}
    for case, tile in hiptoy.CHOICE.items():
        found[tile].append(f"toy.Run.latency_run('{case}')")
    return found
def lower(id, arch):
    source, threads, lds = hiptoy.generate(id)
    return [Artifact("loop_kernel", source, {"block": [threads, 1, 1], "dynamic_shared_bytes": lds})]
"""
PYPROJECT = '[tool.tilegate]\npackage = "hiptoy"\nsuite = "hipbench"\n'


@dataclass
class Toy:
    """A repository with the toy library in it."""

    path: Path
    log: Path

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def set(self, tiles: dict[str, dict[str, object]], choice: dict[str, str] | None = None) -> None:
        text = LIBRARY.replace('{"small": {}, "large": {}}', repr(tiles))
        self.write(
            "hiptoy/__init__.py", text.replace('{"short": "small", "long": "large"}', repr(choice)) if choice else text
        )

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "toy")
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Toy", "-c", "user.email=toy@example.invalid")
        done = subprocess.run(["git", *identity, *arguments], cwd=self.path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def compilations(self) -> int:
        return self.log.read_text().count("compiled") if self.log.exists() else 0


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    compiler = tmp_path / "toy-clang"
    made = Toy(tmp_path / "repository", tmp_path / "log")
    compiler.write_text(COMPILER.format(log=str(made.log)))
    compiler.chmod(0o755)
    monkeypatch.setenv("TILEGATE_HIP_COMPILER", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made.path.mkdir()
    made.git("init", "-q", "-b", "main")
    made.write("hiptoy/__init__.py", LIBRARY)
    made.write("hipbench/__init__.py", "")
    made.write("hipbench/kernels.py", SUITE)
    made.write("pyproject.toml", PYPROJECT)
    made.commit()
    return made


@pytest.fixture
def run(toy: Toy, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def command(*arguments: str) -> tuple[int, str, str]:
        parser = argparse.ArgumentParser()
        isa.add_parser(parser.add_subparsers())
        status = isa.run(parser.parse_args(["isa", *arguments, "--repo", str(toy.path)]))
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return command


def test_the_table_of_a_good_library(run: Callable[..., tuple[int, str, str]]) -> None:
    status, out, err = run()
    assert status == 0
    assert "toy compiler version 1.0" in out
    rows = [line for line in out.splitlines() if line.startswith(("small", "large"))]
    assert len(rows) == 2
    assert all("21+4" in row and "1x8 4x2" in row for row in rows)
    assert err.index("isa: 2 kernels to generate and compile") < err.index("isa 2/2")


def test_json_on_screen_and_in_a_file(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    status, out, _ = run("--json", "--out", str(tmp_path / "isa.json"), "--rev", "HEAD")
    document = json.loads(out)
    assert status == 0
    assert document == {**json.loads((tmp_path / "isa.json").read_text()), "created": document["created"]}
    jsonschema.validate(document, load_schema("isa-1.json"))
    assert document["revision"]["rev"] == "HEAD"
    assert set(document["kernels"]["gfx942"]) == {"small", "large"}
    assert document["kernels"]["gfx942"]["small"]["cases"] == ["toy.Run.latency_run('short')"]
    assert document["toolchains"]["gfx942"]["compiler"] == "toy compiler version 1.0"


def test_the_second_run_generates_and_compiles_nothing(
    toy: Toy, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, _ = run()
    compiled = toy.compilations()
    assert compiled == 2
    monkeypatch.setattr("tilegate.lowering.lowering._Worker", None)  # a worker would be called
    status, second, _ = run()
    assert (status, second, toy.compilations()) == (0, first, compiled)


def test_a_change_of_the_library_is_seen_without_a_commit(toy: Toy, run: Callable[..., tuple[int, str, str]]) -> None:
    run()
    toy.set({"small": {"lds": 100_000}, "large": {}})
    status, out, _ = run()
    assert status == 3
    assert "100,000" in out or "104,096" in out
    assert run("--rev", "HEAD")[0] == 0


CALL = "//+ s_add_u32 s4, s4, __ocml_exp2_f32@rel32@lo+4\n"


@pytest.mark.parametrize(
    ("text", "installs"),
    [
        (CALL, "apt-get install -y rocm-device-libs"),
        ("//- kernel.hip:1:10: fatal error: 'cstdint' file not found", "apt-get install -y g++"),
        (
            "//- error: cannot find ROCm device library; provide its path",
            "apt-get install -y clang-19 rocm-device-libs",
        ),
        ("//- kernel.hip:1:10: fatal error: 'tl_templates/hip/gemm.h' file not found", "pip install tilelang"),
    ],
)
@pytest.mark.parametrize("command", [(), ("diff", "--base", "HEAD", "--head", "WORKTREE")])
def test_what_is_missing_on_the_machine_is_not_held_against_a_kernel(
    toy: Toy,
    run: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    text: str,
    installs: str,
    command: tuple[str, ...],
) -> None:
    monkeypatch.setattr("tilegate.isa.toolchain._DEVICE_LIBRARY_FOLDERS", ())
    monkeypatch.setattr("tilegate.isa.toolchain._template_options", lambda: ())
    toy.set({"small": {}, "large": {"text": text}})
    status, out, err = run(*command)
    assert (status, out) == (5, "")
    assert err.splitlines()[-1].startswith("tilegate: ")
    assert err.endswith(f": {installs}\n")


@pytest.mark.parametrize(
    "text", [CALL, "//- fatal error: 'nowhere/mine.h' file not found", "//- error: use of undeclared identifier 'x'"]
)
def test_what_a_kernel_lacks_where_nothing_is_missing_is_its_own_fault(
    toy: Toy, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("tilegate.isa.toolchain._device_library_folder", lambda: Path("/somewhere"))
    monkeypatch.setattr("tilegate.isa.toolchain._device_library_version", lambda: "0" * 12)
    toy.set({"small": {}, "large": {"text": text}})
    assert run()[0] == 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lds": 65536}, "4,096 static + 65,536 dynamic = 69,632 bytes of LDS, a workgroup has 65,536"),
        ({"threads": 2048}, "2,048 threads"),
        ({"threads": 1024, "edit": {".vgpr_count": 256}}, "256 registers a lane leave 2 waves"),
        ({"text": "#error"}, "the toy asked for it"),
        ({"crash": True}, "killed by SIGSEGV"),
        ({"raise": True}, "no layout for this tile"),
    ],
)
def test_a_kernel_that_cannot_run_is_broken_and_the_others_are_still_shown(
    toy: Toy, run: Callable[..., tuple[int, str, str]], options: dict[str, object], text: str
) -> None:
    toy.set({"small": options, "large": {}})
    status, out, _ = run()
    assert status == 3
    assert text in out
    jsonschema.validate(json.loads(run("--json")[1]), load_schema("isa-1.json"))
    assert any(line.startswith("large") and "pass" in line for line in out.splitlines())


def test_spills_warn(toy: Toy, run: Callable[..., tuple[int, str, str]]) -> None:
    toy.set({"small": {"edit": {".vgpr_spill_count": 25, ".private_segment_fixed_size": 104}}, "large": {}})
    status, out, _ = run()
    assert status == 0
    assert "warning: 25 vector registers spill (104 bytes of scratch a lane)" in out


def test_a_filter_finds_kernels_and_cases(run: Callable[..., tuple[int, str, str]]) -> None:
    assert set(json.loads(run("-b", "sma", "--json")[1])["kernels"]["gfx942"]) == {"small"}
    assert set(json.loads(run("-b", "'long'", "--json")[1])["kernels"]["gfx942"]) == {"large"}


def test_nothing_never_passes(run: Callable[..., tuple[int, str, str]]) -> None:
    with pytest.raises(UsageError, match="no kernel or case matches 'nothing'; there are the kernels\n  small"):
        run("-b", "nothing")
    status, _, err = run("diff", "--base", "HEAD", "--head", "HEAD", "-b", "nothing")
    assert status == 4
    assert "there are the kernels\n  small" in err


@pytest.mark.parametrize(
    ("pattern", "compiled", "shown"),
    [
        ("sma", 3, [("small", "large"), ("small", "small")]),
        ("'long'", 2, [("small", "large")]),  # the head runs that case with another tile
        ("huge", 1, [(None, "huge")]),
        ("loop_kernel", 5, []),  # found in nothing that is known before it is compiled
    ],
)
def test_diff_compiles_only_what_is_asked_for_and_what_it_replaces(
    toy: Toy, run: Callable[..., tuple[int, str, str]], pattern: str, compiled: int, shown: list[tuple[str | None, str]]
) -> None:
    toy.set(
        {tile: {"text": f"// {tile} of the base"} for tile in ("small", "large")}, {"long": "small", "short": "small"}
    )
    toy.commit()
    toy.set({tile: {"text": f"// {tile} of the head"} for tile in ("small", "large", "huge")})
    _, out, _ = run("diff", "--base", "HEAD", "--head", "WORKTREE", "--json", "-b", pattern)
    assert toy.compilations() == compiled
    assert [(pair["base"], pair["head"]) for pair in json.loads(out)["pairs"]] == shown


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--arch", "gfx900"), "gfx942, gfx90a, gfx950"),
        (("-b", "("), "not a regular expression"),
        (("--rev", "nowhere"), "nowhere"),
        (("--compiler", "nowhere"), "nowhere"),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(
    run: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        run(*arguments)


def test_a_suite_without_kernels_says_what_is_missing(toy: Toy, run: Callable[..., tuple[int, str, str]]) -> None:
    (toy.path / "hipbench/kernels.py").unlink()
    with pytest.raises(UsageError, match="no module kernels"):
        run()


def test_a_suite_that_fails_is_quoted(toy: Toy, run: Callable[..., tuple[int, str, str]]) -> None:
    toy.write("hipbench/kernels.py", "raise SystemExit('not today')")
    with pytest.raises(UsageError, match="not today"):
        run()


def test_an_installed_copy_of_the_library_is_not_taken_for_the_commit_s(
    toy: Toy, run: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "hiptoy").mkdir(parents=True)
    (elsewhere / "hiptoy/__init__.py").write_text(LIBRARY)
    toy.write("hipbench/kernels.py", f"import sys\nsys.path.insert(0, {str(elsewhere)!r})\n" + SUITE)
    with pytest.raises(UsageError, match="elsewhere"):
        run()


def diff(run: Callable[..., tuple[int, str, str]], *arguments: str) -> tuple[int, dict[str, dict[str, object]]]:
    status, out, _ = run("diff", "--base", "HEAD", "--head", "WORKTREE", "--json", *arguments)
    document = json.loads(out)
    assert document["exit_code"] == status
    jsonschema.validate(document, load_schema("isa-diff-1.json"))
    return status, {pair["head"] or pair["base"]: pair for pair in document["pairs"]} | {"run": document}


@pytest.mark.parametrize(
    ("options", "verdict", "status"),
    [
        ({}, "unchanged", 0),
        ({"text": "// a comment"}, "pass", 0),
        ({"edit": {".vgpr_spill_count": 3, ".private_segment_fixed_size": 12}}, "regressed", 1),
        ({"edit": {".vgpr_count": 300}}, "regressed", 1),
        ({"edit": {".sgpr_spill_count": 3}}, "warning", 0),
        ({"lds": 65536}, "broken", 3),
        ({"crash": True}, "broken", 3),
        ({"text": "#error"}, "broken", 3),
    ],
)
def test_diff_judges_a_planted_change(
    toy: Toy, run: Callable[..., tuple[int, str, str]], options: dict[str, object], verdict: str, status: int
) -> None:
    toy.set({"small": options, "large": {}})
    code, pairs = diff(run)
    assert code == status
    assert pairs["small"]["difference"]["verdict"] == verdict  # type: ignore[index]
    assert pairs["large"]["difference"]["verdict"] == "unchanged"  # type: ignore[index]


WAIVER = """
[waiver.known]
cases = "toy.Run.latency_run('short')"
isa = ["spills"]
expires = 2026-06-15
reason = "x"
link = "https://example.org/1"
"""
LAST_DAY = datetime.date(2026, 6, 15)
SPILLS = {"edit": {".vgpr_spill_count": 3, ".private_segment_fixed_size": 12}}


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime.date], None]:
    """Set the day on which `isa diff` runs."""
    original = compare.run_diff
    return lambda day: monkeypatch.setattr(compare, "run_diff", lambda args: original(args, today=day))


def test_diff_lets_a_waived_finding_pass_openly(
    toy: Toy, run: Callable[..., tuple[int, str, str]], on: Callable[[datetime.date], None]
) -> None:
    toy.write("tilegate-waivers.toml", WAIVER)
    toy.commit()
    toy.set({"small": SPILLS, "large": {}})
    on(LAST_DAY)
    code, pairs = diff(run)
    difference: Any = pairs["small"]["difference"]
    assert (code, difference["verdict"]) == (0, "waived")
    assert [(c["severity"], c["waiver"]) for c in difference["changes"] if c["rule"] == "spills"] == [
        ("waived", "known")
    ]
    _, report, _ = run("diff", "--base", "HEAD", "--head", "WORKTREE")
    assert "1 waived, 1 unchanged" in report
    assert "- waived by known: `spilled vector registers 0 -> 3" in report

    toy.set({"small": {}, "large": SPILLS})  # another case's kernel
    assert diff(run)[0] == 1
    toy.set({"small": SPILLS}, {"short": "small", "long": "small"})  # one of two cases
    assert diff(run)[0] == 1
    toy.set({"small": {"edit": {**SPILLS["edit"], ".vgpr_count": 300}}, "large": {}})  # another rule besides
    assert diff(run)[0] == 1
    toy.set({"small": {"lds": 65536}, "large": {}})
    assert diff(run)[0] == 3


def test_diff_fails_by_the_name_of_an_expired_waiver(
    toy: Toy, run: Callable[..., tuple[int, str, str]], on: Callable[[datetime.date], None]
) -> None:
    toy.write("tilegate-waivers.toml", WAIVER)
    toy.commit()
    on(LAST_DAY + datetime.timedelta(days=1))
    code, pairs = diff(run)
    assert (code, pairs["run"]["verdict"]) == (4, "inconclusive")
    assert "Waiver known expired on 2026-06-15" in run("diff", "--base", "HEAD", "--head", "WORKTREE")[1]
    toy.set({"small": SPILLS, "large": {}})
    assert diff(run)[0] == 1
    toy.set({"small": {}, "large": {}})
    (toy.path / "tilegate-waivers.toml").unlink()
    assert diff(run)[0] == 0


def test_diff_takes_waivers_of_the_change_itself_only_with_leave(
    toy: Toy, run: Callable[..., tuple[int, str, str]], on: Callable[[datetime.date], None]
) -> None:
    toy.write("tilegate-waivers.toml", WAIVER)
    toy.set({"small": SPILLS, "large": {}})
    on(LAST_DAY)
    code, pairs = diff(run)
    assert (code, [w["name"] for w in pairs["run"]["waivers"]["refused"]]) == (1, ["known"])  # type: ignore[index]
    assert diff(run, "--allow-head-waivers")[0] == 0
    toy.write("tilegate-waivers.toml", WAIVER.replace("spills", "everything"))
    with pytest.raises(UsageError, match=r"of the head, line 2: waiver\.known\.isa"):
        diff(run)


def test_diff_sees_an_improvement(toy: Toy, run: Callable[..., tuple[int, str, str]]) -> None:
    toy.set({"small": {"edit": {".vgpr_spill_count": 3}}, "large": {}})
    toy.commit()
    toy.set({"small": {}, "large": {}})
    code, pairs = diff(run)
    assert (code, pairs["small"]["difference"]["verdict"]) == (0, "improved")  # type: ignore[index]


def test_diff_compares_the_tiles_that_replace_one_another(toy: Toy, run: Callable[..., tuple[int, str, str]]) -> None:
    toy.set({"small": {}, "huge": {"edit": {".vgpr_count": 300}}}, {"short": "small", "long": "huge"})
    code, pairs = diff(run)
    assert code == 1
    assert pairs["huge"]["base"] == "large"
    assert pairs["huge"]["cases"] == ["toy.Run.latency_run('long')"]
    assert diff(run, "-b", "'long'")[0] == 1
    assert diff(run, "-b", "'short'")[0] == 0


def test_diff_with_a_case_that_lost_its_kernel_is_inconclusive(
    toy: Toy, run: Callable[..., tuple[int, str, str]]
) -> None:
    toy.set({"small": {}}, {"short": "small"})
    code, pairs = diff(run)
    assert (code, pairs["run"]["verdict"]) == (4, "inconclusive")
    assert pairs["large"]["difference"]["verdict"] == "removed"  # type: ignore[index]


def test_diff_lets_a_case_go_that_the_base_allows_to(toy: Toy, run: Callable[..., tuple[int, str, str]]) -> None:
    toy.write("pyproject.toml", PYPROJECT + "allow_removed = [\"toy.Run.latency_run('l*')\"]\n")
    toy.commit()
    toy.set({"small": {}}, {"short": "small"})
    code, pairs = diff(run)
    assert (code, pairs["run"]["verdict"]) == (0, "pass")
    assert pairs["large"]["difference"]["verdict"] == "removed"  # type: ignore[index]
    toy.write("pyproject.toml", PYPROJECT + 'allow_removed = ["*"]\n')
    toy.set({"large": {}}, {"long": "large"})
    assert diff(run)[0] == 4  # the head cannot give itself leave


def test_diff_of_a_broken_base_says_nothing_about_the_head(toy: Toy, run: Callable[..., tuple[int, str, str]]) -> None:
    toy.set({"small": {"lds": 65536}, "large": {}})
    toy.commit()
    toy.set({"small": {"lds": 65536, "text": "// changed"}, "large": {}})
    code, pairs = diff(run)
    assert (code, pairs["small"]["difference"]["verdict"]) == (4, "inconclusive")  # type: ignore[index]


def test_diff_uses_the_base_s_suite(toy: Toy, run: Callable[..., tuple[int, str, str]]) -> None:
    toy.write("hipbench/kernels.py", SUITE.replace("found = {", "return {}\n    found = {"))
    assert diff(run)[0] == 0  # the head's suite, which lists nothing, would give 4


def test_diff_writes_a_report(toy: Toy, run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    toy.set({"small": {"edit": {".vgpr_spill_count": 3}}, "large": {}})
    run("diff", "--base", "HEAD", "--head", "WORKTREE", "--out", str(tmp_path / "out"))
    report = (tmp_path / "out" / "isa.md").read_text()
    assert "Compiled kernels: regressed" in report
    assert "1 regressed, 1 unchanged" in report
    assert "`spilled vector registers 0 -> 3" in report
    assert json.loads((tmp_path / "out" / "isa.json").read_text())["verdict"] == "regressed"


def test_workers_are_gone_afterwards(toy: Toy, run: Callable[..., tuple[int, str, str]]) -> None:
    run()
    mine = subprocess.run(
        ["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
    )
    assert "lowering_worker" not in mine.stdout
