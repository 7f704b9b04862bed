-- SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
--
-- Wireshark: the Sockets Direct Protocol over iWARP and its port mapper
-- (draft-pinkerton-iwarp-sdp-01), behind Wireshark's own dissectors of MPA and DDP/RDMAP.
-- Give it to tshark with -X lua_script:softwarp_sdp.lua, or put it among the plug-ins.  Since
-- Wireshark 4.4 neither is run for root: capture as root, and look at it as somebody else.
--
-- Fields are named iwarp_sdp.* and sdp_pm.*; the filter iwarp_sdp.mid finds messages.
-- Wireshark 4.0 puts the segments of a message together only if they are in one packet, and
-- shows nothing of the others but the last.  To see the header of every message, give it
--     -o iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE

local sdp = Proto("iwarp_sdp", "Sockets Direct Protocol over iWARP")
local pm = Proto("sdp_pm", "SDP Port Mapper")

-- Values ----------------------------------------------------------------------------

local HELLO, HELLO_ACK = 0x00, 0x01
local SINK_AVAIL, SRC_AVAIL, DATA = 0xfd, 0xfe, 0xff

-- Name, and the size of header and extended header
local messages = {
    [0x00] = { "Hello", 32 }, [0x01] = { "HelloAck", 28 }, [0x02] = { "DisConn", 16 },
    [0x03] = { "AbortConn", 16 }, [0x04] = { "SendSm", 16 }, [0x05] = { "RdmaWrCompl", 20 },
    [0x06] = { "RdmaRdCompl", 20 }, [0x07] = { "ModeChange", 20 },
    [0x08] = { "SrcAvailCancel", 16 }, [0x09] = { "SinkAvailCancel", 16 },
    [0x0a] = { "SinkCancelAck", 16 }, [0x0b] = { "ChRcvBuf", 20 },
    [0x0c] = { "ChRcvBufAck", 20 }, [0x0d] = { "SuspComm", 24 }, [0x0e] = { "SuspCommAck", 16 },
    [0xfd] = { "SinkAvail", 36 }, [0xfe] = { "SrcAvail", 32 }, [0xff] = { "Data", 16 },
}
-- These alone carry octets behind their headers.
local carries = { [SINK_AVAIL] = true, [SRC_AVAIL] = true, [DATA] = true }

local names = {}
for mid, message in pairs(messages) do
    names[mid] = message[1]
end

-- Where things are.  The figures of the draft can be read in two ways; "InfiniBand" is
-- the order that InfiniBand's SDP has.
local DRAFT = {
    name = "draft", mid = 3, flags = 2, bufs = 0, adverts = 0, version = 3,
    hello_ird = 12, hello_ord = 14, ack_ird = 8, ack_ord = 10, port = 4,
}
local INFINIBAND = {
    name = "InfiniBand", mid = 0, flags = 1, bufs = 2, adverts = 2, version = 0,
    hello_ird = 14, hello_ord = 12, ack_ird = 10, ack_ord = 8, port = 6,
}

-- Fields ----------------------------------------------------------------------------

