#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# Runs a command with streams that go past TCP wherever both ends are in this kernel, between namespaces, too.
set -e
echo 2 > /sys/module/softwarp/parameters/same_host
for attribute in /sys/class/infiniband/*/mpa/same_host; do
	echo all > "$attribute"
done
exec "$@"
