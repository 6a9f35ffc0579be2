# SPDX-License-Identifier: GPL-2.0-or-later
"""hybridctl doctor, on a system that lies on a volume."""
import pytest


# mk COMMAND...: packs /image as the system's initramfs
MK = """#!/bin/sh -e
cd /image
find . | cpio -o -H newc --quiet | "$@" >/mnt/boot/initrd.img-6.1
"""
SYSTEM = """
    mkdir -p /mnt/boot/grub /mnt/etc /mnt/lib/modules/6.1 /mnt/usr/lib/udev/rules.d /mnt/usr/sbin
    mkdir -p /image/sbin /image/lib /image/scripts/local-block
    cd /image; touch sbin/hybridctl lib/dm-hybrid.ko lib/dm-hybrid-c2q.ko lib/crc32c_generic.ko
    touch 62-dm-hybrid-member.rules scripts/local-block/dm-hybrid
    mkdir -p etc/hybrid /mnt/etc/hybrid; cp -p /etc/hybrid/hybrid.conf etc/hybrid; cp -p /etc/hybrid/hybrid.conf /mnt/etc/hybrid
    cd /mnt/lib/modules/6.1
    touch dm-hybrid.ko /mnt/usr/sbin/hybridctl
    printf 'dm-hybrid.ko: dm-mod.ko\\ndm-hybrid-c2q.ko:\\nkernel/crc32c_generic.ko:\\n' | sed 's,^dm-hy,./&,' >modules.dep
    touch /mnt/boot/vmlinuz-6.1 /mnt/usr/lib/udev/rules.d/62-dm-hybrid-member.rules
    echo '/dev/mapper/data /data ext4 nofail 0 0' >/mnt/etc/fstab
    chmod +x /mk; /mk gzip
"""
REMAKE = "/mk gzip"


@pytest.fixture
def guest(build, make_guest, disks):		# noqa: F811
    guest = make_guest(disks=disks("ssd", 64, "hdd", 100, "hddb", 32, "hddc", 100),
                       modprobe=["dm-testdisk", "dm-hybrid"])
    sectors = guest.disks[0].sectors
    guest.dm_create("fast", f"0 {sectors} volatile /dev/test/ssd 0")
    guest.run("hybridctl create vol --cache /dev/mapper/fast --origin /dev/test/hdd -y && "
              "hybridctl attach vol-pool data --origin /dev/test/hddb -y && "
              "mkfs.ext4 -q /dev/mapper/vol && mount /dev/mapper/vol /mnt && "
              "mkfs.ext4 -q -U 0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa /dev/mapper/data")
    guest.write_file("/mk", MK)
    guest.run(["sh", "-ec", SYSTEM])
    return guest


def doctor(guest, code=7, where="/mnt"):
    r = guest.run(f"hybridctl doctor {where}", check=False)
    assert r.rc == code, r.text
    return r.text


def link(guest, name, device):
    """A UUID or a label is looked up by udev's links alone."""
    guest.run(f"mkdir -p /dev/disk/{name.rpartition('/')[0]} && ln -s {device} /dev/disk/{name}")


def is_noticed(guest, do, undo, says):
    guest.run(f"cd /mnt && {do}")
    out = doctor(guest)
    assert says in out and "may not come up" in out and "next:" in out, out
    guest.run(f"cd /mnt && {undo}")


def check_good(guest, where="/mnt"):
    out = doctor(guest, 0, where)
    assert "The root will come up." in out and "problem" not in out, out


def test_what_an_image_must_have(guest):
    check_good(guest)
    for file in ("sbin/hybridctl", "lib/dm-hybrid.ko", "lib/dm-hybrid-c2q.ko", "lib/crc32c_generic.ko",
                 "62-dm-hybrid-member.rules", "scripts/local-block/dm-hybrid", "etc/hybrid/hybrid.conf"):
        is_noticed(guest, f"mv /image/{file} /tmp/away && {REMAKE}",
                   f"mv /tmp/away /image/{file} && {REMAKE}",
                   "has no " + {"sbin/hybridctl": "/hybridctl", "lib/dm-hybrid.ko": "/dm-hybrid.ko",
                                "lib/dm-hybrid-c2q.ko": "/dm-hybrid-c2q.ko",
                                "lib/crc32c_generic.ko": "/crc32c",
                                "etc/hybrid/hybrid.conf": "/hybrid/hybrid.conf",
                                "scripts/local-block/dm-hybrid": "/hybrid-activate"}.get(file, file))
    # dracut's script, another crc32c, and no such module where it is built in
    guest.run("cd /image && mv scripts/local-block/dm-hybrid sbin/hybrid-activate && "
              "mv lib/crc32c_generic.ko lib/crc32c-intel.ko && /mk gzip")
    check_good(guest)
    guest.run(f"cd /mnt && rm /image/lib/crc32c-intel.ko && sed -i /crc32c/d lib/modules/6.1/modules.dep && {REMAKE}")
    check_good(guest)