local f = {
    layout = ProtoField.string("iwarp_sdp.layout", "Layout"),
    bufs = ProtoField.uint16("iwarp_sdp.bufs", "Credits"),
    flags = ProtoField.uint8("iwarp_sdp.flags", "Flags", base.HEX),
    oob_pres = ProtoField.bool("iwarp_sdp.flags.oob_pres", "Out-of-band octet is the last", 8, nil, 0x01),
    oob_pend = ProtoField.bool("iwarp_sdp.flags.oob_pend", "Out-of-band octet follows", 8, nil, 0x02),
    req_pipe = ProtoField.bool("iwarp_sdp.flags.req_pipe", "Pipelined mode wanted", 8, nil, 0x04),
    mid = ProtoField.uint8("iwarp_sdp.mid", "Message", base.HEX, names),
    len = ProtoField.uint32("iwarp_sdp.len", "Length"),
    mseq = ProtoField.uint32("iwarp_sdp.mseq", "Sequence number"),
    mseq_ack = ProtoField.uint32("iwarp_sdp.mseq_ack", "Sequence number acknowledged"),
    adverts = ProtoField.uint16("iwarp_sdp.max_adverts", "Advertisements at most"),
    version = ProtoField.uint8("iwarp_sdp.version", "Version", base.HEX),
    wanted = ProtoField.uint32("iwarp_sdp.peer_size_wanted", "Size wanted of the peer's buffers"),
    size = ProtoField.uint32("iwarp_sdp.size", "Size of own buffers"),
    ird = ProtoField.uint16("iwarp_sdp.ird", "IRD"),
    ord = ProtoField.uint16("iwarp_sdp.ord", "ORD"),
    octets = ProtoField.uint32("iwarp_sdp.octets", "Octets"),
    stag = ProtoField.uint32("iwarp_sdp.stag", "STag", base.HEX),
    va = ProtoField.uint64("iwarp_sdp.va", "Address", base.HEX),
    discards = ProtoField.uint32("iwarp_sdp.non_discards", "NonDiscards"),
    mode = ProtoField.uint8("iwarp_sdp.mode", "Mode", base.DEC,
                            { [0] = "Buffered", [1] = "Combined", [2] = "Pipelined" }),
    source = ProtoField.bool("iwarp_sdp.mode_of_source", "For the sender's own direction"),
    port = ProtoField.uint16("iwarp_sdp.port", "Port to move to"),
    data = ProtoField.bytes("iwarp_sdp.data", "Octets of the stream"),
    continued = ProtoField.bytes("iwarp_sdp.continued", "Octets of a message that began before"),
}
sdp.fields = f

local bad_length = ProtoExpert.new("iwarp_sdp.bad_length", "Length that its message cannot have",
                                   expert.group.MALFORMED, expert.severity.ERROR)
local bad_flags = ProtoExpert.new("iwarp_sdp.bad_flags", "Reserved flags are set",
                                  expert.group.PROTOCOL, expert.severity.WARN)
sdp.experts = { bad_length, bad_flags }

-- What the dissectors below have found.  Several FPDUs can be in one packet: the last
-- value is that of the FPDU at hand.
local tcp_stream = Field.new("tcp.stream")
local ddp_qn = Field.new("iwarp_ddp.qn")
local ddp_mo = Field.new("iwarp_ddp.mo")
local ddp_last = Field.new("iwarp_ddp.last_flag")
local ulpdu_length = Field.new("iwarp_mpa.ulpdulength")
local UNTAGGED = 18 -- octets of the header of DDP and RDMAP

