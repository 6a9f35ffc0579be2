# SPDX-License-Identifier: GPL-2.0-or-later
"""What the targets refuse: with a word that says why, and nothing changed or left behind."""
import re
import struct

import pytest

from .stack import io

SB = (512 << 10, -(512 << 10))	# where a member's superblocks stand, from start and end
CRC, VERSION, RO_COMPAT, INCOMPAT, SECTOR, SIZE, POOL, MEMBER, ROLE = \
    16, 20, 32, 40, 48, 56, 64, 80, 96
BLOCK_SECTORS = 176		# of a cache device
NONCE, PAIRING_KEY = 200, 224	# of an origin
POOL_TABLE = "0 65536 hybrid-pool /dev/test/ssd 128 0 c2q 0"
VOLUME_TABLE = "0 61440 hybrid /dev/mapper/pool 0 /dev/test/hdd 0"


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def superblocks(disk):
    for place in SB:
        at = place if place >= 0 else disk.size + place
        yield at, bytearray(disk.read(at, 4096))


def patch(disk, offset, value, fix_crc=True):
    """Change a field in both superblocks of a member; they stay valid unless told otherwise."""
    for at, block in superblocks(disk):
        block[offset:offset + len(value)] = value
        if fix_crc:
            block[CRC:CRC + 4] = bytes(4)
            block[CRC:CRC + 4] = struct.pack("<I", crc32c(block))
        disk.write(at, block)


@pytest.fixture
def stack(make_stack):
    s = make_stack(ssd=32, hdd=32, hdd2=32, small=2, tiny=1)
    s.create()
    return s