def test_every_kind_of_image(guest):
    for pack in ("cat", "gzip", "zstd", "xz --check=crc32", "bzip2", "lz4 -l"):
        if guest.run(f"command -v {pack.split()[0]}", check=False).rc == 0:
            guest.run(f"/mk {pack}")
            check_good(guest)
    # Microcode before it
    guest.run(["sh", "-ec", """
        mkdir -p /early/kernel/x86/microcode; cd /early; touch kernel/x86/microcode/GenuineIntel.bin
        /mk zstd; cd /early; i=/mnt/boot/initrd.img-6.1
        (find . | cpio -o -H newc --quiet; cat $i) >/tmp/both; cat /tmp/both >$i"""])
    check_good(guest)
    for name in ("initramfs-6.1.img", "initrd-6.1", "../lib/modules/6.1/initrd"):
        guest.run(f"cd /mnt/boot && mv initrd.img-6.1 {name}")
        check_good(guest)
        guest.run(f"cd /mnt/boot && mv {name} initrd.img-6.1")
    is_noticed(guest, "cp boot/initrd.img-6.1 . && echo nonsense >boot/initrd.img-6.1",
               "cat initrd.img-6.1 >boot/initrd.img-6.1", "cannot list the contents of")
    check_good(guest)


def test_what_keeps_a_root_from_coming_up(guest):
    for do, undo, says in [
            ("mv lib/modules/6.1/modules.dep dep", "mv dep lib/modules/6.1/modules.dep",
             "kernel 6.1 has no module dm-hybrid\n"),
            ("sed -i.old /c2q/d lib/modules/6.1/modules.dep", "mv lib/modules/6.1/modules.dep.old lib/modules/6.1/modules.dep",
             "kernel 6.1 has no module dm-hybrid-c2q\n"),
            ("mv boot/initrd.img-6.1 .", "mv initrd.img-6.1 boot", "has no initramfs"),
            ("sleep 1.1; touch usr/sbin/hybridctl", REMAKE, "is older than /mnt/usr/sbin/hybridctl"),
            ("sleep 1.1; touch lib/modules/6.1/dm-hybrid.ko", REMAKE, "dm-hybrid.ko"),
            ("touch boot/vmlinuz-6.2", "rm boot/vmlinuz-6.2", "kernel 6.2 has no"),
            ("mv boot/vmlinuz-6.1 .", "mv vmlinuz-6.1 boot", "no kernel is found"),
            ("mv usr/lib/udev/rules.d rules", "mv rules usr/lib/udev/rules.d",
             "udev rules are not installed"),
            ("echo linux /vmlinuz quiet rd.hybrid=0 >boot/grub/grub.cfg", "rm boot/grub/grub.cfg",
             "grub.cfg has rd.hybrid=0"),
            ("mkdir -p boot/loader/entries && echo options rd.hybrid.name=data "
             ">boot/loader/entries/a.conf", "echo '#rd.hybrid=0' >boot/loader/entries/a.conf",
             "not for vol"),
            ("dd if=/dev/zero of=/dev/test/hdd bs=4k seek=128 count=1 conv=notrunc,fsync "
             "status=none", "true", "one good superblock")]:
        is_noticed(guest, do, undo, says)


def test_a_root_of_another_host(guest):
    """By its own file, which the next boot reads; and one that is not to come up by itself."""
    guest.run("cp -p /mnt/etc/hybrid/hybrid.conf /mnt/saved")
    undo = f"cp -p saved etc/hybrid/hybrid.conf && {REMAKE}"
    for text, says in (("host_id = 11111111-2222-3333-4444-555555555555", "vol belongs to a host other than"),
                       ("", "vol belongs to a host other than"), ("autoactivate = none\n$(cat saved)", "come up by itself"),
                       ("autoactivate = listed\n$(cat saved)\nautoactivate_list = data", "come up by itself"),
                       ("$(cat saved)\nautoactivate = often", "of its lines are wrong")):
        is_noticed(guest, f'printf "{text}\\n" >etc/hybrid/hybrid.conf && {REMAKE}', undo, says)
    for name in "vol", "vol-pool":
        guest.run(f"cd /mnt && printf 'autoactivate = listed\nautoactivate_list = {name}\n' >>etc/hybrid/hybrid.conf && {REMAKE}")
        check_good(guest)
        guest.run(f"cd /mnt && {undo}")
    is_noticed(guest, "sleep 1.1; touch etc/hybrid/hybrid.conf", REMAKE, "is older than /mnt/etc/hybrid/hybrid.conf")