local function last(field)
    local values = { field() }
    local value = values[#values]
    return value and value.value
end

-- Layouts ---------------------------------------------------------------------------

-- By TCP stream, from its Hello.  A later file has streams of its own.
local layouts = {}

function sdp.init()
    layouts = {}
end

-- A Hello precedes MPA, alone: 32 octets, with a version of 1.1 at its place.
local function layout_of_hello(tvb)
    local credits = tvb(0, 2):uint()
    local other = tvb(2, 2):uint()
    if tvb(4, 4):uint() ~= 32 then
        return nil
    elseif credits ~= 0 and other == 0 and tvb(18, 2):uint() == 0x11 then
        return DRAFT
    elseif credits == 0 and other ~= 0 and tvb(16, 2):uint() == 0x1100 then
        return INFINIBAND
    end
    return nil
end

local function fits(layout, tvb)
    local message = messages[tvb(layout.mid, 1):uint()]
    local len = tvb(4, 4):uint()
    return message and len >= message[2] and len >= tvb:len() and tvb(layout.flags, 1):uint() < 8
end

-- Without a Hello, in a capture that began later, that in which the header makes sense
local function layout_of_message(tvb)
    local known = layouts[last(tcp_stream)]
    if known then
        return known
    elseif fits(DRAFT, tvb) then
        return DRAFT
    elseif fits(INFINIBAND, tvb) then
        return INFINIBAND
    end
    return nil
end

-- Messages ----------------------------------------------------------------------------

local extended = {
    [0x00] = function(tvb, tree, layout)
        tree:add(f.adverts, tvb(16 + layout.adverts, 2))
        tree:add(f.version, tvb(16 + layout.version, 1))
        tree:add(f.wanted, tvb(20, 4))
        tree:add(f.size, tvb(24, 4))
        tree:add(f.ird, tvb(16 + layout.hello_ird, 2))
        tree:add(f.ord, tvb(16 + layout.hello_ord, 2))
    end,
    [0x01] = function(tvb, tree, layout)
        tree:add(f.adverts, tvb(16 + layout.adverts, 2))
        tree:add(f.version, tvb(16 + layout.version, 1))
        tree:add(f.size, tvb(20, 4))
        tree:add(f.ird, tvb(16 + layout.ack_ird, 2))
        tree:add(f.ord, tvb(16 + layout.ack_ord, 2))
    end,
    [0x07] = function(tvb, tree, layout)
        local octet = layout == DRAFT and tvb(19, 1) or tvb(16, 1)
        -- bits are counted from the highest one
        if layout == DRAFT then
            tree:add(f.mode, octet, octet:bitfield(4, 3))
            tree:add(f.source, octet, octet:bitfield(7, 1) == 1)
        else
            tree:add(f.mode, octet, octet:bitfield(1, 3))
            tree:add(f.source, octet, octet:bitfield(0, 1) == 1)
        end
    end,
    [0x0d] = function(tvb, tree, layout)
        tree:add(f.port, tvb(16 + layout.port, 2))
    end,
    [SRC_AVAIL] = function(tvb, tree)
        tree:add(f.octets, tvb(16, 4))
        tree:add(f.stag, tvb(20, 4))
        tree:add(f.va, tvb(24, 8))
    end,
}
extended[SINK_AVAIL] = function(tvb, tree, layout)
    extended[SRC_AVAIL](tvb, tree, layout)
    tree:add(f.discards, tvb(32, 4))
end
for _, mid in ipairs({ 0x05, 0x06 }) do
    extended[mid] = function(tvb, tree) tree:add(f.octets, tvb(16, 4)) end
end
for _, mid in ipairs({ 0x0b, 0x0c }) do
    extended[mid] = function(tvb, tree) tree:add(f.size, tvb(16, 4)) end
end

-- whole: all of the message is here, or else its first segment
local function show(tvb, pinfo, root, layout, whole)
    local mid = tvb(layout.mid, 1):uint()
    local len = tvb(4, 4):uint()
    local message = messages[mid]
    local name = message and message[1] or string.format("message 0x%02x", mid)
    local size = message and message[2] or 16
    local tree = root:add(sdp, tvb(), string.format("SDP %s, length %u", name, len))

    tree:add(f.layout, layout.name):set_generated()
    tree:add(f.bufs, tvb(layout.bufs, 2))
    local flags = tree:add(f.flags, tvb(layout.flags, 1))
    flags:add(f.oob_pres, tvb(layout.flags, 1))
    flags:add(f.oob_pend, tvb(layout.flags, 1))
    flags:add(f.req_pipe, tvb(layout.flags, 1))
    if tvb(layout.flags, 1):uint() >= 8 then
        flags:add_proto_expert_info(bad_flags)
    end
    tree:add(f.mid, tvb(layout.mid, 1))
    local length = tree:add(f.len, tvb(4, 4))
    tree:add(f.mseq, tvb(8, 4))
    tree:add(f.mseq_ack, tvb(12, 4))
    if len < size or len < tvb:len() or (whole and len ~= tvb:len()) or
        (message and not carries[mid] and len ~= size) then
        length:add_proto_expert_info(bad_length)
    elseif tvb:len() >= size then
        if extended[mid] then
            extended[mid](tvb, tree, layout)
        end
        if tvb:len() > size then
            tree:add(f.data, tvb(size))
        end
    end
    pinfo.cols.protocol = "SDP"
    pinfo.cols.info:append(string.format(" [SDP %s]", name))
end

-- Each Send of iWARP is a message; here are some of its segments, up to the one at hand.
local function of_send(tvb, pinfo, root)
    if last(ddp_qn) ~= 0 then
        return false
    end
    local from = last(ddp_mo) + last(ulpdu_length) - UNTAGGED - tvb:len()
    if from > 0 then
        if not layouts[last(tcp_stream)] then
            return false
        end
        root:add(sdp, tvb(), "SDP, continued"):add(f.continued, tvb())
        return true
    elseif tvb:len() < 16 then
        return false
    end
    local layout = layout_of_message(tvb)
    if not layout then
        return false
    end
    layouts[last(tcp_stream)] = layout
    show(tvb, pinfo, root, layout, last(ddp_last))
    return true
end

local function of_tcp(tvb, pinfo, root)
    local layout = tvb:len() == 32 and layout_of_hello(tvb)
    if not layout then
        return false
    end
    layouts[last(tcp_stream)] = layout
    show(tvb, pinfo, root, layout, true)
    return true
end

sdp:register_heuristic("iwarp_ddp_rdmap", of_send)
sdp:register_heuristic("tcp", of_tcp)

-- The port mapper -----------------------------------------------------------------------

local types = { [0] = "Request", [1] = "Accept", [2] = "Ack", [3] = "Deny" }

local p = {
    version = ProtoField.uint8("sdp_pm.version", "Version", base.DEC, nil, 0xc0),
    type = ProtoField.uint8("sdp_pm.type", "Type", base.DEC, types, 0x30),
    ip = ProtoField.uint8("sdp_pm.ip_version", "IP version", base.DEC, nil, 0x0f),
    time = ProtoField.uint8("sdp_pm.time", "PmTime"),
    ap_port = ProtoField.uint16("sdp_pm.ap_port", "Port of the accepting peer"),
    cp_port = ProtoField.uint16("sdp_pm.cp_port", "Port of the connecting peer"),
    handle = ProtoField.uint64("sdp_pm.handle", "AssocHandle", base.HEX),
    cp_ip4 = ProtoField.ipv4("sdp_pm.cp_ip", "Connecting peer"),
    ap_ip4 = ProtoField.ipv4("sdp_pm.ap_ip", "Accepting peer"),
    cp_ip6 = ProtoField.ipv6("sdp_pm.cp_ip6", "Connecting peer"),
    ap_ip6 = ProtoField.ipv6("sdp_pm.ap_ip6", "Accepting peer"),
    more = ProtoField.bytes("sdp_pm.more", "Extension of another implementation"),
}
pm.fields = p

-- How long an answer may be kept
local function time_text(time)
    if time == 0 then
        return "once"
    elseif time == 255 then
        return "for ever"
    end
    return time < 128 and string.format("%u ms", time * 250) or string.format("%u s", time)
end

function pm.dissector(tvb, pinfo, root)
    if tvb:len() < 48 then
        return 0
    end
    local first = tvb(0, 1)
    local kind, ip = first:bitfield(2, 2), first:bitfield(4, 4)
    if first:uint() >= 0x40 or (ip ~= 4 and ip ~= 6) then
        return 0
    end
    local tree = root:add(pm, tvb(), "SDP Port Mapper, " .. types[kind])
    tree:add(p.version, tvb(0, 1))
    tree:add(p.type, tvb(0, 1))
    tree:add(p.ip, tvb(0, 1))
    tree:add(p.time, tvb(1, 1)):append_text(" (" .. time_text(tvb(1, 1):uint()) .. ")")
    tree:add(p.ap_port, tvb(4, 2))
    tree:add(p.cp_port, tvb(6, 2))
    tree:add(p.handle, tvb(8, 8))
    if ip == 4 then
        tree:add(p.cp_ip4, tvb(16, 4))
        tree:add(p.ap_ip4, tvb(32, 4))
    else
        tree:add(p.cp_ip6, tvb(16, 16))
        tree:add(p.ap_ip6, tvb(32, 16))
    end
    if tvb:len() > 48 then
        tree:add(p.more, tvb(48))
    end
    pinfo.cols.protocol = "SDP-PM"
    pinfo.cols.info = string.format("%s, port %u", types[kind], tvb(4, 2):uint())
    return tvb:len()
end

DissectorTable.get("udp.port"):add(3935, pm)
