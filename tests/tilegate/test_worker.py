"""Worker processes: what they do, and how whatever happens in them is told."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toy_repository

import tilegate
from tilegate.config import load_config
from tilegate.failures import SkippedError, explain
from tilegate.files import UsageError
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.session import Worker, WorkerError
from tilegate.measuring.workspace import make_workspace
from tilegate.protocol import Artifact, WrongResult, WrongTreeError, digest

TOTAL = "sums.Total.latency_total(1000)"


@pytest.fixture
def tree(tmp_path):
    return Path(shutil.copytree(toy_repository.TOY, tmp_path / "tree", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def config(tree):
    return load_config((tree / "pyproject.toml").read_text())


@pytest.fixture
def start(tree, config, tmp_path, monkeypatch):
    """Start a worker on `tree`, as it then is."""
    monkeypatch.setenv("PYTHONPATH", str(toy_repository.VIRTUAL_TIME))
    started = []

    def begin(*, timed=False):
        folder = tmp_path / "work" / f"side{len(started)}"
        workspace = make_workspace(
            folder, config, exported=tree, suite_root=tree / "toybench", target="cpu", tier="smoke"
        )
        started.append(Worker(workspace, tmp_path / f"{folder.name}.log", config, timed=timed))
        return started[-1]

    yield begin
    for worker in started:
        worker.close()


def _edit(tree: Path, file: str, before: str, after: str) -> None:
    text = (tree / file).read_text()
    assert before in text
    (tree / file).write_text(text.replace(before, after))


def test_cases_are_listed_in_asvs_spelling(start):
    found = start().catalogue()
    assert found["broken"] == {}
    cases = {case["id"]: case for case in found["cases"]}
    assert cases[TOTAL] == {
        "id": TOTAL,
        "benchmark": "sums.Total.latency_total",
        "params": ["1000"],
        "version": "1",
    }
    assert "sums.Step.latency_step('first')" in cases
    assert len(cases) == 11


def test_what_a_launch_computes_and_moves_is_listed(start, tree, tmp_path):
    stated = {"1000": '{"flops": 2 * param, "bytes": 8 * param}', "4000": '{"gigabytes": 1}'}
    lines = "".join(f"        if param == {n}:\n            return {work}\n" for n, work in stated.items())
    _edit(tree, "toybench/sums.py", "class Total(_Sums):", f"class Total(_Sums):\n    def work(self, param):\n{lines}")
    _edit(
        tree,
        "toybench/sums.py",
        "class Mean(_Sums):",
        "class Mean(_Sums):\n    def work(self, param):\n        1 / 0\n",
    )
    worker = start()
    cases = {case["id"]: case for case in worker.catalogue()["cases"]}
    assert cases[TOTAL]["work"] == {"flops": 2000, "bytes": 8000}
    assert sum("work" in case for case in cases.values()) == 1
    log = (tmp_path / "side0.log").read_text()
    assert "flops or bytes or tokens, not {'gigabytes': 1}" in log
    assert "ZeroDivisionError" in log


def test_a_case_from_set_up_to_samples(start):
    worker = start(timed=True)
    one, other = (worker.request("artifacts", 30, case=f"sums.Total.latency_total({n})") for n in (1000, 4000))
    assert one["identity"] != other["identity"]
    worker.request("precompile", 30, cases=[TOTAL])
    worker.request("setup", 30, case=TOTAL)
    assert worker.request("check", 30) is True
    worker.request("warm_up", 30, seconds=0.01)
    samples = worker.request("measure", 30, launches=5)
    assert len(samples) == 5
    assert all(0.0039 < seconds < 0.0041 for seconds in samples)  # virtual time
    assert worker.request("state", 30) == {}
    worker.request("teardown", 30)
    with pytest.raises(WorkerError, match="no case is set up"):
        worker.request("measure", 30, launches=1)


CYCLES = """
import gc, weakref

class Node:
    pass

kept = Node()
kept.itself = kept
seen = []

class Cycles:
    params = (["first", "second"],)
    version = "1"

    def setup(self, name):
        self.node = Node()
        self.node.itself = self.node
        seen.append(weakref.ref(self.node))

    def latency_cycle(self, name):
        pass

    def check(self, name):
        left = [ref() for ref in seen[:-1] if ref() is not None]
        looked_through = [o for o in gc.get_objects() if isinstance(o, Node) and o is not self.node]
        assert not left, "the case before has left something"
        assert not looked_through, "what was imported is looked through after every case"
