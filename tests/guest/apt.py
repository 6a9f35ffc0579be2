# SPDX-License-Identifier: GPL-2.0-or-later
"""Packages of any suite of Debian's, from the mirror that this machine uses.

With a state of its own: what this machine has installed, and would install, stays as it is.
"""
import contextlib
import fcntl
import functools
import re
import subprocess
from pathlib import Path

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Missing(Exception):
    """Something that only apt-get could bring."""


def mirror() -> str:
    """Where this machine's own release comes from."""
    own = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.M)
    run = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)",
                          "Created-By: Packages"], capture_output=True, text=True)
    for line in run.stdout.splitlines():
        uri, _, release = line.partition(" ")
        if own and release == own[1]:
            return uri
    raise Missing("apt does not say where this machine's Debian comes from")


class Apt:
    """This machine's own sources, or those in `directory` (files *.list and *.sources)."""

    def __init__(self, directory: Path | None = None):
        self.directory = directory
        self._options = []
        if not directory:
            return
        (directory / "lists/partial").mkdir(parents=True, exist_ok=True)
        self._options = [
            f"-oDir::State={directory}", f"-oDir::State::Lists={directory}/lists",
            f"-oDir::State::Status={directory}/status", f"-oDir::Cache={directory}",
            "-oDir::Etc::SourceList=/dev/null", f"-oDir::Etc::SourceParts={directory}",
            "-oAcquire::Languages=none", "-oAcquire::http::Timeout=30",
            "-oAPT::Sandbox::User=root"]
        (directory / "status").touch()

    def run(self, program: str, *argv, cwd: Path | None = None, timeout: float = 1800) -> str:
        try:
            return subprocess.run([program, *self._options, "-qq", *argv], cwd=cwd, check=True,
                                  capture_output=True, text=True, timeout=timeout).stdout
        except subprocess.CalledProcessError as e:
            raise Missing(f"{program} {' '.join(map(str, argv))}: {e.stderr.strip()}") from e
        except (OSError, subprocess.TimeoutExpired) as e:
            raise Missing(str(e)) from e

    @contextlib.contextmanager
    def locked(self):
        with open(self.directory / "mine.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def update(self, *options: str) -> None:
        with self.locked():
            self.run("apt-get", "update", *options, timeout=300)

    def versions(self, package: str) -> list[str]:
        """All that there are, the newest first."""
        lines = self.run("apt-cache", "madison", package).splitlines()
        return sorted({line.split("|")[1].strip() for line in lines},
                      key=functools.cmp_to_key(_compare), reverse=True)

    def depends(self, package: str, version: str = "") -> dict[str, str]:
        """Package -> what is said about its version, as "= 1.2"; of alternatives the first."""
        query = f"{package}={version}" if version else package
        text = self.run("apt-cache", "show", "--no-all-versions", query)
        field = re.search(r"^Depends: (.*)$", text, re.M)
        words = [re.match(r"([\w.+-]+)(?::\w+)?(?: \(([^)]*)\))?", part)
                 for part in (field[1] if field else "").split(", ") if part]
        return {w[1]: w[2] or "" for w in words}

    def closure(self, package: str, version: str, wanted: str) -> dict[str, str]:
        """A package and all that it depends on and whose name matches: package -> version or ""."""
        found = {package: version}
        todo = [package]
        while todo:
            name = todo.pop()
            for other, which in self.depends(name, found[name]).items():
                if other not in found and re.match(wanted, other):
                    found[other] = which[2:] if which.startswith("= ") else ""
                    todo.append(other)
        return found

    def unpack(self, packages: dict[str, str], root: Path) -> None:
        """Downloads packages to the directory beside root, and unpacks them."""
        debs = root.parent / "debs"
        debs.mkdir()
        self.run("apt-get", "download", cwd=debs,
                 *(f"{p}={v}" if v else p for p, v in packages.items()))
        for deb in debs.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
            deb.unlink()


def _compare(a: str, b: str) -> int:
    if a == b:
        return 0
    return 1 if not subprocess.run(["dpkg", "--compare-versions", a, "gt", b]).returncode else -1


def suites(directory: Path, names: list[str], components: str = "main") -> Apt:
    """These suites of the mirror, with their lists of packages fetched if there are none."""
    apt = Apt(directory)
    text = "".join(f"deb [signed-by={KEYS}] {mirror()} {name} {components}\n" for name in names)
    source = directory / "suites.list"
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
        apt.update()
    return apt
