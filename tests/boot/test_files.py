# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules, units and scripts without a boot: installed, understood, and right about a member."""
import os
import re
import subprocess
from pathlib import Path

import pytest

from cli.conftest import driver, hybridctl, image	# noqa: F401 (fixtures)

TOP = Path(__file__).resolve().parents[2]
UUID = "0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa"


def sh(*argv, **kw):
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=60, **kw)


@pytest.fixture
def installed(build, tmp_path):
    """Everything, with hybridctl where it was built."""
    r = sh("make", "-s", "-f", TOP / "boot.mk", "install", f"O={tmp_path / 'o'}",
           f"DESTDIR={tmp_path / 'root'}", f"sbindir={build}")
    assert r.returncode == 0, r.stdout + r.stderr
    return tmp_path / "root"


def files(root):
    return sorted(p for p in root.rglob("*") if p.is_file())


def test_uninstall_takes_all_away(installed, tmp_path, build):
    names = [p.name for p in files(installed)]
    assert len(names) == 14 and "62-dm-hybrid-member.rules" in names
    assert not [p for p in files(installed) if re.search(r"@[a-z_]+@", p.read_text())]
    r = sh("make", "-s", "-f", TOP / "boot.mk", "uninstall", f"DESTDIR={installed}",
           f"O={tmp_path / 'o'}", f"sbindir={build}")
    assert r.returncode == 0 and files(installed) == []


@pytest.mark.parametrize("number", ["11", "56"])
def test_the_number_of_the_rules_for_pools(tmp_path, number):
    r = sh("make", "-s", "-f", TOP / "boot.mk", "install", f"O={tmp_path / 'o'}",
           f"DESTDIR={tmp_path / 'root'}", f"dm_number={number}")
    assert r.returncode == 0
    rules = f"{number}-dm-hybrid.rules"
    assert [p for p in files(tmp_path / "root") if p.name == rules]
    for hook in ("hooks/dm-hybrid", "90dm-hybrid/module-setup.sh"):
        hook, = (p for p in files(tmp_path / "root") if str(p).endswith(hook))
        assert rules in hook.read_text()


def test_units(installed):
    """systemd understands them, and finds no cycle."""
    units = [p for p in files(installed) if p.suffix in (".service", ".timer")]
    assert len(units) == 5
    r = sh("systemd-analyze", "verify", "--man=no", *units)
    ours = [line for line in r.stderr.splitlines() if "hybrid" in line or "cycle" in line]
    assert r.returncode == 0 and ours == [], r.stderr


@pytest.mark.parametrize("name", ["data-pool", "a.b_c-d", UUID])
def test_a_drain_is_of_its_instance(installed, name):
    """systemd hands the name on as it was given: "-" is no escaped "/"."""
    units, = (p.parent for p in files(installed) if p.name == "hybrid-drain@.service")
    r = sh("systemd-analyze", "verify", "--man=no", units / f"hybrid-drain@{name}.service",
           units / f"hybrid-drain@{name}.timer", env={**os.environ, "SYSTEMD_LOG_LEVEL": "debug"})
    assert r.returncode == 0, r.stderr
    assert re.search(rf"Command Line: \S+/hybridctl --quiet drain --wait 14400 {re.escape(name)}$", r.stdout, re.M)
    described = re.findall(r"Description: dm-hybrid: write back all dirty data of (\S+)", r.stdout)
    assert len(described) >= 2 and set(described) == {name}


def test_scripts(installed):
    scripts = [p for p in files(installed) if p.read_bytes().startswith(b"#!")]
    assert len(scripts) == 7
    for script in scripts:
        shell = script.read_text().split("\n")[0].removeprefix("#!")
        assert os.access(script, os.X_OK)
        r = sh(shell, "-n", script)
        assert r.returncode == 0, r.stderr


# The rules, by udev itself, on a loop device with a member ------------------------------