def test_an_argument_that_names_the_root(guest):
    for name in "vol", "vol-pool":
        guest.run(f"echo 'rd.hybrid.name={name} rd.hybrid.name=data' >/mnt/etc/kernel-cmdline && "
                  "mkdir -p /mnt/etc/kernel && mv /mnt/etc/kernel-cmdline /mnt/etc/kernel/cmdline")
        check_good(guest)


def test_what_holds_up_a_boot(guest):
    sectors = guest.run("blockdev --getsz /dev/mapper/data").out.strip()
    guest.dm_create("upper", f"0 {sectors} linear /dev/mapper/data 0")
    link(guest, "by-uuid/0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa", "/dev/mapper/data")
    undo = "rm -f etc/crypttab; echo >etc/fstab"
    for spec in ("/dev/mapper/data", "UUID=0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa",
                 "/dev/mapper/upper"):
        is_noticed(guest, f"echo '{spec} /data ext4 defaults 0 0' >etc/fstab", undo,
                   "/data is mounted without nofail")
        is_noticed(guest, f"echo 'crypt {spec} none luks' >etc/crypttab", undo,
                   "crypt is opened without nofail")
        guest.run(f"cd /mnt && echo '{spec} /data ext4 rw,nofail 0 0' >etc/fstab && "
                  f"echo 'crypt {spec} none luks,nofail' >etc/crypttab")
        check_good(guest)
    # Not active, and found by its name only
    guest.run("dmsetup remove upper && hybridctl deactivate data && cd /mnt && "
              "rm etc/crypttab")
    is_noticed(guest, "echo '/dev/mapper/data none swap sw 0 0' >etc/fstab", undo,
               "/dev/mapper/data is mounted without nofail")
    # What is on the root's volume is there if the root is; others are no business of ours
    guest.run("printf '%s\\n' '/dev/mapper/vol /x ext4 defaults 0 0' 'tmpfs /tmp tmpfs rw 0 0' "
              "'UUID=1 /y ext4 defaults 0 0' >/mnt/etc/fstab; "
              "echo 'crypt /dev/mapper/vol none luks' >/mnt/etc/crypttab")
    check_good(guest)


def test_an_origin_in_place_that_is_named(guest):
    """At a boot it is there before its volume, with the same UUID and label."""
    uuid = "6a1b4a9e-6f3b-4c2e-b16e-30a4d1dcbd1f"
    guest.run(f"mkfs.ext4 -q -U {uuid} -L photos /dev/test/hddc && "
              "hybridctl attach vol-pool photos --in-place --origin /dev/test/hddc -y")
    link(guest, f"by-uuid/{uuid}", "/dev/mapper/photos")
    link(guest, "by-label/photos", "/dev/mapper/photos")
    for spec in f"UUID={uuid}", "LABEL=photos":
        is_noticed(guest, f"echo '{spec} /photos ext4 nofail 0 0' >etc/fstab", "echo >etc/fstab",
                   f"/mnt/etc/fstab: {spec} may lead to the origin of photos")
        is_noticed(guest, f"echo 'crypt {spec} none nofail' >etc/crypttab", "rm etc/crypttab",
                   f"/mnt/etc/crypttab: {spec} may lead to the origin of photos")
    guest.run(f"printf '%s\\n' '/dev/mapper/photos /photos ext4 nofail 0 0' "
              f"'UUID={uuid} /by-hand ext4 noauto 0 0' "
              "'UUID=0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa /data ext4 nofail 0 0' >/mnt/etc/fstab")
    check_good(guest)


