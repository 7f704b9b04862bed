# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What packages are made of: the tree's files, its version, and its list of changes."""

import os
import re
import shutil
import textwrap
from pathlib import Path

from common import ROOT, Failure, output


def version() -> str:
    """The release, as kernel/version.h and CHANGELOG.md agree on it."""
    header = re.search(r'^#define SOFTWARP_VERSION "([0-9.]+)"$', (ROOT / "kernel/version.h").read_text(), re.MULTILINE)
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if not header or not heading or header[1] != heading[1]:
        raise Failure(f"kernel/version.h says {header and header[1]}, CHANGELOG.md {heading and heading[1]}")
    return header[1]


def changes() -> list[str]:
    """The items of the newest section of CHANGELOG.md, each as one line."""
    section = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    items = re.findall(r"^- (.*(?:\n  .*)*)", section, re.MULTILINE)
    return [re.sub(r"\s+", " ", item.replace("`", "")) for item in items]


def maintainer() -> str:
    """Who builds: $DEBFULLNAME <$DEBEMAIL>, as for all of Debian's tools, else the name and address of debian/control."""
    found = re.search(r"^Maintainer: ((.*) <.*>)$", debian_control(), re.MULTILINE)
    email = os.environ.get("DEBEMAIL")
    return f"{os.environ.get('DEBFULLNAME') or found[2]} <{email}>" if email else found[1]


def debian_control() -> str:
    """The file as the tree has it."""
    return (ROOT / "packaging/debian/control").read_text()


def claim(control: Path) -> None:
    """Put maintainer() into a copy of debian/control."""
    control.write_text(re.sub(r"(?m)^Maintainer: .*$", lambda _: f"Maintainer: {maintainer()}", debian_control(), count=1))


def date(form: str) -> str:
    """When the newest commit was made, in a form of git's."""
    return output(["git", "log", "-1", "--format=%cd", f"--date={form}"], cwd=ROOT).strip()


def copy(into: Path) -> None:
    """All files that git knows or would take, as they are now."""
    names = output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT).split("\0")
    for name in sorted(set(names) - {""}):
        if (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)


def debian_changelog() -> str:
    """debian/changelog: one entry, for the release."""
    items = [textwrap.fill(item, 76, initial_indent="  * ", subsequent_indent="    ") for item in changes()]
    when = date("format:%a, %d %b %Y %H:%M:%S %z")
    return f"softwarp ({version()}) unstable; urgency=medium\n\n" + "\n".join(items) + f"\n\n -- {maintainer()}  {when}\n"
