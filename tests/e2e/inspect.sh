#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# What an administrator has to look at softwarp and to arrange it, on a kernel that has it all: tracepoints, the iWARP port
# mapper, RDMA devices that belong to one namespace, containers.  A line "ok" or "FAILED" for each.
set -u

sdp=$1 # softwarp_sdp.ko of this kernel
siw=$2 # siw_knobs.ko, siw with a parameter port_map: then iwpmd maps its ports
ours=10.77.0.1 theirs=10.77.0.2
rping=/usr/local/bin/rping.sh # where containers find it, too
install -m 755 "$(dirname "$0")/rping.sh" $rping
failed=0

check() { # what, function
	if text=$("$2" 2>&1); then
		echo "ok     $1"
	else
		echo "FAILED $1"
		printf '%s\n' "$text" | sed 's/^/    /'
		failed=$((failed + 1))
		rmmod softwarp_sdp 2> /dev/null # the next check loads it
	fi
}

# rping between two namespaces: command prefixes of server and client, address of the server, more options
ping_pong() {
	$1 "$rping" -s -a "$3" -p 7300 -C 10 -V &
	local server=$!
	for _ in $(seq 100); do
		$1 rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.*7300" && break
		sleep 0.1
	done
	$2 "$rping" -c -a "$3" -p 7300 -C 10 -V && wait $server
}
in_peer="ip netns exec peer"

# The module goes when nothing is left of the sockets.
sdp_gone() {
	for _ in $(seq 100); do
		rmmod softwarp_sdp 2> /dev/null && return 0
		sleep 0.1
	done
	echo "softwarp_sdp.ko is still in use"
	return 1
}

tracepoints() {
	local dir=/sys/kernel/tracing
	[ -e $dir/trace ] || mount -t tracefs tracefs $dir
	echo > $dir/trace
	echo 1 > $dir/events/softwarp/enable
	ping_pong "$in_peer" "" $theirs || return 1
	echo 0 > $dir/events/softwarp/enable
	for event in swp_wqe swp_tx_batch swp_rx_fpdu swp_cqe swp_qp_state; do
		grep -q "$event: " $dir/trace || { echo "no $event"; return 1; }
	done
	grep -q 'swp_rx_fpdu: qp [0-9]* Read Response (last)' $dir/trace
}

# Past TCP, who reads copies: a worker of the other end would compete with it for the sockets.
long_reads() {
	local dir=/sys/kernel/tracing workers all
	echo > $dir/trace
	echo 1 > $dir/events/softwarp/swp_tx_batch/enable
	build/e2e/softwarp-e2e --gtest_filter=Near.LongReads || return 1
	echo 0 > $dir/events/softwarp/swp_tx_batch/enable
	all=$(grep -c 'swp_tx_batch: ' $dir/trace)
	workers=$(grep -c '^ *kworker.* swp_tx_batch: ' $dir/trace)
	[ "$all" -gt 300 ] && [ $((workers * 4)) -lt "$all" ] || { echo "workers sent $workers of $all batches"; return 1; }
}

