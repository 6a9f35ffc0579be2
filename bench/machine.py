# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs one stack under one workload, in a machine where time is instructions.

QEMU runs without KVM and with -icount: an instruction takes the guest a nanosecond, and waiting is
skipped. Other load on the host changes nothing, so the same files give the same figures, to the last
digit. Each result is stored with a hash of its input, and never measured twice.
"""
import functools
import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
OUT = TOP / "build" / "bench"
sys.path.insert(0, str(TOP / "tests"))

from boot import debian  # noqa: E402
from guest import apt, kernels, packaged  # noqa: E402
from guest.apt import Missing  # noqa: E402

QEMU = ["qemu-system-x86_64", "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off",
        "-rtc", "base=2026-01-01,clock=vm", "-seed", "1", "-smp", "1",
        # Copies and fills in the guest count by the data that they move.
        "-cpu", "max,-erms,-fsrm", "-M", "q35,hpet=off", "-m", "3G", "-nodefaults",
        "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot",
        "-serial", "stdio"]
# An interrupted run leaves no machine behind.
TIED = ["setpriv", "--pdeathsig", "KILL"]
APPEND = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable clocksource=tsc " \
         "random.trust_cpu=on cryptomgr.notests"
# RAM disks: only written pages need memory.
DISKS = "rd_nr=2 rd_size=17825792 max_part=0"
# The driver that udev would load: the generic one takes 15,000 instructions for a metadata block.
CRC = ["crc32c_intel", "libcrc32c"]
MODULES = {
    "": ["brd", "dm_mod", "dm_testdisk", "dm_zero"],
    "hybrid": [*CRC, "dm_hybrid", "dm_hybrid_c2q"],
    "dmcache": [*CRC, "dm_cache", "dm_cache_smq"],
    "writecache": [*CRC, "dm_writecache"],
    "bcache": ["crc64", "bcache"],
    "writeboost": CRC,
}
PROGRAMS = {
    "": [Path("/sbin/dmsetup"), OUT / "load"],
    "hybrid": [TOP / "build/userspace/hybridctl"],
    "bcache": [OUT / "bcache-tools/usr/sbin/make-bcache"],
}
# What a workload needs, on whatever stack.
WORK_MODULES = {"files": ["crc32c_generic", "ext4"]}
WORK_PROGRAMS = {"files": [Path("/sbin/mkfs.ext4")]}
LINE = re.compile(r"^bench (\S+) (\S+) (.*?)\r?$", re.M)


class Failed(Exception):
    """A run without figures: the text has the reason, or the end of the console."""


def compile(program: str) -> None:
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o", OUT / program,
                    HERE / f"{program}.c", "-lm"], check=True)


@functools.cache
def prepare() -> tuple[packaged.Kernel, Path]:
    """Builds and fetches the parts of guests; returns a kernel, and a tree with its modules and ours."""
    OUT.mkdir(parents=True, exist_ok=True)
    kernel, root = kernels.ready(packaged.OWN)
    compile("load")
    return kernel, root / "lib/modules" / kernel.release


def fetch_bcache_tools() -> None:
    """Unpacks the package without installing it: udev would look for bcache on this machine."""
    tools = OUT / "bcache-tools"
    if not tools.exists():
        with tempfile.TemporaryDirectory(dir=OUT) as tmp:
            unpacked = Path(tmp) / "root"
            os.chmod(tmp, 0o755)
            apt.Apt().unpack({"bcache-tools": ""}, unpacked)
            unpacked.rename(tools)


@functools.cache
def writeboost() -> Path:
    """dm-writeboost.ko for the guests' kernel. It is not in Linux; Debian has a package with its source."""
    package, source, headers = "dm-writeboost-dkms", apt.Apt(), packaged.headers()
    versions = source.versions(package)
    if not versions:
        raise Missing(f"apt has no {package}")
    key = hashlib.sha256(repr((versions[0], headers)).encode()).hexdigest()
    final = packaged.cache() / f"writeboost-{key[:12]}"
    with debian.made(final) as new:
        if new:
            source.unpack({package: versions[0]}, new / "root")
            built, = (new / "root/usr/src").iterdir()
            debian.run("make", "-s", "-C", headers.directory, f"M={built}", "modules",
                       env=debian.without_make())
            (built / "dm-writeboost.ko").rename(new / "dm-writeboost.ko")
            shutil.rmtree(new / "root")
    return final / "dm-writeboost.ko"


# Files that some stacks need beyond the guests' kernel and this tree. The functions raise Missing.
FETCHED = {"bcache": fetch_bcache_tools, "writeboost": writeboost}


