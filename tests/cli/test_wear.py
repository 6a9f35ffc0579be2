# SPDX-License-Identifier: GPL-2.0-or-later
"""How worn the drives below a pool are: a stand-in prints the JSON of smartctl 7.3 to 7.5."""
import json
import os
import subprocess
import time

import pytest

YEAR = 365 * 24		# hours
MONTH = 30 * 24
LEFT_BEHIND = 40	# seconds in which a drive that hangs answers in the end


def nvme(used, hours=YEAR, warning=0, spare=100, threshold=10):
    return {"smartctl": {"version": [7, 3], "exit_status": 8 if warning else 0},
            "device": {"name": "/dev/nvme0n1", "type": "nvme", "protocol": "NVMe"},
            "smart_status": {"passed": not warning, "nvme": {"value": warning}},
            "nvme_smart_health_information_log": {
                "critical_warning": warning, "temperature": 41, "available_spare": spare,
                "available_spare_threshold": threshold, "percentage_used": used,
                "data_units_written": 88061152, "power_on_hours": hours, "media_errors": 0},
            "temperature": {"current": 41}, "power_cycle_count": 12, "power_on_time": {"hours": hours}}


def statistics(used, valid=True):
    flags = {"value": 0xc0 if valid else 0x40, "string": "V---C- ", "valid": valid, "normalized": False,
             "supports_dsn": False, "monitored_condition_met": False}
    entry = {"offset": 8, "name": "Percentage Used Endurance Indicator", "size": 1, "flags": flags}
    other = {"offset": 8, "name": "Lifetime Power-On Resets", "size": 4, "value": 77, "flags": flags}
    return {"pages": [{"number": 1, "name": "General Statistics", "revision": 1, "table": [other]}, None,
                      {"number": 7, "name": "Solid State Device Statistics", "revision": 1,
                       "table": [entry | ({"value": used} if valid else {})]}]}


def ata(used, hours=YEAR, passed=True, valid=True):
    """As smartctl 7.3 prints it: the percentage is nowhere else."""
    return {"smartctl": {"version": [7, 3], "exit_status": 0 if passed else 8},
            "device": {"name": "/dev/sda", "type": "sat", "protocol": "ATA"},
            "smart_status": {"passed": passed},
            "ata_smart_attributes": {"revision": 16, "table": [
                {"id": 9, "name": "Power_On_Hours", "value": 95, "raw": {"value": hours, "string": str(hours)}}]},
            "power_on_time": {"hours": hours}, "power_cycle_count": 12,
            "ata_device_statistics": statistics(used, valid)}


def ata74(used, hours=YEAR, spare=100):
    """From 7.4 on: of drives that have no statistics, too."""
    return {"smartctl": {"version": [7, 5], "exit_status": 0},
            "device": {"name": "/dev/sda", "type": "sat", "protocol": "ATA"}, "smart_status": {"passed": True},
            "spare_available": {"current_percent": spare, "threshold_percent": 3},
            "power_on_time": {"hours": hours, "minutes": 2}, "endurance_used": {"current_percent": used}}


def scsi(used, hours=YEAR):
    return {"smartctl": {"version": [7, 3], "exit_status": 0},
            "device": {"name": "/dev/sda", "type": "scsi", "protocol": "SCSI"}, "smart_status": {"passed": True},
            "scsi_percentage_used_endurance_indicator": used, "temperature": {"current": 21, "drive_trip": 70},
            "power_on_time": {"hours": hours, "minutes": 0}}


@pytest.fixture
def pool(kernel, loop, tmp_path):
    """The cache device of vol-pool; smartctl prints the file "smart" beside the tools' state, if it is there."""
    (tmp_path / "bin").mkdir()
    cache, origin = loop("cache.img", 64), loop("origin.img", 100)
    kernel.ok("create", "vol", "--cache", cache, "--origin", origin, "-y")
    return cache