@pytest.fixture
def loop(driver, image):
    if os.geteuid():
        pytest.skip("loop devices need root")
    path = image("origin.img", 16)
    made = []

    def make(member):
        if member:
            assert driver("format-origin", path, "data", UUID).returncode == 0
        r = sh("losetup", "--find", "--show", path)
        if r.returncode:
            pytest.skip(f"no loop device: {r.stderr.strip()}")
        made.append(r.stdout.strip())
        return made[-1]

    yield make
    for dev in made:
        sh("losetup", "-d", dev)


def udev(installed, device, action, before=""):
    """What the rules make of an event; @before: a rule that comes first."""
    rules, = installed.rglob("rules.d")
    (rules / "00-before.rules").write_text(f"{before}\n")
    # Of the host nothing but its programs: the rules are ours alone
    r = sh("unshare", "-m", "sh", "-ec", f"""
        mount -t tmpfs none /run
        mkdir -p /run/udev/rules.d /run/none
        cp {rules}/*.rules /run/udev/rules.d
        for d in /etc/udev/rules.d /usr/lib/udev/rules.d; do mount --bind /run/none $d; done
        udevadm test --action={action} /sys/class/block/{Path(device).name}""")
    text = r.stdout + r.stderr
    assert r.returncode == 0, text
    problems = [line for line in text.splitlines()
                if re.search(r"hybrid.*rules:\d+.*(invalid|unknown|fail|ignor)", line, re.I)]
    assert not problems, text
    return dict(re.findall(r"^([A-Z_.]+)=(.*)$", r.stdout, re.M))


def test_a_member_is_recognised_and_hidden(installed, loop):
    k = udev(installed, loop(True), "add")
    assert (k["ID_FS_TYPE"], k["ID_FS_USAGE"]) == ("dm_hybrid_member", "raid")
    assert (k["ID_FS_UUID"], k["ID_FS_LABEL"], k["UDISKS_IGNORE"]) == (UUID, "data", "1")
    assert k["SYSTEMD_WANTS"] == f"hybrid-last-resort@{k['HYBRID_MEMBER_UUID']}.timer"
    assert "systemd" in k["TAGS"]


def test_nothing_is_said_of_others(installed, loop):
    k = udev(installed, loop(False), "add")
    assert not [key for key in k if "HYBRID" in key or "ID_FS" in key or "UDISKS" in key]


@pytest.mark.parametrize("before", [
    'ENV{ID_FS_TYPE}="ext4"', 'ENV{DM_UDEV_DISABLE_OTHER_RULES_FLAG}="1"',
    'ENV{DM_SUSPENDED}="1"', 'ENV{DM_UUID}="HYBRID-0"', 'ENV{DM_MULTIPATH_DEVICE_PATH}="1"'])
def test_where_others_are_it_keeps_away(installed, loop, before):
    k = udev(installed, loop(True), "add", before)
    assert "HYBRID_STATE" not in k and "SYSTEMD_WANTS" not in k


def test_pools_are_hidden_volumes_are_not(installed, loop):
    device = loop(False)
    k = udev(installed, device, "change", f'ENV{{DM_UUID}}="HYBRID-{UUID}-pool"')
    assert k["SYSTEMD_READY"] == "0" and k["DM_UDEV_DISABLE_OTHER_RULES_FLAG"] == "1"
    assert k["DM_NOSCAN"] == "1"
    k = udev(installed, device, "change", f'ENV{{DM_UUID}}="HYBRID-{UUID}"')
    assert not {"SYSTEMD_READY", "DM_NOSCAN", "UDISKS_IGNORE"} & set(k)


def test_an_event_of_a_volume_is_no_reason_to_scan(installed, loop):
    """What the module tells of itself; a pool stays hidden."""
    device = loop(False)
    k = udev(installed, device, "change",
             f'ENV{{DM_UUID}}="HYBRID-{UUID}", ENV{{HYBRID_EVENT}}="drained"')
    assert k["DM_NOSCAN"] == "1" and not {"SYSTEMD_READY", "UDISKS_IGNORE"} & set(k)
    k = udev(installed, device, "change",
             f'ENV{{DM_UUID}}="HYBRID-{UUID}-pool", ENV{{HYBRID_EVENT}}="failed"')
    assert (k["DM_NOSCAN"], k["SYSTEMD_READY"], k["UDISKS_IGNORE"]) == ("1", "0", "1")
