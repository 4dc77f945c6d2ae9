"""The clocks, the device's against a simulated one whose every time is known."""

from __future__ import annotations

import gc
import os
import sys
import time
import types

import pytest

from tilegate.protocol import RECORDED, SHORT, call_clock_for, clock_for, clocks, cold_sets, recorded
from tilegate.protocol.clocks import last_level_cache_bytes


class Device:
    """Host and device with a queue between them; times in microseconds."""

    def __init__(self, *, hip: str | None = None, launch_host: float = 20, launch_device: float = 300) -> None:
        self.host = 0.0
        self.device = 0.0
        self.other_stream = 0.0  # until when it is busy
        self.log: list[str] = []
        self.flush_bytes = 0
        self.launch_host, self.launch_device = launch_host, launch_device
        device = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                self.time = float("nan")

            def record(self, stream: object) -> None:
                device.enqueue("event", host=2, device=0)
                self.time = device.device

            def query(self) -> bool:
                return self.time <= device.host

            def synchronize(self) -> None:
                device.host = max(device.host, self.time)

            def elapsed_time(self, end: Event) -> float:
                assert end.time <= device.host, "read before the device was done"
                return (end.time - self.time) / 1000  # milliseconds, as torch

        self.recording: list[float] | None = None
        self.recordable = True

        class Graph:
            def replay(self) -> None:
                device.enqueue("replay", host=10, device=sum(self.launches))

        class Recording:
            def __init__(self, graph: Graph) -> None:
                self.graph = graph

            def __enter__(self) -> None:
                device.recording = []

            def __exit__(self, *_: object) -> None:
                self.graph.launches, device.recording = device.recording, None

        class Buffer:
            def __init__(self, count: int, **options: object) -> None:
                device.flush_bytes = 4 * count

            def zero_(self) -> None:
                device.enqueue("flush", host=3, device=100)

        self.torch = types.SimpleNamespace(
            __version__="2.x",
            int32="int32",
            device=lambda *_: "device",
            empty=Buffer,
            version=types.SimpleNamespace(hip=hip),
            cuda=types.SimpleNamespace(
                is_available=lambda: True,
                current_device=lambda: 0,
                get_device_properties=lambda _: types.SimpleNamespace(L2_cache_size=4 << 20),
                current_stream=lambda: "stream",
                synchronize=self.synchronize,
                Event=Event,
                CUDAGraph=Graph,
                graph=Recording,
            ),
        )

    def enqueue(self, what: str, host: float, device: float) -> None:
        self.log.append(what)
        self.host += host
        self.device = max(self.device, self.host) + device

    def synchronize(self) -> None:
        self.log.append("wait")
        self.host = max(self.host, self.device, self.other_stream)

    def launch(self) -> None:
        if self.recording is not None:
            if not self.recordable:
                raise RuntimeError("operation not permitted when stream is capturing")
            self.recording.append(self.launch_device)
            return
        self.host += self.launch_host
        self.enqueue("launch", host=0, device=self.launch_device)


@pytest.fixture
def simulate(monkeypatch):
    def make(**options: object) -> Device:
        device = Device(**options)
        monkeypatch.setitem(sys.modules, "torch", device.torch)
        return device

    return make


class Looking:
    """Looks at every second launch."""

    def __init__(self, device: Device) -> None:
        self.device, self.launches, self.lags = device, 0, []

    def before(self) -> None:
        self.device.enqueue("vary", host=5, device=50)

    def ready(self) -> None:
        self.device.enqueue("poison", host=5, device=10)

    def after(self) -> bool:
        self.device.enqueue("copy", host=5, device=50)
        self.launches += 1
        return self.launches % 2 == 0

    def lag(self, launch: float, more: float) -> None:
        self.lags.append((launch, more))


@pytest.mark.parametrize("elsewhere", [0, 400])
def test_what_is_done_around_launches_is_off_the_clock_and_work_elsewhere_is_seen(simulate, monkeypatch, elsewhere):
    device = simulate()
    clock = clock_for("cuda")
    monkeypatch.setattr(clocks, "perf_counter_ns", lambda: int(device.host * 1e3))

    def launch() -> None:
        device.launch()
        device.other_stream = device.device + 50 + elsewhere  # it ends with the copy, or later

    looking = Looking(device)
    assert clock.measure(launch, 4, looking) == pytest.approx([300e-6] * 4)
    assert device.log[1:7] == ["vary", "flush", "poison", "event", "launch", "event"]
    assert [launch for launch, _ in looking.lags] == pytest.approx([300e-6] * 2)
    assert [more for _, more in looking.lags] == pytest.approx([elsewhere * 1e-6] * 2, abs=1e-8)