# What SDP sockets say to a peer that a test plays, who also breaks the rules
sdp_tracepoints() {
	local dir=/sys/kernel/tracing
	insmod $sdp || return 1
	echo > $dir/trace
	echo 1 > $dir/events/sdp/enable
	build/sockets/softwarp-sockets --gtest_filter='All/Seen.FaultsAreCounted/sdp4:All/Rules.HalfClosed/sdp4:'\
'All/Rules.NoCreditForPayload/sdp4:All/Rules.AsksForLargerBuffers/sdp4:All/Seen.BadHelloAcksAreCounted/sdp4' || return 1
	echo 0 > $dir/events/sdp/enable
	for line in 'sdp_setup: 127.0.0.1:[0-9]* 127.0.0.1:[0-9]* acceptor: Hello taken ret 0' 'sdp_setup: .* acceptor: device ret 0' \
		'sdp_setup: .* acceptor: MPA done ret 0' 'sdp_setup: .* acceptor: HelloAck sent ret 0' \
		'sdp_setup: .* connector: TCP connected ret 0' 'sdp_setup: .* connector: Hello sent ret 0' \
		'sdp_setup: .* connector: HelloAck taken ret -71' 'sdp_state: .* hello -> mpa' 'sdp_state: .* mpa -> open' \
		'sdp_state: .* tcp -> mpa' 'sdp_state: .* \(mpa\|hello-ack\) -> down' 'sdp_state: .* open -> closing' \
		'sdp_state: .* closing -> half' 'sdp_state: .* half -> wait' 'sdp_state: .* wait -> ' \
		'sdp_message_sent: .* HelloAck flags 0x00 bufs 5 mseq 0 mseq_ack 0 0 octets' \
		'sdp_message_received: .* Data flags 0x00 bufs 100 mseq 0 mseq_ack 1 500 octets' \
		'sdp_message_sent: .* Data .* 1000 octets' 'sdp_message_sent: .* DisConn ' 'sdp_message_received: .* DisConn ' \
		'sdp_credit: .* starved: own [0-9]* peer [0-2], 10 octets wait' 'sdp_credit: .* probe: ' \
		'sdp_resize: .* sent ChRcvBuf size 135168: own 4096 peer 4096' \
		'sdp_resize: .* received ChRcvBufAck size 20000: own 4096 peer 20000' \
		'sdp_fault: .* malformed' 'sdp_fault: .* mseq' 'sdp_fault: .* ack' 'sdp_fault: .* size' 'sdp_fault: .* unexpected' \
		'sdp_fault: .* mode' 'sdp_fault: .* adverts' 'sdp_fault: .* payload' 'sdp_fault: .* unfinished' 'sdp_fault: .* resize'; do
		grep -q "$line" $dir/trace || { echo "no $line"; cat $dir/trace; return 1; }
	done
	echo > $dir/trace
	build/sockets/softwarp-sockets --gtest_filter='All/Rules.HalfClosed/sdp4' || return 1
	! grep sdp_ $dir/trace || { echo "events that are off"; return 1; }
	sdp_gone
}

# The daemon answers once it has a socket.  It asks the other host's, and takes its time when there is none.
start_mapper() { # command prefix
	$1 iwpmd || return 1
	for _ in $(seq 100); do
		$1 ss -lun | grep -q ':3935 ' && return 0
		sleep 0.1
	done
	echo "the port mapper does not start"
	return 1
}

mapped() { # with daemons there, and when they have gone
	# iwpm_register_pid() of Linux 6.12 and 7.3 asks the daemon before it notes for whom, and dies of an answer that is
	# faster.  On one processor the daemon has to wait until the kernel does.
	taskset -cp 0 $BASHPID > /dev/null
	start_mapper "" && start_mapper "$in_peer" || return 1
	ping_pong "$in_peer" "" $theirs || return 1
	ping_pong "" "$in_peer" $ours || return 1
	ping_pong "" "" $ours || return 1
	[ "$(pidof iwpmd | wc -w)" = 2 ] || { echo "a port mapper died"; return 1; }
	killall -w iwpmd
	ping_pong "$in_peer" "" $theirs || return 1
	ping_pong "" "" $ours
}

# A socket asks the daemon, which has no mapping for such a port.
mapped_sdp() {
	insmod $sdp || return 1
	# as above
	taskset -cp 0 $BASHPID > /dev/null
	start_mapper "$in_peer" || return 1
	timeout 60 $in_peer rping -s -a $theirs -p 7304 -C 1 &
	for _ in $(seq 100); do
		$in_peer rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.*7304" && break
		sleep 0.1
	done
	timeout 100 python3 - $theirs <<'END' || return 1
import pathlib, socket, sys
theirs = sys.argv[1]
# of softwarp_sdp.h
SDP, SOL_SDP, POLICY, AUTO = 257, 1025, 3, 1
def count(what):
    lines = pathlib.Path("/proc/net/softwarp_sdp_stat").read_text().split("\n")
    return int(next(line.split()[1] for line in lines if line.split()[0] == what))
def auto():
    fd = socket.socket(socket.AF_INET, socket.SOCK_STREAM, SDP)
    fd.setsockopt(SOL_SDP, POLICY, AUTO)
    return fd
# the device has no ports but TCP's, so the daemon has nothing to tell of; what is at this one is MPA
auto().connect((theirs, 7304))
seen = [count(what) for what in ("pm_requests_sent", "pm_denied", "tcp_denied")]
assert seen[0] >= 1 and seen[1:] == [1, 1], f"the daemon's answer: {seen}"
END
	killall -w iwpmd
	killall -q -w rping
	sdp_gone
}

counter() { # name, command prefix
	$2 awk -v name="$1" '$1 == name { print $2 }' /proc/net/softwarp_sdp_stat
}