@pytest.fixture
def status(kernel, pool, tmp_path):
    """status(printed, *args): what hybridctl says of the pool, where smartctl prints that."""
    def run(printed, *args, code="exit 8", seconds=60):
        script = tmp_path / "bin/smartctl"
        (tmp_path / "smart").write_text(printed if isinstance(printed, str) else json.dumps(printed))
        script.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\necho noise >&2\ncat {tmp_path}/smart\n{code}\n')
        script.chmod(0o755)
        return kernel("status", *(args or ["vol-pool"]), seconds=seconds,
                      env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    return run


def wear(r):
    assert not r.stderr
    return [line.split(": ", 1)[1] for line in r.stdout.splitlines() if line.strip().startswith("wear:")]


def days(used, hours):
    """The days on which a run that has just ended could say that all is used up."""
    return {time.strftime("%Y-%m-%d", time.localtime(now + hours * 3600 * (100 - used) // used))
            for now in (time.time() - 60, time.time())}


@pytest.mark.parametrize("kind,spare", [(nvme, ", 100% spare left"), (ata, ""), (ata74, ", 100% spare left"),
                                        (scsi, "")])
@pytest.mark.parametrize("used,hours", [(12, YEAR), (1, MONTH), (99, 9 * YEAR), (50, 1)])
def test_the_day_by_which_it_is_used_up(status, pool, kind, spare, used, hours):
    r = status(kind(used, hours))
    assert r.returncode == 0 and "state: running\n" in r.stdout
    assert wear(r) in [[f"{used}% of the endurance of {pool} used{spare}; used up by {day} at the pace so far"]
                       for day in days(used, hours)]


def test_how_smartctl_is_asked(status, pool, tmp_path):
    """No disk is woken; once for a status, and not at all for one of the volume."""
    status(nvme(1))
    assert (tmp_path / "asked").read_text() == \
        f"--json --nocheck=standby --health --attributes --log=ssd {pool}\n"
    assert wear(status(nvme(1), "vol")) == []
    assert len((tmp_path / "asked").read_text().splitlines()) == 1


@pytest.mark.parametrize("printed,says", [
    (nvme(0), "0% of the endurance of {} used, 100% spare left"),
    (nvme(3, hours=0), "3% of the endurance of {} used, 100% spare left"),
    (scsi(2, hours=-5), "2% of the endurance of {} used"),
    (scsi(2, hours=10 ** 7), "2% of the endurance of {} used"),
    (scsi(2, hours=10 ** 30), "2% of the endurance of {} used"),
    (nvme(1, hours=10 * YEAR), "1% of the endurance of {} used, 100% spare left"),
    (scsi(100), "100% of the endurance of {} used; used up: plan to replace it"),
    (nvme(255, spare=97), "255% of the endurance of {} used, 97% spare left; used up: plan to replace it"),
    (nvme(0, spare=100, threshold=100), "0% of the endurance of {} used, 100% spare left"),
    (nvme(0, spare=101), "0% of the endurance of {} used"),
    # QEMU's
    (nvme(0, hours=0, spare=0, threshold=0), "0% of the endurance of {} used"),
])
def test_no_day_is_named(status, pool, printed, says):
    r = status(printed)
    assert r.returncode == 0 and wear(r) == [says.format(pool)]


REPLACE = ": replace it (hybridctl replace-cache)"


@pytest.mark.parametrize("printed,says", [
    (nvme(0, warning=1, spare=9), "0% of the endurance of {} used, 9% spare left; its spare is running out" + REPLACE),
    (nvme(0, spare=10), "0% of the endurance of {} used, 10% spare left; its spare is running out" + REPLACE),
    (ata74(0, spare=3), "0% of the endurance of {} used, 3% spare left; its spare is running out" + REPLACE),
    (nvme(0, warning=4), "0% of the endurance of {} used, 100% spare left; it is no longer reliable" + REPLACE),
    (nvme(0, warning=9), "0% of the endurance of {} used, 100% spare left; it no longer takes writes" + REPLACE),
    (ata(0, passed=False), "0% of the endurance of {} used; it expects to fail soon" + REPLACE),
    (ata(0, passed=False, valid=False), "unknown, of {}; it expects to fail soon" + REPLACE),
    (nvme(0, warning=2),
     "0% of the endurance of {} used, 100% spare left; it is too hot or too cold: check its cooling"),
])
def test_a_drive_that_warns(status, pool, printed, says):
    """It is unhealthy as long as nothing else is, and status names the way out."""
    r = status(printed)
    assert r.returncode == 7 and wear(r) == [says.format(pool)]
    assert f"reason: {pool} warns: it" in r.stdout
    assert "action: check its cooling\n" in r.stdout if "hot" in says else \
        "action: hybridctl replace-cache vol-pool --cache DEVICE\n" in r.stdout
    assert wear(status(printed, "-x")) == [says.format(pool)]


def test_what_is_worse_comes_first(kernel, status):
    kernel.change_device("vol-pool", errors=4)
    r = status(nvme(0, warning=4))
    assert r.returncode == 7 and "reason: I/O to the cache device failed\n" in r.stdout
    assert len(wear(r)) == 1 and wear(r)[0].endswith("it is no longer reliable" + REPLACE)


def test_for_programs(status, pool):
    rows = {}
    for name, printed in {"nvme": nvme(12), "ata": ata(0, 0), "hot": nvme(100, warning=2), "none": "{}"}.items():
        both = json.loads(status(printed, "--json").stdout)["status"]
        assert ["wear" in row for row in both] == [True, False]
        rows[name] = both[0]["wear"]
    assert rows["nvme"][0].pop("used_up_by") in days(12, YEAR)
    known = {"drive": pool, "answers": True, "spare_percent": 100, "power_on_hours": YEAR, "warning": None}
    assert rows == {
        "nvme": [known | {"used_percent": 12}],
        "ata": [known | {"used_percent": 0, "spare_percent": None, "power_on_hours": None, "used_up_by": None}],
        "hot": [known | {"used_percent": 100, "used_up_by": None, "warning": "it is too hot or too cold"}],
        "none": []}


STRANGE = {
    "nothing": "", "no JSON": "smartctl 6.6 2017-11-05\n=======> UNRECOGNIZED OPTION: json\n", "half": json.dumps(nvme(5))[:-60],
    "binary": "\x00\x01\x02{}", "a list": "[1]", "a number": "7", "deep": 100 * "[" + 100 * "]", "null": "null",
    "unknown to it": json.dumps({"smartctl": {"version": [7, 3], "messages": [
        {"string": "/dev/loop0: Unable to detect device type", "severity": "error"}], "exit_status": 1}}),
    "asleep": json.dumps({"smartctl": {"exit_status": 2}, "device": {"name": "/dev/sda", "protocol": "ATA"}}),
    "a hard disk": json.dumps({k: v for k, v in ata(0).items() if k != "ata_device_statistics"}),
    "not valid": json.dumps(ata(5, valid=False)),
    "out of range": json.dumps(nvme(256)), "negative": json.dumps(scsi(-1)), "huge": json.dumps(ata(10 ** 30)),
    "text": json.dumps(scsi("12")), "an object": json.dumps(scsi({"percentage": 12})), "a fraction": json.dumps(scsi(12.5)),
    "of other types": json.dumps({"ata_device_statistics": {"pages": [{"table": 1}, 7, {"table": [[], {"name": 1}]}]},
                                  "nvme_smart_health_information_log": 3, "power_on_time": [], "smart_status": "x"}),
}


@pytest.mark.parametrize("printed", STRANGE.values(), ids=STRANGE)
def test_what_is_no_answer_is_no_line(status, printed):
    r = status(printed)
    assert r.returncode == 0 and wear(r) == [] and "policy" in r.stdout


def test_a_smartctl_that_dies(status):
    assert wear(status("", code="kill -9 $$")) == []


def test_without_smartctl(kernel, pool, tmp_path):
    """Nothing is said, but doctor says what would tell the wear of an SSD."""
    env = {"PATH": f"{tmp_path}/bin"}
    r = kernel("status", "vol-pool", env=env)
    assert r.returncode == 0 and wear(r) == []
    rotational = f"/sys/block/{os.path.basename(pool)}/queue/rotational"
    for value, hint in (("1", False), ("0", True)):
        subprocess.run(["sh", "-c", f"echo {value} >{rotational}"], check=True)
        assert (f"with it, hybridctl status shows the wear of {pool}\n" in kernel("doctor", env=env).stdout) == hint
    (tmp_path / "bin/smartctl").symlink_to("/bin/true")
    assert "smartctl" not in kernel("doctor", env=env).stdout


def test_a_drive_that_hangs(status, pool):
    """It costs seconds, and nobody waits for the smartctl that is left behind."""
    r = status(nvme(12), code=f"exec sleep {LEFT_BEHIND}", seconds=LEFT_BEHIND - 5)
    assert r.returncode == 0 and wear(r) == [f"unknown: {pool} does not answer"]
    rows = json.loads(status(nvme(12), "vol-pool", "--json", code=f"exec sleep {LEFT_BEHIND}",
                             seconds=LEFT_BEHIND - 5).stdout)["status"]
    assert rows[0]["wear"] == [{"drive": pool, "answers": False, "used_percent": None, "spare_percent": None,
                                "power_on_hours": None, "used_up_by": None, "warning": None}]


SMARTCTL = """#!/bin/sh
for last; do :; done
case $last in *%s) echo '%s';; *%s) echo '%s';; *) exit 1;; esac
"""


def test_all_drives_below(build, make_guest, disks):
    """Through device-mapper and md, each once."""
    guest = make_guest(disks=disks("one", 64, "two", 64, "hdd", 100), modprobe=["dm-testdisk", "dm-hybrid"])
    one, two = (guest.run(f"basename $(readlink -f {d.dev})").out.strip() for d in guest.disks[:2])
    guest.write_file("/usr/local/bin/smartctl",
                     SMARTCTL % (one, json.dumps(nvme(0)), two, json.dumps(scsi(100))))
    guest.run("chmod 755 /usr/local/bin/smartctl")
    half = guest.disks[0].sectors // 2
    guest.dm_create("halves", f"0 {half} linear {guest.disks[0].dev} {half}\n"
                              f"{half} {half} linear {guest.disks[0].dev} 0")
    guest.dm_create("whole", f"0 {guest.disks[1].sectors} linear {guest.disks[1].dev} 0")
    guest.run(f"hybridctl create vol --cache /dev/mapper/halves --cache /dev/mapper/whole --origin {guest.disks[2].dev} -y")
    r = guest.run("PATH=/usr/local/bin:$PATH hybridctl status vol-pool")
    assert sorted(line.split("wear: ")[1] for line in r.out.splitlines() if "wear: " in line) == sorted([
        f"0% of the endurance of /dev/{one} used, 100% spare left",
        f"100% of the endurance of /dev/{two} used; used up: plan to replace it"])
