# SPDX-License-Identifier: GPL-2.0-or-later
"""import of a logical volume that LVM cannot activate, with scripts in place of LVM's tools."""
import os
import pathlib
import shlex
import subprocess

import pytest

MAPPER = pathlib.Path("/dev/mapper")
NAMES = [f"hybrid-import-{part}" for part in ("metadata", "cache", "origin")]
ROW = '{"report": [{"lv": [{"vg_name": "vg", %s}]}]}'
DATA = ROW % ('"lv_name": "data", "segtype": "cache", "cache_mode": "writeback", "pool_lv": "fast", '
              '"origin": "[data_corig]", "lv_path": "/dev/vg/data", "lv_active": ""')
FAST = ROW % ('"lv_name": "fast", "segtype": "cache-pool", "data_lv": "[fast_cdata]", '
              '"metadata_lv": "[fast_cmeta]"')
SEGMENTS = ('{"report": [{"pvseg": [{"pv_name": "/dev/sdz", "pe_start": "0", "pvseg_start": "0", '
            '"pvseg_size": "2", "vg_extent_size": "4194304", "seg_start": "0", "segtype": "linear"}]}]}')
BACKUP = 'vg {\n\tlogical_volumes {\n\t\tfast {\n\t\t\tcache_mode = "writeback"\n\t\t}\n\t}\n}\n'


@pytest.fixture
def lvm(loop, tmp_path):
    """(PATH, log of what is called, the origin): one chunk is dirty."""
    origin = loop("slow.img", 8)
    subprocess.run(["mkfs.ext4", "-q", origin], check=True)
    devices = dict(zip(NAMES, (loop("metadata.img", 8), loop("fast.img", 8), origin)))
    if not MAPPER.is_dir() or any(os.path.lexists(MAPPER / name) for name in NAMES):
        pytest.skip("these names are taken")
    log, tools = tmp_path / "log", tmp_path / "tools"
    links = "".join(f"*' {name} '*) ln -s {device} {MAPPER / name};; " for name, device in devices.items())
    bodies = {
        "lvs": f"case \"$*\" in *vg/fast) echo {shlex.quote(FAST)};; *) cat {tmp_path}/data;; esac",
        "lvchange": "[ \"$1\" != -ay ]",
        "pvs": f"echo {shlex.quote(SEGMENTS)}",
        "dmsetup": f"case \" $* \" in {links}esac",
        "cache_check": "true",
        "cache_dump": "echo '<superblock block_size=\"128\"><mapping dirty=\"true\"/>'",
        "cache_writeback": "echo 1/1",
        "vgcfgbackup": f"printf %s {shlex.quote(BACKUP)} >\"$4\"",
        "vgcfgrestore": "true",
        "lvconvert": "true",
    }
    (tmp_path / "data").write_text(DATA)
    tools.mkdir()
    for name, body in bodies.items():
        (tools / name).write_text(f"#!/bin/sh\necho {name} >>{log}\n{body}\n")
        (tools / name).chmod(0o755)
    yield f"{tools}:{os.environ['PATH']}", log, origin
    for name in NAMES:
        (MAPPER / name).unlink(missing_ok=True)


@pytest.mark.parametrize("flush", [True, False])
def test_the_cache_stays_until_its_data_is_durable(kernel, build, loop, lvm, flush):
    """Data written back may be in the cache of the disk alone: if the flush fails, LVM forgets nothing."""
    path, log, origin = lvm
    env = {"PATH": path, "LD_PRELOAD": str(build / "faults.so")}
    if not flush:
        env["FAULT_FLUSH"] = f"1 {origin}"
    r = kernel("import", "vol", "--origin", "vg/data", "--cache", loop("new.img", 64), "-y", env=env)
    called = log.read_text().split()
    assert "cache_writeback" in called, r
    # The logical volume cannot be activated here without its cache either
    assert r.returncode == (6 if flush else 4), r
    assert ("cannot flush the data that was written back" in r.stderr) != flush
    assert [name in called for name in ("vgcfgbackup", "vgcfgrestore", "lvconvert")] == [flush] * 3


@pytest.mark.parametrize("lock", ["sanlock", "none"])
def test_a_shared_volume_group_is_refused(kernel, loop, lvm, tmp_path, lock):
    """Another host may have the logical volume active, so LVM cannot activate it here."""
    path, log, _ = lvm
    (tmp_path / "data").write_text(DATA.replace('"lv_name"', f'"vg_lock_type": "{lock}", "lv_name"'))
    r = kernel("import", "vol", "--origin", "vg/data", "--cache", loop("new.img", 64), "-y", env={"PATH": path})
    called = set(log.read_text().split())
    assert ("cache_writeback" in called) == (lock == "none"), r
    if lock == "sanlock":
        assert r.returncode == 2 and "shared volume group (lock type sanlock)" in r.stderr, r
        assert called == {"lvs"}


@pytest.mark.parametrize("words, rc, said", [
    ("--cache {new} --mode writeback", 2, "does not show that its cache has newer data"),
    ("--cache {new} --mode writebak", 1, "no such mode"), ("--cache {new} --block-size 3k", 1, "not valid"),
    ("--pool none", 4, "no active pool none"), ("--cache {new} --policy none", 1, "no such policy"),
    ("--cache {small}", 4, "{small}"), ("--cache {used}", 2, "--wipe-signatures")])
@pytest.mark.parametrize("active", [True, False])
def test_all_that_create_refuses_leaves_the_cache(kernel, loop, lvm, tmp_path, words, rc, said, active):
    path, log, origin = lvm
    devices = {"new": loop("new.img", 64), "small": loop("small.img", 2), "used": loop("used.img", 64)}
    subprocess.run(["mkfs.ext4", "-q", devices["used"]], check=True)
    if active:
        (tmp_path / "data").write_text(DATA.replace('"lv_active": ""', '"lv_active": "active"')
                                       .replace("/dev/vg/data", origin))
    r = kernel("import", "vol", "--origin", "vg/data", *words.format(**devices).split(), "-y", env={"PATH": path})
    assert r.returncode == rc and said.format(**devices) in r.stderr, r
    assert not {"lvconvert", "vgcfgrestore"} & set(log.read_text().split())


def test_what_is_left_to_do_is_a_whole_command(kernel, loop, lvm):
    path, _, _ = lvm
    new = loop("new.img", 64)
    r = kernel("import", "vol", "--origin", "vg/data", "--cache", new, "--mode", "writearound", "-y", env={"PATH": path})
    assert r.returncode == 6, r
    assert f"to finish: hybridctl create vol --in-place --origin /dev/vg/data --cache {new} --yes --mode writearound\n" in r.stdout
