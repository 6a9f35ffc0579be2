# SPDX-License-Identifier: GPL-2.0-or-later
"""hybrid.conf: its options, its errors, and the devices on which members are looked for."""
import json
import random
import re
import subprocess
import uuid
from pathlib import Path

import pytest

from .test_boot import event, volume	# noqa: F401 (fixture)

TOP = Path(__file__).resolve().parents[2]
HOST = "0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa"
OTHER = "11111111-2222-3333-4444-555555555555"
NULL = str(uuid.UUID(int=0))


# The file -------------------------------------------------------------------------

@pytest.fixture
def config(driver, tmp_path):
    """config(text): the options as parsed, and the messages."""
    def read(text):
        path = tmp_path / "some.conf"
        if text is not None:
            path.write_bytes(text.encode() if isinstance(text, str) else text)
        r = driver("config", path)
        assert r.returncode == 0
        said = [line.replace(f"lib-driver: warning: {path}:", "") for line in r.stderr.splitlines()]
        return {k: v.strip() for k, _, v in (line.partition(":") for line in r.stdout.splitlines())}, said
    return read


DEFAULTS = {"devices": "", "ignore_devices": "", "autoactivate": "all", "autoactivate_list": "",
            "ephemeral": "", "host_id": NULL, "errors": "0"}
SSD = "/dev/disk/by-id/nvme-Fast_SSD_1"


def test_defaults(config):
    """Without a file, of an empty one, and as it is installed."""
    for text in None, "", "\n # comment\n\t\n", (TOP / "etc/hybrid.conf").read_text():
        assert config(text) == (DEFAULTS, [])


def test_every_option_is_in_the_default_file_and_the_man_page(config):
    shown = set(re.findall(r"^#([a-z_]+) =", (TOP / "etc/hybrid.conf").read_text(), re.M))
    explained = set(re.findall(r"^\*([a-z_]+)\* \(", (TOP / "man/hybrid.conf.5.scd").read_text(), re.M))
    assert explained == set(DEFAULTS) - {"errors"} and shown == explained - {"host_id"}


def test_each_option(config):
    assert config("devices=/dev/sd*\n  devices = /dev/a , /dev/b#1  # two more\nignore_devices = /dev/b*\r\n"
                  "autoactivate\t=listed\nautoactivate_list = data,logs\n"
                  f"host_id = {HOST.upper()}") == (
        {"devices": "/dev/sd* /dev/a /dev/b#1", "ignore_devices": "/dev/b*", "autoactivate": "listed",
         "autoactivate_list": "data logs", "ephemeral": "", "host_id": HOST, "errors": "0"}, [])
    assert config("devices =\nautoactivate = none") == (DEFAULTS | {"autoactivate": "none"}, [])


def test_ephemeral(config):
    """A line for each device."""
    assert config(f"ephemeral = {SSD} pool=fast\nephemeral =\n"
                  "ephemeral = /dev/disk/by-path/pci-0000:00:1f.0-nvme-1, policy=fifo block_size=128k pool=two") == (
        DEFAULTS | {"ephemeral": f"{SSD},fast,,0 /dev/disk/by-path/pci-0000:00:1f.0-nvme-1,two,fifo,256"}, [])


@pytest.mark.parametrize("line,why", [
    ("/dev/sda pool=fast", "below /dev/disk/by-id or"), ("by-id/x pool=fast", "below /dev/disk/by-id or"),
    ("/dev/disk/by-uuid/x pool=fast", "below /dev/disk/by-id or"), ("/dev/disk/by-id/ pool=fast", "below /dev/disk/by-id or"),
    ("/dev/disk/by-id/../../sda pool=fast", "below /dev/disk/by-id or"), (f"{SSD}\\x20 pool=fast", "below /dev/disk/by-id or"),
    (f"/dev/disk/by-id/{'x' * 122} pool=fast", "below /dev/disk/by-id or"),
    (",", "below /dev/disk/by-id or"), (SSD, "pool=NAME is missing"), (f"{SSD} policy=fifo", "pool=NAME is missing"),
    (f"{SSD} pool=", "cannot be the name of a pool"), (f"{SSD} pool=a/b", "cannot be the name of a pool"),
    (f"{SSD} pool=fast block_size=3k", "from 4k to 1m"), (f"{SSD} pool=fast block_size=2m", "from 4k to 1m"),
    (f"{SSD} pool=fast block_size=x", "from 4k to 1m"), (f"{SSD} pool=fast policy=", "cannot be the name of a policy"),
    (f"{SSD} pool=fast policy=a-very-long-policy", "cannot be the name of a policy"),
    (f"{SSD} pool=fast journal=1m", "takes pool, block_size and policy"), (f"{SSD} fast", "takes pool, block_size and policy"),
    ("/dev/disk/by-id/y pool=first", "already has a line"), ("/dev/disk/by-id/first pool=z", "already has a line")])
