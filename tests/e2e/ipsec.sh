#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# rping between the two hosts of scripts/vm over ESP (RFC 7146): the connection is plain TCP, so nothing of softwarp is
# set up for it.  Transport mode first, then tunnel mode, where one stream outlives its associations twice: they are
# renewed, and deleted before there are others.  Fails unless the data went through the associations.
set -eu

ours=10.77.0.1 theirs=10.77.0.2
count=20 size=20000

modprobe -a esp4 xfrm_user gcm 2>/dev/null || true
both() { "$@"; ip netns exec peer "$@"; }

# Two associations, one for each direction, on both hosts.
associate() { # mode, SPI without its last digit
	for way in "$ours $theirs ${2}1" "$theirs $ours ${2}2"; do
		# shellcheck disable=SC2086
		set -- "$1" "$2" $way
		both ip xfrm state add src "$3" dst "$4" proto esp spi "$5" mode "$1" \
			aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128
	done
}

# All that goes between the hosts has to be in ESP.
demand() { # mode
	for way in "out in $ours $theirs" "in out $theirs $ours"; do
		# shellcheck disable=SC2086
		set -- "$1" $way
		ip xfrm policy add src "$4" dst "$5" dir "$2" tmpl src "$4" dst "$5" proto esp mode "$1"
		ip netns exec peer ip xfrm policy add src "$4" dst "$5" dir "$3" \
			tmpl src "$4" dst "$5" proto esp mode "$1"
	done
}

listening() { ip netns exec peer rdma resource show cm_id 2>/dev/null | grep -q LISTEN; }

await() { # condition
	for _ in $(seq 600); do
		if "$@"; then
			return 0
		fi
		sleep 0.1
	done
	echo "never: $*"
	return 1
}

# Each round goes there as the peer's read and back as its write; whatever went past ESP is not counted.
counted() { # SPI
	ip -s xfrm state | awk -v spi="0x0000${1#0x}" '/ spi / { here = index($0, spi) }
		here && /lifetime current/ { getline; sub(/[(].*/, ""); print $1; exit }'
}
carried() { # SPI without its last digit, octets: both associations have carried more
	for spi in "${1}1" "${1}2"; do
		octets=$(counted "$spi")
		[ "${octets:-0}" -gt "$2" ] || return 1
	done
}

associate transport 0x100
demand transport
ip netns exec peer "$(dirname "$0")/rping.sh" -s -C $count -S $size -V &
await listening
"$(dirname "$0")/rping.sh" -c -a $theirs -C $count -S $size -V
wait
carried 0x100 $((count * size))
echo "rping over ESP: good"

both ip xfrm policy flush
both ip xfrm state flush
both sysctl -qw net.core.xfrm_acq_expires=1
associate tunnel 0x200
demand tunnel
ip netns exec peer rping -s -S $size -V &
server=$!
await listening
rping -c -a $theirs -S $size -V &
client=$!
await carried 0x200 $((count * size))

associate tunnel 0x300
both ip xfrm state delete src $ours dst $theirs proto esp spi 0x2001
both ip xfrm state delete src $theirs dst $ours proto esp spi 0x2002
await carried 0x300 $((count * size))
kill -0 $client
echo "associations renewed: good"

# The host whose turn it is to send finds no association; the other one waits for it.
nowhere() {
	for host in "" "ip netns exec peer"; do
		$host awk '/^XfrmOutNoStates/ { exit !($2 > 0) }' /proc/net/xfrm_stat && return 0
	done
	return 1
}
both ip xfrm state flush
await nowhere
associate tunnel 0x400
await carried 0x400 $((count * size))
kill -0 $client
echo "associations lost: good"
kill $client $server
wait $client $server || true
