# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Find in a kernel log what no test may pass with."""

import re

# First lines of reports.  A test that provokes one of these on purpose does not exist, so there is no way to allow it.
REPORT = re.compile(
    r"BUG: |kernel BUG at|WARNING: |Oops|KASAN: |UBSAN: |general protection fault|Unable to handle kernel|"
    r"INFO: task .* blocked|INFO: possible|INFO: trying to register|rcu: INFO: |suspicious RCU usage|possible circular "
    r"locking|possible recursive locking|possible irq lock|inconsistent lock state|bad unlock balance|held lock freed|"
    r"lock held when returning|nested lock was not taken|DEBUG_LOCKS_WARN_ON|sleeping function called|scheduling while "
    r"atomic|Voluntary context switch within RCU|soft lockup|hard LOCKUP|workqueue lockup|refcount_t: |list_(add|del) "
    r"corruption|unregister_netdevice: waiting for|leaked reference|ref_tracker: |Kernel panic|Segfault with no mm|"
    r"Out of memory: |page allocation failure|Bad page state|softwarp-guest: |"
    # Without memory (-ENOMEM) it is no mistake, and tests take that away.
    r"kobject_add_internal failed(?!.*\(error: -12 )")
STAMP = re.compile(r"^(<\d+>)?\[ *\d+\.\d+\](\[[ TC]\d+\])? ?")
LENGTH = 60
# Bits of EFLAGS that no processor ever has: 3, 5, 15 and all from 22 on.
FLAGS = re.compile(r"EFLAGS: ([0-9a-f]{8})\b")
NO_FLAGS = 0xffc08028
# KCSAN finds races all over the kernel, and its developers live with many; one counts if a function of ours takes part,
# be it far down in either stack.
RACE = re.compile(r"BUG: KCSAN: ")
# A line of a stack; what follows the stacks names a work function of ours, too, when only its worker has raced.
OURS = re.compile(r"^ .*(\[softwarp\]|\bswp_\w)")
END = re.compile(r"^={60,}$")
# A breakpoint was executed, and the byte before the instruction pointer is none.  The kernel had put one there while it
# changed an instruction, and QEMU had translated it for another processor between looking for translations to drop and
# the store that took it away.
BREAKPOINT = re.compile(r"^Oops: int3: |^int3: ")
CODE = re.compile(r"^Code: .*\b([0-9a-f]{2}) <[0-9a-f]{2}>")
BROKEN = "softwarp: {}: the emulator or the machine below it went wrong, run it again"


# iw_cm (6.12, 7.3) copies the private data of a request and loses the copy when its listener is destroyed before iw_cm
# has come to the event; no driver is asked between the two.
# ib_uverbs keeps what a device can do in a radix tree, and an insertion that fails for want of memory leaves nodes without
# children there, which uverbs_destroy_api() passes by: it looks at entries.
LOST_BY_CORE = re.compile(r"^ +(kmemdup\w*\+.*\n +cm_event_handler|radix_tree_insert\+.*\n +uapi_add_(get_)?elm)\+",
                          re.MULTILINE)


def leaks(text: str) -> str:
    """What kmemleak has found, but for what the kernel's core is known to lose by itself."""
    first, *objects = re.split(r"^(?=unreferenced object )", text, flags=re.MULTILINE)
    return first + "".join(found for found in objects if not LOST_BY_CORE.search(found))


def remark(report: list[str]) -> list[str]:
    """What is to be said of a report that no kernel can have brought about."""
    flags = [match[1] for line in report for match in FLAGS.finditer(line)]
    why = [f"EFLAGS {text} is not to be had from a processor" for text in flags if int(text, 16) & NO_FLAGS]
    code = next(filter(None, map(CODE.match, report)), None)
    if any(map(BREAKPOINT.match, report)) and code and code[1] != "cc":
        why.append(f"a breakpoint was executed where the memory has {code[1]}")
    return [BROKEN.format(text) for text in why[:1]]


def impossible(report: str) -> str:
    """The remark that says that no kernel can have brought this report about, if there is one."""
    last = report.splitlines()[-1]
    return last if last.startswith("softwarp: ") and last.endswith("run it again") else ""


def race(lines: list[str], index: int) -> tuple[list[str], int]:
    """The report of a data race that begins there, and the index behind it."""
    end = index
    while end < len(lines) and end < index + LENGTH and not END.match(lines[end]):
        end += 1
    return lines[index:end], end


def find(log: str) -> list[str]:
    """The reports in a kernel log, each as a text of about LENGTH lines."""
    lines = [STAMP.sub("", line.rstrip()) for line in log.splitlines()]
    found = []
    index = 0
    while index < len(lines):
        if RACE.search(lines[index]):
            report, index = race(lines, index)
            if any(OURS.search(line) for line in report):
                found.append("\n".join(report))
        elif REPORT.search(lines[index]):
            # What a WARN says stands before its first line.
            report = lines[max(index - 2, 0):index + LENGTH]
            found.append("\n".join(report + remark(report)))
            index += LENGTH
        else:
            index += 1
    return found
