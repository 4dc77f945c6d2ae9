"""Counters of two vendors: the tools' files, the common terms, and what happens where they may not be read.

The files of rocprofv3 follow its documentation (how-to/using-rocprofv3); none was written by an AMD GPU.
"""

import json
import math
import os
import stat
from pathlib import Path

import hip_toy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegate import emulator, files
from tilegate.commands import profile as command
from tilegate.evidence import counters, emulated, profile_table, profiling
from tilegate.history import importing
from tilegate.history.store import Store as HistoryStore
from tilegate.lowering.store import Store
from tilegate.measuring import trees
from tilegate.measuring.workspace import Workspace, workspace_of

ROOT = Path(__file__).parents[3]

NCU = """\
attention warms up
==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "attention_forward_kernel": 0%....50%....100% - 12 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum","lts__t_sector_hit_rate.pct","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed","l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum","sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed"
"","","","","","","","","","","","Mbyte","Kbyte","usecond","%","%","","%"
"0","4711","python3.12","gpu-node-17","attention_forward_kernel","1","7","(384, 1, 1)","(28, 22, 1)","0","9.0","1.5","250","273.1","87.25","71.5","1,024","n/a"
"""

HEADER = '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id","Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"\n'  # fmt: skip


def dispatch(number, kernel, counter, value):
    return f'{number},{number},"Agent 2",1,70,70,1048576,16,"{kernel}",256,34816,0,124,0,48,"{counter}",{value},1000,251000\n'


def by_name(launch, vendor):
    return {reading.term.name: reading.value for reading in counters.readings(launch, vendor)}


def test_ncu_is_read_in_base_units():
    (launch,) = counters.read_ncu(NCU)
    found = by_name(launch, "cuda")
    assert (launch.kernel, launch.grid) == ("attention_forward_kernel", "(28, 22, 1)")
    assert found["time"] == pytest.approx(273.1)
    assert found["bytes read from memory"] == 1_500_000
    assert found["bytes written to memory"] == 250_000
    assert found["LDS or shared bank conflicts"] == 1024
    assert found["matrix units"] == 71.5
    assert found["exp2, reciprocal and the like"] is None  # n/a
    limit = counters.limiting(list(counters.readings(launch, "cuda")))
    assert limit is not None
    assert limit.term.name == "matrix units"


def test_rocprof_passes_are_put_together_by_kernel_and_order():
    first = HEADER + dispatch(1, "fill", "MfmaUtil", 0) + dispatch(2, "attention", "MfmaUtil", "4.2e+01")
    first += dispatch(3, "attention", "MfmaUtil", 44)
    second = HEADER + "".join(
        dispatch(number + 10, kernel, counter, value)
        for number, kernel in enumerate(("fill", "attention", "attention"))
        for counter, value in (("TCC_HIT_sum", 90 + number), ("TCC_MISS_sum", 10 - number))
    )
    third = HEADER + dispatch(2, "attention", "FETCH_SIZE", 2048)
    launches = counters.read_rocprof([first, second, third])
    chosen = profiling.last_of_each(launches, ["attention"])
    (last,) = chosen
    found = by_name(last, "hip")
    assert found["matrix units"] == 44
    assert found["L2 hit rate"] == pytest.approx(100 * 92 / 100)
    assert found["time"] == 250.0
    assert found["registers a thread"] == 124
    assert by_name(launches[1], "hip")["bytes read from memory"] == 2048 * 1024


def test_rocpd_columns_are_read_too():
    text = (
        (HEADER + dispatch(1, "attention", "MfmaUtil", 40))
        .replace("LDS_Block_Size", "Lds_Block_Size")
        .replace("VGPR_Count", "Vgpr_Count")
    )
    (launch,) = counters.read_rocprof([text])
    assert by_name(launch, "hip")["matrix units"] == 40


@pytest.mark.parametrize("text", ["", "no table", '"ID"\n'])
def test_a_file_that_is_no_table(text):
    if '"ID"' in text:
        assert counters.read_ncu(text) == []
    else:
        with pytest.raises(ValueError, match="Nsight"):
            counters.read_ncu(text)
    with pytest.raises(ValueError, match="rocprofv3"):
        counters.read_rocprof(["a,b\n1,2\n"])