BAD_POOLS = [
    ("", "No cache device given"),
    ("/dev/test/none 128 0 c2q 0", "Cannot open the cache device"),
    ("/dev/test/ssd", "Block size must be a power of two, 8 to 2048 sectors"),
    *((f"/dev/test/ssd {size} 0 c2q 0", "Block size must be a power of two, 8 to 2048 sectors")
      for size in ("x", "0", "4", "100", "4096", "-128", "99999999999999999999", "128k")),
    ("/dev/test/ssd 64 0 c2q 0", "Block size is not that of the superblock"),
    ("/dev/test/ssd 128", "Bad number of feature arguments"),
    ("/dev/test/ssd 128 x c2q 0", "Bad number of feature arguments"),
    ("/dev/test/ssd 128 15 c2q 0", "Bad number of feature arguments"),
    ("/dev/test/ssd 128 4 c2q 0", "not enough arguments|Bad number of feature|Insufficient"),
    ("/dev/test/ssd 128 1 nonsense c2q 0", "Unknown feature of a pool"),
    ("/dev/test/ssd 128 2 high_watermark 96 c2q 0", "high_watermark must be 1 to 95"),
    ("/dev/test/ssd 128 2 high_watermark x c2q 0", "high_watermark must be 1 to 95"),
    ("/dev/test/ssd 128 1 high_watermark c2q 0", "high_watermark must be 1 to 95"),
    ("/dev/test/ssd 128 2 low_watermark 80 c2q 0", "low_watermark must be 0 to high_watermark"),
    ("/dev/test/ssd 128 2 commit_interval 9 c2q 0", "commit_interval must be 10 to 60000"),
    ("/dev/test/ssd 128 2 endurance 33554433 c2q 0", "endurance must be 0 to 33554432"),
    ("/dev/test/ssd 128 2 metadata_share 91 c2q 0", "metadata_share must be 0 to 90"),
    ("/dev/test/ssd 128 2 writeback_rate -1 c2q 0", "writeback_rate must be a number of KiB"),
    ("/dev/test/ssd 128 2 uuid 1234 c2q 0", "uuid must be 8-4-4-4-12 hex digits"),
    ("/dev/test/ssd 128 2 uuid 11111111-2222-3333-4444-555555555555 c2q 0",
     "Cache device belongs to a pool with another uuid"),
    ("/dev/test/ssd 128 0", "No policy given"),
    ("/dev/test/ssd 128 0 no-such-policy 0", "Unknown policy"),
    ("/dev/test/ssd 128 0 ../../x 0", "Unknown policy"),
    ("/dev/test/ssd 128 0 c2q", "The policy takes no arguments"),
    ("/dev/test/ssd 128 0 c2q 1 x", "The policy takes no arguments"),
    ("/dev/test/ssd 128 0 c2q 0 x", "Too many arguments"),
    ("/dev/test/hdd2 128 0 c2q 0", "Cache device is not a dm-hybrid member"),
    ("/dev/test/hdd 128 0 c2q 0", "Device is a dm-hybrid origin, not a cache device"),
    ("/dev/test/tiny 128 0 c2q 0", "Cache device is too small"),
    ("/dev/test/small 128 0 c2q 0", "Cache device is not a dm-hybrid member"),
]
SIZE_ERROR = "Volume id must be 0 to 4095"
USAGE = "Usage: <pool dev> <volume id> <origin dev> <#feature args>"
BAD_VOLUMES = [
    ("", USAGE), ("/dev/mapper/pool", USAGE), ("/dev/mapper/pool 0 /dev/test/hdd", USAGE),
    *((f"/dev/mapper/pool {n} /dev/test/hdd 0", SIZE_ERROR)
      for n in ("4096", "-1", "x", "4294967296", "0x")),
    ("/dev/mapper/none 0 /dev/test/hdd 0", "Cannot open the pool device"),
    ("/dev/mapper/pool 0 /dev/test/none 0", "Cannot open the origin device"),
    ("/dev/test/hdd2 0 /dev/test/hdd 0", "Pool device is not a hybrid-pool"),
    ("/dev/mapper/pool 1 /dev/test/hdd 0", "No such volume in the pool"),
    ("/dev/mapper/pool 4095 /dev/test/hdd 0", "No such volume in the pool"),
    ("/dev/mapper/pool 0 /dev/test/tiny 0", "Origin is smaller than the table says"),
    ("/dev/mapper/pool 0 /dev/test/hdd x", "Bad number of feature arguments"),
    ("/dev/mapper/pool 0 /dev/test/hdd 5 writeback", "Bad number of feature arguments"),
    ("/dev/mapper/pool 0 /dev/test/hdd 1 nonsense", "Unknown feature of a volume"),
    ("/dev/mapper/pool 0 /dev/test/hdd 2 writeback writethrough", "More than one mode given"),
    ("/dev/mapper/pool 0 /dev/test/hdd 2 cutoff x", "cutoff must be a number of sectors"),
    ("/dev/mapper/pool 0 /dev/test/hdd 1 cutoff", "cutoff must be a number of sectors"),
    ("/dev/mapper/pool 0 /dev/test/hdd 1 inplace", "Volume is not in place"),
    ("/dev/mapper/pool 0 /dev/test/hdd 0 x", "Too many arguments"),
]
UUID, OTHER = ("aaaaaaaa-1111-2222-3333-44444444444%d" % n for n in (1, 2))
KEY = "0123456789abcdef" * 2
CREATE = ["create_volume", "5", UUID, "name", OTHER, KEY, "2048", "2048", "writeback", "0"]


def created(position, value):
    """create_volume with one word changed."""
    words = list(CREATE)
    words[position] = value
    return " ".join(words)


