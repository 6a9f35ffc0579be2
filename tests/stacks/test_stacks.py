# SPDX-License-Identifier: GPL-2.0-or-later
"""Stacks of real users: built by the scripts in examples/, filled, power-cycled, verified.

`make check-stacks`; each test says of which stack it is in its first line.
"""
import subprocess
from pathlib import Path

import pytest

from boot import debian
from guest import packaged
from stacks import zfs as real_zfs
from stacks.machine import random_reads

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.stacks


def files(*names):
    """For fio: what fill() made in each."""
    return "--filename=" + ":".join(f"/srv/{name}/file{n}" for name in names for n in range(1, 5))


def test_raid0_xfs(machine):
    """14 disks in RAID0, XFS"""
    m = machine(hdd=14, hdd_mib=64, ssd_mib=256)
    m.example("raid0-xfs.sh", "create", DISKS=m.paths("hdd"), CACHE=m.paths("ssd"))
    m.example("raid0-xfs.sh", "mount")
    # mkfs.xfs heeds them where the array is not as small as this
    assert m.run("blockdev --getiomin --getioopt /dev/mapper/big").split() == [
        str(256 << 10), str(14 * 256 << 10)]
    sums = m.fill("/srv/big", 160)
    work = random_reads(files("big"), 4000)
    warm = m.warm(work)

    # The cache goes and comes while files are written and read
    load = m.guest.run_bg("cd /tmp; until test -e stop; do fio --name=load --directory=/srv/big --size=8m "
                          "--rw=randrw --bs=16k --direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c "
                          "|| exit 1; done")
    for verb in "pause", "resume", "detach", "attach":
        m.run("sleep 1")
        m.example("raid0-xfs.sh", verb)
        assert m.states()["big"] == ("no-cache" if verb == "detach" else "running")
        # ... and those of the load, behind
        assert m.sums("/srv/big").startswith(sums)
    assert load.poll() is None, load.wait(0).text
    m.run("touch /tmp/stop")
    done = load.wait(300)
    assert done.rc == 0, done.text
    m.run("rm /srv/big/load*; sync")

    m.power_cycle("mdadm --assemble --scan", "hybridctl activate --all")
    assert m.states() == {"big-pool": "running", "big": "running"}
    m.example("raid0-xfs.sh", "mount")
    assert m.sums("/srv/big") == sums
    m.example("raid0-xfs.sh", "detach")
    assert m.sums("/srv/big") == sums
    # The disks alone, after a boot
    m.power_cycle("mdadm --assemble --scan", "hybridctl activate --all")
    assert m.states() == {"big-pool": "running", "big": "no-cache"}
    m.example("raid0-xfs.sh", "mount")
    assert m.sums("/srv/big") == sums
    m.report("(c) 14 disks RAID0 + XFS", "4,000 random reads", m.measure(work), warm)


VOLUMES = {"mail": "writeback", "photos": "writethrough", "video": "writearound",
           "backup": "passthrough"}


def four(m, script, lines, pools):
    """Four volumes by a script: filled, measured, verified, cycled, verified, parted, verified."""
    m.example(script, "create", VOLUMES="\n".join(lines), **pools)
    m.example(script, "mount", VOLUMES="\n".join(lines))
    modes = {name: m.rows()[name]["mode"] for name in VOLUMES}
    sums = [m.fill(f"/srv/{name}", 24) for name in VOLUMES]
    work = random_reads(files(*VOLUMES), 1600)
    warm = m.warm(work)
    hits = {name: int(m.run(f"hybridctl get {name} read_hits")) for name in VOLUMES}
    m.power_cycle("hybridctl activate --all")
    assert set(m.states().values()) == {"running"}
    assert modes == {name: m.rows()[name]["mode"] for name in VOLUMES}
    m.example(script, "mount", VOLUMES="\n".join(lines))
    assert [m.sums(f"/srv/{name}") for name in VOLUMES] == sums
    for name in VOLUMES:
        m.run(f"umount /srv/{name}")
        m.detach(name)
    m.example(script, "mount", VOLUMES="\n".join(lines))
    assert [m.sums(f"/srv/{name}") for name in VOLUMES] == sums
    return modes, hits, m.measure(work), warm


