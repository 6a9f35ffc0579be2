# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line itself: help, versions, mistakes and their exit codes."""
import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
DEF = (TOP / "userspace/hybridctl/commands.def").read_text()
COMMANDS = re.findall(r'^COMMAND\((\w+), "([\w-]+)", "([^"]*)"', DEF, re.M)
TOOLS = re.findall(r'^TOOL\("(\w+)"', DEF, re.M)
OPTIONS = re.findall(r'^OPTION\(\w+, "([a-z-]+)"', DEF, re.M)


def test_the_commands_of_the_issue_are_declared():
    assert [c[1] for c in COMMANDS] == [
        "create", "import", "activate", "deactivate", "attach", "detach", "export", "replace-cache", "rename",
        "resize", "destroy", "drain",
        "set", "get", "reset-counters", "checkpoint", "list", "status", "table", "scan", "probe", "doctor",
        "adopt", "release", "host-id", "wipe", "check",
        "metadata-size", "replay", "writeback", "lost", "accept-loss",
        "dump", "restore", "repair", "complete", "help"]


def test_help_lists_every_command(hybridctl):
    r = hybridctl("--help")
    assert r.returncode == 0 and not r.stderr
    for _, name, _ in COMMANDS:
        assert re.search(rf"^  {name} ", r.stdout, re.M)


@pytest.mark.parametrize("name,args", [c[1:] for c in COMMANDS])
def test_help_of_each_command(hybridctl, name, args):
    r = hybridctl(name, "--help")
    assert r.returncode == 0 and not r.stderr
    assert r.stdout.startswith(f"Usage: hybridctl {name} {args} [OPTION...]")
    assert all(len(line) <= 120 for line in r.stdout.splitlines())


@pytest.mark.parametrize("argv", [["--version"], ["list", "--version"]])
def test_version(hybridctl, argv):
    r = hybridctl(*argv)
    assert r.returncode == 0
    assert re.fullmatch(r"hybridctl \d+\.\d+\.\d+\n", r.stdout)


@pytest.mark.parametrize("argv,says", [
    ([], "no command given"),
    (["frobnicate"], "no such command: frobnicate"),
    (["--frobnicate"], "unknown option: --frobnicate"),
    (["list", "--frobnicate"], "unknown option: --frobnicate"),
    (["list", "-Z"], "unknown option: -Z"),
    (["list", "-o"], "option needs an argument: -o"),
    (["list", "--cache", "x"], "--cache is not an option of list"),
    (["--cache", "x", "list"], "--cache is not an option of hybridctl itself"),
    (["create"], "create needs NEWNAME"),
    (["create", "a", "b"], "too many arguments: b"),
    (["create", "vol"], "no cache"),
    (["create", "vol", "--cache", "c"], "no origin given"),
    (["create", "a/b", "--cache", "c", "--origin", "o"], "cannot be the name"),
    (["create", "vol", "--cache", "c", "--origin", "o", "--mode", "fast"], "no such mode"),
    (["create", "vol", "--cache", "c", "--origin", "o", "--block-size", "3k"],
     "--block-size 3k"),
    (["create", "vol", "--cache", "c", "--origin", "o", "--block-size", "4q"],
     "not a size"),
    (["create", "vol", "--cache", "c", "--origin", "o", "--pool", "vol"], "both"),
    (["create", "vol", "--pool", "p", "--origin", "o", "--policy", "lru"], "--policy"),
    (["activate"], "needs a pool, a volume, or --all"),
    (["activate", "x", "--all"], "needs a pool, a volume, or --all"),
    (["deactivate"], "needs a pool, a volume, or --all"),
    (["set", "vol"], "set needs"),
    (["list", "--units", "q"], "no such unit"),
    (["list", "--json", "--export"], "exclude"),
    (["list", "-o", "frobs"], "no such field: frobs"),
    (["list", "-O", "frobs"], "no such field: frobs"),
    (["list", "-S", "size>>1"], "bad selection"),
])
def test_wrong_usage_is_1_and_says_what_next(hybridctl, image, argv, says):
    image("c", 64)
    image("o", 64)
    if argv and argv[0] == "create":
        argv = argv + ["--test"]
    r = hybridctl(*argv)
    assert r.returncode == 1, r.stderr
    assert says in r.stderr
    assert "\n  next: " in r.stderr
    assert not r.stdout


