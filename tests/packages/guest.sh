#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# A machine on which the packages have been installed, and nothing else of this project: the modules that DKMS built, devices
# of the file, the plug-in, the tools.  A line "ok" or "FAILED" for each step.  Here is net0 10.77.0.1, in namespace "peer"
# net1 10.77.0.2.
set -u

version=$1 # of the packages
release=$(uname -r)
# shellcheck source=tests/packages/steps.sh
. "${0%/*}/steps.sh"
rping=${0%/*}/../e2e/rping.sh

loaded() {
	for name in softwarp softwarp_sdp; do
		case $(modinfo -n $name) in "/lib/modules/$release/updates/dkms/$name.ko"*) ;; *) modinfo $name; return 1 ;; esac
		modprobe $name || return 1
		[ "$(cat /sys/module/$name/version)" = "$version" ] || return 1
	done
}

# The command of the unit, as systemd would call it
devices() {
	local unit=/lib/systemd/system/softwarp-devices.service command
	systemd-analyze verify --man=no $unit || return 1
	mkdir -p /etc/softwarp && echo 'sw0 net0' > /etc/softwarp/devices.conf || return 1
	command=$(sed -n 's/^ExecStart=//p' $unit)
	$command && rdma link show sw0/1 | grep 'netdev net0' || return 1
	[ -e /etc/systemd/system/multi-user.target.wants/softwarp-devices.service ]
}

seen() {
	[ ! -e /etc/modprobe.d/softwarp-test.conf ] || return 1
	user ibv_devinfo -d sw0 | tee /dev/stderr | grep -q 'state:.*PORT_ACTIVE'
}

pings() {
	ip netns exec peer rdma link add sw1 type softwarp netdev net1 || return 1
	ip netns exec peer "$rping" -s -C 10 -V &
	for _ in $(seq 100); do
		rdma resource show cm_id 2> /dev/null | grep -q LISTEN && break
		sleep 0.1
	done
	user "$rping" -c -a 10.77.0.2 -C 10 -V && wait
}

# By SDP or not at all
sockets() {
	timeout 60 ip netns exec peer sdp_run --policy sdp python3 - <<'END' &
import socket
server = socket.create_server(("10.77.0.2", 7305))
client, _ = server.accept()
client.sendall(client.recv(100))
END
	timeout 60 setpriv --reuid=65534 --regid=65534 --clear-groups sdp_run --policy sdp python3 - <<'END' || return 1
import socket, time
for left in reversed(range(100)):
    try:
        client = socket.create_connection(("10.77.0.2", 7305))
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
client.sendall(b"octets")
assert client.recv(100) == b"octets"
END
	wait && sdp_stat counters
}

documented() {
	local page
	for page in man1/sdp_run.1 man1/sdp_stat.1 man7/libsoftwarp_sdp.7 man7/softwarp.7 man7/softwarp_sdp.7 \
		man8/sdp_switch.8 man8/softwarp-devices.8; do
		[ -e /usr/share/man/$page.gz ] || { echo "no $page"; return 1; }
	done
	[ -e /usr/include/softwarp_sdp.h ] || return 1
	for name in sdp_run sdp_stat sdp_switch softwarp-devices; do
		[ "$($name --version)" = "$name $version" ] || { $name --version; return 1; }
	done
}

# Linux has the hook since 6.6.  systemd mounts what it needs.
hooks() {
	case $release in
	6.[1-5].*)
		text=$(sdp_switch on 2>&1)
		[ $? = 125 ] && case $text in *"this kernel, $release, has no hook "*) ;; *) echo "$text"; false ;; esac
		;;
	*)
		mount -t cgroup2 none /sys/fs/cgroup && mount -t bpf none /sys/fs/bpf || return 1
		sdp_switch on && sdp_switch show && sdp_switch off
		;;
	esac
}

check "modprobe loads the modules that DKMS built" loaded
check "the unit's command makes the device of devices.conf" devices
check "ibv_devinfo of an ordinary user" seen
check "rping of an ordinary user" pings
check "programs of ordinary users under sdp_run" sockets
check "manual pages, header, --version" documented
check "sdp_switch" hooks
[ "${failed:-1}" = 0 ]