def test_four_volumes(machine):
    """Four volumes with modes of their own on one pool"""
    m = machine(hdd=4, hdd_mib=64, ssd_mib=160)
    lines = [f"{name} /dev/mapper/hdd{n} {mode}" for n, (name, mode) in enumerate(VOLUMES.items())]
    modes, hits, bare, warm = four(m, "four-volumes.sh", lines, {"CACHE": m.paths("ssd")})
    assert modes == VOLUMES
    # Nothing of the one in passthrough is cached, and most of what the others are asked for
    assert not hits["backup"] and min(hits[n] for n in VOLUMES if n != "backup") > 300, hits
    m.report("(d) four volumes, one pool", "1,600 random reads, 1/4 passthrough", bare, warm)


def test_four_slices(machine):
    """Four slices of an SSD, each the cache of one volume"""
    m = machine(hdd=4, hdd_mib=64, ssd=4, ssd_mib=48)
    lines = [f"{name} /dev/mapper/hdd{n} /dev/mapper/ssd{n}" for n, name in enumerate(VOLUMES)]
    modes, hits, bare, warm = four(m, "four-slices.sh", lines, {})
    assert set(modes.values()) == {"writeback"} and min(hits.values()) > 300, hits
    m.report("(d) four slices, one volume each", "1,600 random reads", bare, warm)


def lvm(m, script, names, last, up, **variables):
    """As four(), of what LVM has a part in."""
    m.example(script, "create", **variables)
    m.example(script, "mount", **variables)
    sums = [m.fill(f"/srv/{name}", 24) for name in names]
    work = random_reads(files(*names), 1600)
    warm = m.warm(work)
    assert [m.sums(f"/srv/{name}") for name in names] == sums
    m.power_cycle(*up)
    m.run(f"until test -b {last}; do sleep 0.1; done")
    assert set(m.states().values()) == {"running"}
    m.example(script, "mount", **variables)
    assert [m.sums(f"/srv/{name}") for name in names] == sums
    return sums, work, warm


def alone(m, script, name, sums):
    """The same on the disk without its cache."""
    m.run(f"umount /srv/{name}")
    m.detach(name)
    m.example(script, "mount")
    assert m.sums(f"/srv/{name}") == sums


@pytest.mark.check
def test_lvm_on_volume(machine):
    """LVM on a volume, brought up by udev and systemd; this one is in make check"""
    m = machine(hdd_mib=160, ssd_mib=96, udev=True)
    names, env = ["root", "home"], {"SIZES": "root=48m home=64m"}
    sums, work, warm = lvm(m, "lvm-on-volume.sh", names, "/dev/vg0/home",
                           ["hybridctl activate --all", "vgchange -ay vg0"], DISK="/dev/mapper/hdd0", CACHE="/dev/mapper/ssd0", **env)
    assert m.run("pvs --noheadings -o pv_name").split() == ["/dev/mapper/lvmdisk"]
    m.run("umount /srv/root /srv/home; vgchange -an vg0")
    m.detach("lvmdisk")
    m.run("vgchange -ay vg0")
    m.example("lvm-on-volume.sh", "mount", **env)
    assert [m.sums(f"/srv/{name}") for name in names] == sums
    m.report("(e) LVM on a volume", "1,600 random reads", m.measure(work), warm)


def test_volume_on_lvm(machine):
    """A volume on LVM"""
    m = machine(hdd_mib=160, ssd_mib=96)
    m.run("vgcreate disks /dev/mapper/hdd0; vgcreate ssd /dev/mapper/ssd0")
    sums, work, warm = lvm(m, "volume-on-lvm.sh", ["home"], "/dev/mapper/home",
                           ["vgchange -ay", "hybridctl activate --all"], SIZE="120m", CACHE_SIZE="64m")
    alone(m, "volume-on-lvm.sh", "home", sums[0])
    m.report("(e) a volume on LVM", "1,600 random reads", m.measure(work), warm)


def test_big_files(machine):
    """A file larger than RAM, read again and again"""
    m = machine(hdd_mib=384, ssd_mib=384, memory=224)
    m.example("big-files.sh", "create", DISK="/dev/mapper/hdd0", CACHE="/dev/mapper/ssd0")
    m.example("big-files.sh", "mount")
    sums = m.fill("/srv/media", 288, files=1)
    assert int(m.run("awk '/MemTotal/ { print $2 }' /proc/meminfo")) < 288 << 10
    work = "dd if=/srv/media/file1 of=/dev/null bs=1M"
    warm = m.warm(work)
    assert m.run("hybridctl get media bypass_sequential").strip() == "0"
    m.power_cycle("hybridctl activate --all")
    m.example("big-files.sh", "mount")
    assert m.sums("/srv/media") == sums
    alone(m, "big-files.sh", "media", sums)
    m.report("(h) a file larger than RAM", "288 MiB in sequence, 224 MiB of RAM", m.measure(work), warm)