BAD_POOL_MESSAGES = [
    ("nonsense", "unknown message 'nonsense', or wrong number of arguments"),
    ("drain now", "rate must be a number of KiB a second, not 'now'"), ("drain 1 2", "unknown message 'drain'"),
    ("drain_cancel 1", "unknown message 'drain_cancel'"), ("volumes x", "unknown message 'volumes'"),
    ("set high_watermark", "unknown message 'set'"),
    ("set nonsense 3", "unknown tunable 'nonsense'"),
    ("set high_watermark 0", "high_watermark must be 1 to 95"),
    ("set high_watermark 5", "low_watermark must be 0 to high_watermark"),
    ("set low_watermark 71", "low_watermark must be 0 to high_watermark"),
    ("set commit_interval 60001", "commit_interval must be 10 to 60000"),
    (" ".join(CREATE[:-1]), "unknown message 'create_volume'"),
    (created(1, "4096"), "volume id must be 0 to 4095, not '4096'"),
    (created(1, "0"), "id, uuid or name is in use"),
    (created(2, UUID[:-1]), "volume uuid must be 8-4-4-4-12 hex digits"),
    (created(3, "a/b"), "volume name must be 1 to 63 letters, digits or +_.-"),
    (created(3, "n" * 64), "volume name must be 1 to 63"),
    (created(3, "vol"), "id, uuid or name is in use"),
    (created(4, "x"), "member uuid must be 8-4-4-4-12 hex digits"),
    (created(5, KEY[:-1]), "pairing key must be 32 hex digits"),
    (created(6, "x"), "data sector must be a number of sectors, not 'x'"),
    (created(7, "0"), "data sectors must not be 0"),
    (created(8, "fast"), "unknown mode 'fast'"),
    (created(9, "1k"), "cutoff must be a number of sectors"),
    (" ".join([*CREATE, "outofplace"]), "unknown argument 'outofplace'"),
    ("delete_volume 9", "no such volume"), ("delete_volume 0", "in use, or dirty"),
    ("delete_volume 0 please", "unknown argument 'please'"),
    ("forget_volume 0", "not deleted"), ("forget_volume 9", "no such volume"),
    ("forget_volume x", "volume id must be 0 to 4095"),
    ("release_volume x", "volume id must be 0 to 4095"), ("release_volume 0", "not suspended, or dirty"),
    ("rename_volume 0", "unknown message 'rename_volume'"), ("rename_volume 0 x y", "unknown message"),
    ("rename_volume x y", "volume id must be 0 to 4095"), ("rename_volume 9 x", "no such volume"),
    ("rename_volume 0 a/b", "volume name must be 1 to 63 letters, digits or +_.-"),
    ("rename_volume 0 .x", "not beginning with - or ."), ("rename .x", "not beginning with - or ."),
    ("rename a/b", "pool name must be 1 to 63 letters, digits or +_.-"), ("rename", "unknown message 'rename'"),
]
BAD_VOLUME_MESSAGES = [
    ("nonsense", "unknown message 'nonsense'"), ("mode", "unknown message 'mode'"),
    ("mode fast", "unknown mode 'fast'"), ("cutoff x", "cutoff must be a number of sectors"),
    ("drain 4294967296", "rate must be a number of KiB a second, not '4294967296'"),
    ("drain 10m", "rate must be a number"), ("drain 1 2", "unknown message 'drain'"), ("reset_counters 1", "unknown message"),
]


def missed(stack, cases, command):
    """Which cases were not refused in the words expected."""
    wrong = []
    for words, why in cases:
        said = command(words)
        if not re.search(re.escape(why).replace(r"\|", "|"), said):
            wrong.append(f"{words!r}: not {why!r} but {said.strip()!r}")
    return "\n".join(wrong)


def holds(guest):
    """What leaks would add to: objects of the slabs, vmalloc pages, users of the module."""
    guest.run("sync; echo 3 >/proc/sys/vm/drop_caches")
    slabs = [line.split() for line in guest.run("cat /proc/slabinfo").out.splitlines()[2:]]
    return {"vmalloc": guest.run("grep -c . /proc/vmallocinfo").out.strip(),
            "refs": guest.run("cat /sys/module/dm_hybrid/refcnt").out.strip(),
            "slab": {w[0]: int(w[1]) for w in slabs
                     if w[0].startswith(("kmalloc-1k", "kmalloc-2k", "kmalloc-4k",
                                         "kmalloc-8k", "dm_hybrid"))}}