# A device for which iwpmd does more than say yes: it has ports of its own, and asks the other host for its.
mapped_device() { # command prefix, device to be replaced, netdev
	[ -e /sys/module/siw_knobs ] || insmod $siw port_map=1 || return 1
	$1 rdma link delete $2
	$1 rdma link add map0 type siw_knobs netdev $3
}

no_mapped_device() { # the same
	$1 rdma link delete map0
	$1 rdma link add $2 type softwarp netdev $3
}

# iwpmd accepts: it has a mapping for a listener here, as the kernel speaks to daemons of the first namespace alone.  Nobody
# speaks SDP at the port, so TCP it is.
accepted_by_daemon() {
	insmod $sdp || return 1
	# as above
	taskset -cp 0 $BASHPID > /dev/null
	mapped_device "" sw0 net0 && start_mapper "" || return 1
	timeout 100 rping -s -a $ours -p 7306 &
	for _ in $(seq 100); do
		rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.*7306" && break
		sleep 0.1
	done
	timeout 60 $in_peer python3 - $ours <<'END'
import socket, sys
fd = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 257)
fd.setsockopt(1025, 3, 1)
try:
    fd.connect((sys.argv[1], 7306))
except OSError as error:
    print(error)
END
	killall -w iwpmd
	killall -q -w rping
	local accepted asked
	accepted=$(counter pm_accepted "$in_peer") asked=$(counter pm_requests_sent "$in_peer")
	no_mapped_device "" sw0 net0
	echo "accepted $accepted, asked $asked"
	sdp_gone && [ "$accepted" = 1 ] && [ "$asked" -ge 1 ]
}

# iwpmd asks: a connect() of its device's names a service of the other host, which has SDP.
asked_by_daemon() {
	insmod $sdp || return 1
	# as above
	taskset -cp 0 $BASHPID > /dev/null
	timeout 100 $in_peer python3 - $theirs <<'END' &
import socket, sys, time
fd = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 257)
fd.setsockopt(1025, 3, 1)
fd.bind((sys.argv[1], 7307))
fd.listen()
time.sleep(1000)
END
	local server=$! accepts acks
	for _ in $(seq 100); do
		$in_peer ss -lun | grep -q ':3935 ' && break
		sleep 0.1
	done
	mapped_device "" sw0 net0 && start_mapper "" || return 1
	timeout 60 rping -c -a $theirs -p 7307 -C 1 &
	for _ in $(seq 300); do
		acks=$(counter pm_acks_received "$in_peer") accepts=$(counter pm_accepts_sent "$in_peer")
		[ "$acks" -ge 1 ] && break
		sleep 0.1
	done
	killall -q -w rping
	killall -w iwpmd
	kill $server
	wait $server
	no_mapped_device "" sw0 net0
	echo "accepts sent $accepts, acks received $acks"
	sdp_gone && [ "$accepts" -ge 1 ] && [ "$acks" -ge 1 ]
}

# The daemon has the port: the log says so, and the listener is a listener all the same.
port_taken() {
	insmod $sdp || return 1
	# as above
	taskset -cp 0 $BASHPID > /dev/null
	start_mapper "" || return 1
	timeout 60 python3 - $ours <<'END' || return 1
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 257)
server.setsockopt(1025, 3, 1)
server.bind((sys.argv[1], 7308))
server.listen()
client = socket.socket()
client.connect((sys.argv[1], 7308))
fd, _ = server.accept()
fd.sendall(b"octets")
assert client.recv(100) == b"octets"
END
	killall -w iwpmd
	sdp_gone || return 1
	dmesg | grep 'softwarp_sdp: UDP port 3935 cannot be had (-EADDRINUSE).*is iwpmd running?'
}

# An RDMA listener has its TCP port for itself, and gets none that is taken.
ports_taken() {
	python3 - $ours <<'END' || return 1
import socket, subprocess, sys, time
addr = sys.argv[1]
taken = socket.create_server((addr, 7301))
done = subprocess.run(["rping", "-s", "-a", addr, "-p", "7301"], capture_output=True, text=True, timeout=30)
assert done.returncode != 0 and "in use" in done.stdout + done.stderr, done
taken.close()
server = subprocess.Popen(["rping", "-s", "-a", addr, "-p", "7302"], stderr=subprocess.PIPE)
for _ in range(100):
    time.sleep(0.1)
    if "7302" in subprocess.run(["rdma", "resource", "show", "cm_id"], capture_output=True, text=True).stdout:
        break
try:
    socket.create_server((addr, 7302))
    raise SystemExit("a TCP program got the port of an RDMA listener")
except OSError as error:
    assert "in use" in str(error), error
server.kill()
END
}