def test_guests(machine):
    """Images of 12 guests that start at once"""
    m = machine(hdd_mib=320, ssd_mib=256)
    m.example("guests.sh", "create", DISK="/dev/mapper/hdd0", CACHE="/dev/mapper/ssd0", MODE="passthrough")
    m.example("guests.sh", "mount")
    # Installed long ago: nothing of them is cached
    sums = m.fill("/srv/images", 240, files=12)
    m.run("hybridctl set images mode=writeback")
    # Each reads 6 of its 20 MiB, in pieces of 4 to 128 KiB, one after the other
    work = ("cd /tmp; fio --rw=randread --bsrange=4k-128k --direct=1 --io_size=6m --randseed=2026 " +
            " ".join(f"--name=guest{n} --filename=/srv/images/file{n}" for n in range(1, 13)))
    warm = m.warm(work)
    m.power_cycle("hybridctl activate --all")
    m.example("guests.sh", "mount")
    warm_again = m.measure(work)
    assert warm_again[1] < m.cold[1] / 4, (m.cold, warm, warm_again)
    assert m.sums("/srv/images") == sums
    alone(m, "guests.sh", "images", sums)
    m.report("(g) 12 guests start at once", "6 MiB of each image, at random", m.measure(work), warm_again)


def test_nbd(machine):
    """A disk over the network, lost and back"""
    m = machine(hdd_mib=160, ssd_mib=96)
    # The server is the same machine: what it exports must not be seen twice, as hdd0 and as nbd0
    only = {"HYBRID_SCAN_ONLY": "nbd0 " + m.run("dmsetup info -c --noheadings -o blkdevname ssd0").strip()}
    m.guest.env |= only
    where = {"SERVER": "-unix /run/nbd", "EXPORT": "disk", **only}

    def server():
        m.guest.write_file("/run/nbd.conf", "[generic]\nunixsock=/run/nbd\n"
                           "[disk]\nexportname=/dev/mapper/hdd0\nflush=true\n")
        m.run("nbd-server -C /run/nbd.conf; until test -S /run/nbd; do sleep 0.1; done")

    server()
    m.example("nbd.sh", "connect", **where)
    m.example("nbd.sh", "create", CACHE="/dev/mapper/ssd0")
    m.example("nbd.sh", "mount")
    sums = m.fill("/srv/remote", 64)
    work = random_reads(files("remote"), 1600)
    warm = m.warm(work)
    m.run(f"{work}; hybridctl drain remote")

    # The server dies. What is cached can be read, and be written
    m.run("pkill -9 -x nbd-server; rm -f /run/nbd")
    assert m.guest.run("dd if=/dev/nbd0 of=/dev/null bs=4k count=1 iflag=direct", check=False).rc
    m.run(work)
    first = "dd if=/srv/remote/file1 bs=8k count=1 iflag=direct | sha256sum"
    m.run("dd if=/dev/urandom of=/srv/remote/file1 bs=8k count=1 conv=notrunc,fsync")
    new = m.run(first)
    assert int(m.run("hybridctl get remote dirty")) > 0

    # And is back: nothing was lost
    server()
    m.example("nbd.sh", "again", **where)
    m.run("hybridctl drain remote")
    assert m.run(first) == new
    assert m.sums("/srv/remote").splitlines()[1:] == sums.splitlines()[1:]
    sums = m.sums("/srv/remote")

    # A boot without the server: the volume waits for it
    m.power_cycle("hybridctl activate --all || test $? = 7")
    assert m.states().get("remote") != "running"
    server()
    m.example("nbd.sh", "connect", **where)
    m.run("hybridctl activate --all")
    m.example("nbd.sh", "mount")
    assert m.sums("/srv/remote") == sums
    alone(m, "nbd.sh", "remote", sums)
    m.report("(f) a disk over the network", "1,600 random reads", m.measure(work), warm)


PG = "/usr/lib/postgresql/15/bin"
LEDGER = """select (select sum(abalance) from pgbench_accounts) = sum(delta) and
    (select sum(tbalance) from pgbench_tellers) = sum(delta) and
    (select sum(bbalance) from pgbench_branches) = sum(delta), count(*) from pgbench_history"""


