#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# README's recipe, as an administrator follows it: make install, modprobe, rdma link add, a program.  The guest's root is
# an overlay, so the installation is a true one and gone afterwards.  A line "ok" or "FAILED" for each step.
set -u

kdir=$1 # build directory of this kernel, for which the modules have been built
release=$(uname -r)
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

# Of the kernel's modules those that are needed here: an emulated processor takes minutes to run depmod over all.
few_modules() {
	local few=/run/modules
	mkdir $few
	modprobe -aS "$release" --show-depends ib_uverbs rdma_ucm iw_cm libcrc32c veth dummy rdma_rxe crc32_generic |
		awk '/^insmod/ { print $2 }' | sort -u |
		(cd "/lib/modules/$release" && sed "s|^/lib/modules/$release/||" | xargs cp --parents -t $few) || return 1
	cp "/lib/modules/$release"/modules.{builtin,builtin.modinfo,order} $few || return 1
	mount --bind $few "/lib/modules/$release" && depmod -a
}

# Nothing of what a device needs is loaded, and nothing of ours is installed.
bare() {
	few_modules || return 1
	modprobe -ra rdma_ucm ib_uverbs rdma_cm iw_cm ib_cm ib_core 2> /dev/null
	[ ! -e /sys/module/ib_core ] || { lsmod; return 1; }
	! modprobe -n softwarp 2> /dev/null || return 1
	[ ! -e /etc/libibverbs.d/softwarp.driver ] && [ ! -e /usr/share/man/man7/softwarp.7 ]
}

installed() {
	make install KDIR="$kdir" || return 1
	for name in softwarp softwarp_sdp; do
		file=$(modinfo -n $name) || return 1
		case $file in "/lib/modules/$release/"*) ;; *) echo "$name is $file"; return 1 ;; esac
		[ "$(modinfo -F vermagic $name | cut -d' ' -f1)" = "$release" ] || return 1
	done
}

# 10 MB of debug information are of no use to a kernel.
stripped() {
	for name in softwarp softwarp_sdp; do
		file=$(modinfo -n $name)
		case $file in *.xz) xz -dc "$file" > /run/$name.ko; file=/run/$name.ko ;; esac
		! readelf -SW "$file" | grep '\.debug_' || return 1
		[ "$(stat -c %s "$file")" -lt 1000000 ] || { stat -c '%n has %s octets' "$file"; return 1; }
	done
}

# depmod has noted what it stands on, and its alias
loaded() {
	modprobe softwarp || return 1
	[ -e /sys/module/ib_core ] && rmmod softwarp || return 1
	rdma link add sw0 type softwarp netdev net0 || return 1
	rdma link show sw0/1
}

documented() {
	[ -e /usr/share/man/man7/softwarp.7 ] && [ -e /usr/share/man/man7/softwarp_sdp.7 ] && [ -e /usr/include/softwarp_sdp.h ]
}

seen() {
	modprobe -a ib_uverbs rdma_ucm || return 1
	ibv_devinfo -d sw0 | grep 'state:.*PORT_ACTIVE' || return 1
	# the provider that was built is elsewhere
	[ -n "$(find /usr/lib -name 'libsoftwarp-rdmav*.so')" ] || return 1
	ip netns exec peer rdma link add sw1 type softwarp netdev net1 || return 1
	ip netns exec peer "$(dirname "$0")/rping.sh" -s -C 10 -V &
	for _ in $(seq 100); do
		rdma resource show cm_id 2> /dev/null | grep -q LISTEN && break
		sleep 0.1
	done
	"$(dirname "$0")/rping.sh" -c -a 10.77.0.2 -C 10 -V && wait
}

# The module comes by the alias of its protocol.
sockets() {
	timeout 60 ip netns exec peer python3 - <<'END' &
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 257)
server.bind(("10.77.0.2", 7305))
server.listen()
fd, _ = server.accept()
fd.sendall(fd.recv(100))
END
	timeout 60 python3 - <<'END' && wait && [ -e /sys/module/softwarp_sdp ]
import socket, time
for left in reversed(range(100)):
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 257)
    try:
        client.connect(("10.77.0.2", 7305))
        break
    except ConnectionRefusedError:
        client.close()
        time.sleep(0.1)
client.sendall(b"octets")
assert client.recv(100) == b"octets"
END
}

