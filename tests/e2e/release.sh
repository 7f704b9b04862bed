#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Another release of Debian, whose root the guest has: its libibverbs finds the plug-in of its private ABI, and its programs
# run between the two hosts.  A line "ok" or "FAILED" for each step.
set -u

abi=$1 # the private ABI that this release's libibverbs should have
library=$(readlink -f /usr/lib/x86_64-linux-gnu/libibverbs.so.1)
plugins=/usr/lib/x86_64-linux-gnu/libibverbs
failed=0

check() { # what, command
	local what=$1 text
	shift
	if text=$("$@" 2>&1); then
		echo "ok     $what"
	else
		echo "FAILED $what"
		printf '%s\n' "$text" | sed 's/^/    /'
		failed=$((failed + 1))
	fi
}

has_abi() {
	echo "$library"
	grep -q "verbs_register_driver_$abi" "$library"
}

# The dynamic linker says what it opens.
opens_it() {
	local text
	text=$(LD_DEBUG=files ibv_devinfo -d sw0 2>&1) || { echo "$text"; return 1; }
	grep 'state:.*PORT_ACTIVE' <<< "$text" && [ "$(grep -o 'calling init: .*libsoftwarp-.*' <<< "$text")" = \
		"calling init: $plugins/libsoftwarp-rdmav$abi.so" ] || { grep softwarp <<< "$text"; return 1; }
}

# Those for other private ABIs are there, but not opened.
needs_it() {
	local code
	mv $plugins/libsoftwarp-rdmav"$abi".so /run || return 1
	[ "$(find $plugins -name 'libsoftwarp-rdmav*.so' | wc -l)" -ge 4 ] && ! ibv_devinfo -d sw0
	code=$?
	mv /run/libsoftwarp-rdmav"$abi".so $plugins
	return $code
}

# Server on the other host, then the client here, with a second's head start.
between() { # server's command -- client's
	local server=()
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	timeout 60 ip netns exec peer "${server[@]}" &
	sleep 1
	timeout 60 "$@" && wait $!
}

perftest() { # program, options
	between "$1" -d sw1 -R -F -n 1000 "${@:2}" -- "$1" -d sw0 -R -F -n 1000 "${@:2}" 10.77.0.2
}

# The client of rdma-core 65 sometimes does not end, over siw as well: it joins a thread that waits for an event of
# rdma_cm, which does not come.  Then the result of the server counts, which has come to the end, and that
# the client has not found a mistake.
ping_pong() {
	local client server
	timeout 60 ip netns exec peer "$(dirname "$0")/rping.sh" -s -C 100 -V > /run/server.log 2>&1 &
	sleep 1
	timeout 20 "$(dirname "$0")/rping.sh" -c -a 10.77.0.2 -C 100 -V > /run/client.log 2>&1
	client=$?
	wait $!
	server=$?
	cat /run/server.log /run/client.log
	echo "client $client, server $server"
	[ $server = 0 ] || return 1
	[ $client = 0 ] || { [ $client = 124 ] && ! grep -v 'DISCONNECT EVENT' /run/client.log; }
}

check "libibverbs has private ABI $abi" has_abi
check "ibv_devinfo opens the plug-in for ABI $abi, and no other" opens_it
check "without it there is no device" needs_it
check "rping" ping_pong
for program in ib_write_bw ib_read_bw ib_send_bw ib_atomic_bw ib_write_lat; do
	check "$program" perftest $program
done
check "ib_send_bw with completion events" perftest ib_send_bw -e
check "ib_send_bw with a shared receive queue" perftest ib_send_bw --use-srq
check "riostream verifies" between riostream -T v -- riostream -s 10.77.0.2 -T v
[ $failed = 0 ]
