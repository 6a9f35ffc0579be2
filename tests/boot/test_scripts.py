# SPDX-License-Identifier: GPL-2.0-or-later
"""What an initramfs runs, over a hybridctl that only says how it was called."""
import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
HYBRIDCTL = """#!/bin/sh
echo "$@" >>/run/calls
echo "error: volume root: its cache device is missing" >&2
[ ! -e /run/warns ] || echo "hybridctl: warning: $(cat /run/warns)" >&2
exit 7
"""
# Of dracut-lib.sh what is used; the arguments from where they always are
LIB = """
getargs() { for w in $(cat /proc/cmdline); do case $w in "$1"*) echo "${w#"$1"}" ;; esac; done; }
getargbool() { case " $(cat /proc/cmdline) " in *" $2=0 "*) return 1 ;; esac; }
vinfo() { cat >>/run/info; }
need_shutdown() { :; }
"""


@pytest.fixture
def run(tmp_path):
    """run(kind, arguments, times): calls of hybridctl, and lines that the kernel's log got.

    A time is that of the machine, for initramfs-tools; or the script's argument, for dracut.
    clock: what initramfs-tools exports.
    """
    if os.geteuid():
        pytest.skip("mounting needs root")
    subprocess.run(["make", "-s", "-f", TOP / "boot.mk", "install", f"O={tmp_path / 'o'}",
                    f"DESTDIR={tmp_path / 'root'}", f"sbindir={tmp_path}"], check=True)
    for name, text in ("hybridctl", HYBRIDCTL), ("lib.sh", LIB):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def do(kind, arguments, *times, clock=""):
        path = {"dracut": "90dm-hybrid/hybrid-activate.sh",
                "initramfs-tools": "local-block/dm-hybrid"}[kind]
        script, = (p for p in (tmp_path / "root").rglob("*") if str(p).endswith(path))
        steps = {"dracut": lambda t: f"(set -- {t}; . {tmp_path}/lib.sh; . {script})",
                 "initramfs-tools": lambda t: f"echo {t}.00 1.00 >uptime; {clock} {script}"}[kind]
        (tmp_path / "cmdline").write_text(f"{arguments}\n")
        (tmp_path / "uptime").touch()
        lines = "\n".join(steps(t) for t in times)
        subprocess.run(["unshare", "-m", "sh", "-c", f"""
            mkfifo kmsg; exec 3<>kmsg
            mount -t tmpfs none /run; mkdir -p /run/hybrid/members; : >/run/calls
            mount --bind cmdline /proc/cmdline; mount --bind uptime /proc/uptime
            mount --bind kmsg /dev/kmsg
            {lines}
            echo end >&3; while read -r line <&3 && [ "$line" != end ]; do echo "$line"; done >said
            cp /run/calls ."""], check=True, timeout=60, cwd=tmp_path)
        return [(tmp_path / name).read_text().splitlines() for name in ("calls", "said")]
    return do


CALL = "--quiet activate --auto"
SAID = "<3>dm-hybrid: error: volume root: its cache device is missing"


def test_dracut(run):
    """Quiet while it waits; then without what is missing, and the console says it."""
    assert run("dracut", "quiet", "", "", "--last") == [
        [f"{CALL} --all"] * 2 + [f"{CALL} --degraded --all"], [SAID]]


def test_initramfs_tools(run):
    """The same; it is called on and on, and says it once."""
    assert run("initramfs-tools", "quiet", 3, 22, 23, 24, 25) == [
        [f"{CALL} --all"] * 2 + [f"{CALL} --degraded --all"] * 3, [SAID]]


def test_warnings_of_initramfs_tools(run):
    """Though there is no last call: each once, and quietly."""
    warns = "echo one >/run/warns;"
    assert run("initramfs-tools", "quiet", 3, 4, clock=warns)[1] == ["<4>dm-hybrid: hybridctl: warning: one"]
    assert run("initramfs-tools", "quiet", 3, 4, 23, clock=warns)[1] == [
        "<4>dm-hybrid: hybridctl: warning: one", SAID, "<3>dm-hybrid: hybridctl: warning: one"]


@pytest.mark.parametrize("clock,times", [
    ("starttime=2", (20, 22, 31)),	# a slow machine: first called late
    ("starttime=2 ROOTDELAY=90", (61, 62, 92)),
    ("starttime=2 ROOTDELAY=5", (21, 22, 40))])
