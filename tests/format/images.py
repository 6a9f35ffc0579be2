#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""images.py BUILD [--words]: keeps pools of each version of the format, for all later versions.

In images/, v7-NAME.tar.xz has the members of a pool.  v7-NAME.txt has the data of its volumes, and the output
of the tools and the engine.  refused.txt has their output for a member of another version.

Writes the missing images of the present version, so run it after each change of HYBRID_FORMAT_VERSION.  The
images of older versions stay as they are.

    --words     also writes the output anew, after a deliberate change of words
"""
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))

from check.corrupt import SECTOR, Cache, Member, constant
from check.pools import HEAD, Pool, sectors

IMAGES = HERE / "images"
REFUSED = IMAGES / "refused.txt"
VERSION = constant("FORMAT_VERSION")
# For the words: no version has this number.
NO_VERSION = 4242
# In the words, VERSION is the number of that other version, and KNOWN the present one.
KNOWS = "knows version {}"

SCENARIOS = {}


def scenario(function):
    """Registers a function that makes a pool in a directory."""
    SCENARIOS[function.__name__] = function
    return function


class Made(Pool):
    """A pool that keeps its writes, (volume, sector, count, seed) ..., and has commands of its own."""

    def __init__(self, build: Path, directory: Path, cache_mib: int = 8, **options):
        self.writes, self.commands = [], []
        super().__init__(build, directory, cache_mib, origin_mib=4, **options)

    def note(self, *write: int) -> None:
        super().note(*write)
        self.writes.append(write)

    def flushed(self, *writes: tuple[int, int, int, int]) -> tuple[str, ...]:
        """Lines that do these writes, with a flush after each: so each is under an intent of its own."""
        for write in writes:
            self.note(*write)
        return tuple(line for write in writes
                     for line in ("write {} {} {} {}".format(*write), f"flush {write[0]}"))


def stopped(volumes: int) -> tuple[str, ...]:
    return *(f"close {n}" for n in range(volumes)), "stop"


@scenario
def unused(build: Path, directory: Path) -> Made:
    """Formatted: the first root, and no volume."""
    pool = Made(build, directory, origins=0)
    pool.cache.unlink()
    pool._image("cache", 8)
    pool.run(f"format {pool.cache} 128 pool")
    return pool


@scenario
def created(build: Path, directory: Path) -> Made:
    """A volume that was never opened."""
    return Made(build, directory)


@scenario
def clean(build: Path, directory: Path) -> Made:
    """Several sets.  Stopped, with clean and with dirty data; one volume writes through."""
    pool = Made(build, directory, cache_mib=10, block=8)
    pool.origins.append(pool._image("origin1", 4))
    pool.want.append(bytearray(pool.size))
    pool.run(f"load {pool.cache}", f"create 1 vol1 writethrough {pool.origins[1]}", "stop")
    pool.write((0, 0, 32, 1), (0, 1000, 64, 2), (1, 0, 16, 3), end=("idle 5", "drain", "idle 20", *stopped(2)))
    pool.write((0, 1016, 24, 4), (0, 3000, 8, 5), (1, 2048, 32, 6), end=stopped(2))
    assert len({nr // constant("LEAVES_PER_SET") for nr in Cache(pool.cache).written_leaves()}) > 1
    return pool


@scenario
def cut(build: Path, directory: Path) -> Made:
    """The power was cut: an open region, entries, intents behind them, and one whose data was not written."""
    pool = Made(build, directory)
    pool.write((0, 0, 300, 1), end=("idle 5", "drain", "idle 20", *stopped(1)))
    pool.opened(*pool.flushed((0, 0, 8, 2), (0, 512, 64, 3), *((0, 1024 + 256 * n, 8, 4 + n) for n in range(9))),
                "write 0 3840 8 13", "flush 0")
    cache = Cache(pool.cache)
    intents = cache.intents()
    assert cache.entries() and len(intents) > 2
    overwrite(pool.cache, cache.intended(intents[-1]), b"lost" * (8 * SECTOR // 4))
    # Clean data of the open region differs: the origin is right.
    overwrite(pool.origins[0], HEAD + 128, sectors(14, 128, 8))
    pool.note(0, 128, 8, 14)
    return pool


def overwrite(path: Path, sector: int, data: bytes) -> None:
    with open(path, "r+b") as f:
        f.seek(sector * SECTOR)
        f.write(data)


@scenario
def deleted(build: Path, directory: Path) -> Made:
    """Volume 1 is a tombstone.  Volume 2 is forgotten, and its origin goes on without a cache."""
    pool = Made(build, directory, origins=3)
    pool.opened("write 1 0 64 2", "write 2 8 8 3", *pool.flushed((0, 0, 64, 1)), "drain", *stopped(3))
    pool.run(f"load {pool.cache}", "delete 1", f"delete 2 {pool.origins[2]}", f"open 0 {pool.origins[0]}",
             *pool.flushed((0, 256, 64, 4)), *stopped(1))
    return pool


@scenario
def inplace(build: Path, directory: Path) -> Made:
    """The origin has a file system and no superblock of ours; dirty data of it."""
    pool = Made(build, directory, origins=0)
    pool.origins.append(pool._image("origin0", 4))
    pool.want.append(bytearray(4 << 20))
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", pool.origins[0]], check=True)
    pool.run(f"load {pool.cache}", f"create 0 vol0 writeback {pool.origins[0]} inplace", "stop")
    pool.write((0, 4096, 64, 1), (0, 8184, 8, 2), end=stopped(1))
    return pool


@scenario
def failed(build: Path, directory: Path) -> Made:
    """The cache device died, and the origin was used without it: a lost map, and dirty data to be merged."""
    pool = Made(build, directory)
    pool.write((0, 0, 64, 1), (0, 1000, 64, 2))
    with tempfile.TemporaryDirectory() as other:
        count = Path(other) / "count"
        pool.copy(Path(other) / "pool").opened("write 0 2000 16 3", "flush 0", count=count)
        alive = count.read_text()
    pool.opened(*pool.flushed((0, 2000, 16, 3)), "idle 20", "write 0 3000 8 4", late=alive,
                bad=f"write {pool.cache} 0 {pool.cache.stat().st_size // SECTOR}")
    pool.note(0, 3000, 8, 4)
    pool.commands.append("hybridctl lost --json origin0")
    return pool


@scenario
def damaged(build: Path, directory: Path) -> Made:
    """Dirty data behind a leaf of the map whose checksum is wrong."""
    pool = Made(build, directory)
    pool.write((0, 0, 64, 1), end=stopped(1))
    with Cache(pool.cache).map_leaf(0) as leaf:
        leaf.spoil()
    return pool


# --- archives ----------------------------------------------------------------------------

def pack(archive: Path, members: list[Path]) -> None:
    """Of the same bytes, the same archive: names and sizes, and nothing else of the files."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in members:
            entry = tarfile.TarInfo(path.name)
            entry.size = path.stat().st_size
            tar.addfile(entry, io.BytesIO(path.read_bytes()))


