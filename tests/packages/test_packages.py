# SPDX-License-Identifier: GPL-2.0-or-later
"""Packages, as far as can be said without building them: `make check-packages` does the rest."""
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
VERSION = re.search(r"^version := (.*)$", (TOP / "version.mk").read_text(), re.M)[1]


def sh(*argv, cwd=TOP):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=300, cwd=cwd)
    assert r.returncode == 0, r.stdout + r.stderr
    return r.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """What `make install` and `make install-dkms` would put there, of a tarball outside git."""
    where = tmp_path_factory.mktemp("packages")
    subprocess.run(f"git -C {TOP} ls-files -z --cached --others --exclude-standard | "
                   f"(cd {TOP} && xargs -0 cp --parents -t {where} 2>/dev/null; true)",
                   shell=True, check=True)
    to = f"DESTDIR={where / 'root'}", "prefix=/usr", "dm_number=56"
    for words in ("-C", "userspace"), ("-f", "boot.mk"):
        sh("make", "-s", *words, "install", *to, cwd=where)
    sh("make", "-s", "install-dkms", *to, cwd=where)
    return where / "root"


def test_uninstall(installed, tmp_path):
    """Nothing is left, also where the kernel compresses modules; DKMS's are its own."""
    root = tmp_path / "root"
    shutil.copytree(installed, root, symlinks=True)
    shutil.rmtree(root / "usr/src")
    modules = root / "lib/modules/6.1"
    (modules / "updates/dkms").mkdir(parents=True)
    for name in "dm-hybrid.ko.xz", "dm-hybrid-lru.ko.zst", "dm-hybrid-null.ko", "dkms/dm-hybrid.ko", "other.ko":
        (modules / "updates" / name).touch()
    (modules / "modules.dep").write_text("updates/dm-hybrid-null.ko:\n")
    (root / "lib/modules/6.2/updates").mkdir(parents=True)
    sh("make", "-s", "uninstall", f"DESTDIR={root}", "prefix=/usr", "dm_number=56")
    left = {str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir() or p.is_symlink()}
    assert {p for p in left if "/modules." not in p} == {
        "lib/modules/6.1/updates/dkms/dm-hybrid.ko", "lib/modules/6.1/updates/other.ko"}
    assert "dm-hybrid-null" not in (modules / "modules.dep").read_text()
    assert not list((root / "lib/modules/6.2").glob("modules.*"))


@pytest.mark.parametrize("path, pattern", [
    ("debian/changelog", r"^dm-hybrid \(([^)]+)\)"),
    ("rpm/dm-hybrid.spec", r"^Version: +(.*)"),
    ("rpm/kmod-dm-hybrid.spec", r"^Version: +(.*)")])
def test_one_version(path, pattern):
    assert re.search(pattern, (TOP / path).read_text(), re.M)[1] == VERSION


def test_dkms_builds_every_module(installed):
    conf, = installed.rglob("dkms.conf")
    assert conf.parent.name == f"dm-hybrid-{VERSION}"
    text = conf.read_text()
    assert f'PACKAGE_VERSION="{VERSION}"' in text
    # Not those of tests: where the kernel has no KUnit, DKMS would miss them and give up
    modules = re.findall(r"^obj-\$\(\w+(?<!_KUNIT_TEST)\) \+= (.*)\.o$", (TOP / "dm-hybrid/Kbuild").read_text(),
                         re.M)
    built = re.findall(r'^BUILT_MODULE_NAME\[(\d+)\]="(.*)"$', text, re.M)
    assert [(int(n), m) for n, m in built] == list(enumerate(modules)) and len(modules) > 3
    # All that the compiler reads is there
    sources = {p.name for p in (TOP / "dm-hybrid").glob("*.[ch]")}
    assert sources == {p.name for p in conf.parent.glob("*.[ch]")}


@pytest.mark.parametrize("kernel, builds", [
    ("5.10.0-28-amd64", False), ("6.0.12", False), ("6.1.0-56-amd64", True), ("6.12.95+deb12-amd64", True),
    ("7.2.13+deb14-amd64", True), ("10.0.1", True)])
def test_dkms_leaves_older_kernels_alone(kernel, builds):
    pattern = re.search(r'^BUILD_EXCLUSIVE_KERNEL="(.*)"$', (TOP / "dkms.conf.in").read_text(), re.M)[1]
    r = subprocess.run(["grep", "-qE", pattern], input=kernel, text=True)
    assert (r.returncode == 0) == builds


@pytest.mark.parametrize("kernel, builds", [
    ("6.1.82", False), ("6.1.83", True), ("6.1.192", True), ("6.2.16", False), ("6.5.13", False), ("6.6.22", False),
    ("6.6.23", True), ("6.7.10", False), ("6.7.11", True), ("6.8.1", False), ("6.8.2", True), ("6.9.0", True),
    ("6.12.1", True), ("7.1.0", True)])
def test_no_build_for_a_kernel_that_does_not_resume_volumes(kernel, builds):
    """Unless the builder says that the kernel has the mend."""
    version = [f"{name}={n}" for name, n in zip(("VERSION", "PATCHLEVEL", "SUBLEVEL"), kernel.split("."))]
    make = ["make", "-s", "-f", TOP / "dm-hybrid/Kbuild", "--eval=all:;", "KBUILD_EXTMOD=x", "src=.", *version]
    r = subprocess.run(make, capture_output=True, text=True)
    assert (r.returncode == 0) == builds, r.stderr
    if not builds:
        assert f"device-mapper of Linux {kernel} does not resume the volumes of a pool. Use" in r.stderr
        sh(*make, "HYBRID_DM_RESUMES=y")


def covers(glob, name):
    """As dh_install reads it: a star stays within one directory."""
    pattern = re.escape(glob).translate(str.maketrans("{,}", "(|)")).replace(r"\(", "(").replace(
        r"\)", ")").replace(r"\*", "[^/]*")
    return re.fullmatch(f"{pattern}(/.*)?", name)


@pytest.mark.parametrize("lib", ["lib", "usr/lib"])
def test_each_file_is_in_one_package(installed, lib):
    """Also where udev and systemd say that they are in /usr/lib, as from Debian 13 on."""
    globs = {p.stem: p.read_text().split() for p in (TOP / "debian").glob("*.install")}
    assert set(globs) == set(re.findall(r"^Package: (.*)$", (TOP / "debian/control").read_text(), re.M))
    for path in (p for p in installed.rglob("*") if not p.is_dir()):
        name = re.sub("^(usr/)?lib/(udev|systemd)/", rf"{lib}/\2/", str(path.relative_to(installed)))
        owners = [package for package, patterns in globs.items()
                  if any(covers(glob, name) for glob in patterns)]
        assert len(owners) == 1, (name, owners)


def test_what_boots_is_made_anew():
    """With the boot's files, and without them again. debhelper does so for initramfs-tools' hooks."""
    assert "activate-noawait update-initramfs\n" in (TOP / "debian/dm-hybrid-dracut.triggers").read_text()
    spec = (TOP / "rpm/dm-hybrid.spec").read_text()
    for when in "posttrans", "postun":
        assert "dracut --regenerate-all --force" in re.search(rf"^%{when} dracut\n(.*)$", spec, re.M)[1]