class Database:
    """PostgreSQL in /srv/db, with checksums, and the load of pgbench: four clients, small commits."""

    def __init__(self, m):
        self.m = m

    def run(self, command, **kw):
        return self.m.run(["runuser", "-u", "postgres", "--", "sh", "-ec",
                           f"cd /tmp; PATH={PG}:$PATH; export PGHOST=/tmp; {command}"], **kw)

    def make(self):
        self.m.run("install -d -o postgres /srv/db/pg")
        self.run("initdb --data-checksums --no-sync -D /srv/db/pg >/dev/null; "
                 "echo 'shared_buffers=16MB' >>/srv/db/pg/postgresql.conf", timeout=200)
        self.start()
        self.run("pgbench -q -i -s 3 postgres", timeout=200)

    def start(self):
        self.run("pg_ctl -D /srv/db/pg -l /tmp/pg.log -o '-k /tmp -h \"\"' -w -t 200 start", timeout=300)

    def stop(self):
        self.run("pg_ctl -D /srv/db/pg -w stop", timeout=200)

    def load(self, transactions=800):
        return (f"runuser -u postgres -- env PGHOST=/tmp {PG}/pgbench -n -c 4 -t {transactions // 4} "
                f"--random-seed=2026 postgres")

    def transactions(self):
        """How many there are in the books, which must balance."""
        balances, count = self.run(f'psql -At postgres -c "{LEDGER}"').strip().split("|")
        assert balances == "t"
        return int(count)


def test_raid10_luks_ext4(machine):
    """RAID10, LUKS, ext4, PostgreSQL"""
    m = machine(hdd=4, hdd_mib=192, ssd_mib=256, memory=512)
    m.run("printf secret >/run/key")
    env = {"KEY": "/run/key", "LUKS": "--pbkdf pbkdf2 --pbkdf-force-iterations 1000"}
    m.example("raid10-luks-ext4.sh", "create", DISKS=m.paths("hdd"), CACHE=m.paths("ssd"), **env)
    m.example("raid10-luks-ext4.sh", "mount", **env)
    m.run("mdadm --wait /dev/md/db", check=False, timeout=200)
    sums = m.fill("/srv/db/files", 32)
    db = Database(m)
    db.make()
    warm = m.warm(db.load())
    assert db.transactions() == 1600

    # The power goes while transactions are committed; what was acknowledged is there
    acked = m.directory / "guest0/acked"
    acked.mkdir(mode=0o777)
    acked.chmod(0o777)
    job = m.guest.run_bg(f"cd {acked}; while :; do {db.load(40)} >/dev/null && echo >>done; done")
    m.guest.run(f"until test -s {acked}/done && test $(wc -l <{acked}/done) -ge 5; do sleep 0.1; done",
                timeout=200)
    assert not job.poll()
    m.power_cycle("mdadm --assemble --scan", "hybridctl activate --all", "printf secret >/run/key")
    m.example("raid10-luks-ext4.sh", "mount", **env)
    assert m.sums("/srv/db/files") == sums
    db.start()
    assert db.transactions() >= 1600 + 40 * len((acked / "done").read_text().split("\n")[:-1])
    db.stop()
    db.run("pg_checksums --check -D /srv/db/pg", timeout=200)

    # Its files, bit for bit, after another cut and from the disks alone
    m.run("sync")
    sums = m.sums("/srv/db")
    m.power_cycle("mdadm --assemble --scan", "hybridctl activate --all", "printf secret >/run/key")
    m.example("raid10-luks-ext4.sh", "mount", **env)
    assert m.sums("/srv/db") == sums
    m.run("umount /srv/db; cryptsetup close db")
    m.detach("db-cached")
    m.example("raid10-luks-ext4.sh", "mount", **env)
    assert m.sums("/srv/db") == sums
    db.start()
    m.report("(a) RAID10 + LUKS + ext4 + PostgreSQL", "800 transactions of pgbench, 4 clients",
             m.measure(db.load()), warm)


@pytest.fixture(scope="session")
def newer_blkid(tmp_path_factory):
    """blkid of Debian 13 (libblkid 2.41), with the libraries that it wants."""
    root = tmp_path_factory.mktemp("trixie")
    try:
        tar = debian.packages("trixie")
    except (debian.Missing, packaged.Missing) as e:
        pytest.fail(str(e), pytrace=False)
    subprocess.run(["tar", "-C", root, "-xf", tar, "./usr/sbin/blkid", "--wildcards",
                    "./usr/lib/x86_64-*/lib*.so*", "./usr/lib/x86_64-*/ld-*"], check=True)
    lib = root / "usr/lib/x86_64-linux-gnu"
    return f"{lib}/ld-linux-x86-64.so.2 --library-path {lib} {root}/usr/sbin/blkid"


