# SPDX-License-Identifier: GPL-2.0-or-later
"""The prober in libblkid itself: its sources, changed as contrib/util-linux/README.md says."""
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from cli.conftest import driver, image	# noqa: F401 (fixtures)
from guest import packaged
from guest.apt import Apt

PROBER = Path(__file__).resolve().parents[2] / "contrib/util-linux/dm_hybrid.c"
UUID = "0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa"
OFFSET = 512 << 10
SIZE = 16 << 20
DEFINES = {"LOCALEDIR": "/usr/share/locale", "_PATH_RUNSTATEDIR": "/run",
           "_PATH_SYSCONFSTATICDIR": "/usr/lib"}

# It fetches sources, and builds for a minute; make check has the prober over a stand-in.
pytestmark = pytest.mark.long


def sh(*argv, **kw):
    return subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True, **kw)


def fetch(directory):
    """Debian's sources of util-linux; this machine's own apt stays as it is."""
    sources = Apt(directory / "apt")
    for kind, old, new in (("sources", r"^Types:.*", "Types: deb-src"), ("list", r"^deb ", "deb-src ")):
        found = [Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources")]
        text = "\n".join(p.read_text() for p in found if p.exists() and p.suffix == f".{kind}")
        (directory / f"apt/debian.{kind}").write_text(re.sub(old, new, text, flags=re.M) + "\n")
    sources.update()
    sources.run("apt-get", "source", "util-linux", cwd=directory)
    source, = directory.glob("util-linux-*/")
    return source


def add(file, after, line):
    text = file.read_text()
    assert text.count(after) == 1, (file, after)
    file.write_text(text.replace(after, f"{after}\n{line}"))


def change(source):
    """As README.md says."""
    blocks = source / "libblkid/src/superblocks"
    shutil.copy(PROBER, blocks)
    add(source / "libblkid/src/Makemodule.am", "\tlibblkid/src/superblocks/bcache.c \\",
        "\tlibblkid/src/superblocks/dm_hybrid.c \\")
    add(source / "libblkid/meson.build", "  src/superblocks/bcache.c",
        "  src/superblocks/dm_hybrid.c")
    add(blocks / "superblocks.h", "extern const struct blkid_idinfo bcache_idinfo;",
        "extern const struct blkid_idinfo dm_hybrid_idinfo;")
    add(blocks / "superblocks.c", "\t&bcache_idinfo,", "\t&dm_hybrid_idinfo,")


def compile_library(source, out):
    """What Makemodule.am lists, without automake, which would want to make everything anew."""
    sh("./configure", "--disable-all-programs", "--enable-libblkid", "--disable-nls",
       "--disable-asciidoc", cwd=source, timeout=900)
    ours = (source / "libblkid/src/Makemodule.am").read_text().partition("BUILD_LIBBLKID_TESTS")[0]
    common = (source / "lib/Makemodule.am").read_text().partition("libtcolors")[0]
    files = {*re.findall(r"\blibblkid/src/\S+\.c\b", ours), *re.findall(r"\blib/\w+\.c\b", common)}
    assert "libblkid/src/superblocks/dm_hybrid.c" in files
    flags = ["-include", "config.h", "-Iinclude", "-Ilibblkid/src", "-fPIC", "-fsigned-char",
             *(f'-D{name}="{value}"' for name, value in DEFINES.items())]
    sh("cc", *flags, "-Wall", "-Wextra", "-Werror", "-c", "-o", os.devnull,
       "libblkid/src/superblocks/dm_hybrid.c", cwd=source)
    sh("cc", "-w", "-shared", *flags, "-Wl,-soname,libblkid.so.1",
       "-Wl,--version-script=libblkid/src/libblkid.sym", "-o", out / "libblkid.so.1",
       *sorted(files - {"lib/file.c", "lib/langinfo.c"}), cwd=source, timeout=900)


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """A directory with libblkid.so.1, for LD_LIBRARY_PATH; the sources are kept for the next time."""
    kept = packaged.cache() / "util-linux"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with open(kept.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=kept.parent) as tmp:
                try:
                    os.rename(fetch(Path(tmp)), kept)
                except (OSError, subprocess.SubprocessError, ValueError) as e:
                    pytest.skip(f"the sources of util-linux cannot be had: {getattr(e, 'stderr', e)}")
    source = tmp_path_factory.mktemp("util-linux") / "source"
    shutil.copytree(kept, source, symlinks=True)
    change(source)
    compile_library(source, source.parent)
    return source.parent


@pytest.fixture
def tool(library):
    def do(*argv, code=0):
        env = {**os.environ, "LD_LIBRARY_PATH": str(library)}
        r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, env=env)
        assert r.returncode == code, r.stdout + r.stderr
        return r.stdout
    return do


def test_blkid_and_wipefs(tool, driver, image):		# noqa: F811
    member = image("origin.img", SIZE / (1 << 20))
    assert tool("blkid", "-p", member, code=2) == ""
    assert driver("format-origin", member, "data", UUID).returncode == 0
    k = dict(line.split("=", 1) for line in tool("blkid", "-p", "-o", "export", member).splitlines())
    assert (k["TYPE"], k["USAGE"], k["UUID"], k["LABEL"]) == ("dm_hybrid_member", "raid", UUID, "data")
    offsets = re.findall(r"^0x([0-9a-f]+)", tool("wipefs", "-p", member), re.M)
    assert sorted(int(o, 16) for o in offsets) == [OFFSET, SIZE - OFFSET]

    copy = member.with_name("copy")
    shutil.copy(member, copy)
    tool("wipefs", "-a", copy)
    assert tool("wipefs", "-p", copy) == ""
    with open(member, "r+b") as f:	# its tail is enough
        f.seek(OFFSET + 200)
        f.write(b"\xff")
    assert f"UUID={UUID}" in tool("blkid", "-p", "-o", "export", member)


def test_others_are_what_they_were(tool, image):		# noqa: F811
    other = image("ext4.img", 16)
    sh("mke2fs", "-q", "-t", "ext4", "-U", UUID, other)
    assert "TYPE=ext4" in tool("blkid", "-p", "-o", "export", other)
