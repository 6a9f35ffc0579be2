# SPDX-License-Identifier: GPL-2.0-or-later
"""Pools in image files, made by the engine itself: offline-driver.c says how."""
import os
import shutil
import struct
import subprocess
from pathlib import Path

MIB = 1 << 20
HEAD = 2048	# sectors of an origin before its data


def sectors(seed: int, first: int, count: int) -> bytes:
    """What the driver writes to a volume."""
    return b"".join(struct.pack("<QQ", seed, s) * 32 for s in range(first, first + count))


class Pool:
    """Image files `cache`, `origin0` ... in a directory, and what their volumes should hold."""

    def __init__(self, build: Path, directory: Path, cache_mib: int = 16, origins: int = 1,
                 origin_mib: int = 8, block: int = 128):
        self.driver = build / "offline-driver"
        self.dir = Path(directory)
        self.dir.mkdir(exist_ok=True)
        self.cache = self._image("cache", cache_mib)
        self.origins = [self._image(f"origin{n}", origin_mib) for n in range(origins)]
        self.size = (origin_mib - 2) * MIB	# of a volume
        self.want = [bytearray(self.size) for _ in self.origins]
        self.run(f"format {self.cache} {block} pool", f"load {self.cache}",
                 *(f"create {n} vol{n} writeback {path}" for n, path in enumerate(self.origins)),
                 "stop")

    @classmethod
    def found(cls, build: Path, directory: Path) -> "Pool":
        """The image files that a directory has already; `want` is not known."""
        pool = object.__new__(cls)
        pool.driver, pool.dir = build / "offline-driver", Path(directory)
        pool.cache, pool.origins = pool.dir / "cache", sorted(pool.dir.glob("origin*"))
        return pool

    def _image(self, name: str, mib: int) -> Path:
        path = self.dir / name
        with open(path, "wb") as f:
            f.truncate(mib * MIB)
        return path

    def run(self, *lines: str, **faults) -> str:
        """`faults`: late=3 is faults.c's FAULT_LATE=3."""
        # With faults.c's fsync, which need not wait for a disk
        env = {**os.environ, "LD_PRELOAD": str(self.driver.parent / "faults.so"),
               **{f"FAULT_{name.upper()}": str(value) for name, value in faults.items()}}
        r = subprocess.run([self.driver], input="\n".join(lines) + "\n", capture_output=True,
                           text=True, timeout=60, env=env)
        assert r.returncode == 0, r.stderr
        return r.stdout

    def opened(self, *lines: str, **faults) -> str:
        """With all volumes open.  Unless the lines say "stop", they end with a crash."""
        return self.run(f"load {self.cache}",
                        *(f"open {n} {path}" for n, path in enumerate(self.origins)), *lines, **faults)

    def write(self, *writes: tuple[int, int, int, int], end: tuple[str, ...] = ()) -> None:
        """(volume, sector, count, seed) ..., all of it flushed."""
        for write in writes:
            self.note(*write)
        self.opened(*("write {} {} {} {}".format(*w) for w in writes),
                    *(f"flush {n}" for n in range(len(self.origins))), *end)

    def note(self, n: int, sector: int, count: int, seed: int) -> None:
        """That this is what the volume now holds."""
        self.want[n][sector * 512:(sector + count) * 512] = sectors(seed, sector, count)

    def on_origin(self, n: int) -> bytes:
        with open(self.origins[n], "rb") as f:
            f.seek(HEAD * 512)
            return f.read(self.size)

    def copy(self, directory: Path) -> "Pool":
        """The same bytes in other files."""
        new = object.__new__(Pool)
        new.__dict__.update(self.__dict__)
        new.dir = Path(directory)
        new.dir.mkdir()
        for path in self.members():
            subprocess.run(["cp", "--sparse=always", path, new.dir], check=True)
        new.cache = new.dir / "cache"
        new.origins = [new.dir / path.name for path in self.origins]
        new.want = [bytearray(want) for want in self.want]
        return new

    def remove(self) -> None:
        shutil.rmtree(self.dir)

    def members(self) -> list[Path]:
        return [self.cache, *self.origins]

    def bytes(self) -> list[bytes]:
        return [path.read_bytes() for path in self.members()]


def run(build: Path, tool: str, *args, **kw) -> subprocess.CompletedProcess:
    """hybrid_TOOL ..."""
    return subprocess.run([build / f"hybrid_{tool}", *args], capture_output=True, text=True,
                          timeout=60, **kw)


def dump(build: Path, path: Path, *args) -> str:
    r = run(build, "dump", path, *args)
    assert r.returncode == 0 and not r.stderr, r.stderr
    return r.stdout


def random_pool(build: Path, directory: Path, rng) -> Pool:
    """Any block size, some volumes and modes; crashed or stopped, dirty or drained."""
    pool = Pool(build, directory, cache_mib=rng.choice([8, 16, 24]),
                origins=rng.randint(1, 3), origin_mib=rng.choice([4, 8]),
                block=rng.choice([8, 16, 128, 1024]))
    for _ in range(rng.randint(0, 3)):
        writes = []
        for seed in range(1, rng.randint(1, 16)):
            count = 8 * rng.randint(1, 32)
            writes.append((rng.randrange(len(pool.origins)),
                           8 * rng.randrange((pool.size // 512 - count) // 8 + 1), count, seed))
        ends = [f"close {n}" for n in range(len(pool.origins))] + ["stop"]
        pool.write(*writes, end=rng.choice([(), ("idle 20",), ("drain",), ("drain", *ends),
                                            tuple(ends)]))
    return pool
