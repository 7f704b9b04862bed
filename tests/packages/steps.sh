# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# What guest.sh and boot.sh share: steps with a line "ok" or "FAILED" each, and an ordinary user.

failed=0

check() { # what, function
	if text=$("$2" 2>&1); then
		echo "ok     $1"
	else
		echo "FAILED $1"
		printf '%s\n' "$text" | sed 's/^/    /'
		failed=$((failed + 1))
	fi
}

user() {
	setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}