def unpack(archive: Path, directory: Path) -> list[Path]:
    """The members: `cache`, `origin0` ..."""
    with tarfile.open(archive) as tar:
        for entry in tar:
            (directory / entry.name).write_bytes(tar.extractfile(entry).read())
        return [directory / name for name in tar.getnames()]


def archives() -> list[Path]:
    return sorted(IMAGES.glob("v*.tar.xz"))


def version_of(archive: Path) -> int:
    return int(re.match(r"v(\d+)-", archive.name)[1])


def words_of(archive: Path) -> Path:
    return archive.with_name(archive.name.removesuffix(".tar.xz") + ".txt")


def opens(archive: Path) -> bool:
    """Whether the tools and the engine use it.  Else they refuse it: refused.txt."""
    return version_of(archive) == VERSION


def has_superblock(path: Path) -> bool:
    return Member(path).superblock(0).data.startswith(b"dm-hybrid member")


# --- words -------------------------------------------------------------------------------

def say(build: Path, directory: Path, command: str) -> str:
    """The output and the exit status of a command in the members' directory."""
    program, *args = command.split()
    line = None
    if program == "try":	# the engine
        program, args, line = "offline-driver", [], command + "\n"
    r = subprocess.run([build / program, *args], cwd=directory, input=line, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=60, env={**os.environ, "LC_ALL": "C"},
                       **({} if line else {"stdin": subprocess.DEVNULL}))
    return f"$ {command}\n{r.stdout}exit status {r.returncode}\n"


def commands(text: str) -> list[str]:
    return re.findall(r"^\$ (.+)$", text, re.M)


def said(build: Path, directory: Path, text: str) -> str:
    """The same commands again; lines before the first one stay."""
    return text[:text.index("$ ")] + "\n".join(say(build, directory, c) for c in commands(text))


def data(text: str) -> list[tuple[int, int, int, int]]:
    """The writes that the pool holds: volume, sector, count, seed."""
    return [tuple(map(int, line.split())) for line in re.findall(r"^data (.+)$", text, re.M)]


def first_words(pool: Made) -> str:
    """The data of a new image, and the commands."""
    members = " ".join(path.name for path in pool.members())
    tries = "".join(f" {n} {path.name}" for n, path in enumerate(pool.origins))
    lines = ["data {} {} {} {}".format(*write) for write in pool.writes]
    lines += [f"$ hybrid_check {members}", f"$ hybridctl scan --json {members}", "$ hybrid_dump cache",
              f"$ try cache{tries}", *(f"$ {command}" for command in pool.commands)]
    return "\n".join(lines) + "\n"


def change_version(members: list[Path], version: int) -> None:
    for path in members:
        if has_superblock(path):
            Member(path).set("version", version)


def write_refused(build: Path, archive: Path) -> None:
    """The cache device of this image, as one of no known version."""
    with tempfile.TemporaryDirectory() as directory:
        cache = unpack(archive, Path(directory))[0].rename(Path(directory) / "MEMBER")
        change_version([cache], NO_VERSION)
        text = said(build, Path(directory), REFUSED.read_text())
        REFUSED.write_text(text.replace(str(NO_VERSION), "VERSION").replace(KNOWS.format(VERSION), KNOWS.format("KNOWN")))


def refused(member: str, version: int) -> str:
    text = REFUSED.read_text().replace("MEMBER", member).replace("VERSION", str(version))
    return text.replace("KNOWN", str(VERSION))


def write_image(build: Path, name: str) -> None:
    archive = IMAGES / f"v{VERSION}-{name}.tar.xz"
    if archive.exists():
        return
    with tempfile.TemporaryDirectory() as directory:
        pool = SCENARIOS[name](build, Path(directory) / "pool")
        pack(archive, pool.members())
        words_of(archive).write_text(said(build, pool.dir, first_words(pool)))


def write_words(build: Path, archive: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        unpack(archive, Path(directory))
        words = words_of(archive)
        words.write_text(said(build, Path(directory), words.read_text()))


def main(build: Path, again: bool) -> None:
    for name in SCENARIOS:
        write_image(build, name)
    for archive in archives() if again else ():
        if opens(archive):
            write_words(build, archive)
    if again:
        write_refused(build, IMAGES / f"v{VERSION}-clean.tar.xz")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), "--words" in sys.argv[2:])
