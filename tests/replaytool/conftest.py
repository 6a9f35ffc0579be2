# SPDX-License-Identifier: GPL-2.0-or-later
"""hybrid_replay over traces of a test."""
import json
import os
import subprocess

import pytest


class Replay:
    def __init__(self, program, directory):
        self.program, self.directory = program, directory

    def run(self, trace, *args, stdin=None, name="trace.txt"):
        """The process that ended.  @trace: bytes or text of a file, or a path's name."""
        if trace is not None:
            data = trace if isinstance(trace, bytes) else trace.encode()
            (self.directory / name).write_bytes(data)
        return subprocess.run([self.program, name, *args], stdin=stdin, capture_output=True,
                              cwd=self.directory, timeout=120)

    def json(self, trace, *args, **kw):
        r = self.run(trace, "--json", *args, **kw)
        assert r.returncode == 0, r.stderr.decode()
        return json.loads(r.stdout)

    def peak(self, path, *args):
        """KiB of memory at most."""
        child = subprocess.Popen([self.program, path, "--json", *args], cwd=self.directory,
                                 stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        child.returncode = 0
        return usage.ru_maxrss


@pytest.fixture
def replay(build, tmp_path):    # noqa: F811
    return Replay(build / "hybrid_replay", tmp_path)
