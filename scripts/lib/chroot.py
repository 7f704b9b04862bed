# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Clean Debian systems to build packages in and to install them on.

A system is a stack of layers in the cache: what debootstrap makes, and on top of it packages.  A run works on an overlay
over such a stack, so that every run begins with the same system.  Mounts are made in a mount namespace of the script's own
(private_mounts), so that none is left behind, however the script ends.
"""

import contextlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import packages
from common import BUILD, Failure, cached, digest, run

SUITES = ("bookworm", "trixie")
# Of bookworm's backports apt takes only what is asked for by name.
BACKPORTS = ("bookworm",)
NODES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
               "DEBIAN_FRONTEND": "noninteractive"}
INSIDE = "SOFTWARP_PRIVATE_MOUNTS"


def private_mounts() -> None:
    """Start the script again in a mount namespace of its own."""
    if os.geteuid() != 0:
        raise Failure("chroots are root's affair: run this as root")
    if not shutil.which("debootstrap"):
        raise Failure("debootstrap is not installed; run scripts/setup --packages")
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])


def sources(suite: str) -> str:
    """The lines of sources.list for a suite, from the mirrors that the machine uses."""
    main, security = packages.mirrors()
    names = [suite, f"{suite}-updates", *([f"{suite}-backports"] if suite in BACKPORTS else [])]
    lines = [f"deb {main} {name} main" for name in names]
    if security:
        lines.append(f"deb {security} {suite}-security main")
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def mounted(layers: list[Path], upper: Path):
    """The root directory of layers, lowest first, with changes going to the directory upper."""
    parts = [upper.with_name(f"{upper.name}.{part}") for part in ("work", "root")]
    for path in (upper, *parts):
        path.mkdir(parents=True, exist_ok=True)
    work, root = parts
    lower = ":".join(str(path) for path in reversed(layers))
    run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", root],
        what="mounting an overlay")
    try:
        run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", root / "dev"], what="mounting /dev")
        for name, major, minor in NODES:
            os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
            (root / "dev" / name).chmod(0o666)
        for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"),
                             ("ptmx", "pts/ptmx")):
            (root / "dev" / name).symlink_to(target)
        for name, kind in (("pts", "devpts"), ("shm", "tmpfs")):
            (root / "dev" / name).mkdir()
            options = "newinstance,ptmxmode=0666,gid=5,mode=620" if kind == "devpts" else "mode=1777"
            run(["mount", "-t", kind, "-o", options, kind, root / "dev" / name], what=f"mounting /dev/{name}")
        yield root
    finally:
        run(["umount", "-R", root], what="unmounting an overlay")
        root.rmdir()
        shutil.rmtree(work)


def command(root: Path, args, network: bool = False, user: str = "root", cwd: str = "/") -> list[str]:
    """The command that runs another one in a mounted system; what it leaves running ends with it."""
    # Programs find lo up, and nothing else.
    alone = [] if network else ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    inner = ["env", "-i", *(f"{key}={value}" for key, value in ENVIRONMENT.items())]
    if user != "root":
        inner += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "env", f"HOME=/home/{user}"]
    return [*alone, "unshare", "--mount", "--pid", "--fork", "--kill-child", f"--root={root}", f"--wd={cwd}", "--mount-proc",
            *inner, *(str(arg) for arg in args)]


def within(layers: list[Path], shared: list[Path]) -> list[str]:
    """What runs the words after it in a system of layers, where the directories `shared` are those of this machine, under
    their own names; what they change elsewhere is lost.  Mounts are seen by these words alone."""
    if os.geteuid() != 0:
        raise Failure("chroots are root's affair: run this as root")
    place = BUILD / "chroot"
    place.mkdir(parents=True, exist_ok=True)
    lower = ":".join(str(path) for path in reversed(layers))
    script = ["set -e", f"cd {shlex.quote(str(place))}", "mount -t tmpfs tmpfs .", 'cd "$PWD"', "mkdir upper work root",
              f"mount -t overlay overlay -o {shlex.quote(f'lowerdir={lower}')},upperdir=upper,workdir=work root"]
    for path in ("/dev", "/proc", *map(str, shared)):
        script += [f"mkdir -p root{shlex.quote(path)}", f"mount --rbind {shlex.quote(path)} root{shlex.quote(path)}"]
    script.append('exec chroot root env -i "$@"')
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", "; ".join(script), "sh",
            *(f"{key}={value}" for key, value in ENVIRONMENT.items())]


def inside(root: Path, args, log: Path | None = None, what: str = "", **kwargs) -> None:
    """Run a step in a mounted system to its end."""
    run(command(root, args, **kwargs), log=log, what=what or str(args[0]))


def printed(root: Path, args, **kwargs) -> tuple[int, str]:
    """Exit code of a command in a mounted system, and all that it printed."""
    done = subprocess.run(command(root, args, **kwargs), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, errors="replace")
    return done.returncode, done.stdout


def base(suite: str, variant: str) -> Path:
    """The lowest layer: of the variant "buildd" build-essential and what it needs, of "minbase" what every machine has."""
    if suite not in SUITES:
        raise Failure(f"no suite {suite}; choose one of {', '.join(SUITES)}")
    text = sources(suite)

    def build(entry: Path) -> None:
        root = entry / "root"
        run(["debootstrap", f"--variant={variant}", f"--keyring={packages.KEYRING}", suite, root, text.split()[1]],
            log=entry / "log", what=f"debootstrap {suite}")
        (root / "etc/apt/sources.list").write_text(text)
        # No services, no manual pages of others, nothing downloaded that stays
        policy = root / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        (root / "etc/apt/apt.conf.d/90softwarp").write_text(
            'APT::Install-Recommends "false";\nAcquire::Languages "none";\nAPT::Sandbox::User "root";\n'
            'Acquire::Retries "3";\n')
        shutil.rmtree(root / "var/cache/apt/archives")
        (root / "var/cache/apt/archives/partial").mkdir(parents=True)

    key = digest("recipe 1", suite, variant, text)
    return cached(f"chroot-{suite}-{variant}-{key}", build, f"a clean {suite} ({variant})") / "root"


def layers(suite: str, name: str, wanted: list[str], how: str = "install", variant: str = "buildd") -> list[Path]:
    """The lowest layer, and one with packages: what apt-get install takes, or apt-get satisfy."""
    lowest = base(suite, variant)

    def build(entry: Path) -> None:
        with mounted([lowest], entry / "root") as root:
            shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
            for args in (["apt-get", "update"], ["apt-get", "-y", "upgrade"], ["apt-get", "-y", how, *wanted],
                         ["apt-get", "clean"]):
                inside(root, args, log=entry / "log", what=f"{' '.join(args[:3])} in {suite}", network=True)

    key = digest("recipe 1", lowest.parent.name, *wanted)
    return [lowest, cached(f"chroot-{suite}-{name}-{key}", build, f"{suite} with packages to {name}") / "root"]


def build_depends(control: Path) -> list[str]:
    """What a debian/control asks for, for apt-get satisfy."""
    match = re.search(r"^Build-Depends:((?:.*\n)(?:[ \t].*\n)*)", control.read_text(), re.MULTILINE)
    if not match:
        raise Failure(f"{control} has no Build-Depends")
    return [part.strip() for part in match[1].split(",") if part.strip()]
