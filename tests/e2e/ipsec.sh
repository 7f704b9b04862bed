#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# rping between the two hosts of scripts/vm over ESP in transport mode (RFC 7146): the connection is plain TCP, so
# nothing of softwarp is set up for it.  Fails unless the data went through the security associations.
set -eu

ours=10.77.0.1 theirs=10.77.0.2
count=20 size=20000

modprobe -a esp4 xfrm_user gcm 2>/dev/null || true

associate() { # command prefix, own address, other address
	for way in "$ours $theirs 0x1001" "$theirs $ours 0x1002"; do
		# shellcheck disable=SC2086
		set -- "$1" "$2" "$3" $way
		$1 ip xfrm state add src "$4" dst "$5" proto esp spi "$6" mode transport \
			aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128
	done
	$1 ip xfrm policy add src "$2" dst "$3" dir out tmpl src "$2" dst "$3" proto esp mode transport
	$1 ip xfrm policy add src "$3" dst "$2" dir in tmpl src "$3" dst "$2" proto esp mode transport
}
associate "" "$ours" "$theirs"
associate "ip netns exec peer" "$theirs" "$ours"

ip netns exec peer rping -s -C $count -S $size -V &
for _ in $(seq 100); do
	ip netns exec peer rdma resource show cm_id 2>/dev/null | grep -q LISTEN && break
	sleep 0.1
done
rping -c -a $theirs -C $count -S $size -V
wait

# Each round goes there as the peer's read and back as its write; whatever went past ESP is not counted.
counted() { # SPI
	ip -s xfrm state | awk -v spi="$1" '/ spi / { here = index($0, spi) }
		here && /lifetime current/ { getline; sub(/[(].*/, ""); print $1; exit }'
}
for spi in 0x00001001 0x00001002; do
	octets=$(counted $spi)
	echo "ESP $spi: $octets octets"
	[ "$octets" -gt $((count * size)) ]
done
echo "rping over ESP: good"
