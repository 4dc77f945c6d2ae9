"""The probe behind `tilegate doctor`: TileLang generates code for all chips of interest, with no GPU."""

import pytest

from tilegate.commands import doctor

pytest.importorskip("tilelang")


def test_tilelang_lowers_for_every_chip_here():
    answers = doctor.lowering()
    assert list(answers) == ["gfx942", "gfx90a", "gfx950", "sm_90"]
    for chip, answer in answers.items():
        assert answer["lowers"], f"{chip}: {answer['error']}"


def test_an_unknown_chip_is_an_error_of_that_chip_alone():
    from tilegate.commands import lowering_probe

    command = [doctor.sys.executable, "-P", lowering_probe.__file__, "gfx000", "sm_90"]
    answers, _ = doctor._ask_per_chip(command)
    assert "KeyError" in answers["gfx000"]["error"]
    assert answers["sm_90"]["lowers"]