@pytest.mark.parametrize(("target", "hip"), [("cuda", None), ("hip", "6.2.0")])
def test_every_launch_follows_a_flush_and_is_timed_alone(simulate, target, hip):
    device = simulate(hip=hip)
    clock = clock_for(target)
    assert clock.name == f"{target}-events"
    assert clock.measure(device.launch, 3) == pytest.approx([300e-6] * 3)
    one = ["flush", "event", "launch", "event"]
    assert device.log == ["wait", *one, *one, *one, "wait"]


def test_the_flush_is_twice_the_largest_last_level_cache(simulate):
    device = simulate(hip="6.2.0")
    clock_for("hip")
    assert device.flush_bytes >= 2 * (256 << 20)  # MI300X: 256 MB of Infinity Cache, of which torch knows nothing
    device.torch.cuda.get_device_properties = lambda _: types.SimpleNamespace(L2_cache_size=400 << 20)
    clock_for("hip")
    assert device.flush_bytes >= 800 << 20


def test_no_sample_holds_the_time_of_a_slow_host(simulate):
    device = simulate(launch_host=350, launch_device=10)
    clock = clock_for("cuda")
    # One flush hides 100 of the 350 microseconds: such samples are taken again behind more flushes.
    assert clock.measure(device.launch, 20) == pytest.approx([10e-6] * 20)
    assert device.log.count("launch") > 20
    assert clock.state()["host_bound_launches"] == 0


def test_one_hiccup_of_the_host_costs_one_sample(simulate):
    device = simulate()
    delays = iter([400] + [20] * 100)

    def launch() -> None:
        device.launch_host = next(delays)
        device.launch()

    clock = clock_for("cuda")
    assert clock.measure(launch, 10) == pytest.approx([300e-6] * 10)
    assert device.log.count("launch") == 11
    assert device.log.count("flush") == 11  # one each, still


def test_launches_that_cannot_be_hidden_are_kept_and_counted(simulate):
    device = simulate()

    def launch_and_wait() -> None:
        device.launch()
        device.synchronize()

    clock = clock_for("cuda")
    assert len(clock.measure(launch_and_wait, 5)) == 5
    assert clock.state()["host_bound_launches"] == 5


def test_many_launches_are_queued_in_batches(simulate):
    device = simulate()
    assert len(clock_for("cuda").measure(device.launch, 200)) == 200
    assert device.log.count("wait") == 2 * 4  # 64 + 64 + 64 + 8


def test_a_recording_is_timed_as_one_and_divided_among_its_launches(simulate):
    device = simulate(launch_host=50, launch_device=5)
    clock = clock_for("cuda")
    timed = recorded(clock, device.launch, 5e-6)
    assert timed.launches == RECORDED
    assert timed.measure(clock, 4) == pytest.approx([5e-6] * 4)
    # Replays take the host's time once, not for every launch.
    assert (device.log.count("replay"), device.log.count("launch")) == (4, 0)
    assert "not_recorded" not in clock.state()


def test_a_long_launch_and_one_that_cannot_be_recorded_are_timed_alone(simulate):
    device = simulate()
    clock = clock_for("cuda")
    assert recorded(clock, device.launch, SHORT).launches == 1
    device.recordable = False
    timed = recorded(clock, device.launch, 5e-6)
    assert timed.measure(clock, 2) == pytest.approx([300e-6] * 2)
    assert clock.state()["not_recorded"] == "RuntimeError: operation not permitted when stream is capturing"


@pytest.mark.parametrize(
    ("target", "size", "sets"),
    [("cuda", 1 << 20, 32), ("cuda", 10 << 20, 10), ("cuda", 1 << 40, 1), ("hip", 64 << 20, 8), ("cpu", 1, 1)],
)
def test_as_many_sets_of_buffers_as_exceed_the_cache_twice(simulate, monkeypatch, target, size, sets):
    device = simulate(hip="6.2.0" if target == "hip" else None)
    # MI300X: torch says 4 MiB, and behind it are 256 MiB of Infinity Cache.
    level = types.SimpleNamespace(L2_cache_size=(4 if target == "hip" else 50) << 20)
    device.torch.cuda.get_device_properties = lambda _: level
    monkeypatch.setenv("TILEGATE_TARGET", target)
    assert cold_sets(size) == sets