@given(st.text(max_size=300))
def test_no_file_breaks_the_readers(text):
    for reader in (counters.read_ncu, lambda text: counters.read_rocprof([text])):
        try:
            launches = reader(text)
        except ValueError:
            continue
        for launch in launches:
            assert all(math.isfinite(value) for value in launch.counters.values())


def test_every_counter_that_a_term_needs_is_collected():
    collected = {name for names in counters.ROCPROF_PASSES for name in names}
    collected |= {"Start_Timestamp", "End_Timestamp", "VGPR_Count", "LdsUtil", "L2CacheHit"}  # columns, alternatives
    needed = {name for term in counters.TERMS for names, _ in term.rocprof for name in names}
    assert needed <= collected
    assert len(counters.TERMS) == len({term.name for term in counters.TERMS})


@pytest.fixture
def clang():
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "stage"
    folder.mkdir()
    return lambda target: Workspace("head", folder, {}, "suite", folder, "package", folder, target, "full")


def tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}")
    os.chmod(folder / name, stat.S_IRWXU)


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_ncu_is_asked_for_what_it_knows_and_names_no_machine(workspace, on_path, tmp_path):
    (tmp_path / "answer").write_text(NCU)
    tool(
        on_path, "ncu",
        f"""
        case "$*" in
          *--version*) echo "NVIDIA (R) Nsight Compute 2025.3.1.0" ;;
          *--query-metrics*) echo "dram__bytes_read Counter byte"; echo "gpu__time_duration Counter ns" ;;
          *) echo "$*" > {tmp_path}/asked
             while [ "$1" != "--log-file" ]; do shift; done; cp {tmp_path}/answer "$2" ;;
        esac
        """,
    )  # fmt: skip
    found = profiling.profile(workspace("cuda"), "case", tmp_path)
    asked = (tmp_path / "asked").read_text()
    metrics = asked.partition("--metrics ")[2].split()[0].split(",")
    assert "dram__bytes_read.sum" in metrics
    assert "lts__t_sector_hit_rate.pct" not in metrics  # this chip does not know it, and would refuse all
    assert "--clock-control none" in asked
    assert len(found.launches) == 1
    assert "gpu-node-17" not in found.raw["ncu.csv"]
    assert "4711" not in found.raw["ncu.csv"]
    assert counters.read_ncu(found.raw["ncu.csv"]) == list(found.launches)


def test_without_the_right_to_read_counters(workspace, on_path, tmp_path):
    tool(on_path, "ncu", 'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"; exit 1')
    with pytest.raises(profiling.NoProfilerError, match="RestrictProfilingToAdminUsers"):
        profiling.profile(workspace("cuda"), "case", tmp_path)


def test_a_profiler_that_fails_is_quoted(workspace, on_path, tmp_path):
    tool(on_path, "ncu", 'echo "no kernels were profiled"; exit 0')
    with pytest.raises(profiling.UsageError, match="no kernels were profiled"):
        profiling.profile(workspace("cuda"), "case", tmp_path)
    tool(on_path, "rocprofv3", 'echo "error code 38: Request exceeds the capabilities of the hardware"; exit 0')
    with pytest.raises(profiling.UsageError, match=r"MfmaUtil.*exceeds the capabilities"):
        profiling.profile(workspace("hip"), "case", tmp_path)


def test_rocprof_runs_once_for_each_pass(workspace, on_path, tmp_path):
    (tmp_path / "kernels.txt").write_text("attention\n")
    rows = "".join(dispatch(1, "attention", name, 50) for names in counters.ROCPROF_PASSES for name in names)
    (tmp_path / "answer").write_text(HEADER + rows)
    tool(
        on_path, "rocprofv3",
        f"""
        echo "$*" >> {tmp_path}/asked
        while [ "$1" != "-d" ]; do shift; done
        mkdir -p "$2/host"; cp {tmp_path}/answer "$2/host/pass_counter_collection.csv"
        """,
    )  # fmt: skip
    found = profiling.profile(workspace("hip"), "case", tmp_path)
    asked = [line for line in (tmp_path / "asked").read_text().splitlines() if "--pmc" in line]
    assert len(asked) == len(counters.ROCPROF_PASSES)
    assert by_name(found.launches[0], "hip")["occupancy"] == 50


