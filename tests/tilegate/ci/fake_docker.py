"""Stands in for docker: runs the command here, with the container's paths turned into the host's and its environment only.

Refuses what a container must not have, so that every test that measures is also a test of that.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

REQUIRED = (
    ("--network", "none"),
    ("--cap-drop", "ALL"),
    ("--security-opt", "no-new-privileges"),
    ("--pull", "missing"),
)
SINGLE = ("--rm", "--read-only")


def main(arguments):
    with open(os.environ["FAKE_DOCKER_LOG"], "a") as log:
        log.write(json.dumps(arguments) + "\n")
    if arguments[0] in ("build", "push"):
        assert "GITHUB_TOKEN" not in os.environ
    if arguments[:2] == ["image", "inspect"]:
        print(json.dumps([f"{arguments[-1].rpartition(':')[0]}@sha256:{'d' * 64}"]))
    if arguments[0] != "run":
        return 0
    words = arguments[1:]
    options, mounts, environment = [], {}, {}
    while words[0].startswith("--"):
        name = words.pop(0)
        if name in SINGLE:
            options.append((name, None))
            continue
        value = words.pop(0)
        options.append((name, value))
        if name == "--mount":
            parts = dict(part.partition("=")[::2] for part in value.split(","))
            mounts[parts["target"]] = parts["source"]
            assert ("readonly" in parts) == (parts["target"] != "/out"), value
        if name == "--env":
            key, _, text = value.partition("=")
            environment[key] = text
    for option in (*REQUIRED, *((name, None) for name in SINGLE)):
        assert option in options, option
    assert "--privileged" not in dict(options)
    assert not any("docker.sock" in source for source in mounts.values())
    assert not any("TOKEN" in key for key in environment)
    image = words.pop(0)
    assert "@sha256:" in image

    def here(text):
        for inside, host in mounts.items():
            text = host + text[len(inside) :] if text == inside or text.startswith(inside + "/") else text
        return text

    environment = {key: here(value) for key, value in environment.items()}
    # A container's /tmp is its own, and so are the locks in it.
    environment["TMPDIR"] = tempfile.mkdtemp(dir=Path(os.environ["FAKE_DOCKER_LOG"]).parent)
    extra = os.environ["FAKE_DOCKER_PYTHONPATH"]
    environment["PYTHONPATH"] = os.pathsep.join([extra, environment["PYTHONPATH"]])
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable if words[0] == "python3" else words[0], *map(here, words[1:])]
    return subprocess.run(command, cwd=here(dict(options)["--workdir"]), env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
