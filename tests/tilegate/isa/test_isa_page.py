"""The generated page of the documentation."""

from __future__ import annotations

import argparse
import contextlib
import re
from pathlib import Path

import pytest
from isa_fixtures import artifact, listing

from benchmarks import kernels
from tilegate import isa
from tilegate.isa import page
from tilegate.isa.analysis import Analysis
from tilegate.isa.checks import Problem
from tilegate.isa.chips import CHIPS
from tilegate.isa.figures import figures_of
from tilegate.isa.survey import Kernel, Survey
from tilegate.isa.toolchain import ToolchainError, find_toolchain

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "isa-tiles.md"


def survey(fingerprint: str = "f1", *problems: Problem) -> Survey:
    figures = figures_of(listing("loop-gfx942.s"), artifact("loop", 256), CHIPS["gfx942"])
    identity = {"fingerprint": fingerprint, "compiler": "clang 1", "headers": "h", "tilelang": "0", "options": ["-O3"]}
    return Survey(
        {"gfx942": (Kernel("loop", ("a", "b"), Analysis("gfx942", figures, problems, "i")),)}, {"gfx942": identity}
    )


def test_the_page_holds_the_numbers() -> None:
    text = page.render(survey("f1", Problem("spills", "warning", "25 vector registers spill")))
    assert "## gfx942, AMD Instinct MI300X" in text
    assert "| loop | 2 | warning | 4,096 6% | 21+4 | 0 |" in text
    assert "- loop: 25 vector registers spill" in text
    assert page.toolchains_in(text) == {"gfx942": "f1"}
    assert "tilegate isa page --arch gfx942 --out docs/isa-tiles.md" in text


@pytest.mark.parametrize(
    ("there", "status", "message"),
    [
        (page.render(survey()), 0, ""),
        (page.render(survey()).replace("| loop | 2 |", "| loop | 3 |"), 1, "out of date"),
        (page.render(survey("f2")), 5, "another toolchain"),
    ],
)
def test_the_check(  # noqa: PLR0917 - fixtures
    there: str,
    status: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "page.md"
    file.write_text(there)
    monkeypatch.setattr(page, "survey_of", lambda args, rev: (survey(), None))
    assert page.run_page(argparse.Namespace(out=file, check=True, rev="WORKTREE")) == status
    assert message in capsys.readouterr().err
    assert file.read_text() == there
    page.run_page(argparse.Namespace(out=file, check=False, rev="WORKTREE"))
    assert file.read_text() == page.render(survey())


def test_a_check_looks_at_the_chips_asked_for_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "page.md"
    file.write_text(page.render(survey()) + "\n## gfx950, of which this run knows nothing\n")
    monkeypatch.setattr(page, "survey_of", lambda args, rev: (survey(), None))
    assert page.run_page(argparse.Namespace(out=file, check=True, rev="WORKTREE")) == 0


def test_the_page_in_docs_has_every_kernel_that_the_policies_can_choose() -> None:
    for section in PAGE.read_text().split("\n## ")[1:]:
        arch = section.partition(",")[0]
        rows = re.findall(r"^\| (.*?)(?: #\w+)? \| (\d+) \|", section, re.MULTILINE)
        wanted = {id: len(cases) for id, cases in kernels.configurations(arch).items()}
        assert {id: int(cases) for id, cases in rows} == wanted, arch


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_the_page_in_docs_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    """Compiles every shipped kernel for those chips of the page whose recorded toolchain is the one here."""
    recorded = page.toolchains_in(PAGE.read_text())
    here = {}
    for chip in recorded:
        with contextlib.suppress(ToolchainError):
            here[chip] = find_toolchain(chip).identity()["fingerprint"]
    same = [chip for chip, fingerprint in recorded.items() if here.get(chip) == fingerprint]
    if not same:
        pytest.skip("docs/isa-tiles.md was written with other toolchains than are here")
    parser = argparse.ArgumentParser()
    isa.add_parser(parser.add_subparsers())
    arguments = ["isa", "page", "--check", "--out", str(PAGE), "--arch", ",".join(same), "--repo", str(ROOT)]
    assert isa.run(parser.parse_args(arguments)) == 0, capsys.readouterr().err