def test_without_a_profiler_it_says_what_can_be_had(capsys):
    from tilegate import cli

    assert cli.main(["profile", "anything", "--target", "cpu"]) == 5
    said = capsys.readouterr().err
    assert "tilegate isa -b 'anything'" in said
    assert "Traceback" not in said


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs():
    with pytest.raises(profiling.UsageError, match="cannot write into /dev/null/x"):
        command._prepared(Path("/dev/null/x"))


def test_the_table_compares_two_revisions(capsys):
    (launch,) = counters.read_ncu(NCU)
    head = {"kernels": [counters.to_json(launch, "cuda")], "work": {"bytes": 1_000_000}}
    slower = counters.Launch(
        launch.kernel, launch.grid, launch.block, {**launch.counters, "gpu__time_duration.sum": 300_000.0}
    )
    document = {
        "case": "case",
        "environment": {"device": {"name": "NVIDIA H200"}},
        "base": head,
        "head": {"kernels": [counters.to_json(slower, "cuda")], "work": {"bytes": 1_000_000}},
    }
    time = next(row for row in profile_table.rows(document) if row[0] == "time")
    assert time == ("time", "273.1 us", "300.0 us", "+9.8 %", "gpu__time_duration.sum")
    assert "limited by matrix units, busy 72 % of the time" in profile_table.limits(document)[0]
    assert "1.75 times the ideal" in profile_table.limits(document)[1]
    command.show(document, markdown=True)
    assert "| time | 273.1 us | 300.0 us | +9.8 % |" in capsys.readouterr().out


def test_what_an_h200_said_is_read():
    """Written on an H200 by `tilegate profile "prefill-7b-b4-s4096', 'adaptive'"` at beef149."""
    (launch,) = counters.read_ncu(
        (ROOT / "docs/examples/h200-field/profile-b4-s4096-adaptive/head-ncu.csv").read_text()
    )
    found = {reading.term.name: reading for reading in counters.readings(launch, "cuda")}
    assert launch.kernel == "attention_forward_kernel"
    assert found["time"].value == pytest.approx(839.2, abs=0.1)
    assert found["matrix units"].value == pytest.approx(68.0, abs=0.1)
    assert found["bytes read from memory"].value == pytest.approx(151_191_040, rel=0.01)
    assert found["registers a thread"].value == 128
    assert [name for name, reading in found.items() if reading.value is None] == []
    limit = counters.limiting(list(found.values()))
    assert limit is not None
    assert limit.term.name == "matrix units"


@pytest.mark.usefixtures("clang")
def test_the_emulator_counts_beside_amd_counters(tmp_path):
    """The toy's kernel writes 3 rows of 100 floats to LDS; a CUDA device gets a sentence instead."""
    toy = hip_toy.make(tmp_path / "repository")
    repository = trees.open_repository(toy.path)
    revision = trees.resolve(repository, "WORKTREE", tmp_path / "objects")
    workspace, _ = workspace_of(repository, revision, revision, tmp_path / "side", target="cpu", tier="full")
    case, store = "toy.Run.latency_run('double')", Store(tmp_path / "store")
    found = emulated.counts(workspace, case, "gfx942", tmp_path / "logs", store)
    assert isinstance(found, dict)
    assert (found["kernel"], found["problem"]) == ("double", "one row")
    assert found["total"]["barriers"] == 1
    assert found["total"]["lds_writes"] == 2  # two waves of 64 work-items
    assert found["total"]["mfma"] == 0
    none = emulated.counts(workspace, "toy.Run.latency_run('quadruple')", "gfx942", tmp_path / "logs", store)
    assert "no kernel of toy.Run.latency_run('quadruple')" in str(none)
    assert "there are no counts for sm_90" in str(emulated.counts(workspace, case, "sm_90", tmp_path / "logs", store))