def _module(path: Path) -> bytes:
    """Without the traces of its build directory, so that results from another directory stay valid."""
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    with tempfile.NamedTemporaryFile() as out:
        debian.run("strip", "--strip-debug", "--remove-section=.note.gnu.build-id", "-o", out.name,
                   path)
        return Path(out.name).read_bytes()


def _libraries(program: Path) -> list[str]:
    run = subprocess.run(["ldd", program], capture_output=True, text=True)
    return re.findall(r"(/\S+) \(0x", run.stdout)


@functools.cache
def initrd(kind: str, work: Path) -> bytes:
    """The initrd of a guest for one kind of stack."""
    _, tree = prepare()
    files = {"init": HERE / "guest.sh", "stack.sh": HERE / f"stacks/{kind}.sh",
             "work.sh": work, "bin/busybox": packaged.BUSYBOX}
    for program in [*PROGRAMS[""], *PROGRAMS.get(kind, []),
                    *WORK_PROGRAMS.get(work.stem, [])]:
        files[f"bin/{program.name}"] = program
        files |= {name.lstrip("/"): Path(name) for name in _libraries(program)}
    modules = packaged.with_dependencies(tree, [*MODULES[""], *MODULES.get(kind, []),
                                                *WORK_MODULES.get(work.stem, [])])
    modules += [writeboost()] if kind == "writeboost" else []
    order = "".join(f"{m.name} {DISKS}\n" if m.name == "brd.ko" else f"{m.name}\n" for m in modules)
    entries = [(name, 0o040755, b"") for name in sorted(
        {str(parent) for name in files for parent in Path(name).parents} - {"."}
        | {"proc", "sys", "dev", "tmp", "modules"})]
    entries += [(name, 0o100755, path.read_bytes()) for name, path in sorted(files.items())]
    entries += [(f"modules/{m.name}", 0o100644, _module(m)) for m in modules]
    return packaged.cpio([*entries, ("modules/order", 0o100644, order.encode())])


def _parse(console: str) -> dict:
    """{phase: {key: value}}; counters, which stand in pairs of name and value, as numbers."""
    result: dict = {}
    for phase, what, value in LINE.findall(console):
        if what == "failed":
            raise Failed(console[-3000:])
        if what == "load":
            value = json.loads(value)
        elif what[:3] in ("hdd", "ssd"):
            words = value.split()[3:]
            value = {k: int(v) for k, v in zip(words[::2], words[1::2])}
        elif what in ("seconds", "busy_ms", "kib"):
            value = [float(v) for v in value.split()]
        result.setdefault(phase, {})[what] = value
    if "-" not in result:
        raise Failed(console[-3000:])
    return result


class Run:
    """One stack under one workload, <script>[@<hardware>], with one seed."""

    def __init__(self, stack: str, work: str, seed: int, scripts: Path = HERE / "workloads"):
        self.stack, self.work, self.seed = stack, work, seed
        script, _, hardware = work.partition("@")
        kernel, _ = prepare()
        self._initrd = initrd(stack.split("-")[0], scripts / f"{script}.sh")
        self._command = [*QEMU, "-kernel", str(kernel.image), "-append",
                         f"{APPEND} STACK={stack} SEED={seed}" + (hardware and f" HARDWARE={hardware}")]
        version = subprocess.run([QEMU[0], "--version"], capture_output=True, text=True).stdout
        self._key = hashlib.sha256(repr((version, self._command)).encode()
                                   + self._initrd).hexdigest()
        self._path = OUT / "runs" / f"{stack}.{work}.{seed}.json"

    def known(self) -> dict | None:
        """The result of an earlier run of the same files."""
        if self._path.exists() and (found := json.loads(self._path.read_text()))["key"] == self._key:
            return found
        return None

    def measure(self, timeout: float = 1800) -> dict:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with tempfile.NamedTemporaryFile(dir=OUT, suffix=".cpio") as file:
            file.write(self._initrd)
            file.flush()
            try:
                console = subprocess.run(
                    [*TIED, *self._command, "-initrd", file.name], stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout).stdout
            except subprocess.TimeoutExpired as e:
                raise Failed(f"after {timeout:.0f} s\n{(e.stdout or b'')[-3000:]!r}") from e
        result = {"key": self._key, "stack": self.stack, "work": self.work, "seed": self.seed,
                  "phases": _parse(console.decode(errors="replace")),
                  "host_seconds": round(time.monotonic() - started, 1)}
        self._path.write_text(json.dumps(result, indent=1) + "\n")
        return result
