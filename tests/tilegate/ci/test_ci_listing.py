"""The cases that a report expects are those of the suite in its own checkout."""

import pytest
import toy_repository

from tilegate.ci.listing import cases_of
from tilegate.files import UsageError

pytestmark = pytest.mark.usefixtures("toy_surroundings")


@pytest.fixture
def toy(tmp_path):
    return toy_repository.make(tmp_path / "toy")


def test_every_case_of_the_suite_is_listed_without_a_device(toy):
    listed = cases_of(toy.path, "hip", "pr")
    assert len(set(listed)) == len(listed) > 2
    assert any(case.startswith("sums.") for case in listed)
    assert set(cases_of(toy.path, "cpu", "smoke")) <= set(listed)


def test_a_suite_without_cases_for_that_tier_is_refused(toy):
    toy.write("toybench/sums.py", "")
    with pytest.raises(UsageError, match="no cases for target cpu and tier smoke"):
        cases_of(toy.path, "cpu", "smoke")


def test_a_suite_that_cannot_be_imported_lists_nothing_rather_than_less(toy):
    toy.write("toybench/broken.py", "import nothing_of_this_name\n")
    with pytest.raises(UsageError, match="broken cannot be imported"):
        cases_of(toy.path, "cpu", "smoke")