# Linux has it since 6.6; everybody is told.
no_hook() {
	for command in "sdp_switch on" "sdp_run --kernel true" "setpriv --reuid=65534 --regid=65534 --clear-groups sdp_switch on"; do
		text=$($command 2>&1)
		[ $? = 125 ] || { echo "$command: $text"; return 1; }
		case $text in
		"sdp_switch: this kernel, $release, has no hook for the protocols of sockets "*) ;;
		*) echo "$command: $text"; return 1 ;;
		esac
	done
}

# What a unit of systemd calls at boot
devices() {
	local conf=/run/devices.conf text
	systemd-analyze verify --man=no /lib/systemd/system/softwarp-devices.service || return 1
	rdma link delete sw0 && ip link add dummy9 type dummy && ip link set dummy9 up || return 1
	printf '# ours\nsw0 net0\n\nsw7 dummy9 # no wire\n' > $conf
	for _ in 1 2; do # the second time they are there
		softwarp-devices --file $conf start || return 1
		rdma link show sw0/1 && rdma link show sw7/1 || return 1
	done
	softwarp-devices --file $conf stop && [ ! -e /sys/class/infiniband/sw0 ] && [ ! -e /sys/class/infiniband/sw7 ] || return 1
	# mistakes cost only their own lines
	printf 'sw0 none0\nsw1\nsw1 net0 net1\nsw/1 net0\nsw2 net0\nsw2 dummy9\nsw3 dummy9' > $conf
	text=$(softwarp-devices --file $conf start 2>&1)
	[ $? = 1 ] || { echo "$text"; return 1; }
	for line in 1 2 3 4 6; do
		case $text in *"$conf:$line: "*) ;; *) echo "$line: $text"; return 1 ;; esac
	done
	[ -e /sys/class/infiniband/sw2 ] && [ -e /sys/class/infiniband/sw3 ] || { echo "$text"; return 1; }
	# on another network device than the file says, and of another driver
	modprobe rdma_rxe && rdma link add rxe0 type rxe netdev net0 || return 1
	printf 'sw2 dummy9\nrxe0 net0\n' > $conf
	! softwarp-devices --file $conf start && ! softwarp-devices --file $conf check || return 1
	! softwarp-devices --file $conf stop && [ -e /sys/class/infiniband/rxe0 ] && [ ! -e /sys/class/infiniband/sw2 ] || return 1
	! softwarp-devices --file /run/nothing start
}

# Says, and ends with 1 or not
says() { # exit code, sentence, command ...
	local code=$1 sentence=$2
	shift 2
	text=$("$@" 2>&1)
	[ $? = "$code" ] && [ "${text#*"$sentence"}" != "$text" ] && return 0
	echo "no '$sentence': $text"
	return 1
}

# What the machine lacks, one thing after the other
lacks() {
	local ask="softwarp-devices --file /run/nothing check" plugin
	says 0 "the module softwarp is loaded" $ask && says 0 "libibverbs has its plug-in" $ask &&
		says 0 "nothing makes devices at boot" $ask || return 1
	mv /etc/libibverbs.d/softwarp.driver /run
	says 1 "install the package libibverbs-softwarp" $ask || return 1
	mv /run/softwarp.driver /etc/libibverbs.d
	plugin=$(find /usr/lib /usr/local/lib -name 'libsoftwarp-rdmav*.so' | head -n 1)
	mv "$plugin" /run
	# /lib may be a link
	says 1 "${plugin##*/}: install libibverbs-softwarp" $ask || return 1
	mv "/run/${plugin##*/}" "$plugin"
	chmod 0600 /dev/infiniband/rdma_cm
	says 1 "you may not open /dev/infiniband/rdma_cm" setpriv --reuid=65534 --regid=65534 --clear-groups $ask || return 1
	chmod 0666 /dev/infiniband/rdma_cm
	(ulimit -l 64 && says 1 "you may lock 64 KiB" setpriv --reuid=65534 --regid=65534 --clear-groups $ask) || return 1
	modprobe -r softwarp_sdp softwarp
	says 0 "the module softwarp is installed, not loaded" $ask || return 1
	mv "/lib/modules/$release/updates" /run 2> /dev/null || mv "/lib/modules/$release/extra" /run || return 1
	depmod -a
	says 1 "the module softwarp is not installed for the kernel $release" $ask
}

check "nothing is installed at first" bare
check "make install KDIR=..." installed
check "the modules are stripped" stripped
check "modprobe softwarp, and rdma link add without it" loaded
check "manual pages and header" documented
check "ibv_devinfo and rping with the installed provider" seen
check "an SDP socket loads its module, and connects" sockets
check "devices of a file" devices
check "what the machine lacks, in sentences" lacks
check "sdp_switch says that this kernel has no hook" no_hook
[ $failed = 0 ]
