# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Boot a kernel with the host's root, or another release's, under an overlay, run a command there, bring back what it said."""

import ctypes
import dataclasses
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import arches
import kernels
import packages
import reports
from common import BUILD, ROOT, Failure, cache_root, cached, digest, run, say

# Exit codes of ours, apart from the command's own.
CODE_REPORT = 70
CODE_TIMEOUT = 124
CODE_BROKEN = 125
# Modules that the initramfs of a stock kernel needs to reach the root.
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_net")


@dataclasses.dataclass
class Job:
    """What to run, and where."""

    command: str = ""  # for bash; empty asks for a prompt
    kernel: str | kernels.Kernel = "stock-6.12"  # by its name, or one that is part of another base
    root: str = ""  # of packages.ROOTS; empty: the base itself
    net: str = "veth"  # or two-hosts, or nic
    init: str = ""  # "systemd": the root's own, which starts the command as a service
    driver: str = "softwarp"
    module: Path | None = None  # what provides the driver; None: the kernel's own
    mtu: int = 1500
    cpus: int = 2
    mem: int = 0  # MiB; 0 leaves the choice to us
    timeout: int = 300  # seconds from power-on to power-off
    peer: str = ""
    peer_kernel: str = ""  # of the second guest; empty: the same
    peer_module: Path | None = None  # the driver for it
    beside: str = ""
    base: Path = Path("/")  # what the guest sees as this machine's root; this tree has to be in it
    env: dict = dataclasses.field(default_factory=dict)
    out: Path | None = None
    tries: int = 2  # guests, if the emulator goes wrong


@dataclasses.dataclass
class Result:
    """What came of it."""

    code: int
    reports: list[str]
    out: Path  # the guest's $SOFTWARP_OUT
    why: str = ""  # set if the guest is to blame and not the command

    @property
    def vm(self) -> Path:
        return self.out / ".vm"

    @property
    def printed(self) -> str:
        """All that the command has printed, its errors last."""
        return "".join(path.read_text(errors="replace") for path in (self.vm / "stdout", self.vm / "stderr") if path.exists())


def initramfs(kernel: kernels.Kernel) -> Path:
    """The image with which a QEMU guest finds its root."""
    init = ROOT / "tests/qemu/initramfs-init"
    top = packages.root(kernel.processor.root) if kernel.processor.foreign else Path("/")

    def build(entry: Path) -> None:
        root = entry / "root"
        for sub in ("bin", "modules"):
            (root / sub).mkdir(parents=True)
        shutil.copy(top / "bin/busybox", root / "bin/busybox")
        shutil.copy(init, root / "init")
        (root / "init").chmod(0o755)
        order = []
        for module in BOOT_MODULES if kernel.modules else ():
            rows = subprocess.run(["/sbin/modprobe", "-d", kernel.modules.parents[2], "-S", kernel.release,
                                   "--show-depends", module], capture_output=True, text=True, check=False)
            for row in rows.stdout.splitlines():
                if row.startswith("insmod "):
                    path = Path(row.split()[1])
                    name = path.name.removesuffix(".xz")
                    if name not in order:
                        order.append(name)
                        if path.suffix == ".xz":
                            data = subprocess.run(["xz", "-dc", path], capture_output=True, check=True).stdout
                        else:
                            data = path.read_bytes()
                        (root / "modules" / name).write_bytes(data)
        (root / "modules/order").write_text("".join(f"{name}\n" for name in order))
        pack = "find . | cpio --quiet -o -H newc | gzip -1 > ../initramfs.gz"
        run(["sh", "-c", pack], cwd=root, what="packing the initramfs")
        shutil.rmtree(root)

    key = digest("initramfs 1", str(kernel.image), init, *BOOT_MODULES)
    return cached(f"initramfs-{kernel.name}-{key}", build, f"initramfs for {kernel.name}") / "initramfs.gz"


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """In the child: death with the parent, so that nothing is left behind."""
    ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


def _child_setup(namespace: int = -1) -> None:
    """In the child: the same, and an own process group; in that network namespace, if one is given."""
    os.setsid()
    die_with_parent()
    if namespace >= 0:
        _enter(namespace)


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "setns")