def test_usr_on_another_volume(guest):
    """As the root: it must come up, and nofail would be wrong."""
    guest.run("mkdir -p /mnt/usr /new && mount /dev/mapper/data /new && cp -r /mnt/usr/. /new && "
              "umount /new && mount /dev/mapper/data /mnt/usr && /mk gzip && "
              "echo '/dev/mapper/data /usr ext4 defaults 0 0' >/mnt/etc/fstab")
    check_good(guest)
    assert "/usr is on volume data" in doctor(guest, 0)
    # Both, or their pool
    guest.run("mkdir -p /mnt/etc/kernel")
    for name, other in ("vol", "data"), ("data", "vol"):
        is_noticed(guest, f"echo rd.hybrid.name={name} >etc/kernel/cmdline", "true", f"not for {other}")
    for names in "rd.hybrid.name=vol rd.hybrid.name=data", "rd.hybrid.name=vol-pool":
        guest.run(f"echo {names} >/mnt/etc/kernel/cmdline")
        check_good(guest)


def test_members_that_are_not_trusted(guest):
    is_noticed(guest, "dd if=/dev/test/hdd of=/dev/test/hddc bs=1M count=1 status=none",
               "dd if=/dev/zero of=/dev/test/hddc bs=1M count=1 status=none", "is refused")
    guest.dm_message("fast", "die")
    guest.run("until dmsetup status vol-pool | grep -q 'state failed'; do "
              "dd if=/dev/zero of=/mnt/file bs=4k count=4 conv=fsync; done", check=False)
    out = doctor(guest)
    assert "vol-pool is failed" in out, out


def test_a_root_elsewhere(guest):
    out = doctor(guest, 7, "/")
    assert "not on a volume" in out and "rules are not installed" in out
    guest.run("mkdir -p /other && mount -t tmpfs none /other && mkdir /other/usr && "
              "cp -r /mnt/usr/lib /other/usr")
    assert "not on a volume" in doctor(guest, 0, "/other")
    # Each kernel needs the modules, also for pools that are not active; but no initramfs
    guest.run("mkdir -p /other/boot /other/lib && cp -r /mnt/lib/modules /other/lib && touch /other/boot/vmlinuz-6.1")
    assert "kernel 6.1 has the modules" in doctor(guest, 0, "/other")
    guest.run("umount /mnt; hybridctl deactivate --all; touch /other/boot/vmlinuz-6.2")
    out = doctor(guest, 7, "/other")
    assert "kernel 6.2 has no module dm-hybrid\n" in out and out.count("problem  ") == 1
    guest.run("rm /other/boot/vmlinuz-6.2; sed -i /c2q/d /other/lib/modules/6.1/modules.dep")
    out = doctor(guest, 7, "/other")
    assert "kernel 6.1 has no module dm-hybrid-c2q\n" in out and out.count("problem  ") == 1
    assert "No such file" in doctor(guest, 1, "/nowhere")


def test_a_system_that_has_none(build, make_guest):		# noqa: F811
    assert "needs nothing from it" in doctor(make_guest(modprobe=["dm-hybrid"]), 0, "")


@pytest.mark.parametrize("version, source, says, code", [
    ("", "", "", 0), ("9.9", "", "the one on disk, 9.9.{}, takes effect at the next boot", 0),
    ("", "F00", "the module on disk is a different build from the one in memory", 0),
    ("9.9.99", "", "the one on disk, 9.9.99, reads another disk format", 7)])
def test_a_module_on_disk_that_is_not_the_one_in_memory(build, make_guest, version, source, says, code):	# noqa: F811
    guest = make_guest(modprobe=["dm-hybrid"])
    now = guest.run("cat /sys/module/dm_hybrid/version").out.strip()
    if version.count(".") == 1:
        version += "." + now.rsplit(".")[-1]
    there = f"$(cat /sys/module/dm_hybrid/$2)"
    guest.run("mkdir -p /tmp/fake")
    guest.write_file("/tmp/fake/modinfo", f"""#!/bin/sh
        case $2 in
        version) echo "{version or there}";;
        srcversion) echo "{source or there}";;
        esac""")
    r = guest.run("chmod +x /tmp/fake/modinfo; PATH=/tmp/fake:$PATH hybridctl doctor", check=False)
    assert r.rc == code and says.format(now.rsplit(".")[-1]) in r.out
    assert "in memory" in r.out or not says


def test_a_filesystem_with_a_number_of_its_own(guest):
    """As btrfs: what is mounted says what the root is on."""
    guest.run("mkdir -p /mnt/up /mnt/work /over && mount -t overlay /dev/mapper/vol /over "
              "-o lowerdir=/mnt,upperdir=/mnt/up,workdir=/mnt/work")
    assert guest.run("stat -c %d /over").out != guest.run("stat -c %d /mnt").out
    check_good(guest, "/over")
