"""What is drawn for each process: it differs where it should, is the same where it must be, and reaches the process."""

import ctypes

import pytest
import toy_repository

from tilegate.measuring import layout
from tilegate.worker.placement import Placement

TOTAL = "sums.Total.latency_total(1000)"


def test_a_layout_follows_from_the_samples_and_differs_between_sides_and_sessions():
    drawn = {(s, side): layout.Layouts().draw(7, s, side) for s in ("one", "two") for side in ("base", "head")}
    assert len(set(drawn.values())) == 4
    assert drawn["one", "base"] == layout.Layouts().draw(7, "one", "base")
    assert layout.Layouts(hash_seeds=False).draw(7, "one", "base").hash_seed == 0


def test_cases_come_in_another_order_in_every_session():
    cases = [f"case{i}" for i in range(8)]
    orders = {tuple(layout.order(1, f"session{i}", cases)) for i in range(5)}
    assert len(orders) == 5
    assert {tuple(sorted(order)) for order in orders} == {tuple(cases)}


def _offsets(placement, size, count=2):
    """Allocate as a set-up would; return the addresses within a page."""
    blocks = [ctypes.create_string_buffer(size) for _ in range(count)]
    return tuple(ctypes.addressof(block) % 4096 for block in blocks)


@pytest.mark.parametrize("size", [8_000, 300_000, 4_000_000])
def test_buffers_lie_elsewhere_after_each_set_up_and_elsewhere_relative_to_each_other(size):
    placement = Placement(3)
    found = []
    for _ in range(40):
        placement.renew()
        found.append(_offsets(placement, size))
    placement.release()
    assert len({one for one, _ in found}) > 20
    assert len({one % 64 for one, _ in found}) == 4  # of a cache line, in steps of 16 bytes: all of them
    if size < 1_000_000:  # larger ones than any hole follow each other
        assert len({(other - one) % 4096 for one, other in found}) > 20


def test_the_same_seed_gives_the_same_order():
    items = list(range(20))
    assert Placement(5).order(items) == Placement(5).order(items) != Placement(6).order(items)


def test_a_process_gets_what_was_drawn(toy_surroundings, toy):
    toy.replace(
        "toybench/sums.py",
        "class _Sums:",
        "import os, sys, pathlib\n"
        "_seen = pathlib.Path(os.environ['SEEN'])\n"
        "def _see():\n"
        "    what = os.environ['PYTHONHASHSEED'], len(os.environ.get('TILEGATE_PADDING', ''))\n"
        "    with _seen.open('a') as file: print(*what, file=file)\n"
        "_see()\n\n\nclass _Sums:",
    )
    toy.commit("Look")
    toy.git("tag", "--force", "base")
    toy.replace(toy_repository.KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.01")
    toy.commit("Change")
    seen = toy.path.parent / "seen"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEN", str(seen))
        toy.gate("base", "HEAD", "-b", r"total\(1000\)")
    (replicate, *_) = toy.samples()["cases"][TOTAL]["replicates"]
    timed = {f"{drawn['hash_seed']} {drawn['environment_bytes']}" for drawn in replicate["layouts"].values()}
    lines = set(seen.read_text().splitlines())
    assert timed < lines
    assert "0 0" in lines  # those that are not timed
    assert [pair["place"] for pair in replicate["pairs"]] == sorted(pair["place"] for pair in replicate["pairs"])


def test_code_that_depends_on_the_hash_seed_is_timed_as_it_was_checked(toy_surroundings, toy):
    toy.replace(toy_repository.KERNELS, r"self\.source = f\"wait", "self.source = f\"{hash('order')} wait")
    toy.commit("Depend on the order of a set")
    toy.git("tag", "--force", "base")
    toy.replace(toy_repository.KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.01")
    toy.commit("Change")
    outcome = toy.gate("base", "HEAD", "-b", r"total\(1000\)")
    assert outcome.status == 0, outcome
    assert "the generated code depends on PYTHONHASHSEED" in outcome.err
    replicates = toy.samples()["cases"][TOTAL]["replicates"]
    assert {r["layouts"][side]["hash_seed"] for r in replicates for side in ("base", "head")} == {0}


def test_a_module_that_needs_another_to_be_imported_before_is_imported_whatever_the_order(toy_surroundings, toy):
    toy.write("toybench/also_a.py", "import toybench.zeta\ntoybench.zeta.LIST.append(1)\n")
    toy.write("toybench/omega.py", "import sys\nsys.modules['toybench.also_a']\n")  # fails unless also_a is there
    toy.write("toybench/zeta.py", "LIST = []\n")
    toy.commit("Depend on the usual order")
    toy.git("tag", "--force", "base")
    toy.replace(toy_repository.KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.01")
    toy.commit("Change")
    for seed in (3, 5, 8):
        outcome = toy.gate("base", "HEAD", "-b", r"total\(1000\)", "--fresh", "--seed", str(seed))
        assert outcome.status == 0, outcome