def bridge() -> int:
    """A network namespace with two taps, wire0 and wire1, on a bridge; it lives as long as somebody has it open."""
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):  # CLONE_NEWNET
        raise Failure(f"two guests on a bridge need root and network namespaces: {os.strerror(ctypes.get_errno())}")
    try:
        for command in ("link add wires type bridge", "link set wires up", "tuntap add wire0 mode tap", "tuntap add wire1 mode tap",
                        "link set wire0 master wires up", "link set wire1 master wires up"):
            run(["ip", *command.split()], what="a bridge between two guests")
        return os.open("/proc/self/ns/net", os.O_RDONLY)
    finally:
        _enter(before)
        os.close(before)


def root_of(job: Job, kernel: kernels.Kernel) -> str:
    """The root of a guest by its name, empty for the base's."""
    return kernel.processor.root or job.root


def provider_of(job: Job, kernel: kernels.Kernel) -> Path:
    """Where the plug-ins for programs of that root are, one per private ABI of libibverbs."""
    return arches.ARCHES[packages.FOREIGN_ROOTS.get(root_of(job, kernel), "amd64")].build / "provider"


class Guest:
    """One virtual machine, or a UML process."""

    def __init__(self, kernel: kernels.Kernel, job: Job, out: Path, role: str, scratch: Path, namespace: int = -1):
        self.role = role
        self.suffix = "-peer" if role == "peer" else ""
        self.vm = out / ".vm"
        self.console = self.vm / f"console{self.suffix}"
        shell = role == "shell"
        arch = kernel.processor
        debug = kernel.name in ("debug", "kcsan", "uml-kasan")
        mem = job.mem or (3072 if debug or kernel.uml else 2048)
        words = [f"softwarp.repo={ROOT}", f"softwarp.out={out}", f"softwarp.role={role}"]
        release = root_of(job, kernel)
        if release:
            words += [f"softwarp.root={packages.root(release)}", f"softwarp.cache={cache_root()}"]
        if job.init:
            words += [f"softwarp.init={job.init}", "systemd.firstboot=off", "systemd.wants=softwarp-guest.service"]
        if kernel.uml:
            con = "fd:0,fd:1" if shell else "null,fd:1"
            args = [kernel.image, f"mem={mem}M", f"ncpus={job.cpus}", "seccomp=on", "root=/dev/root", "rootfstype=hostfs",
                    "ro", f"init={ROOT}/tests/qemu/uml-init", "con=null", f"con0={con}", f"uml_dir={scratch}",
                    "umid=uml", "loglevel=5", "panic=-1", "oops=panic",
                    # A write of the guest waits for this machine's disk, and its processor with it.
                    "rcupdate.rcu_cpu_stall_timeout=120", *words]
        else:
            # A host that is busy, or a virtual machine itself and stopped for a while, keeps an emulated processor
            # waiting longer than the twenty seconds after which a kernel takes it for stuck.  One that really is stuck
            # is so after two minutes as well.
            append = [f"console={arch.console}", "loglevel=5", "panic=-1", "oops=panic", "mitigations=off", "net.ifnames=0",
                      "watchdog_thresh=60", "rcupdate.rcu_cpu_stall_timeout=120", *words]
            args = [f"qemu-system-{arch.processor}", "-accel", "tcg,thread=multi", "-machine", *arch.machine, "-smp", job.cpus,
                    "-m", mem, "-nodefaults", "-display", "none", "-no-reboot",
                    "-serial", "mon:stdio" if shell else f"file:{self.console}",
                    "-virtfs", f"local,path={job.base},mount_tag=root,security_model=none,readonly=on,multidevs=remap",
                    "-virtfs", f"local,path={out},mount_tag=out,security_model=none,multidevs=remap",
                    "-kernel", kernel.image, "-initrd", initramfs(kernel), "-append", " ".join(append)]
            if job.net == "nic":
                args += ["-nic", f"user,restrict=on,model=virtio-net-{arch.bus}"]
            if job.net == "two-hosts":
                server, number = ("on", 1) if role == "peer" else ("off", 0)
                args += ["-netdev", f"stream,id=wire,server={server},addr.type=unix,addr.path={scratch}/wire" if namespace < 0
                         else f"tap,id=wire,ifname=wire{number},script=no,downscript=no",
                         "-device", f"virtio-net-{arch.bus},netdev=wire,mac=52:54:00:77:00:0{2 if role == 'peer' else 1}"
                                    f"{',romfile=' if arch.bus == 'pci' else ''}"]
        stream = None if shell else open(self.vm / f"emulator{self.suffix}", "wb")
        self.process = subprocess.Popen(
            [str(arg) for arg in args], stdin=None if shell else subprocess.DEVNULL, stdout=stream, stderr=stream,
            preexec_fn=die_with_parent if shell else lambda: _child_setup(namespace))

    def status(self) -> str | None:
        """What the guest wrote last, None as long as it has not."""
        try:
            return (self.vm / f"status{self.suffix}").read_text().strip()
        except FileNotFoundError:
            return None

    def logs(self) -> list[str]:
        """All that this guest's kernel said."""
        paths = (self.console, self.vm / f"emulator{self.suffix}", self.vm / f"dmesg{self.suffix}")
        return [path.read_text(errors="replace") for path in paths if path.exists()]

    def reports(self) -> list[str]:
        """Reports of this guest's kernel; the console has those that came too late for the log, and the reverse."""
        found = []
        for log in self.logs():
            # The same line in console and log is the same report.
            found += [report for report in reports.find(log) if report.splitlines()[:3] not in
                      [other.splitlines()[:3] for other in found]]
        path = self.vm / f"kmemleak{self.suffix}"
        leaks = reports.leaks(path.read_text(errors="replace")) if path.exists() else ""
        if leaks.strip():
            found.append("kmemleak:\n" + leaks)
        return found

    def stop(self) -> None:
        """End the process and all that it started."""
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                self.process.kill()
        self.process.wait()