def test_clock_of_initramfs_tools(run, clock, times):
    """However late it is called first: the last calls bring up what there is."""
    calls = [f"{CALL} --all", f"{CALL} --degraded --all", f"{CALL} --degraded --all"]
    assert run("initramfs-tools", "quiet", *times, clock=clock) == [calls, [SAID]]
    assert run("initramfs-tools", "quiet", times[-1], clock=clock) == [calls[2:], [SAID]]


@pytest.mark.parametrize("kind,times", [("dracut", ["", "--last"]), ("initramfs-tools", [3, 23])])
def test_arguments(run, kind, times):
    """rd.hybrid.degraded=0 keeps it from running alone, not from saying why it does not."""
    both = [f"{CALL} --named 42", f"{CALL} --named root"]
    assert run(kind, "rd.hybrid.degraded=0 rd.hybrid.uuid=42 rd.hybrid.name=root", *times) == [
        both * 2, [SAID] * 2]


SHUTDOWN = """
info() { :; }
vinfo() { cat; }
PATH=$PWD:$PATH
script=$2
set -- $1
. "$script"
"""


@pytest.mark.parametrize("left,last,ends", [
    ([], "", 0), (["HYBRID-42"], "", 1), (["LVM-7", "HYBRID-42-pool"], "", 1), (["HYBRID-42"], "final", 0),
    (["LVM-7"], "", 0)])
def test_shutdown(tmp_path, left, last, ends):
    """No udevd is asked that does not run any more; tried again while anything of ours is left."""
    subprocess.run(["make", "-s", "-f", TOP / "boot.mk", "install", f"O={tmp_path / 'o'}",
                    f"DESTDIR={tmp_path / 'root'}", f"sbindir={tmp_path}"], check=True)
    for name, text in (("hybridctl", 'echo "$DM_DISABLE_UDEV $*" >>calls'),
                       ("dmsetup", "\n".join(f"echo {uuid}" for uuid in left))):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script, = (tmp_path / "root").rglob("90dm-hybrid/hybrid-shutdown.sh")
    env = {k: v for k, v in os.environ.items() if k != "DM_DISABLE_UDEV"}
    r = subprocess.run(["sh", "-c", SHUTDOWN, "sh", last, script], cwd=tmp_path, env=env, timeout=60)
    assert r.returncode == ends
    assert (tmp_path / "calls").read_text() == "1 --quiet deactivate --all\n"


# Runs the image's hook over functions that only print their arguments.
MAKERS = {
    "initramfs-tools": ("share/initramfs-tools/hooks/dm-hybrid", """
printf 'copy_exec() { :; }\\nmanual_add_modules() { :; }\\n' >functions
sed "s|/usr/share/initramfs-tools/hook-functions|$PWD/functions|" $script >hook
export DESTDIR=$PWD/image version=6.1
sh hook 2>/dev/null || :
cat $DESTDIR/etc/hybrid/hybrid.conf 2>/dev/null || echo none"""),
    "dracut": ("90dm-hybrid/module-setup.sh", """
bash -c '
for f in inst inst_rules inst_hook inst_script dracut_need_initqueue; do eval "$f() { :; }"; done
inst_multiple() { [[ $1 != -o ]] || { shift; [[ -e $1 ]] || { echo none; return; }; }; cat "$@"; }
. "$1"; install' bash $script""")}


@pytest.mark.parametrize("text", ["host_id = 42", None])
@pytest.mark.parametrize("kind", MAKERS)
def test_hybrid_conf_is_in_an_image(tmp_path, kind, text):
    """And no image fails for want of one."""
    if os.geteuid():
        pytest.skip("mounting needs root")
    subprocess.run(["make", "-s", "-f", TOP / "boot.mk", "install", f"O={tmp_path / 'o'}",
                    f"DESTDIR={tmp_path / 'root'}", f"sbindir={tmp_path}"], check=True)
    (tmp_path / "hybridctl").write_text(HYBRIDCTL)
    (tmp_path / "hybridctl").chmod(0o755)
    path, commands = MAKERS[kind]
    script, = (p for p in (tmp_path / "root").rglob("*") if str(p).endswith(path))
    conf = f"mkdir /etc/hybrid; echo '{text}' >/etc/hybrid/hybrid.conf" if text else ":"
    r = subprocess.run(["unshare", "-m", "sh", "-ec", f"script={script}; mount -t tmpfs none /etc; {conf}\n{commands}"],
                       capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (r.returncode, r.stdout, r.stderr) == (0, f"{text or 'none'}\n", "")


def test_not_at_all(run):
    assert run("initramfs-tools", "rd.hybrid=0", 3, 23) == [[], []]