exclusive() {
	rdma link delete sw0
	rdma link delete swlo
	$in_peer rdma link delete sw1
	# only where there are no other namespaces can the mode be changed
	ip netns del peer
	for _ in $(seq 100); do
		rdma system set netns exclusive 2>/dev/null && break
		sleep 0.1
	done
	rdma system show | grep -q "netns exclusive" || { rdma system show; return 1; }
	ip netns add left
	ip netns add right
	ip link add eth0 netns left type veth peer name eth0 netns right || return 1
	local n=1
	for ns in left right; do
		ip -n $ns link set lo up
		ip -n $ns addr add 10.78.0.$n/24 dev eth0
		ip -n $ns link set eth0 up
		ip netns exec $ns rdma link add sw$n type softwarp netdev eth0 || return 1
		n=$((n + 1))
	done
	[ -z "$(rdma dev show)" ] || { echo "the first namespace sees $(rdma dev show)"; return 1; }
	[ "$(ip netns exec left rdma dev show | grep -c sw)" = 1 ] || return 1
	ip netns exec right rdma dev show | grep -q sw2 || return 1
	ping_pong "ip netns exec right" "ip netns exec left" 10.78.0.2 || return 1
	containers && engine || return 1
	# a device can be given away and comes back when its namespace goes
	ip netns del left
	ip netns del right
	for _ in $(seq 100); do
		[ -z "$(rdma dev show)" ] && return 0
		sleep 0.1
	done
	rdma dev show
	return 1
}

# What a container engine sets up: namespaces of its own, of devices only some nodes, an ordinary user without any right.
contained() { # network namespace, nodes, command ...
	local ns=$1 nodes=$2
	shift 2
	ip netns exec "$ns" unshare --mount --pid --fork --mount-proc --uts --ipc bash -c '
		mount -t tmpfs none /mnt && cd /dev/infiniband && for node in '"$nodes"'; do cp -a $node /mnt; done && cd / &&
		mount --bind /mnt /dev/infiniband &&
		exec setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"' \
		contained "$@"
}

node_of() { # network namespace, device
	ip netns exec "$1" bash -c "cd /sys/class/infiniband_verbs && grep -lx $2 uverbs*/ibdev" | cut -d/ -f1
}

# Called by exclusive(): sw1 in left, sw2 in right
containers() {
	local one two
	one=$(node_of left sw1) two=$(node_of right sw2)
	[ -n "$one" ] && [ -n "$two" ] || { echo "nodes: '$one', '$two'"; return 1; }
	contained left "rdma_cm $one" ibv_devinfo -l | tee /dev/stderr | grep -q sw1 || return 1
	contained left "rdma_cm $one" ibv_devinfo -l | grep -q sw2 && { echo "a container sees the device of another"; return 1; }
	# also not if it has the node
	contained left "rdma_cm $one $two" python3 -c "
import errno, os
os.close(os.open('/dev/infiniband/$one', os.O_RDWR))
try:
    os.open('/dev/infiniband/$two', os.O_RDWR)
    raise SystemExit('a container opens the device of another')
except OSError as error:
    assert error.errno in (errno.EPERM, errno.EACCES), error
" || return 1
	contained right "rdma_cm $two" "$rping" -s -a 10.78.0.2 -p 7310 -C 10 -V &
	local server=$!
	for _ in $(seq 100); do
		ip netns exec right rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.*7310" && break
		sleep 0.1
	done
	contained left "rdma_cm $one" "$rping" -c -a 10.78.0.2 -p 7310 -C 10 -V && wait $server || return 1
	# sockets need no node at all
	insmod "$sdp" || return 1
	contained right "" python3 -c "
import socket
l = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 257)
l.bind(('10.78.0.2', 7311)); l.listen(1)
s = l.accept()[0]
s.sendall(s.recv(100))
" &
	server=$!
	for _ in $(seq 100); do
		ip netns exec right cat /proc/net/softwarp_sdp | grep -q 7311 && break
		sleep 0.1
	done
	contained left "" python3 -c "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 257)
