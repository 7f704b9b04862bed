# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Debian packages that are unpacked into the cache and not installed: kernels, their headers and their sources; and
small roots of other releases and for other processors.

A private apt directory per architecture knows bookworm with its updates and backports, and trixie-backports for the newest
kernel source; the sources of the machine stay as they are.  Mirrors are the ones that the machine already uses.
"""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from common import Failure, cache_root, cached, digest, locked, output, run, say

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# How long one download of the package lists is good for.
LISTS_AGE = 24 * 3600
# Roots of releases other than the machine's: their suites.  debian-14 is what testing has on the day when it is fetched.
ROOTS = {"debian-13": "trixie", "debian-14": "forky"}
# What they have beside what is essential: what guests need to come up, and RDMA's libraries and programs.
ROOT_PACKAGES = ("hostname", "iproute2", "kmod", "procps", "rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils",
                 "perftest")
# Roots for other processors are of the machine's release: what they have beside what is essential, and what the tests and
# the guest need; then what programs for them are linked to.
FOREIGN_ROOTS = {f"debian-12-{arch}": arch for arch in ("arm64", "s390x", "i386")}
# Architectures whose kernels are security updates; mirrors of the others may be behind, and guests do without.
SECURED = ("amd64", "arm64")
FOREIGN_PACKAGES = (*ROOT_PACKAGES, "bash", "busybox-static", "ethtool", "iperf3", "mawk", "mount", "netbase", "passwd",
                    "strace", "util-linux")
SYSROOT_PACKAGES = ("libc6-dev", "libstdc++-12-dev", "linux-libc-dev", "libibverbs-dev", "librdmacm-dev", "libgtest-dev",
                    "libcli11-dev", "libfmt-dev", "nlohmann-json3-dev")


# What a machine may call its release in its sources: a mirror has all of them.
RELEASES = ("bookworm", "trixie", "forky", "sid", "oldoldstable", "oldstable", "stable", "testing", "unstable")


def mirrors() -> tuple[str, str | None]:
    """URIs of the Debian mirror and, if the machine uses one, of the security archive."""
    rows = output(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(CODENAME)"]).splitlines()
    main = security = None
    for row in rows:
        uri, release = row.split()[:2]
        name = row.split()[-1]
        if release in RELEASES and "debian" in uri:
            main = main or uri
        if "security" in release and name.startswith(RELEASES):
            security = security or uri
    if not main:
        raise Failure("apt knows no Debian mirror on this machine; add one to its sources first")
    return main, security


def apt_options(arch: str = "amd64") -> list[str]:
    """Options that make apt use the private directory of an architecture, with fresh lists."""
    base = cache_root() / ("apt" if arch == "amd64" else f"apt-{arch}")
    options = ["-o", f"Dir::Etc::sourcelist={base}/sources.list", "-o", "Dir::Etc::sourceparts=-",
               "-o", f"Dir::State::lists={base}/lists", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=",
               "-o", f"Dir::Cache::archives={base}/archives", "-o", f"APT::Architecture={arch}",
               "-o", "Acquire::Languages=none", "-o", "APT::Update::Post-Invoke=", "-o",
               "APT::Update::Post-Invoke-Success=", "-o", "Acquire::Retries=3"]
    if subprocess.run(["id", "-u"], capture_output=True, text=True, check=True).stdout.strip() == "0":
        # The directory may be out of reach for the user that apt drops to.
        options += ["-o", "APT::Sandbox::User=root"]
    if arch != "amd64":
        # What this machine has installed is of no use there.
        options += ["-o", f"APT::Architectures={arch}", "-o", f"Dir::State::status={base}/status"]
    main, security = mirrors()
    suites = ["bookworm", "bookworm-updates", "bookworm-backports"]
    if arch == "amd64":
        suites.append("trixie-backports")
    lines = [f"deb [signed-by={KEYRING}] {main} {suite} main" for suite in suites]
    if security and arch in SECURED:
        lines.append(f"deb [signed-by={KEYRING}] {security} bookworm-security main")
    text = "\n".join(lines) + "\n"
    stamp = base / "updated"
    with locked(cache_root() / f"{base.name}.lock", "package lists"):
        for sub in ("lists/partial", "archives/partial"):
            (base / sub).mkdir(parents=True, exist_ok=True)
        (base / "status").touch()
        source = base / "sources.list"
        fresh = stamp.exists() and time.time() - stamp.stat().st_mtime < LISTS_AGE
        if not fresh or not source.exists() or source.read_text() != text:
            say(f"fetching package lists for {arch}")
            source.write_text(text)
            run(["apt-get", *options, "update"], what="apt-get update in the private directory")
            stamp.touch()
    return options


def version(options: list[str], package: str) -> str:
    """The candidate version of a package in the private directory."""
    match = re.search(r"Candidate: (\S+)", output(["apt-cache", *options, "policy", package]))
    if not match or match[1] == "(none)":
        raise Failure(f"no package {package} in bookworm, its backports or trixie-backports at this mirror")
    return match[1]


def depends(options: list[str], package: str) -> list[str]:
    """Direct dependencies of a package, first alternatives only."""
    rows = output(["apt-cache", *options, "depends", "--no-recommends", "--no-suggests", "--no-enhances",
                   "--no-conflicts", "--no-breaks", "--no-replaces", package]).splitlines()
    return [row.split("Depends:")[1].strip() for row in rows if "Depends:" in row]


def newest(options: list[str], pattern: str) -> str:
    """The package with the highest version number in its name among those matching a regular expression."""
    rows = output(["apt-cache", *options, "search", "--names-only", pattern]).splitlines()
    names = [row.split()[0] for row in rows]
    if not names:
        raise Failure(f"no package matches {pattern} at this mirror")
    return max(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])


def unpack(options: list[str], packages: list[str], into: Path) -> None:
    """Download packages and unpack them into one directory."""
    debs = into / ".debs"
    debs.mkdir(parents=True)
    run(["apt-get", *options, "download", *packages], log=into / "download.log",
        what=f"download of {' '.join(packages)}", cwd=debs)
    for deb in sorted(debs.glob("*.deb")):
        run(["dpkg-deb", "-x", deb, into], what=f"unpacking {deb.name}")
        deb.unlink()
    debs.rmdir()


def latest_entry(pattern: str) -> Path | None:
    """The newest complete cache entry that matches, so that a machine without network can go on."""
    entries = [entry for entry in cache_root().glob(pattern) if (entry / ".complete").exists()]
    return max(entries, key=lambda entry: (entry / ".complete").stat().st_mtime, default=None)


def source(series: str) -> Path:
    """The unpacked source tree of a kernel series: "6.1", "6.12", or "7" for the newest 7.x."""
    known = latest_entry(f"source-{series}[-.]*")
    if not known:
        options = apt_options()
        package = newest(options, r"^linux-source-7\.[0-9]+$") if series == "7" else f"linux-source-{series}"
        name = f"{package.removeprefix('linux-')}-{version(options, package)}".replace("~", "_")

        def build(entry: Path) -> None:
            unpack(options, [package], entry)
            archive = next((entry / "usr/src").glob("linux-source-*.tar.xz"))
            run(["tar", "-C", entry, "-xf", archive], what=f"unpacking {archive.name}", log=entry / "unpack.log")
            archive.unlink()

        known = cached(name, build, package)
    return next(known.glob("linux-source-*"))


def stock(series: str, arch: str = "amd64") -> Path:
    """Debian's kernel of a series ("6.1", "6.12" or "7") and its headers, unpacked; the directory is like a root."""
    prefix = f"stock-{series}" if arch == "amd64" else f"{arch}-{series}"
    known = latest_entry(f"{prefix}-*")
    if known:
        return known
    options = apt_options(arch)
    if series == "7":
        image = newest(options, r"^linux-image-7\.[0-9.]+\+deb13-amd64$")
    elif arch == "amd64":
        suffix = arch if series == "6.1" else f"{series}-{arch}"
        image = depends(options, f"linux-image-{suffix}")[0]
    else:
        # Not all architectures have a package that depends on the newest one.
        image = newest(options, rf"^linux-image-{re.escape(series)}\.[^-]*-{arch}$")
    # Since 7.3 the kernel and its modules are in packages that this one needs.
    pieces = [name for name in depends(options, image) if re.match(r"linux-(binary|modules)-", name)]
    headers = image.replace("-image-", "-headers-")
    parts = [name for name in depends(options, headers) if re.match(r"linux-(headers|kbuild)-", name)]
    # The programs of the build run here, whatever they build for.
    programs = [name for name in parts if name.startswith("linux-kbuild-")]

    def build(entry: Path) -> None:
        unpack(options, [image, *pieces, headers, *(name for name in parts if name not in programs)], entry)
        unpack(apt_options(), programs, entry)
        release = image.removeprefix("linux-image-")
        usr = entry / "usr"
        # /lib is a link on the machine, so the same path works for packages with and without /usr/lib.
        if (entry / "lib/modules").is_dir():
            (usr / "lib/modules").mkdir(parents=True, exist_ok=True)
            for tree in (entry / "lib/modules").iterdir():
                tree.rename(usr / "lib/modules" / tree.name)
        modules = usr / "lib/modules" / release
        for link in ("build", "source"):
            (modules / link).unlink(missing_ok=True)
        (modules / "build").symlink_to(usr / "src" / f"linux-headers-{release}")
        makefile = usr / "src" / f"linux-headers-{release}" / "Makefile"
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{usr}/src/"))
        run(["/sbin/depmod", "-b", usr, release], what="depmod")

    return cached(f"{prefix}-{version(options, image)}".replace("~", "_"), build, f"kernel {image}")


