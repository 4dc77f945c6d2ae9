"""`tilegate ci triage` as the nightly workflow calls it."""

import json

import fake_github
import sample_builder
from history_records import comparison

from tilegate import cli
from tilegate.history.store import Store


def test_the_command_reads_samples_and_the_history_beside_them(github, project, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_TOKEN", fake_github.TOKEN)
    monkeypatch.setenv("GITHUB_REPOSITORY", fake_github.REPOSITORY)
    monkeypatch.setenv("GITHUB_API_URL", github.address)
    document = sample_builder.document(
        {"attention.A.latency_a('a')": sample_builder.case(0.1, confirm=2)}, target="hip"
    )
    (tmp_path / "samples.json").write_text(json.dumps(document))
    store = Store(tmp_path / "history")
    store.add(comparison("x", "y", 0.1))  # of a nightly gate, in a history whose commits nobody has recorded yet
    command = ["ci", "triage", "--repo", str(project.path), "--samples", str(tmp_path / "samples.json")]
    for place in ("history", "missing"):
        assert cli.main([*command, "--store", str(tmp_path / place)]) == 0, capsys.readouterr().err
    assert len(github.issues) == 1