"""


def test_after_a_case_only_what_it_made_is_looked_through_and_all_of_it_is_let_go(start, tree):
    (tree / "toybench" / "cycles.py").write_text(CYCLES)
    worker = start()
    worker.catalogue()
    for name in ("first", "second"):
        worker.request("setup", 30, case=f"cycles.Cycles.latency_cycle('{name}')")
        assert worker.request("check", 30) is True
        worker.request("teardown", 30)


def test_the_generated_code_of_a_case_comes_whole_and_is_what_its_identity_says(start, tree):
    worker = start()
    made = worker.request("generated", 30, case=TOTAL)
    assert made == [
        {
            "name": "sum",
            "source": "wait 4.0 ms; out = sum(values * values)",
            "launch": {"param": 1000},
            "resources": {},
        }
    ]
    assert digest([Artifact(**values) for values in made]) == worker.request("artifacts", 30, case=TOTAL)["identity"]
    _edit(tree, "toybench/sums.py", "def artifacts", "def no_artifacts")
    assert start().request("generated", 30, case=TOTAL) == []


def test_nothing_is_written_into_the_trees(start, tree):
    before = sorted(tree.rglob("*"))
    start().catalogue()
    assert sorted(tree.rglob("*")) == before


def test_precompile_gets_all_cases_of_a_class_at_once(start, tree):
    _edit(
        tree,
        "toybench/sums.py",
        "class Total(_Sums):",
        "class Total(_Sums):\n    @classmethod\n    def precompile(cls, params):\n"
        "        raise ValueError(f'asked for {params}')\n",
    )
    with pytest.raises(WorkerError, match=r"asked for \[\(1000,\), \(4000,\)\]") as caught:
        start().request("precompile", 30, cases=[TOTAL, "sums.Total.latency_total(4000)", TOTAL])
    assert caught.value.kind == "compile"


def test_one_module_that_fails_does_not_hide_the_others(start, tree):
    (tree / "toybench/other.py").write_text("import toykernels\n\ntoykernels.gone\n")
    (tree / "toybench/worse.py").write_text("import sys\n\nsys.exit('no')\n")
    (tree / "toybench/third.py").write_text("import a_package_that_nobody_has\n")
    found = start().catalogue()
    assert {module: failure["kind"] for module, failure in found["broken"].items()} == {
        "other": "missing",
        "worse": "import",
        "third": "import",
    }
    assert len(found["cases"]) == 11


def test_a_package_that_is_not_there_is_missing_although_a_copy_is_installed(start, tree, tmp_path, monkeypatch):
    shutil.move(tree / "toykernels", tmp_path / "installed" / "toykernels")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    found = start().catalogue()
    assert found["broken"]["sums"]["kind"] == "missing"
    assert found["cases"] == []


def test_a_package_from_elsewhere_is_a_leak(start, tree, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(tree / "toykernels", tmp_path / "elsewhere" / "toykernels")
    # Late, as a kernel that is imported when it is first used.
    _edit(
        tree,
        "toykernels/kernels.py",
        "def total():",
        "def total():\n    import sys, toykernels\n    del sys.modules['toykernels']\n"
        f"    sys.path.insert(0, {str(tmp_path / 'elsewhere')!r})\n    import toykernels\n",
    )
    worker = start()
    assert worker.catalogue()["broken"] == {}
    with pytest.raises(WorkerError, match="not the tree that is to be measured") as caught:
        worker.request("setup", 30, case=TOTAL)
    assert caught.value.kind == "leak"


def test_what_setup_skips_is_skipped(start, tree):
    _edit(tree, "toykernels/kernels.py", "def total():", "def total():\n    raise NotImplementedError")
    worker = start()
    for operation in ("setup", "artifacts"):
        with pytest.raises(WorkerError) as caught:
            worker.request(operation, 30, case=TOTAL)
        assert caught.value.kind == "skipped"


def test_a_hang_that_holds_the_interpreter_is_ended_with_its_stack_in_the_log(start, tree):
    # A regular expression of exponential cost never lets another thread run.
    _edit(
        tree, "toykernels/kernels.py", "def total():", "def total():\n    import re; re.match('(a+)+$', 'a' * 60 + 'b')"
    )
    worker = start()
    worker.catalogue()
    started = time.monotonic()
    with pytest.raises(WorkerError, match="'setup' within 1 s") as caught:
        worker.request("setup", 1, case=TOTAL)
    assert caught.value.kind == "hang"
    assert "in total" in caught.value.log
    assert time.monotonic() - started < 30


def test_a_hang_at_import_is_a_hang_although_nobody_was_waiting(start, tree, config, monkeypatch):
    _edit(tree, "toykernels/kernels.py", "import time", "import signal, time\n\nsignal.pause()")
    object.__setattr__(config, "import_timeout", 3.0)
    worker = start()
    time.sleep(6)  # its own watchdog ends it meanwhile
    with pytest.raises(WorkerError, match="'load' within 3 s") as caught:
        worker.catalogue()
    assert caught.value.kind == "hang"


@pytest.mark.parametrize("name", ["PYTHONOPTIMIZE", "PYTHONWARNINGS", "PYTHONINSPECT"])
def test_pythons_switches_do_not_reach_a_worker(start, tree, monkeypatch, name):
    monkeypatch.setenv(name, "1" if name != "PYTHONWARNINGS" else "error")
    _edit(
        tree,
        "toybench/sums.py",
        "    def check(self, param):",
        f"    def check(self, param):\n        import os\n        assert {name!r} in os.environ, 'asserts count'\n",
    )
    worker = start()
    worker.catalogue()
    worker.request("setup", 30, case=TOTAL)
    with pytest.raises(WorkerError, match="asserts count"):
        worker.request("check", 30)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("False", "check() returned False"),
        ("0", "check() returned 0"),
        ("[]", "check() returned []"),
        ("np.allclose(1, 2)", "check() returned"),
        ("None", "compares nothing"),
        ("True", None),
        ("1000", None),
    ],
)
def test_a_check_that_compares_nothing_does_not_pass(start, tree, returned, message):
    _edit(
        tree,
        "toybench/sums.py",
        "    def check(self, param):",
        f"    def check(self, param):\n        return {returned}\n\n    def other(self, param):",
    )
    worker = start()
    worker.request("setup", 30, case=TOTAL)
    if message is None:
        assert worker.request("check", 30) is True
        return
    with pytest.raises(WorkerError) as caught:
        worker.request("check", 30)
    assert message in str(caught.value)
    assert caught.value.kind == "wrong-result"


def test_two_that_hang_at_once_are_both_hangs(tree, config, start, tmp_path):
    _edit(tree, "toykernels/kernels.py", "def total():", "def total():\n    import signal; signal.pause()")
    workspace = {
        name: make_workspace(
            tmp_path / "two" / name, config, exported=tree, suite_root=tree / "toybench", target="cpu", tier="smoke"
        )
        for name in ("base", "head")
    }
    with WorkerPool(workspace, tmp_path / "logs", config, label="two") as pool:
        pool.start()
        answers = pool.request_all("setup", 1, {name: {"case": TOTAL} for name in workspace})
        for answer in answers.values():
            with pytest.raises(WorkerError) as caught:
                answer()
            assert caught.value.kind == "hang"
        assert pool.request("base", "artifacts", 30, case="sums.Mean.latency_mean(1000)")["identity"]  # a fresh one


def test_the_whole_group_ends_with_the_worker(start, tree, tmp_path):
    # A forked child keeps the worker's end of the pipe open, so the pipe alone does not tell that the worker is gone.
    _edit(
        tree,
        "toykernels/kernels.py",
        "def total():",
        "def total():\n    import os, signal\n    child = os.fork()\n    if child == 0: signal.pause()\n"
        f"    open({str(tmp_path / 'child')!r}, 'w').write(str(child))\n"
        "    os.kill(os.getpid(), signal.SIGABRT)\n",
    )
    with pytest.raises(WorkerError, match="SIGABRT") as caught:
        start().request("setup", 60, case=TOTAL)
    assert caught.value.kind == "crash"
    _ends(int((tmp_path / "child").read_text()))


def test_a_worker_and_what_it_started_end_when_the_gate_is_killed(tree, tmp_path):
    """The gate's end of the pipe closes, and that is all that happens."""
    _edit(
        tree,
        "toykernels/kernels.py",
        "def total():",
        "def total():\n    import subprocess\n"
        f"    child = subprocess.Popen(['sleep', '600'])\n    open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\n"
        "    import threading; threading.Event().wait()\n",
    )
    code = f"""
from pathlib import Path
from tilegate.config import load_config
from tilegate.measuring.workspace import make_workspace
from tilegate.measuring.session import Worker
tree = Path({str(tree)!r})
config = load_config((tree / "pyproject.toml").read_text())
workspace = make_workspace(tree.parent / "work" / "base", config, exported=tree, suite_root=tree / "toybench", target="cpu", tier="smoke")
worker = Worker(workspace, tree.parent / "log", config)
print(worker._process.pid, flush=True)
worker.request("setup", 600, case={TOTAL!r})
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(tilegate.__file__).parents[1])}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    worker = int(parent.stdout.readline())
    deadline = time.monotonic() + 60
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
        assert parent.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    _ends(worker)
    _ends(int((tmp_path / "child").read_text()))


def test_messages_name_the_side_and_not_the_folder(start, tree):
    _edit(tree, "toykernels/kernels.py", "def total():", "def total():\n    raise ValueError(__file__)")
    with pytest.raises(WorkerError) as caught:
        start().request("setup", 30, case=TOTAL)
    assert caught.value.message == "ValueError: <side0>/toykernels/kernels.py"
    assert str(tree) not in caught.value.log


def test_package_and_suite_must_be_apart(tree, config, tmp_path):
    mixed = load_config('[tool.tilegate]\npackage = "toykernels"\nsuite = "toykernels.bench"')
    with pytest.raises(UsageError, match="lies inside the package"):
        make_workspace(
            tmp_path / "base", mixed, exported=tree, suite_root=tree / "toybench", target="cpu", tier="smoke"
        )


@pytest.mark.parametrize(
    ("error", "at", "kind"),
    [
        (WrongResult("out: 0.5"), "check", "wrong-result"),
        (WrongTreeError("elsewhere"), "import", "leak"),
        (SkippedError("not here"), "setup", "skipped"),
        (MemoryError(), "setup", "out-of-memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), "setup", "out-of-memory"),
        (RuntimeError("HIP error: hipErrorOutOfMemory"), "measure", "out-of-memory"),
        (ModuleNotFoundError("No module named 'zlib'", name="zlib"), "setup", "import"),
        (type("CompileError", (Exception,), {})("line 3"), "setup", "compile"),
        (ValueError("tile"), "setup", "setup"),
        (ValueError("tile"), "artifacts", "compile"),
        (ValueError("tile"), "precompile", "compile"),
        (ValueError("tile"), "import", "import"),
        (ValueError("tile"), "check", "error"),
        (ValueError("tile"), "measure", "error"),
        (SystemExit(3), "measure", "error"),
    ],
)
def test_kinds_of_failure(error, at, kind, tmp_path):
    assert explain(error, at, "toykernels", tmp_path)["kind"] == kind


def test_missing_is_what_the_suite_asks_for_and_broken_what_the_package_does(tmp_path, monkeypatch):
    package = tmp_path / "somekernels"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("from somekernels import nothing_like_it\n")
    (package / "thing.py").write_text("class Thing:\n    def go(self):\n        return self.gone\n")
    monkeypatch.syspath_prepend(tmp_path)

    def kind(code: str) -> str:
        try:
            exec(compile(code, str(tmp_path / "suite.py"), "exec"), {})  # noqa: S102
        except Exception as error:
            return explain(error, "import", "somekernels", package)["kind"]
        return "nothing"

    assert kind("import somekernels") == "nothing"
    assert kind("import somekernels.paged") == "missing"
    assert kind("from somekernels import paged") == "missing"
    assert kind("import somekernels; somekernels.paged") == "missing"
    assert kind("from somekernels.thing import Thing; Thing().paged") == "missing"
    assert kind("from somekernels.thing import Thing; Thing.paged") == "missing"
    assert kind("import somekernels.inner") == "import"
    assert kind("from somekernels.thing import Thing; Thing().go()") == "import"
    assert kind("import other_kernels") == "import"
    assert kind("None.paged") == "import"


def _ends(process: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        assert time.monotonic() < deadline, f"process {process} is still there"
        time.sleep(0.02)


PIPE = "\nimport os, sys\npipe = int(sys.argv[2])\n"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("os.write(pipe, b'hello\\n')", "no answer to 'load', but 'hello'"),
        ("while True: os.write(pipe, bytes(1 << 16))", r"no answer to 'load', but '\\x00"),
        ("os.write(pipe, b'{\"ok\": null}\\n')", "no answer to 'load', but"),
        ("os.close(pipe); import signal; signal.pause()", "its pipe was closed during 'load'"),
    ],
    ids=["writes", "floods", "forges", "closes"],
)
def test_code_that_meddles_with_the_pipe_is_found_out(start, tree, monkeypatch, code, message):
    monkeypatch.setattr("tilegate.measuring.replies.LONGEST", 1 << 20)
    with (tree / toy_repository.KERNELS).open("a") as file:
        file.write(PIPE + code + "\n")
    with pytest.raises(WorkerError, match=message):
        start().catalogue()


def test_a_worker_that_cannot_be_heard_any_more_ends(start, tree):
    """Otherwise one whose parent was killed would stay for good."""
    with (tree / toy_repository.KERNELS).open("a") as file:
        file.write("import os, sys\nos.close(int(sys.argv[1]))\n")
    worker = start()
    worker.catalogue()
    worker.send("state", 30)  # wakes the thread that reads
    with pytest.raises(WorkerError) as caught:
        worker.request("state", 30)
    if caught.value.kind == "error":  # it was quick enough to say that it has no clock
        with pytest.raises(WorkerError) as caught:
            worker.request("state", 30)
    assert caught.value.kind == "crash"


def test_resources_that_json_cannot_hold_are_an_error_and_not_a_crash(start, tree):
    _edit(tree, "toybench/sums.py", '{"param": param})', '{"param": param}, {"vgpr": np.int64(8)})')
    with pytest.raises(WorkerError, match="the suite's answer is not JSON: Object of type int64") as caught:
        start().request("artifacts", 30, case=TOTAL)
    assert caught.value.kind == "error"