def assert_nothing_held(before, after, times):
    assert after["refs"] == before["refs"]
    assert int(after["vmalloc"]) <= int(before["vmalloc"]) + 4
    for name, count in after["slab"].items():
        assert count < before["slab"].get(name, 0) + times // 2, (name, before, after)


def test_bad_pool_tables(stack):
    stack.deactivate()
    assert not missed(stack, BAD_POOLS, lambda params: stack.create_refused(
        f"0 {2048 if 'tiny' in params else 65536} hybrid-pool {params}"))
    # A table longer than the device.
    assert "Cache device is smaller than the table says" in stack.create_refused(
        POOL_TABLE.replace("65536", "65544"))
    before = holds(stack.guest)
    for params, _ in 3 * BAD_POOLS:
        stack.guest.run("dmsetup create refused", input=f"0 65536 hybrid-pool {params}\n",
                        check=False)
    assert_nothing_held(before, holds(stack.guest), 3 * len(BAD_POOLS))
    stack.activate()
    assert stack.status()["state"] == "running"


def test_bad_volume_tables(stack):
    stack.guest.dm_remove("vol")
    assert not missed(stack, BAD_VOLUMES, lambda params: stack.create_refused(
        f"0 61440 hybrid {params}"))
    assert "Length of the table is not the size of the volume" in stack.create_refused(
        VOLUME_TABLE.replace("61440", "61432"))
    before = holds(stack.guest)
    for params, _ in 3 * BAD_VOLUMES:
        stack.guest.run("dmsetup create refused", input=f"0 61440 hybrid {params}\n",
                        check=False)
    assert_nothing_held(before, holds(stack.guest), 3 * len(BAD_VOLUMES))
    stack.guest.dm_create("vol", VOLUME_TABLE)
    stack.guest.dm_remove("vol", "pool")
    stack.guest.run("rmmod dm-hybrid-c2q dm-hybrid")


def test_bad_messages(stack):
    tables = stack.table("pool"), stack.table("vol"), stack.message("volumes", name="pool")
    assert not missed(stack, BAD_POOL_MESSAGES,
                      lambda words: stack.refused(f"dmsetup message pool 0 {words}"))
    assert not missed(stack, BAD_VOLUME_MESSAGES,
                      lambda words: stack.refused(f"dmsetup message vol 0 {words}"))
    assert (stack.table("pool"), stack.table("vol"),
            stack.message("volumes", name="pool")) == tables
    before = holds(stack.guest)
    for _ in range(3):
        for name, cases in (("pool", BAD_POOL_MESSAGES), ("vol", BAD_VOLUME_MESSAGES)):
            for words, _ in cases:
                stack.guest.run(f"dmsetup message {name} 0 {words}", check=False)
    assert_nothing_held(before, holds(stack.guest), 90)


def test_bad_reloads_leave_the_table_as_it_is(stack):
    """Refused by the constructor, or at resume: the device goes on with what it had."""
    dev = "/dev/mapper/vol"
    pool, vol = stack.table("pool"), stack.table()
    io(stack.guest, dev, "w:0:8:a")
    for name, table, why in (
            ("pool", pool.replace(" 128 ", " 64 ", 1), "Block size is not that"),
            ("pool", POOL_TABLE.replace("/dev/test/ssd", "/dev/test/hdd"), "is a dm-hybrid origin"),
            ("vol", VOLUME_TABLE.replace("pool 0 ", "pool 3 "), "No such volume in the pool"),
            ("vol", VOLUME_TABLE.replace("61440", "2048"), "Length of the table")):
        assert why in stack.refused(f"dmsetup load {name}", input=table + "\n")
    assert (stack.table("pool"), stack.table()) == (pool, vol)
    # The right volume, the wrong device: noticed when it is opened.
    said = stack.refused("dmsetup load vol && dmsetup resume vol",
                         input=VOLUME_TABLE.replace("/dev/test/hdd ", "/dev/test/hdd2 "))
    assert "has no dm-hybrid superblock" in said
    # dm has put the new table in place; the volume waits for one that works.
    stack.load("vol", vol)
    assert stack.table() == vol
    assert io(stack.guest, dev, "r:0:8") == ["a"]


