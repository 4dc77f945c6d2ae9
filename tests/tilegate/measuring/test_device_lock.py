"""Who waits for a device is told by whom it is held, also when that changes."""

import threading

import pytest

from tilegate.measuring import device_lock


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEGATE_LOCKS", str(tmp_path))
    monkeypatch.setattr(device_lock, "_POLL", 0.01)


def test_a_waiting_run_names_each_holder_in_turn(tmp_path):
    said, renamed = [], threading.Event()

    def say(message):
        said.append(message)
        if "second run" in message:
            renamed.set()

    def wait():
        with device_lock.hold("cpu", wait=True, say=say):
            pass

    with device_lock.hold("cpu", wait=False, who="first run", say=said.append):
        waiting = threading.Thread(target=wait)
        waiting.start()
        while not said:
            waiting.join(0.01)
        (tmp_path / "tilegate-cpu.lock").write_text("second run")  # as the next holder does
        assert renamed.wait(30)
    waiting.join(30)
    assert not waiting.is_alive()
    assert "first run" in said[0]
    assert said[1].startswith("waiting: now second run")
    assert said[-1].startswith("waited ")