def test_help_as_a_command(hybridctl):
    for words in ([], ["detach"], ["check"]):
        r = hybridctl("help", *words)
        assert r.returncode == 0 and not r.stderr
        assert r.stdout == hybridctl(*words, "--help").stdout
    assert hybridctl("help", "hybrid_check").stdout == hybridctl("check", "--help").stdout
    r = hybridctl("help", "frobnicate")
    assert r.returncode == 1 and "no such command: frobnicate" in r.stderr


def test_no_color_without_a_terminal(hybridctl):
    assert "\033" not in hybridctl("frobnicate").stderr


@pytest.mark.parametrize("name", ["list", "scan", "get"])
def test_reports_take_the_report_options(hybridctl, name):
    text = hybridctl(name, "--help").stdout
    for option in ("-o, --options", "-O, --sort", "-S, --select", "--units", "--noheadings",
                   "--json", "--export"):
        assert option in text


def test_field_help(hybridctl, image):
    r = hybridctl("scan", image("x", 8), "-o", "help")
    assert r.returncode == 0
    assert re.search(r"^  device +\S", r.stdout, re.M)


def man_text(build, page):
    """The page's source, as a reader sees it: without scdoc's markup."""
    assert (build / "man" / page).stat().st_size > 1000
    text = (build / "man" / f"{page}.scd").read_text()
    return re.sub(r"\\(.)|\*", lambda m: m[1] or "", text)


def test_man_synopsis_agrees_with_the_table(build):
    text = man_text(build, "hybridctl.8")
    synopsis = text[text.index("# SYNOPSIS"):text.index("# DESCRIPTION")]
    for _, name, args in COMMANDS:
        assert f"hybridctl {name} {args} [OPTION...]" in synopsis
        assert f"## hybridctl {name} {args}\n" in text
    for option in OPTIONS:
        assert f"--{option}" in text


def test_man_page_names_every_exit_code(build):
    text = man_text(build, "hybridctl.8")
    section = text[text.index("# EXIT STATUS"):text.index("# EXAMPLES")]
    assert re.findall(r"^(\d)$", section, re.M) == list("012345678")


def test_man_page_explains_every_counter(build):
    """With all lines of each text of Documentation/dm-hybrid.rst, and without its markup."""
    text = man_text(build, "hybridctl.8")
    section = text[text.index("# COUNTERS"):text.index("# STATES")]
    tables = (TOP / "userspace/lib/tables.h").read_text()
    parts = section.split("Of a volume:")
    assert len(parts) == 2 and "`" not in section and "@" not in section
    for part, kind in zip(parts, ["POOL", "VOLUME"]):
        words = re.findall(rf"define HYBRID_{kind}_STATUS_(?:WORDS|NUMBERS)\(X\)((?:.*\\\n)*.*)", tables)
        names = re.findall(r"\bX\((\w+)\)", " ".join(words))
        rows = re.findall(r"^(\w+)\n\t(\S.*)\n\n", part, re.M)
        assert len(words) == 2 and sorted(names) == sorted(name for name, _ in rows)
    text = "First reads of granules, not cached because the origin does not seek; or reads of blocks that the policy " \
           "does not remember, while the pool's endurance is used up."
    assert f"\n\t{text}" in section


def test_dm_hybrid_page_is_built(build):
    assert "hybrid-pool" in man_text(build, "dm-hybrid.7")