def seen_right(m, newer_blkid):
    """ZFS is on the volume, and on nothing else, to both of them."""
    expected = {**dict.fromkeys(m.paths("hdd").split(), "linux_raid_member"),
                "/dev/md/tank": "", "/dev/mapper/ssd0": "", "/dev/mapper/tank-cached": "zfs_member"}
    for blkid, version in ("blkid", "2.38"), (newer_blkid, "2.41"):
        assert version in m.run(f"{blkid} -V 2>&1")
        for dev, kind in expected.items():
            r = m.guest.run(f"{blkid} -p -o value -s TYPE {dev}", check=False)
            assert (r.out.strip(), r.rc) == (kind, 0 if kind else 2), (blkid, dev, r)


def test_zfs_labels(machine, newer_blkid):
    """RAID10, ZFS's labels on the volume: for where its packages cannot be had"""
    m = machine(hdd=4, hdd_mib=64, ssd_mib=64)
    zpool = {"PATH": f"{HERE}:{m.guest.env['PATH']}"}
    m.example("raid10-zfs.sh", "create", DISKS=m.paths("hdd"), CACHE=m.paths("ssd"), **zpool)
    seen_right(m, newer_blkid)
    sums = m.run("sha256sum </dev/mapper/tank-cached")
    m.power_cycle("mdadm --assemble --scan", "hybridctl activate --all")
    seen_right(m, newer_blkid)
    assert m.run("sha256sum </dev/mapper/tank-cached") == sums
    m.detach("tank-cached")
    seen_right(m, newer_blkid)
    assert m.run("sha256sum </dev/mapper/tank-cached") == sums


@pytest.fixture(scope="session")
def zfs():
    """The commands that load it, in a guest with Debian's own kernel."""
    try:
        return real_zfs.ready()
    except packaged.Missing as e:
        pytest.skip(f"apt cannot give ZFS: {e}")
    except debian.Missing as e:
        pytest.fail(str(e), pytrace=False)


def scrub(m):
    """ZFS reads all that it has, and finds it right; its device is the volume as it is."""
    m.run("zpool scrub -w tank", timeout=400)
    status = m.run("zpool status -P tank")
    for good in "scrub repaired 0B", "with 0 errors", "/dev/mapper/tank-cached  ONLINE       0     0     0", \
            "No known data errors":
        assert good in status, status


def test_raid10_zfs(machine, zfs, newer_blkid):
    """RAID10, ZFS on the volume"""
    m = machine("make_qemu_guest", hdd=4, hdd_mib=128, ssd_mib=128)
    m.run(zfs)
    m.example("raid10-zfs.sh", "create", DISKS=m.paths("hdd"), CACHE=m.paths("ssd"))
    # As if files were far larger than RAM: what is read is read from the volume
    m.run("zfs set recordsize=8k primarycache=metadata tank; zfs create tank/new; mdadm --wait /dev/md/tank || :",
          timeout=200)
    sums = m.fill("/srv/tank", 64)
    seen_right(m, newer_blkid)
    work = random_reads(files("tank"), 1600, jobs=1)
    warm = m.warm(work)

    # The power goes while files are written; what was acknowledged is there
    acked = m.directory / "guest0/acked"
    acked.mkdir()
    job = m.guest.run_bg(f"cd /srv/tank/new; while :; do f=$(mktemp XXXXXX); dd if=/dev/urandom of=$f bs=64k count=1 "
                         f"conv=fsync && sha256sum $f >>{acked}/sums; done")
    m.guest.run(f"until test -s {acked}/sums && test $(wc -l <{acked}/sums) -ge 20; do sleep 0.1; done",
                timeout=200)
    assert not job.poll()
    m.power_cycle(zfs, "mdadm --assemble --scan")
    # Beneath the volume there is nothing that ZFS would take for its own
    seen = m.guest.run("zpool import -d /dev/md/tank -d /dev/mapper/ssd0", check=False).text
    assert "no pools available" in seen, seen
    m.run("hybridctl activate --all")
    m.example("raid10-zfs.sh", "import")
    m.run(f"cd /srv/tank/new; sha256sum --quiet -c {acked}/sums", timeout=200)
    assert m.sums("/srv/tank").startswith(sums)
    scrub(m)
    sums = m.sums("/srv/tank")

    # From the disks alone
    m.run("zpool export tank")
    m.detach("tank-cached")
    seen_right(m, newer_blkid)
    m.example("raid10-zfs.sh", "import")
    assert m.sums("/srv/tank") == sums
    scrub(m)
    m.report("(b) RAID10 + ZFS", "1,600 random reads, one by one", m.measure(work), warm)