@pytest.mark.parametrize("field, value, why", [
    (VERSION, struct.pack("<I", 6), "superblock: format version 6, this module knows version [0-9]"),
    (VERSION, struct.pack("<I", 8), "superblock: format version 8, this module knows version [0-9]"),
    (INCOMPAT, struct.pack("<Q", 1), "unknown format version or feature"),
    (RO_COMPAT, struct.pack("<Q", 1), "feature that allows reading only"),
    (BLOCK_SECTORS, struct.pack("<I", 100), "Superblock of the cache device is damaged|does not fit"),
    (SIZE, struct.pack("<Q", 1 << 40), "does not fit the device|damaged"),
    (SECTOR, struct.pack("<Q", 8), "damaged|does not fit the device"),
    (ROLE, struct.pack("<I", 77), "superblock: role"),
], ids=["older", "newer", "incompat", "ro_compat", "block_size", "size", "place", "role"])
def test_bad_superblocks_of_the_cache_device(stack, field, value, why):
    stack.deactivate()
    disk = stack.disk("ssd")
    good = list(superblocks(disk))
    patch(disk, field, value)
    assert re.search(why, stack.create_refused(POOL_TABLE))
    for at, block in good:
        disk.write(at, block)
    stack.guest.dm_create("pool", POOL_TABLE)


def test_one_superblock_may_be_bad(stack):
    stack.deactivate()
    disk = stack.disk("ssd")
    good = list(superblocks(disk))
    for at, block in good:
        disk.write(at, bytes(4096))
        stack.guest.dm_create("pool", POOL_TABLE)
        stack.guest.dm_create("vol", VOLUME_TABLE)
        stack.guest.dm_remove("vol", "pool")
        disk.write(at, block)
    patch(disk, 112, b"x", fix_crc=False)	# the name
    assert "Superblock of the cache device is damaged" in stack.create_refused(POOL_TABLE)


@pytest.mark.kernels
def test_damaged_metadata_is_refused_by_name(stack):
    """P6: never used, never repaired at boot."""
    stack.deactivate()
    disk = stack.disk("ssd")
    at = 8 * 512 * 256		# behind the head: both roots
    roots = disk.read(at, 8192)
    assert roots[:4] == b"Root"
    disk.write(at, bytes(8192))
    said = stack.create_refused(POOL_TABLE)
    assert "cannot load the metadata: no valid root" in said
    disk.write(at, roots)
    stack.guest.dm_create("pool", POOL_TABLE)
    stack.guest.dm_create("vol", VOLUME_TABLE)


@pytest.mark.parametrize("field, value, why", [
    (POOL, b"other pool uuid!", "belongs to another pool"),
    (MEMBER, b"other member uui", "is another member"),
    (PAIRING_KEY, b"another secret!!", "carries another pairing key"),
    (ROLE, struct.pack("<I", 3), "is not an origin"),
    (VERSION, struct.pack("<I", 9), "is not of format version "),
], ids=["pool", "member", "key", "role", "version"])
def test_foreign_origins(stack, field, value, why):
    stack.guest.dm_remove("vol")
    disk = stack.disk("hdd")
    good = list(superblocks(disk))
    patch(disk, field, value)
    assert why in stack.create_refused(VOLUME_TABLE)
    for at, block in good:
        disk.write(at, block)
    stack.guest.dm_create("vol", VOLUME_TABLE)


