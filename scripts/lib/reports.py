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
    r"Out of memory: |page allocation failure|Bad page state|kobject_add_internal failed|softwarp-guest: ")
STAMP = re.compile(r"^(<\d+>)?\[ *\d+\.\d+\](\[[ TC]\d+\])? ?")
LENGTH = 60


def find(log: str) -> list[str]:
    """The reports in a kernel log, each as a text of at most LENGTH lines."""
    lines = [STAMP.sub("", line.rstrip()) for line in log.splitlines()]
    found = []
    index = 0
    while index < len(lines):
        if REPORT.search(lines[index]):
            # What a WARN says stands before its first line.
            found.append("\n".join(lines[max(index - 2, 0):index + LENGTH]))
            index += LENGTH
        else:
            index += 1
    return found