def test_code_under_test_cannot_replace_the_timer(simulate):
    device = simulate()
    clock = clock_for("cuda")

    class Forged:
        def __init__(self, **_: object) -> None: ...
        def record(self, *_: object) -> None: ...
        def query(self) -> bool:
            return False

        def elapsed_time(self, _: object) -> float:
            return 1e-9

    device.torch.cuda.Event = Forged
    device.torch.cuda.synchronize = lambda: None
    assert clock.measure(device.launch, 2) == pytest.approx([300e-6] * 2)


def test_device_warm_up_lasts_and_leaves_the_device_idle(simulate):
    device = simulate()
    start = time.perf_counter()
    clock_for("cuda").warm_up(device.launch, 0.02)
    assert time.perf_counter() - start >= 0.02
    assert "launch" in device.log
    assert device.host >= device.device
    assert "flush" not in device.log


def test_the_other_vendors_device_is_refused(simulate):
    simulate(hip="6.2.0")
    with pytest.raises(RuntimeError, match=r"'cuda' cannot be timed here.*finds hip"):
        clock_for("cuda")


def test_no_device_is_refused(simulate):
    device = simulate()
    device.torch.cuda.is_available = lambda: False
    with pytest.raises(RuntimeError, match=r"finds no device.*TILEGATE_TARGET=cpu"):
        clock_for("cuda")


def test_an_unknown_target_has_no_clock():
    for make in (clock_for, call_clock_for):
        with pytest.raises(ValueError, match=r"'tpu'.*cpu, cuda, hip"):
            make("tpu")


@pytest.mark.parametrize("launches", [0, -1])
def test_no_launches_are_refused(simulate, launches):
    simulate()
    for target in ("cpu", "cuda"):
        with pytest.raises(ValueError, match="at least 1"):
            clock_for(target).measure(lambda: None, launches)


def test_cpu_flushes_before_each_launch(monkeypatch):
    log = []
    monkeypatch.setattr(clocks.ctypes, "memset", lambda *_: log.append("flush"))
    samples = clock_for("cpu").measure(lambda: log.append("launch"), 3)
    assert log == ["flush", "launch"] * 3
    assert len(samples) == 3


def test_cpu_times_the_launch(monkeypatch):
    # The flush takes longer than the launch: a sample that included it would show.
    now = iter([1_000, 3_500])
    monkeypatch.setattr(clocks, "perf_counter_ns", lambda: next(now))
    assert clock_for("cpu").measure(lambda: None, 1) == pytest.approx([2.5e-6])


def test_cpu_warm_up_launches_at_least_once_and_for_the_time_asked():
    launches = []
    clock = clock_for("cpu")
    clock.warm_up(lambda: launches.append(1), 0.0)
    assert launches == [1]
    start = time.perf_counter()
    clock.warm_up(lambda: launches.append(1), 0.01)
    assert time.perf_counter() - start >= 0.01
    assert len(launches) > 2


def test_cpu_has_no_state_to_report():
    assert clock_for("cpu").state() == {}


def test_no_garbage_is_collected_while_measuring():
    seen = []
    clock_for("cpu").measure(lambda: seen.append(gc.isenabled()), 2)
    assert seen == [False, False]
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        clock_for("cpu").measure(lambda: 1 // 0, 1)
    assert gc.isenabled()


def test_the_last_level_cache_is_the_largest(tmp_path):
    for index, size in enumerate(["32K", "32K", "1024K", "96M"]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    assert last_level_cache_bytes(tmp_path) == 96 << 20


def test_an_unknown_cache_is_taken_for_32_mib(tmp_path):
    assert last_level_cache_bytes(tmp_path) == 32 << 20


@pytest.mark.parametrize("made", [clock_for, call_clock_for])
def test_both_sides_of_a_comparison_take_their_turns_on_one_core_which_is_given_back(made):
    allowed, seen = os.sched_getaffinity(0), []
    clock = made("cpu")
    clock.measure(lambda: seen.append(os.sched_getaffinity(0)), 1)
    assert seen[0] == {max(allowed)}
    with pytest.raises(ZeroDivisionError):
        clock.measure(lambda: 1 // 0, 1)
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.parametrize("made", [clock_for, call_clock_for])
def test_times_are_taken_where_no_core_can_be_chosen(made, monkeypatch):
    def forbidden(process, cores):
        raise PermissionError

    for found in (forbidden, None):
        monkeypatch.setattr(clocks, "_set_affinity", found)
        assert made("cpu").measure(lambda: None, 2)[0] > 0
