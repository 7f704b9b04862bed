#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Two hosts of different processors, each the client once:  mixed.sh first|peer PROGRAMS SDP_MODULE
#
#   first, 10.77.0.1  -- client -->  peer, 10.77.0.2      then the other way round
#
# PROGRAMS is the directory with what is built for the host's processor.  The hosts meet by files in $SOFTWARP_OUT, which
# both share.  The first one prints a line "ok" or "FAILED" for each case of both.
set -u

role=$1 programs=$2 module=$3
rping=${0%/*}/rping.sh
meet=$SOFTWARP_OUT/mixed
mkdir -p "$meet"
device=sw0 own=10.77.0.1 other=10.77.0.2
[ "$role" = first ] || device=sw1 own=10.77.0.2 other=10.77.0.1
insmod "$module" || exit 1
uname -m > "$meet/$role-is"
cases=0 failed=0

soak=$programs/sockets/socket-soak

# What a case does on its server, in a process of its own, and on its client.
server() { # case, argument
	case $1 in
	ping) exec "$rping" -s -C 20 -V -S "$2" ;;
	perftest) exec "$2" -d $device -R -F -n 200 ;;
	stream) exec riostream -T v -S 65536 -I 20 -C 10 ;;
	sockets) exec "$soak" --port 5000 --kind sdp --serve $own ;;
	esac
}

client() {
	case $1 in
	ping) timeout 100 "$rping" -c -a $other -C 20 -V -S "$2" ;;
	perftest) timeout 100 "$2" -d $device -R -F -n 200 $other ;;
	stream) timeout 100 riostream -s $other -T v -S 65536 -I 20 -C 10 ;;
	sockets) timeout 100 "$soak" --port 5000 --kind sdp --stream $other --bytes 4000000 ;;
	esac
}

wait_for() { # file
	for ((tick = 0; tick < 3000; tick++)); do
		[ -e "$meet/$1" ] && return
		sleep 0.1
	done
	echo "no $1 after 300 s"
	return 1
}

listeners() { cat /proc/net/tcp /proc/net/tcp6 | grep -c ': [0-9A-F:]* [0-9A-F:]* 0A '; }

# Start what the client asks for, one after the other, until a file says that it has had enough.
serve() { # file
	local words before pid=
	until [ -e "$meet/$1" ]; do
		sleep 0.1
		[ -e "$meet/wanted" ] || continue
		read -r -a words < "$meet/wanted"
		rm "$meet/wanted"
		[ -z "$pid" ] || kill "$pid" 2> /dev/null
		before=$(listeners)
		server "${words[@]}" >> "$meet/$role-server.log" 2>&1 &
		pid=$!
		for ((tick = 0; tick < 100; tick++)); do
			[ "$(listeners)" -gt "$before" ] && break
			sleep 0.1
		done
		touch "$meet/listens"
	done
	[ -z "$pid" ] || kill "$pid" 2> /dev/null
}

ask() { # case, argument
	rm -f "$meet/listens"
	echo "$*" > "$meet/wanted.new"
	mv "$meet/wanted.new" "$meet/wanted"
	wait_for listens && client "$@"
}

check() { # what, case, argument
	local text
	cases=$((cases + 1))
	if text=$(ask "${@:2}" 2>&1); then
		echo "ok     $way: $1"
	else
		failed=$((failed + 1))
		echo "FAILED $way: $1"
		printf '%s\n' "$text" | sed 's/^/    /'
	fi
}

use() { # the other host's processor
	way="$(uname -m) to $1"
	check "rping, 64 octets, verified" ping 64
	check "rping, 65535 octets, verified" ping 65535
	# not ib_send_bw, whose server writes the client a credit in its own byte order
	for program in ib_write_bw ib_read_bw ib_send_lat ib_atomic_bw; do
		check "$program" perftest $program
	done
	check "riostream, verified" stream
	check "SDP sockets, both ways at once, verified" sockets
}

if [ "$role" = peer ]; then
	# It has to listen before the first host starts.
	"$soak" --port 4999 --kind tcp --serve $own > /dev/null 2>&1 &
	serve turn
	use "$(cat "$meet/first-is")" > "$meet/cases"
	echo "$failed" > "$meet/end.new"
	mv "$meet/end.new" "$meet/end"
	exit
fi
wait_for peer-is && use "$(cat "$meet/peer-is")"
touch "$meet/turn"
serve end
cat "$meet/cases"
[ "$failed" = 0 ] && [ "$(cat "$meet/end")" = 0 ]