class Relay:
    """Copies a growing file to a stream of ours."""

    def __init__(self, path: Path, stream):
        self.path, self.stream, self.done = path, stream, 0

    def pump(self) -> None:
        if self.stream is None or not self.path.exists():
            return
        with open(self.path, "rb") as source:
            source.seek(self.done)
            data = source.read()
        if data:
            self.done += len(data)
            self.stream.write(data)
            self.stream.flush()


def settings(job: Job, kernel: kernels.Kernel, module: Path | None, path: Path) -> None:
    """Write down what one guest needs to know."""
    provider = provider_of(job, kernel)
    if job.driver == "softwarp" and not any(provider.glob("*.so")):
        say(f"no provider in {provider}, programs will not find the devices")
        provider = None
    if root_of(job, kernel):
        packages.root(root_of(job, kernel))
    own = kernel.modules and job.base != Path("/") and f"/lib/modules/{kernel.release}"
    pairs = {"NET": job.net, "DRIVER": job.driver, "MODULE": module or "", "MODULES": own or kernel.modules or "",
             "MTU": job.mtu, "TIMEOUT": job.timeout, "KERNEL": kernel.name,
             "PROVIDER": provider if provider and job.driver == "softwarp" else ""}
    lines = [f"{key}={shlex.quote(str(value))}" for key, value in pairs.items()]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in job.env.items()]
    path.write_text("\n".join(lines) + "\n")


def _prepare(job: Job, kernel: kernels.Kernel) -> Path:
    """The directory that the guest sees as $SOFTWARP_OUT, with the job in it."""
    if job.out:
        out = job.out.resolve()
        out.mkdir(parents=True, exist_ok=True)
    else:
        (BUILD / "vm-out").mkdir(parents=True, exist_ok=True)
        out = Path(tempfile.mkdtemp(prefix=time.strftime("%m%d-%H%M%S-"), dir=BUILD / "vm-out"))
        out.chmod(0o755)
    for path in (out, ROOT, cache_root()):
        if re.search(r"[\s,=\\]", str(path)):
            raise Failure(f"{path}: a guest cannot be given a path with blanks, commas or equal signs")
    vm = out / ".vm"
    shutil.rmtree(vm, ignore_errors=True)
    vm.mkdir()
    settings(job, kernel, job.module, vm / "settings")
    for name, text in (("command", job.command), ("peer", job.peer), ("beside", job.beside)):
        (vm / name).write_text(text + "\n" if text else "")
    if kernel.uml:
        # UML has no "cpu MHz", without which perftest prints no times; it then measures the clock itself.
        (vm / "cpuinfo").write_text(Path("/proc/cpuinfo").read_text())
    return out


def run_job(job: Job, stdout=None, stderr=None) -> Result:
    """Boot, run job.command, power off.  Its output goes to the streams (binary) as it comes, and stays in the files
    .vm/stdout and .vm/stderr of the result's directory.

    What a guest did whose emulator has provably gone wrong is no result, neither good nor bad: another one is booted, and
    nothing is left of what the first one wrote.  A report that comes before that is a report."""
    kept = set(job.out.iterdir()) if job.out and job.out.exists() else set()
    for left in reversed(range(job.tries)):
        result = _run_once(job, stdout, stderr)
        remark = reports.impossible(result.reports[0]) if result.reports else ""
        if not remark or not left:
            break
        broken = result.vm.with_name(".vm-broken")
        shutil.rmtree(broken, ignore_errors=True)
        result.vm.rename(broken)
        for path in set(result.out.iterdir()) - {broken} - {result.out / path.name for path in kept}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        say(f"{remark.removeprefix('softwarp: ')}; its logs are in {broken}, another guest is booted")
    return result