def amd_profile(matrix, barriers, emulator=True):
    launch = counters.Launch("attention", "1", "256", {"MfmaUtil": matrix, "Start_Timestamp": 0, "End_Timestamp": 1e6})
    counted = {"kernel": "k", "problem": "b1", "total": {"barriers": barriers, "mfma": 64, "atomics": 0}}
    return {
        "revision": {"rev": "x", "commit": f"{barriers:040x}", "tree": "t"},
        "tool": "rocprofv3: 1.0",
        "work": {"flops": 4e11, "bytes": 1e8},
        "kernels": [counters.to_json(launch, "hip")],
        "static": {"attention": {"registers": 122, "loop": {"mfma": 64, "none": 0}, "counts": {"x": 1}}},
        "emulated": counted if emulator else "no clang here",
    }


def document(**sides):
    environment = {"device": {"name": "AMD Instinct MI300X", "arch": "gfx942"}}
    about = {"schema": command.SCHEMA, "created": "2026-01-01", "case": "m.A.latency_x(1)", "target": "hip"}
    made = {**about, "environment": {**environment, "versions": {}}, **sides}
    files.check(made, "profile-1.json")
    return made


def test_compiled_code_emulator_and_roofline_stand_beside_the_counters(capsys):
    made = document(base=amd_profile(40, 2), head=amd_profile(50, 3))
    rows = {row[0]: row[1:] for row in profile_table.rows(made)}
    assert rows["matrix units"] == ("40.0 %", "50.0 %", "+10.0 points", "MfmaUtil")
    assert rows["registers"] == ("122", "122", "+0.0 %", "compiled code")
    assert rows["main loop: mfma"] == ("64", "64", "+0.0 %", "compiled code")
    assert rows["emulated barriers"] == ("2", "3", "+50.0 %", "emulator, problem b1")
    assert not any("atomics" in name or "none" in name or name.startswith("counts") for name in rows)
    notes = profile_table.notes(made)
    assert "nobody had run it on hardware" in notes[0]
    assert notes[1].startswith("base: roofline: 400 TFLOP/s, 15 % of the peak")
    command.show(made, markdown=True)
    shown = capsys.readouterr().out
    assert "emulator, problem b1" in shown
    assert "nobody had run it on hardware" in shown
    assert profile_table.notes(document(head=amd_profile(50, 3, emulator=False)))[0] == "No clang here."
    cuda = {**document(head={**amd_profile(50, 3)}), "target": "cuda"}
    del cuda["head"]["emulated"]
    assert profile_table.notes(cuda)[0].startswith("The emulator executes AMD's code alone")


def test_a_history_takes_counters_and_counts(tmp_path):
    made = document(base=amd_profile(40, 2), head=amd_profile(50, 3))
    (tmp_path / "profile.json").write_text(json.dumps(made))
    store = HistoryStore(tmp_path / "history")
    store.folder.mkdir()
    records = list(importing.from_file(tmp_path / "profile.json"))
    assert [(r["source"], r["commit"], r["chip"]) for r in records] == [
        (source, f"{number:040x}", "gfx942") for number in (2, 3) for source in ("counters", "emulator")
    ]
    assert all(store.add(record) for record in records)
    assert records[2]["cases"]["m.A.latency_x(1)"] == {"time": 1000.0, "matrix units": 50.0}
    assert records[3]["cases"]["m.A.latency_x(1)"]["barriers"] == 3
    made["head"]["revision"]["commit"] = None
    (tmp_path / "profile.json").write_text(json.dumps(made))
    with pytest.raises(profiling.UsageError, match="profile --rev names one"):
        list(importing.from_file(tmp_path / "profile.json"))
    del made["base"]["kernels"]
    made["head"]["revision"]["commit"] = "a" * 40
    (tmp_path / "profile.json").write_text(json.dumps(made))
    with pytest.raises(profiling.UsageError, match="'kernels' is a required property"):
        list(importing.from_file(tmp_path / "profile.json"))


@pytest.mark.parametrize(
    "folder", sorted((ROOT / "docs/examples/h200-field").glob("profile-*")), ids=lambda path: path.name
)
def test_the_stored_profiles_fit_their_schema(folder):
    files.check(files.load_json(folder / "profile.json"), "profile-1.json")
