# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Read captures of iWARP connections, without anything of the implementation that made them.

Only what the scripts ask for: TCP segments over Ethernet, IPv4 and IPv6; MPA start-up; where FPDUs begin and end.
"""

import dataclasses
import ipaddress
import struct
from pathlib import Path

REQUEST, REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
OPCODES = {0: "Write", 1: "Read Request", 2: "Read Response", 3: "Send", 4: "Send with Invalidate", 5: "Send with SE",
           6: "Send with SE and Invalidate", 7: "Terminate", 10: "Atomic Request", 11: "Atomic Response"}
SYN, FIN, RST = 2, 1, 4


@dataclasses.dataclass
class Segment:
    """A TCP segment; data may be less than what was on the wire (see `size`)."""

    number: int  # of the packet, from 1
    offset: int  # of data in the file
    source: tuple[str, int]
    target: tuple[str, int]
    seq: int
    flags: int
    size: int
    data: bytes
    header: int = 0  # octets of the frame in front of data
    tcp: int = 0  # offset of the TCP header in the file


def address(raw: bytes) -> str:
    """Text of an address, of either family."""
    return str(ipaddress.ip_address(raw))


def segments(path: Path):
    """The TCP segments of a pcap file, in order."""
    blob = path.read_bytes()
    if len(blob) < 24:
        return
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">"}[blob[:4]]
    if struct.unpack(order + "I", blob[20:24])[0] != 1:
        raise ValueError(f"{path}: not a capture of Ethernet")
    at, number = 24, 0
    while at + 16 <= len(blob):
        captured = struct.unpack(order + "I", blob[at + 8:at + 12])[0]
        begin = at + 16
        at = begin + captured
        number += 1
        frame = blob[begin:at]
        kind = frame[12:14]
        if kind == b"\x08\x00" and frame[23] == 6:
            ip = 14
            tcp = ip + (frame[ip] & 15) * 4
            end = ip + struct.unpack(">H", frame[ip + 2:ip + 4])[0]
            source, target = frame[ip + 12:ip + 16], frame[ip + 16:ip + 20]
        elif kind == b"\x86\xdd" and frame[20] == 6:
            ip = 14
            tcp = ip + 40
            end = tcp + struct.unpack(">H", frame[ip + 4:ip + 6])[0]
            source, target = frame[ip + 8:ip + 24], frame[ip + 24:ip + 40]
        else:
            continue
        sport, dport, seq = struct.unpack(">HHI", frame[tcp:tcp + 8])
        data = tcp + (frame[tcp + 12] >> 4) * 4
        yield Segment(number, begin + data, (address(source), sport), (address(target), dport), seq, frame[tcp + 13],
                      end - data, frame[data:end], data, begin + tcp)


@dataclasses.dataclass
class Startup:
    """What the two frames of a start-up said."""

    initiator: tuple[str, int]
    responder: tuple[str, int]
    request: bytes
    reply: bytes = b""
    first: bytes = b""  # what the initiator sent next

    @staticmethod
    def flag(frame: bytes, mask: int) -> bool:
        return bool(frame[16] & mask)

    @property
    def crc(self) -> bool:
        return self.flag(self.request, 0x40) or self.flag(self.reply, 0x40)

    @property
    def rejected(self) -> bool:
        return self.flag(self.reply, 0x20)

    @property
    def markers(self) -> tuple[bool, bool]:
        """Whether initiator and responder asked for markers in what they receive."""
        return self.flag(self.request, 0x80), self.flag(self.reply, 0x80)

    @property
    def revisions(self) -> tuple[int, int]:
        return self.request[17], self.reply[17]

    def enhanced(self, frame: bytes) -> tuple[int, int]:
        """The two words of the enhanced header, zeros without one."""
        return struct.unpack(">HH", frame[20:24]) if self.flag(frame, 0x10) and frame[17] >= 2 else (0, 0)

    @property
    def rtr(self) -> str:
        """The RTR message that opened the stream; "none" without one."""
        if not self.enhanced(self.reply)[0] & 0x8000 or len(self.first) < 4:
            return "none"
        size, opcode = struct.unpack(">H", self.first[:2])[0], self.first[3] & 15
        return {(14, 0): "write", (46, 1): "read", (18, 3): "send"}.get((size, opcode), "not what it should be")


def startups(path: Path) -> list[Startup]:
    """The start-ups in a capture that got a Reply."""
    found = {}
    for segment in segments(path):
        if not segment.data:
            continue
        if segment.data.startswith(REQUEST):
            found[segment.source, segment.target] = Startup(segment.source, segment.target, segment.data)
        elif segment.data.startswith(REPLY) and (segment.target, segment.source) in found:
            found[segment.target, segment.source].reply = segment.data
        elif (one := found.get((segment.source, segment.target))) and one.reply and not one.first:
            one.first = segment.data
    return [one for one in found.values() if one.reply]


CRC32C = []
for _octet in range(256):
    _value = _octet
    for _ in range(8):
        _value = _value >> 1 ^ (0x82F63B78 if _value & 1 else 0)
    CRC32C.append(_value)


def crc32c(data: bytes) -> bytes:
    """CRC32c as an FPDU carries it."""
    value = 0xFFFFFFFF
    for octet in data:
        value = CRC32C[(value ^ octet) & 255] ^ value >> 8
    return struct.pack("<I", value ^ 0xFFFFFFFF)


def fpdu_size(ulpdu: int) -> int:
    """Octets of an FPDU without markers, by the length of its ULPDU."""
    return (2 + ulpdu + 3 & ~3) + 4


@dataclasses.dataclass
class Fpdu:
    """An FPDU on the wire: where it begins in its stream, and its octets, markers included."""

    at: int
    octets: bytes
    wrong: list[str]
    markers: int = 0


def fpdus(tail: bytes, at: int, marked: bool, crc: bool):
    """The complete FPDUs in a part of a stream that begins at an offset, counted from the first octet behind start-up.

    With markers each is checked: reserved part, pointer, and with CRC on the CRC, which covers them."""
    base = at
    end = at + len(tail)
    while True:
        begin = at
        content = bytearray()
        wanted, header, markers, wrong = None, None, 0, []
        while wanted is None or len(content) < wanted:
            if marked and at % 512 == 0:
                if end < at + 4:
                    return
                pointer = 0 if header is None else at - header
                found = tail[at - base:at - base + 4]
                if found != struct.pack(">I", pointer):
                    wrong.append(f"marker at {at} of the stream is {found.hex()}, not {pointer:08x}")
                at += 4
                markers += 1
                continue
            if header is None:
                header = at
            room = 512 - at % 512 if marked else 1 << 20
            take = min(room, (2 if wanted is None else wanted) - len(content))
            if end < at + take:
                return
            content += tail[at - base:at - base + take]
            at += take
            if wanted is None and len(content) >= 2:
                wanted = fpdu_size(struct.unpack(">H", content[:2])[0])
        octets = tail[begin - base:at - base]
        if any(content[2 + struct.unpack(">H", content[:2])[0]:-4]):
            wrong.append(f"pad of the FPDU at {begin} of the stream")
        if marked and crc and crc32c(octets[:-4]) != octets[-4:]:
            wrong.append(f"CRC of the FPDU at {begin} of the stream")
        yield Fpdu(begin, octets, wrong, markers)


class Refit:
    """A copy of a capture in which each FPDU has a segment of its own.

    tshark takes a segment for one FPDU when markers are on.  Octets, their order and their sequence numbers stay;
    only where segments end is moved.  tshark also takes a marker that would follow an FPDU for one within it, and is
    lost from there on; and where one end alone asked for markers it expects them in both directions.  FPDUs that it
    cannot read are left out, and counted.  All are checked here."""

    def __init__(self, path: Path, target: Path):
        self.fpdus = 0
        self.left_out = {}  # by source address
        self.markers = 0
        self.wrong = []
        blob = path.read_bytes()
        self.starts = {}
        for one in startups(path):
            if not one.rejected:
                request, reply = one.markers
                self.starts[one.initiator, one.responder] = (one, reply)
                self.starts[one.responder, one.initiator] = (one, request)
        streams = {}
        with open(target, "wb") as out:
            out.write(blob[:24])
            for segment in segments(path):
                self.copy(segment, blob, streams, out)

    def copy(self, segment: Segment, blob: bytes, streams: dict, out) -> None:
        """Pass a segment on, or the FPDUs that it completes."""
        way = segment.source, segment.target
        start = self.starts.get(way)
        if not segment.data or start is None:
            self.packet(segment, blob, segment.seq, None, out)
            return
        if segment.data[:16] in (REQUEST, REPLY):
            size = 20 + struct.unpack(">H", segment.data[18:20])[0]
            # The sequence number of offset 0, octets that are in no complete FPDU yet, and their offset.
            streams[way] = [segment.seq + size & 0xffffffff, segment.data[size:], 0]
            self.packet(segment, blob, segment.seq, segment.data[:size], out)
        else:
            base, tail, done = streams[way]
            known = done + len(tail) - (segment.seq - base & 0xffffffff)
            if known < 0:
                self.wrong.append(f"packet {segment.number}: octets are missing in front of it")
                return
            # What was sent again is there already.
            streams[way][1] = tail + segment.data[known:]
        base, tail, done = streams[way]
        for one in fpdus(tail, done, start[1], start[0].crc):
            self.fpdus += 1
            self.markers += one.markers
            self.wrong += [f"packet {segment.number}: {text}" for text in one.wrong]
            done = one.at + len(one.octets)
            if (start[1] and done % 512 == 0) or (any(start[0].markers) and not start[1]):
                source = segment.source[0]
                self.left_out[source] = self.left_out.get(source, 0) + 1
            else:
                self.packet(segment, blob, base + one.at & 0xffffffff, one.octets, out)
        streams[way][1:] = [tail[done - streams[way][2]:], done]

    @staticmethod
    def packet(segment: Segment, blob: bytes, seq: int, data: bytes | None, out) -> None:
        """Write a packet with the headers of a segment, and other data unless None."""
        begin = segment.offset - segment.header
        head = bytearray(blob[begin:segment.offset])
        payload = segment.data if data is None else data
        tcp = segment.tcp - begin
        head[tcp + 4:tcp + 8] = struct.pack(">I", seq)
        if head[12:14] == b"\x08\x00":
            head[16:18] = struct.pack(">H", len(head) - 14 + len(payload))
        else:
            head[18:20] = struct.pack(">H", len(head) - 54 + len(payload))
        stamp = blob[begin - 16:begin - 8]
        out.write(stamp + struct.pack("<II", len(head) + len(payload), len(head) + len(payload)) + head + payload)