@pytest.mark.kernels
def test_origin_written_without_its_cache(stack):
    """Another nonce: clean data is dropped, dirty data is refused."""
    dev = "/dev/mapper/vol"
    io(stack.guest, dev, "w:0:128:a")
    assert stack.status()["cached"] == 1
    stack.guest.dm_remove("vol")
    patch(stack.disk("hdd"), NONCE, b"\1\2\3\4\5\6\7\7")
    stack.guest.dm_create("vol", VOLUME_TABLE)
    assert stack.status()["cached"] == 0
    assert io(stack.guest, dev, "r:0:128") == ["a"]
    stack.message("mode", "writeback")
    io(stack.guest, dev, "w:0:128:b", "f")
    stack.guest.dm_remove("vol")
    patch(stack.disk("hdd"), NONCE, b"\1\2\3\4\5\6\7\6")
    assert "was written without its cache, which holds newer data of it" in \
        stack.create_refused(VOLUME_TABLE)


def in_place(pool, number, sectors, mode="writethrough"):
    """dmsetup's message for a volume in place."""
    ident = f"0000000{number}-{{}}-2222-3333-000000000000"
    return (f"dmsetup message {pool} 0 create_volume {number} {ident.format(1111)} v{number} "
            f"{ident.format(4444)} {KEY} 0 {sectors} {mode} 0 inplace")


def two_pools(make_stack):
    """Both have a volume 5 in place, of the same disk."""
    s = make_stack(ssd=32, ssd2=32, a=32, b=32, hdd=32)
    s.origin = "a"
    s.create("one")
    s.cache, s.origin, s.pool = "ssd2", "b", "pool2"
    s.create("two")
    for pool in "pool", "pool2":
        s.guest.run(in_place(pool, 5, s.disk("hdd").sectors))
    return s


def test_an_origin_in_two_pools(make_stack):
    """In place nothing on it says whose it is: neither pool would know of the other's writes."""
    s = two_pools(make_stack)
    size = s.disk("hdd").sectors
    tables = [f"0 {size} hybrid /dev/mapper/{pool} 5 /dev/test/hdd 1 inplace" for pool in ("pool", "pool2")]
    s.guest.dm_create("vol", tables[0])
    used = "Origin is in use by another volume"
    assert used in s.create_refused(tables[1])
    # Nor by a table that nobody resumes, nor by a reload; one of the same volume is taken.
    assert used in s.refused("dmsetup load vol", input=tables[1] + "\n")
    s.load("vol", tables[0])
    s.guest.run("dmsetup create idle --notable")
    assert used in s.refused("dmsetup load idle", input=tables[1] + "\n")
    assert used in s.create_refused(tables[0].replace("pool 5", "pool2 5"))
    s.guest.dm_remove("vol", "idle")
    # Free again: a table that is only loaded holds it, too.
    s.guest.run("dmsetup create idle --notable; dmsetup load idle", input=tables[1] + "\n")
    assert used in s.create_refused(tables[0])
    s.guest.dm_remove("idle")
    # And a pool does not get what a volume has.
    s.guest.dm_create("vol", tables[1])
    s.guest.run("dd if=/dev/test/ssd of=/dev/test/hdd bs=1M count=1 conv=fsync,notrunc status=none")
    s.guest.run("dd if=/dev/test/ssd of=/dev/test/hdd bs=1M skip=31 seek=31 conv=fsync,notrunc status=none")
    assert "Cache device is the origin of a volume" in s.create_refused(
        f"0 {size} hybrid-pool /dev/test/hdd 128 0 c2q 0")
    s.guest.dm_remove("vol")


def test_two_pools_race_for_an_origin(make_stack):
    """However they meet, one of them gets it."""
    s = two_pools(make_stack)
    size = s.disk("hdd").sectors
    s.script(f"""for n in $(seq 20); do
        for p in pool pool2; do
            dmsetup create race-$p --table "0 {size} hybrid /dev/mapper/$p 5 /dev/test/hdd 1 inplace" 2>/dev/null &
        done
        wait
        [ $(dmsetup ls | grep -c race-) = 1 ]
        dmsetup remove $(dmsetup ls | grep -o 'race-[a-z0-9]*')
    done""")