s.connect(('10.78.0.2', 7311)); s.sendall(b'by RDMA')
assert s.recv(100) == b'by RDMA'
assert '10.78.0.2:7311' in open('/proc/net/softwarp_sdp').read()
" && wait $server && sdp_gone || return 1
	# a limit of a cgroup for all its processes: no device can be opened
	local group=/sys/fs/cgroup/contained
	mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup || return 1
	echo +rdma > /sys/fs/cgroup/cgroup.subtree_control
	mkdir -p $group
	echo "sw1 hca_handle=0" > $group/rdma.max || return 1
	(echo $BASHPID > $group/cgroup.procs && { ! contained left "rdma_cm $one" ibv_devinfo -d sw1; }) ||
		{ echo "rdma.max has no effect"; return 1; }
	contained left "rdma_cm $one" ibv_devinfo -d sw1
}

# The same by a container engine, as Documentation/containers.md says; the image is this guest's root.
by_podman() { # network namespace, nodes, command ...
	local ns=$1 devices=() node
	for node in $2; do
		devices+=(--device "/dev/infiniband/$node")
	done
	shift 2
	podman --root /tmp/podman/root --runroot /tmp/podman/run --tmpdir /tmp/podman/tmp --storage-driver vfs \
		--cgroup-manager cgroupfs --events-backend file run --rm --network "ns:/run/netns/$ns" "${devices[@]}" \
		--ulimit memlock=1073741824 --user 1000:1000 --rootfs /tmp/image "$@"
}

# Called by exclusive() after containers()
engine() {
	local one two
	one=$(node_of left sw1) two=$(node_of right sw2)
	mkdir -p /tmp/podman /tmp/image
	mount --bind / /tmp/image || return 1
	by_podman right "rdma_cm $two" "$rping" -s -a 10.78.0.2 -p 7312 -C 10 -V &
	local server=$!
	for _ in $(seq 600); do
		ip netns exec right rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.*7312" && break
		sleep 0.1
	done
	by_podman left "rdma_cm $one" "$rping" -c -a 10.78.0.2 -p 7312 -C 10 -V && wait $server || return 1
	# no node, no device; and sockets over RDMA all the same
	local code=0
	by_podman left rdma_cm ibv_devinfo -d sw1 || code=$?
	case $code in
	0) echo "a container has a node that it was not given"; return 1 ;;
	125 | 126 | 127) echo "podman has not run it: $code"; return 1 ;;
	esac
	insmod "$sdp" || return 1
	by_podman left "" python3 -c "
import socket
l = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 257)
l.bind(('10.78.0.1', 7313)); l.listen(1)
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 257)
s.connect(('10.78.0.1', 7313)); s.sendall(b'by RDMA')
assert l.accept()[0].recv(100) == b'by RDMA'
" && sdp_gone
}

# A ring of 64 MiB, in a memory cgroup that has no room for it, and in one that has.
charged() {
	local group=/sys/fs/cgroup/softwarp
	mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup || return 1
	echo +memory > /sys/fs/cgroup/cgroup.subtree_control
	mkdir -p $group
	for limit in 48 256; do
		echo ${limit}M > $group/memory.max
		(echo $BASHPID > $group/cgroup.procs && exec python3 - $group $limit) <<'END' || return 1
import ctypes, errno, pathlib, sys
group, limit = sys.argv[1], int(sys.argv[2])
def current(): return int(pathlib.Path(group, "memory.current").read_text()) >> 20
verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
for name in ("ibv_get_device_list", "ibv_open_device", "ibv_create_cq"):
    getattr(verbs, name).restype = ctypes.c_void_p
devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0])))
assert context.value, "no device opens"
before = current()
cq = verbs.ibv_create_cq(context, 1 << 20, None, None, 0)
number = ctypes.get_errno()
grown = current() - before
if limit < 64:
    assert not cq and number == errno.ENOMEM, (cq, number)
    assert grown < 8, f"{grown} MiB stay charged"
else:
    assert cq and grown >= 64, (cq, number, grown)
    assert verbs.ibv_destroy_cq(ctypes.c_void_p(cq)) == 0
    assert current() - before < 8, f"{current() - before} MiB stay charged"
END
	done
}

check "tracepoints follow a connection" tracepoints
check "who reads copies, past TCP" long_reads
check "tracepoints follow SDP sockets" sdp_tracepoints
check "connections with the port mapper, and when it has gone" mapped
check "the daemon answers SDP sockets" mapped_sdp
check "the daemon accepts what an SDP socket asks for" accepted_by_daemon
check "the daemon asks for SDP's port and acknowledges it" asked_by_daemon
check "the daemon has the port mapper's port" port_taken
check "a TCP port belongs to one listener, RDMA or not" ports_taken
check "a program's rings are charged to its memory cgroup" charged
check "devices that belong to one namespace, and containers in such" exclusive
[ $failed = 0 ]
