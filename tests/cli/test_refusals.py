# SPDX-License-Identifier: GPL-2.0-or-later
"""What must not be formatted is not."""
import os
import re
import struct
import subprocess

import pytest


def create(tool, cache, origin, *more, **kw):
    return tool("create", "vol", "--cache", cache, "--origin", origin, *more, **kw)


def test_test_mode_prints_tables_and_writes(hybridctl, image):
    cache, origin = image("c", 64), image("o", 100)
    r = create(hybridctl, cache, origin, "--test", "--mode", "writeback")
    assert r.returncode == 0, r.stderr
    lines = r.stdout.splitlines()
    assert lines[0].startswith(f"write {cache}: ")
    assert re.match(r"# \d+ blocks of 32 KiB, journal \d+ KiB, data from sector \d+ on", lines[1])
    assert re.match(rf"dmsetup create vol-pool --uuid HYBRID-\S+-pool --table "
                    rf"'0 131072 hybrid-pool {cache} 64 2 uuid \S+ c2q 0'", lines[2])
    assert lines[3].startswith(f"write {origin}: ")
    assert re.match(r"dmsetup message vol-pool 0 'create_volume 0 \S+ vol \S+ [0-9a-f]{32} "
                    r"2048 200704 writeback 8192'", lines[4])
    assert re.match(rf"dmsetup create vol --uuid HYBRID-\S+ --table '0 200704 hybrid "
                    rf"/dev/mapper/vol-pool 0 {origin} 3 writeback cutoff 8192'", lines[5])
    assert not any(cache.read_bytes()) and not any(origin.read_bytes())


def test_in_place_writes_nothing_to_the_origin(hybridctl, image):
    cache, origin = image("c", 64), image("o", 100)
    r = create(hybridctl, cache, origin, "--test", "--in-place")
    assert r.returncode == 4 and "cannot be recognised later" in r.stderr
    subprocess.run(["mkfs.ext4", "-qF", origin], check=True)
    r = create(hybridctl, cache, origin, "--test", "--in-place")
    assert r.returncode == 0, r.stderr
    assert f"write {origin}" not in r.stdout
    assert f"{origin} 4 writethrough cutoff 8192 inplace'" in r.stdout