def closure(options: list[str], wanted) -> list[str]:
    """Packages, those that they depend on, and the essential ones, as apt would install them on nothing."""
    rows = output(["apt-get", *options, "--simulate", "--no-install-recommends", "install", "?essential", *wanted]).splitlines()
    return sorted({row.split()[1].split(":")[0] for row in rows if row.startswith("Inst ")})


def configure(root: Path) -> None:
    """What the scripts of packages would have done, as far as guests need it: they cannot run on this processor."""
    (root / "usr/share/base-passwd/passwd.master").replace(root / "etc/passwd")
    (root / "usr/share/base-passwd/group.master").replace(root / "etc/group")
    for name, target in (("sh", "dash"), ("awk", "mawk")):
        link = root / "usr/bin" / name
        if not link.exists():
            link.symlink_to(target)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    shutil.copyfile(root / "usr/share/libc-bin/nsswitch.conf", root / "etc/nsswitch.conf")
    for name in ("proc", "sys", "dev", "run", "tmp"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    # To a linker, an absolute link is one into this machine.
    for link in (root / "usr/lib").rglob("*.so*"):
        if link.is_symlink() and os.readlink(link).startswith("/"):
            target = root / os.readlink(link).lstrip("/")
            link.unlink()
            link.symlink_to(os.path.relpath(target, link.parent))


def foreign_root(name: str) -> Path:
    """A root for another processor: packages unpacked and hardly configured, for guests and as a sysroot of compilers."""
    arch = FOREIGN_ROOTS[name]
    wanted = (*FOREIGN_PACKAGES, *SYSROOT_PACKAGES)

    def build(entry: Path) -> None:
        options = apt_options(arch)
        root = entry / "root"
        for place in ("bin", "sbin", "lib", "lib64"):
            (root / "usr" / place).mkdir(parents=True)
            (root / place).symlink_to(f"usr/{place}")
        unpack(options, closure(options, wanted), root)
        configure(root)

    return cached(f"root-bookworm-{arch}-{digest('foreign 1', *wanted)}", build, f"root of bookworm for {arch}") / "root"


def root(name: str) -> Path:
    """The root of another release of Debian or for another processor, with the packages that guests need."""
    if name in FOREIGN_ROOTS:
        return foreign_root(name)
    suite = ROOTS[name]
    scripts = Path("/usr/share/debootstrap/scripts")
    if not scripts.exists():
        raise Failure("debootstrap is not installed, and makes the roots of other releases")
    # Older ones than the suite do not know its name, but treat all alike since long.
    script = scripts / (suite if (scripts / suite).exists() else "sid")

    def build(entry: Path) -> None:
        run(["debootstrap", "--variant=minbase", "--arch=amd64", f"--include={','.join(ROOT_PACKAGES)}",
             f"--keyring={KEYRING}", suite, entry / "root", mirrors()[0], script], log=entry / "debootstrap.log",
            what=f"root of {suite}")
        for archive in (entry / "root/var/cache/apt/archives").glob("*.deb"):
            archive.unlink()

    return cached(f"root-{suite}-{digest('root 1', *ROOT_PACKAGES)}", build, f"root of {suite}") / "root"