def test_a_wrong_line_of_a_device_is_left_out(config, line, why):
    values, said = config(f"ephemeral = /dev/disk/by-id/first pool=first\nephemeral = {line}")
    assert values == DEFAULTS | {"ephemeral": "/dev/disk/by-id/first,first,,0", "errors": "1"}
    assert len(said) == 1 and said[0].startswith("2: ") and why in said[0] and "the line is ignored" in said[0]


@pytest.mark.parametrize("line,why", [
    ("devcies = /dev/sda", "there is no such option"), ("= x", "there is no such option"),
    ("autoactivate", '"option = value" is expected'), ("autoactivate =", "autoactivate must be"),
    ("autoactivate = some", "autoactivate must be all, listed or none"),
    ("host_id = 42", "host_id is not a UUID"), ("host_id =", "host_id is not a UUID"),
    (f"host_id = {NULL}", "null UUID"), (f"host_id = {HOST} {OTHER}", "host_id is not a UUID"),
    ("devices = /dev/\x01", "it is not text"), (b"devices = /dev/a\0b", "it is not text"),
    ("devices = " + "x" * 5000, "longer than 4096"),
    ("autoactivate = none", "given twice")])
def test_a_wrong_line_is_named_and_the_rest_counts(config, line, why):
    line = line.encode() if isinstance(line, str) else line
    good = {"autoactivate": "listed", "host_id": HOST}
    first = b"autoactivate = listed\n" if b"none" in line else b""
    last = b"" if first else b"autoactivate = listed\n"
    values, said = config(first + b"# a\n" + line + b"\n" + last + f"host_id = {HOST}".encode())
    assert values == DEFAULTS | good | {"errors": "1"}
    number = 3 if first else 2
    assert len(said) == 1 and said[0].startswith(f"{number}: ") and why in said[0] and "the line is ignored" in said[0]


def test_what_cannot_be_read_is_said(config, tmp_path):
    (tmp_path / "some.conf").mkdir()
    values, said = config(None)
    assert values == DEFAULTS | {"errors": "1"} and "cannot read" in said[0]


def test_noise(config):
    """Whatever stands there, no more than each line is said to be wrong."""
    rng = random.Random(11)
    for _ in range(30):
        text = bytes(rng.choice(b"devicshot_=# ,\n\0\xff\x7f-*[]/01") for _ in range(400))
        values, said = config(text)
        assert len(said) == int(values["errors"]) <= text.count(b"\n") + 1


# Which devices are looked at -------------------------------------------------------------

def add(kernel, text):
    with kernel.conf.open("a") as f:
        f.write(f"{text}\n")


@pytest.mark.parametrize("text,found", [
    ("devices = CACHE", {"CACHE"}), ("devices = /dev/* ", {"CACHE", "ORIGIN"}),
    ("devices = /dev/sd* ORIGIN", {"ORIGIN"}), ("ignore_devices = /dev/loop*", set()),
    ("ignore_devices = CACHE", {"ORIGIN"}), ("devices = CACHE\nignore_devices = CACHE", set()),
    ("devices = /none/*", set())])
def test_devices(kernel, volume, text, found):	# noqa: F811
    names = dict(zip(("CACHE", "ORIGIN"), volume))
    for d in volume:
        event(kernel, d)
    add(kernel, re.sub("CACHE|ORIGIN", lambda m: names[m[0]], text))
    r = kernel("scan", "--json", "-o", "device")
    assert {m["device"] for m in json.loads(r.stdout)["members"]} == {names[n] for n in found}
    # What an event noted before is forgotten by the next
    assert {n for n, d in names.items() if event(kernel, d)} == found
    kernel("activate", "--auto", "--all")
    assert ("vol" in kernel.devices) == (len(found) == 2)
    # Named it is looked at in any case
    r = kernel("scan", *volume, "--json", "-o", "device")
    assert len(json.loads(r.stdout)["members"]) == 2


def test_links_of_the_event(kernel, volume):	# noqa: F811
    """A rule's program sees them before udev's database does."""
    add(kernel, "ignore_devices = /dev/vg/guest-*")
    assert event(kernel, volume[0]) == "complete"
    numbers = subprocess.run(["stat", "-L", "-c", "%Hr %Lr", volume[0]], capture_output=True,
                             text=True, check=True).stdout.split()
    env = dict(zip(("MAJOR", "MINOR"), numbers), DEVLINKS="/dev/disk/by-id/x /dev/vg/guest-1")
    r = kernel("scan", "--udev", volume[0], env=env)
    assert (r.returncode, r.stdout) == (0, "")
    assert event(kernel, volume[1]) == "degraded"
    r = kernel("scan", "--udev", volume[0], env={**env, "MINOR": "4711"})
    assert "HYBRID_STATE=complete" in r.stdout


def test_nothing_is_made_where_it_would_not_be_found(kernel, loop):
    devs = loop("cache.img", 64), loop("origin.img", 100)
    for device in devs:
        kernel.conf.write_text(f"ignore_devices = {device}\n")
        r = kernel("create", "vol", "--cache", devs[0], "--origin", devs[1], "-y")
        assert r.returncode == 2 and f"{device} is not searched for members" in r.stderr
    assert kernel.devices == []