def test_dm_hybrid_page_explains_every_state(build):
    """Of those that udev gets to see."""
    text = man_text(build, "dm-hybrid.7")
    section = text[text.index("HYBRID_STATE"):text.index("dracut (module")]
    explained = set(re.findall(r"^([a-z-]+)$", section, re.M))
    source = (TOP / "userspace/hybridctl/udev.c").read_text()
    source = source[source.index("decide_cache(const"):source.index("of_another_type")]
    states = {word for line in re.findall(r"^.*(?:return|\?).*\".*$", source, re.M)
              for word in re.findall(r'"([a-z-]+)"', line)}
    assert explained == states and len(states) == 11
    scan = DEF[DEF.index("COMMAND(scan"):DEF.index("COMMAND(probe")]
    assert all(re.search(rf"\b{state}\b", scan) for state in states)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_has_a_page(build, tool):
    text = man_text(build, f"{tool}.8")
    command = dict(re.findall(r'^TOOL\("(\w+)", "([\w-]+)"', DEF, re.M))[tool]
    args = next(args for _, name, args in COMMANDS if name == command)
    synopsis = text[text.index("# SYNOPSIS"):text.index("# DESCRIPTION")]
    assert f"{tool} {args} [OPTION...]" in synopsis
    assert f"hybridctl {command} {args} [OPTION...]" in synopsis
    help_text = subprocess.run([build / tool, "--help"], capture_output=True, text=True).stdout
    for option in re.findall(r"^ +(?:-\w,)? *--([a-z-]+)", help_text, re.M):
        assert option in ("test", "yes", "verbose") or f"--{option}" in text


def test_check_page_explains_every_finding(build):
    text = man_text(build, "hybrid_check.8")
    found = (TOP / "userspace/check/findings.def").read_text()
    for number, name, severity in re.findall(r'^FINDING\((\d+), \w+, "([a-z-]+)", (\w+)', found,
                                             re.M):
        assert f"\n{number} {name} ({severity})\n" in text


def test_format_page_is_the_kernels(build):
    """Its tables are checked against format.h: tests/format/test_documentation.py."""
    page = (build / "man/hybrid-format.5").read_text()
    page = page.replace("\\-", "-").replace("\\(aq", "'")
    rst = (TOP / "dm-hybrid/Documentation/dm-hybrid-format.rst").read_text()
    assert re.search(r'^\.TH "HYBRID-FORMAT" "?5"?', page, re.M)
    for field in re.findall(r"^\d+ +\d+ +(\w+)", rst, re.M):
        assert f"\n{field}\n" in page, field


def test_install(build, tmp_path):
    r = subprocess.run(["make", "-C", str(TOP / "userspace"), "install",
                        f"DESTDIR={tmp_path}", "prefix=/usr/local"],
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    have = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert have == {
        *(f"usr/local/sbin/{name}" for name in ["hybridctl", *TOOLS]),
        *(f"usr/local/share/man/man{page[-1]}/{page}"
          for page in ["dm-hybrid.7", "hybrid.conf.5", "hybrid-dump.5", "hybrid-format.5", "hybridctl.8",
                       *(f"{name}.8" for name in TOOLS)]),
        *(f"usr/local/share/bash-completion/completions/{name}" for name in ["hybridctl", *TOOLS]),
        *(f"usr/local/share/fish/vendor_completions.d/{name}.fish" for name in ["hybridctl", *TOOLS]),
        "usr/local/share/zsh/site-functions/_hybridctl",
        "usr/local/share/hybrid/hybrid.conf"}


def test_no_variable_of_tests_in_what_is_installed(build):
    """Where things are announced, and what is in hybrid.conf, is not for the environment to say."""
    strings = (build / "hybridctl").read_bytes()
    assert b"/run/hybrid" in strings and b"HYBRID_SCAN_ONLY" in strings
    assert b"HYBRID_RUN_DIR" not in strings and b"HYBRID_CONF" not in strings
