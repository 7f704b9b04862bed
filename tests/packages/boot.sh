#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# A machine on which the packages have been installed, booted by systemd: boot.sh first|second.  The administrator makes a
# device persistent as softwarp-devices(8) says; nothing but the file is there at the next boot, and the device has to be.
set -u

# shellcheck source=tests/packages/steps.sh
. "${0%/*}/steps.sh"
rping=${0%/*}/../e2e/rping.sh

# Some units of a guest without a disk may fail, ours may not.
booted() {
	systemctl --no-pager --failed
	systemctl --no-pager status softwarp-devices
	! systemctl is-failed softwarp-devices
}

nothing() {
	rdma link show
	[ ! -e /sys/class/infiniband/sw0 ] && [ ! -e /sys/module/softwarp ]
}

persistent() {
	mkdir -p /etc/softwarp && echo 'sw0 eth0' >> /etc/softwarp/devices.conf && systemctl enable --now softwarp-devices || return 1
	rdma link show sw0/1 | grep 'netdev eth0' && cp /etc/softwarp/devices.conf "$SOFTWARP_OUT"
}

there() {
	systemctl --no-pager status softwarp-devices
	systemctl is-active softwarp-devices && rdma link show sw0/1 | grep 'netdev eth0' && [ -e /sys/module/softwarp_sdp ]
}

seen() {
	ip address add 10.77.0.1/24 dev eth0 && ip link set eth0 up || return 1
	for _ in $(seq 100); do
		user ibv_devinfo -d sw0 | grep 'state:.*PORT_ACTIVE' && return
		sleep 0.1
	done
	user ibv_devinfo -d sw0
	return 1
}

pings() {
	"$rping" -s -C 10 -V &
	for _ in $(seq 100); do
		rdma resource show cm_id 2> /dev/null | grep -q LISTEN && break
		sleep 0.1
	done
	user "$rping" -c -a 10.77.0.1 -C 10 -V && wait
}

check "the unit has not failed" booted
case $1 in
first)
	check "without devices.conf there is no device, and no module loaded" nothing
	check "devices.conf and systemctl make one" persistent
	;;
second)
	check "the device of devices.conf is there" there
	check "ibv_devinfo of an ordinary user" seen
	check "rping of an ordinary user, by the address of the network card" pings
	;;
esac
[ "${failed:-1}" = 0 ]