def signatures(size):
    """Of others: what libblkid calls them, and their bytes by place."""
    def lvm(data, crc=0xf597a6cf):
        table = [0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c]
        for byte in data:
            crc ^= byte
            for _ in range(2):
                crc = (crc >> 4) ^ table[crc & 15]
        return crc

    rest = struct.pack("<I8s", 32, b"LVM2 001") + b"0123456789abcdefghijklmnopqrstuv".ljust(480, b"\0")
    md = bytearray(struct.pack("<IIII16s32sQIIQII", 0xa92b4efc, 1, 0, 0, bytes(range(16)), b"host:0", 0, 1, 0,
                               size // 512 - 2048, 0, 2).ljust(128, b"\0") +
                   struct.pack("<QQQ", 2048, size // 512 - 2048, 8)).ljust(256, b"\0")
    words = struct.unpack("<64I", md)
    total = sum(words)
    md[216:220] = struct.pack("<I", ((total & 0xffffffff) + (total >> 32)) & 0xffffffff)
    bcache = struct.pack("<QQQ", 0, 8, 1) + bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81") + bytes(range(16))
    uberblock = struct.pack("<QQQQQ", 0x00bab10c, 5000, 7, 9, 1700000000).ljust(1024, b"\0")
    return {
        "LVM2_member": {512: b"LABELONE" + struct.pack("<QI", 1, lvm(rest)) + rest},
        "linux_raid_member": {4096: bytes(md)},
        "bcache": {4096: bcache.ljust(4096, b"\0")},
        "zfs_member": {128 << 10: uberblock * 8, 384 << 10: uberblock * 8},
        "drbd": {size - 4096: struct.pack(">QQQQQQ", size // 512, 1, 2, 3, 4, 5) +
                 struct.pack(">QIII", 6, 0, 0x8374026d, 8)},
    }


@pytest.mark.parametrize("kind", ["LVM2_member", "linux_raid_member", "bcache", "zfs_member", "drbd"])
def test_no_part_of_something_else_in_place(hybridctl, image, kind):
    """At a boot it would be put together of the origin, beside the cache."""
    cache, origin = image("c", 64), image("o", 100)
    with open(origin, "r+b") as f:
        for place, data in signatures(100 << 20)[kind].items():
            f.seek(place)
            f.write(data)
    found = subprocess.run(["blkid", "-p", "-o", "value", "-s", "TYPE", origin], capture_output=True, text=True).stdout
    assert found.strip() == kind
    for more in ([], ["--force"]):
        r = create(hybridctl, cache, origin, "--test", "--in-place", *more)
        assert r.returncode == 2 and f"other tools assemble at boot ({kind})" in r.stderr, r.stderr
        way = "hybridctl import removes bcache" if kind == "bcache" else "cache the resulting device"
        assert f"next: {way}" in r.stderr and not r.stdout
    # Where it is formatted, it is listed as what would be lost
    r = create(hybridctl, cache, origin, "--test")
    assert r.returncode == 0 and f"{origin}: {kind} " in r.stderr, r.stderr


@pytest.mark.parametrize("cache,origin,code,says", [
    (64, 2, 4, "too small for an origin"), (3, 100, 4, "cannot be a cache device"),
    (0.5, 100, 4, "cannot be a cache device")])
def test_sizes(hybridctl, image, cache, origin, code, says):
    r = create(hybridctl, image("c", cache), image("o", origin), "--test")
    assert r.returncode == code and says in r.stderr and "next:" in r.stderr


def test_block_size_by_memory(hybridctl, image):
    """32 KiB; larger where these would take more than a 64th of the memory, or those a 32nd."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    gib = memory >> 30
    if gib > 128:
        pytest.skip("no file is large enough for a cache that is too large for this memory")
    origin = image("o", 64)
    r = create(hybridctl, image("small", 1024), origin, "--test", "-v")
    assert re.search(r"blocks of 32 KiB: the pool takes \S+k of \S+ of memory", r.stderr)
    assert "blocks of 32 KiB, journal" in r.stdout
    for times, kib in (24, 64), (96, 128):
        large = image("large", max(1, gib) * times * 1024)
        r = create(hybridctl, large, origin, "--test")
        assert r.returncode == 0, r.stderr
        assert re.search(rf"^blocks of {kib} KiB: the pool takes \S+ of \S+ of memory; "
                         r"with blocks of 32 KiB it would take \S+$", r.stdout, re.MULTILINE), r.stdout
        assert f"blocks of {kib} KiB, journal" in r.stdout
    r = create(hybridctl, large, origin, "--test", "--block-size", "64k")
    assert "of memory" not in r.stdout and "blocks of 64 KiB, journal" in r.stdout


def test_one_device_twice(hybridctl, image, tmp_path):
    cache = image("c", 64)
    link = tmp_path / "link"
    link.symlink_to(cache)
    for other in (cache, link):
        r = create(hybridctl, cache, other, "--test")
        assert r.returncode == 2 and "same device" in r.stderr


def test_one_block_device_twice(kernel, loop):
    """Not that it is in use, which it is by the tool itself."""
    dev = loop("c", 64)
    for argv in (["create", "vol", "--cache", dev, "--origin", dev, "-y"], ["check", dev, dev],
                 ["create", "vol", "--in-place", "--cache", dev, "--origin", dev, "-y", "--force"]):
        r = kernel(*argv)
        assert r.returncode == 2 and f"{dev} and {dev} are the same device" in r.stderr, r.stderr


def image_of(*devices):
    return [open(dev, "rb").read() for dev in devices]


def fill(*devices):
    """Signatures, and something else everywhere else."""
    for dev in devices:
        with open(dev, "r+b") as f:
            f.write(b"precious" * (64 << 17))
            f.flush()
            os.fsync(f.fileno())
        subprocess.run(["mkswap", dev], check=True, capture_output=True)


@pytest.mark.parametrize("policy,fail,code,says", [
    ("lruu", "", 1, "no such policy: lruu"), ("../x", "", 1, "no such policy"), ("", "", 1, "no such policy"),
    ("sixteen-letters-", "", 1, "no such policy"), ("arc", "policy arc", 8, "no module for policy arc")])
def test_the_policy_is_checked_before_anything_is_written(kernel, loop, policy, fail, code, says):
    devs = loop("c", 64), loop("o", 64)
    fill(*devs)
    before = image_of(*devs)
    r = create(kernel, *devs, "-y", "--wipe-signatures", "--policy", policy, fail=fail)
    assert r.returncode == code and says in r.stderr and "lost" not in r.stderr, r.stderr
    assert image_of(*devs) == before and kernel.log == ["check"]
    # One after the other: this one has no effect, either
    r = create(kernel, *devs, "-y", "--wipe-signatures")
    assert r.returncode == 0, r.stderr
    kernel.clear_log()
    r = kernel("set", "vol-pool", "endurance=7", f"policy={policy}", fail=fail)
    assert r.returncode == code and says in r.stderr and kernel.log == ["check"]


@pytest.mark.parametrize("more", [[], ["--in-place"], ["--discard"]])
def test_an_origin_that_cannot_be_written_to(kernel, loop, more):
    devs = loop("c", 64), loop("o", 64)
    fill(*devs)
    before = image_of(*devs)
    readonly = subprocess.run(["losetup", "--find", "--show", "--read-only", devs[1]], check=True, text=True,
                              capture_output=True).stdout.strip()
    try:
        r = create(kernel, devs[0], readonly, "-y", "--wipe-signatures", "--force", *more)
    finally:
        subprocess.run(["losetup", "-d", readonly], check=True)
    assert r.returncode == 2 and f"{readonly} is read-only" in r.stderr and "lost" not in r.stderr, r.stderr
    assert image_of(*devs) == before and kernel.log == ["check"]


@pytest.mark.parametrize("more", [[], ["--in-place"], ["--discard"]])
@pytest.mark.parametrize("fail", ["create vol-pool", "message vol-pool create_volume", "create vol "])
def test_what_is_lost_after_the_first_write(kernel, loop, fail, more):
    devs = loop("c", 64), loop("o", 64)
    fill(*devs)
    before = image_of(*devs)
    r = create(kernel, *devs, "-y", "--wipe-signatures", *more, fail=fail)
    assert r.returncode == 4 and "nothing was created; only this is lost: " in r.stderr, r.stderr
    lost = r.stderr[r.stderr.index("only this is lost: "):]
    head = re.search(rf"the data on {devs[0]} in its first (\d+) MiB and its last MiB", lost)
    assert bool(head) != ("--discard" in more) == (f"all data on {devs[0]}" in lost)
    assert (f"the data on {devs[1]} in its first and its last MiB" in lost) == ("--in-place" not in more)
    after = image_of(*devs)
    if head:
        assert after[0][int(head[1]) << 20:63 << 20] == before[0][int(head[1]) << 20:63 << 20]
    assert after[1][1 << 20:63 << 20] == before[1][1 << 20:63 << 20]
    assert (after[1] == before[1]) == ("--in-place" in more)


def test_nothing_is_lost_to_a_pool_that_takes_no_volume(kernel, loop):
    cache, origin, other = loop("c", 64), loop("o", 64), loop("x", 64)
    assert create(kernel, cache, origin, "-y").returncode == 0
    fill(other)
    before = image_of(other)
    attach = "attach", "vol-pool", "two", "--origin", other, "-y", "--wipe-signatures"
    kernel.change_device("vol-pool", state="failed")
    r = kernel(*attach)
    assert r.returncode == 7 and "pool vol-pool is failed" in r.stderr
    kernel.change_device("vol-pool", state="running", suspended=1)
    r = kernel(*attach)
    assert r.returncode == 5 and "vol-pool is suspended" in r.stderr
    assert image_of(other) == before
    kernel.change_device("vol-pool", suspended=0)
    r = kernel(*attach, fail="create two")
    assert f"only this is lost: the data on {other} in its first and its last MiB\n" in r.stderr


def test_files_only_with_test(hybridctl, image):
    r = create(hybridctl, image("c", 64), image("o", 64), "-y")
    assert r.returncode == 4 and "losetup" in r.stderr


@pytest.mark.parametrize("path,says", [("/dev/null", "not a block device"), ("/", "not a block"),
                                       ("/no/such", "No such file")])
def test_not_a_device(hybridctl, image, path, says):
    r = create(hybridctl, path, image("o", 64), "--test")
    assert r.returncode == 4 and says in r.stderr


def test_nobody_to_ask(kernel, loop):
    cache, origin = loop("c", 64), loop("o", 64)
    r = create(kernel, cache, origin)
    assert r.returncode == 2 and "--yes" in r.stderr
    assert kernel.devices == []


def test_signatures_are_listed_and_kept(kernel, loop):
    cache, origin = loop("c", 64), loop("o", 64)
    subprocess.run(["mkfs.ext4", "-q", "-L", "precious", origin], check=True)
    for args in ([], ["-y"]):
        r = create(kernel, cache, origin, *args)
        assert r.returncode == 2
        assert f"{origin}: ext4 filesystem, label \"precious\", uuid" in r.stderr
    assert "--wipe-signatures" in r.stderr
    assert "ext4" in subprocess.run(["blkid", "-p", origin], capture_output=True,
                                    text=True).stdout
    r = create(kernel, cache, origin, "-y", "--wipe-signatures")
    assert r.returncode == 0, r.stderr
    assert not subprocess.run(["blkid", "-p", origin], capture_output=True, text=True).stdout


def test_a_partition_table_counts(kernel, loop):
    cache, origin = loop("c", 64), loop("o", 64)
    entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + struct.pack("<II", 2048, 20480)
    with open(origin, "r+b") as f:
        f.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
        f.flush()
        os.fsync(f.fileno())
    r = create(kernel, cache, origin, "-y")
    assert r.returncode == 2 and f"{origin}: dos partition table" in r.stderr


def test_a_device_in_use_is_refused(kernel, loop):
    cache, origin = loop("c", 64), loop("o", 64)
    fd = os.open(origin, os.O_RDWR | os.O_EXCL)
    try:
        r = create(kernel, cache, origin, "-y")
    finally:
        os.close(fd)
    assert r.returncode == 5 and f"{origin} is in use" in r.stderr


def test_a_mounted_device_is_refused_by_mount_point(kernel, loop, tmp_path):
    cache, origin = loop("c", 64), loop("o", 64)
    subprocess.run(["mkfs.ext4", "-q", origin], check=True)
    where = tmp_path / "mnt point"
    where.mkdir()
    if subprocess.run(["mount", origin, where], capture_output=True).returncode:
        pytest.skip("cannot mount here")
    try:
        r = create(kernel, cache, origin, "-y", "--wipe-signatures")
    finally:
        subprocess.run(["umount", where], check=True)
    assert r.returncode == 5 and f"{origin} is mounted at {where}" in r.stderr


def test_members_are_not_taken_again(kernel, loop):
    cache, origin, other = loop("c", 64), loop("o", 64), loop("x", 64)
    assert create(kernel, cache, origin, "-y").returncode == 0
    for pair in ((cache, other), (other, origin)):
        r = kernel("create", "two", "--cache", pair[0], "--origin", pair[1], "-y",
                   "--wipe-signatures")
        assert r.returncode == 5 and "already belongs to dm-hybrid" in r.stderr
    r = kernel("attach", "vol-pool", "two", "--origin", cache, "-y")
    assert r.returncode in (2, 5)


def test_names_taken(kernel, loop):
    cache, origin, other = loop("c", 64), loop("o", 64), loop("x", 64)
    assert create(kernel, cache, origin, "-y").returncode == 0
    r = kernel("attach", "vol-pool", "vol", "--origin", other, "-y")
    assert r.returncode == 5 and "exists already" in r.stderr
    assert kernel("deactivate", "vol", "--keep-pool").returncode == 0
    r = kernel("attach", "vol-pool", "vol", "--origin", other, "-y")
    assert r.returncode == 5 and "already has a volume vol" in r.stderr


def test_no_kernel_target_is_8(kernel, loop):
    cache, origin = loop("c", 64), loop("o", 64)
    r = kernel("create", "vol", "--cache", cache, "--origin", origin, "-y", fail="check")
    assert r.returncode == 8
    assert not any(open(cache, "rb").read()) and not any(open(origin, "rb").read())


def test_the_real_tool_without_device_mapper(hybridctl):
    with open("/proc/devices") as f:
        if "device-mapper" in f.read():
            pytest.skip("there is a device-mapper")
    if os.geteuid():
        pytest.skip("needs root")
    assert hybridctl("drain", "x").returncode == 8
    assert hybridctl("list", "-q").returncode == 0


def test_without_permission(hybridctl, image):
    if os.geteuid():
        pytest.skip("needs root, to drop it")
    r = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups",
                        "cat", "/proc/self/status"], capture_output=True)
    if r.returncode:
        pytest.skip("cannot drop root here")
    tool = hybridctl.__closure__[0].cell_contents / "hybridctl"
    run = ["setpriv", "--reuid=65534", "--clear-groups", tool]
    if subprocess.run(run + ["--version"], capture_output=True).returncode:
        pytest.skip("the build directory is not readable for others")
    for command in (["drain", "x"], ["list"], ["status"], ["scan"], ["activate", "--all"]):
        r = subprocess.run(run + command, capture_output=True, text=True)
        assert r.returncode == 2 and "root" in r.stderr


@pytest.fixture
def limited(tmp_path, kernel):
    """limited(device, zone=0, sector=0, ...): to be preloaded; what the kernel would say of it."""
    def make(device, zone=0, sector=0):
        (tmp_path / "limits.c").write_text(f"""
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <linux/blkzoned.h>
            #include <linux/fs.h>
            #include <stdarg.h>
            #include <sys/stat.h>
            #include <sys/sysmacros.h>
            int ioctl(int fd, unsigned long request, ...)
            {{
                int (*next)(int, unsigned long, void *) = dlsym(RTLD_NEXT, "ioctl");
                struct stat st;
                va_list ap;
                va_start(ap, request);
                void *arg = va_arg(ap, void *);
                va_end(ap);
                if (!fstat(fd, &st) && st.st_rdev == makedev({os.major(os.stat(device).st_rdev)},
                                                             {os.minor(os.stat(device).st_rdev)})) {{
                    if (request == BLKGETZONESZ && {zone})
                        return *(unsigned int *)arg = {zone}, 0;
                    if (request == BLKSSZGET && {sector})
                        return *(int *)arg = {sector}, 0;
                }}
                return next(fd, request, arg);
            }}
        """)
        so = tmp_path / "limits.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", so, tmp_path / "limits.c", "-ldl"], check=True)
        return {"LD_PRELOAD": str(so)}
    return make


@pytest.mark.parametrize("limits, why", [({"zone": 524288}, "is zoned"), ({"sector": 16384}, "has sectors of 16384 bytes")])
@pytest.mark.parametrize("which", ["cache", "origin", "origin in place", "origin attached"])
def test_a_device_that_the_kernel_would_refuse(kernel, loop, limited, limits, which, why):
    """Said before the first write to any device."""
    cache, origin, second = loop("c", 64), loop("o", 100), loop("p", 100)
    subprocess.run(["mkfs.ext4", "-q", second], check=True)
    options = ["--in-place"] if "place" in which else []
    if which == "origin attached":
        kernel.ok("create", "first", "--pool", "pool", "--cache", cache, "--origin", origin, "-y")
    env = limited(cache if which == "cache" else second, **limits)
    paths = cache, origin, second
    before = [open(p, "rb").read() for p in paths]
    kernel.clear_log()
    if which == "origin attached":
        r = kernel("attach", "pool", "vol", "--origin", second, "-y", "--wipe-signatures", env=env)
    else:
        r = create(kernel, cache, second, *options, "-y", "--wipe-signatures", env=env)
    assert r.returncode == 4, r
    assert f"{cache if which == 'cache' else second} {why}" in r.stderr and "next: " in r.stderr
    assert [open(p, "rb").read() for p in paths] == before
    assert not [line for line in kernel.log if line.startswith("create") or "create_volume" in line]