def _run_once(job: Job, stdout, stderr) -> Result:
    """One guest from power-on to power-off."""
    kernel = kernels.kernel(job.kernel) if isinstance(job.kernel, str) else job.kernel
    second = kernels.kernel(job.peer_kernel) if job.peer_kernel else kernel
    if job.net == "two-hosts" and (kernel.uml or second.uml):
        raise Failure("--net two-hosts needs a kernel that runs in QEMU")
    out = _prepare(job, kernel)
    settings(job, second, job.peer_module if job.peer_kernel else job.module, out / ".vm/settings-peer")
    guests: list[Guest] = []
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    relays = (Relay(out / ".vm/stdout", stdout), Relay(out / ".vm/stderr", stderr))
    why = ""
    code, namespace = CODE_BROKEN, -1
    with tempfile.TemporaryDirectory(prefix="softwarp-") as scratch:
        try:
            if not kernel.uml:
                initramfs(kernel)
                initramfs(second)
            begin = time.monotonic()
            if job.net == "two-hosts":
                # On QEMU 7.2's s390x, TCP's checksums come out wrong.  With taps nobody computes any: a packet says that its
                # checksum is still to be filled in.  Sockets between two QEMUs have no place for that.
                if job.peer_kernel:
                    namespace = bridge()
                guests.append(Guest(second, job, out, "peer", Path(scratch), namespace))
                while namespace < 0 and not (Path(scratch) / "wire").exists() and guests[0].process.poll() is None:
                    time.sleep(0.05)
            first = Guest(kernel, job, out, "first", Path(scratch), namespace)
            guests.append(first)
            while True:
                ended = first.process.poll() is not None
                for relay in relays:
                    relay.pump()
                if ended or first.status() is not None:
                    break
                if time.monotonic() - begin > job.timeout:
                    code, why = CODE_TIMEOUT, f"no result after {job.timeout} s, the guest was stopped"
                    break
                if guests[0] is not first and guests[0].process.poll() is not None:
                    why = "the second host died"
                    break
                time.sleep(0.05)
            for relay in relays:
                relay.pump()
            (out / ".vm/stop").touch()
            status = first.status()
            if status is None and not why:
                why = "the guest died without a result"
            elif status and status.startswith("broken"):
                why = status.removeprefix("broken ")
            elif status is not None:
                code = int(status)
            # Both guests power off by themselves now; that, too, has to work.
            for guest in guests:
                try:
                    if status is not None:
                        guest.process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    code, why = CODE_TIMEOUT, why or "the guest did not power off"
                if guest.suffix and status is not None and guest.status() != "0":
                    code, why = CODE_BROKEN, why or f"the second host ended with: {guest.status() or 'no result'}"
        finally:
            for guest in guests:
                guest.stop()
            if namespace >= 0:
                os.close(namespace)
            signal.signal(signal.SIGTERM, previous)
    found = [report for guest in guests for report in guest.reports()]
    if found and code in (0, CODE_BROKEN):
        code = CODE_REPORT
    if why and not found:
        tail = [line for guest in guests for log in guest.logs()[:1] for line in log.splitlines()[-25:]]
        why += "; end of the console:\n" + "\n".join(tail)
    return Result(code, found, out, why)


def shell(job: Job) -> int:
    """An interactive prompt in the guest, on this terminal."""
    kernel = kernels.kernel(job.kernel)
    if job.net == "two-hosts":
        raise Failure("the prompt comes with --net veth")
    job.timeout = 0
    out = _prepare(job, kernel)
    say(f"{kernel.name}: files in {out} outlive the guest; leave with exit")
    with tempfile.TemporaryDirectory(prefix="softwarp-") as scratch:
        guest = Guest(kernel, job, out, "shell", Path(scratch))
        try:
            guest.process.wait()
        finally:
            guest.stop()
            subprocess.run(["stty", "sane"], check=False)
    found = guest.reports()
    for report in found:
        print(report, file=sys.stderr)
    return CODE_REPORT if found else 0