def test_a_volume_on_a_volume(make_stack):
    """Not on one of its own pool; on another pool's it may stand."""
    s = make_stack(ssd=32, ssd2=32, hdd=32, b=32)
    dev = s.create("vol")
    size = int(s.guest.run(f"blockdev --getsz {dev}").out)
    s.cache, s.origin, s.pool = "ssd2", "b", "pool2"
    s.create("two")
    for pool in "pool", "pool2":
        s.guest.run(in_place(pool, 5, size))
    table = f"0 {size} hybrid /dev/mapper/{{}} 5 {dev} 1 inplace"
    why = "Origin is a volume of the same pool"
    assert why in s.create_refused(table.format("pool"))
    s.guest.run("dmsetup create idle --notable")
    assert why in s.refused("dmsetup load idle", input=table.format("pool") + "\n")
    s.guest.dm_remove("idle")
    top = s.guest.dm_create("top", table.format("pool2"))
    assert io(s.guest, top, "w:0:64:a", "f", "r:0:64") == ["a"]
    assert io(s.guest, dev, "r:0:64") == ["a"]
    s.guest.dm_remove("top")
    # The upper one first: the lower device is not yet a volume.
    s.guest.dm_create("low", f"0 {size} linear /dev/test/b 2048")
    s.guest.dm_remove("two")
    s.guest.run("dmsetup message pool 0 delete_volume 5; dmsetup message pool 0 forget_volume 5")
    s.guest.run(in_place("pool", 6, size) + "; " + in_place("pool", 7, size))
    s.guest.dm_create("upper", f"0 {size} hybrid /dev/mapper/pool 6 /dev/mapper/low 1 inplace")
    assert "Device is the origin of a volume of the same pool" in s.refused(
        "dmsetup load low", input=f"0 {size} hybrid /dev/mapper/pool 7 /dev/test/b 1 inplace\n")
    assert "Origin is the volume itself" in s.refused(
        "dmsetup load upper", input=f"0 {size} hybrid /dev/mapper/pool 6 /dev/mapper/upper 1 inplace\n")
    assert io(s.guest, "/dev/mapper/upper", "w:0:8:b", "r:0:8") == ["b"]
    s.guest.dm_remove("upper", "low")


@pytest.mark.parametrize("command", ["create", "attach"])
def test_sectors_of_the_cache_in_front_of_a_filesystem(make_stack, command):
    """It was made for those of its disk, and could not be mounted by the volume."""
    s = make_stack(ssd=32, b=32, hdd=32)
    s.guest.run("modprobe -q loop; dev=$(losetup -f --show -b 4096 $(readlink -f /dev/test/ssd)) && "
                "ln -sf $dev /dev/test/ssd && mkfs.ext4 -q -b 1024 /dev/test/hdd")
    words = ["--origin", "/dev/test/hdd", "--in-place", "--yes", "--wipe-signatures"]
    before = s.guest.run("md5sum </dev/test/hdd").out
    if command == "attach":
        s.origin = "b"
        s.create("other")
        words = ["attach", "pool", "vol", *words]
    else:
        words = ["create", "vol", "--cache", "/dev/test/ssd", *words]
    r = s.guest.run(["hybridctl", *words], check=False)
    assert r.rc == 2 and "/dev/test/hdd is used with sectors of 512 bytes" in r.err, r.text
    assert "vol" not in s.guest.run("dmsetup ls").out.split()
    # What the refusal is about
    s.guest.run(["hybridctl", *words, "--force"])
    assert s.guest.run("mount /dev/mapper/vol /mnt", check=False).rc
    assert s.guest.run("md5sum </dev/test/hdd").out == before
    s.guest.dm_remove("vol")
    s.guest.run("mount /dev/test/hdd /mnt && umount /mnt")
