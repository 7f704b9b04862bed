// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "mutation/session.hpp"

#include <algorithm>

namespace softwarp::fuzz {

namespace {

using wire::kDdpLast;
using wire::kDdpTagged;
using wire::kDdpVersion;
using wire::kRdmapVersion;

/* The Read that the device sends as its RTR, of no octets, counts as none of the consumer's. */
constexpr uint32_t kRtrNumber = 0xffff;
constexpr uint32_t kRtrStag = 1;

/* What the peer says, in full, for one way of starting up. */
struct Script {
    const char *name;
    Consumer consumer;
    std::vector<Message> messages;
};

Message send(uint32_t size, uint32_t segment = 1 << 16, uint32_t solicited = 0) {
    return {.what = What::send, .size = size, .segment = segment, .flavour = solicited};
}

Message write(uint32_t size, uint32_t at = 0, uint32_t segment = 1 << 16) {
    return {.what = What::write, .size = size, .at = at, .segment = segment};
}

Message read(uint32_t size, uint32_t at = 0) {
    return {.what = What::read, .size = size, .at = at};
}

Message response(uint32_t number, uint32_t size, uint32_t segment = 1 << 16) {
    return {.what = What::response, .size = size, .segment = segment, .flavour = number};
}

Message atomic(uint32_t operation, uint32_t word) {
    return {.what = What::atomic, .at = 8 * word, .flavour = operation};
}

Message value(uint32_t number) {
    return {.what = What::value, .flavour = number};
}

Message immediate(uint32_t solicited = 0) {
    return {.what = What::immediate, .flavour = solicited};
}

Message terminate(uint32_t layer, uint32_t etype, uint32_t code) {
    return {.what = What::terminate, .flavour = layer << 12 | etype << 8 | code};
}

const std::vector<Script> &scripts() {
    static const std::vector<Script> all = {
        {"sends", {}, {send(1), send(64), send(0), send(2048), send(13, 1 << 16, 1), send(1000)}},
        {"sends in segments", {}, {send(2048, 100), send(7, 1), send(1500, 512), send(3)}},
        {"writes",
         {},
         {write(1), write(0), write(4096, 3), write(40001), write(9, 39992), write(64, 64)}},
        {"writes in segments",
         {},
         {write(10000, 1, 1000), write(77, 5, 11), write(2000, 100, 1460)}},
        {"reads", {}, {read(1), read(0), read(4096, 8), read(16391), read(64, 11), read(5, 16386)}},
        {"all of the peer's",
         {},
         {write(512), send(100), read(2000), write(2000, 4000, 512), send(2000, 512, 1), read(10)}},
        {"responses",
         {{1, 4096, 100}, {}, {}},
         {write(4), response(0, 1), response(1, 4096), response(2, 100)}},
        {"responses in segments",
         {{4096, 777}, {}, {}},
         {write(4), response(0, 4096, 400), response(1, 777, 10)}},
        {"both ways",
         {{2000, 30}, {100, 4000}, {1000, 8192}},
         {send(10), read(3000), response(0, 2000, 700), write(100), response(1, 30), send(700),
          read(100)}},
        {"sends to the peer", {{}, {0, 1, 8192}, {}}, {send(4), send(4)}},
        {"writes to the peer", {{}, {}, {1, 8192, 100}}, {write(4), send(4)}},
        {"atomics",
         {},
         {atomic(wire::kFetchAdd, 0), atomic(wire::kCmpSwap, 0), read(8), atomic(0, 31), write(4),
          atomic(wire::kCmpSwap, 7), send(5), atomic(wire::kFetchAdd, 31)}},
        {"immediate data",
         {},
         {immediate(), send(100), immediate(1), write(2000, 8, 512), immediate(), write(0),
          immediate(1), immediate()}},
        {"atomics on the peer", {.atomics = 3}, {write(4), value(0), value(1), send(3), value(2)}},
        {"reads and atomics of both",
         {.reads = {100, 1}, .sends = {7}, .atomics = 2},
         {atomic(0, 1), response(0, 100, 64), read(3), response(1, 1), value(0), atomic(2, 1),
          value(1), immediate()}},
        {"immediate data to the peer",
         {.writes_imm = {0, 1, 8192, 100}, .bare_imms = 2},
         {write(4), immediate(), send(4)}},
        {"ends with an error of an atomic", {.atomics = 1}, {write(1), terminate(0, 2, 6)}},
        {"ends with a stream's error", {}, {send(100), terminate(2, 0, 2)}},
        {"ends with an error of a read", {{100}, {}, {}}, {write(1), terminate(0, 1, 1)}},
        {"ends with an error of a send", {{}, {100}, {}}, {write(1), terminate(1, 2, 2)}},
        {"ends with an error of a write", {{}, {}, {100}}, {write(1), terminate(1, 1, 0)}},
        {"nothing", {}, {}},
    };
    return all;
}

struct Kind {
    const char *name;
    Startup startup;
};

const std::vector<Kind> &startups() {
    static const std::vector<Kind> all = {
        {"revision 1", {}},
        {"revision 1 without CRC", {.crc = false}},
        {"revision 1 with data", {.private_data = Bytes(200, 0x70)}},
        {"revision 2", {.revision = 2, .enhanced = true}},
        {"revision 2, RTR Write",
         {.revision = 2, .enhanced = true, .p2p = true, .rtr = wire::kRtrWrite}},
        {"revision 2, RTR Read",
         {.revision = 2,
          .enhanced = true,
          .p2p = true,
          .rtr = wire::kRtrRead,
          .private_data = Bytes(3, 1)}},
        {"revision 2, RTR Send",
         {.revision = 2, .enhanced = true, .p2p = true, .rtr = wire::kRtrSend}},
        {"revision 1, markers", {.markers = true}},
        {"revision 2, markers, RTR Write",
         {.revision = 2, .markers = true, .enhanced = true, .p2p = true, .rtr = wire::kRtrWrite}},
        {"device connects, markers, RTR Write",
         {.device_connects = true,
          .revision = 2,
          .markers = true,
          .enhanced = true,
          .p2p = true,
          .rtr = wire::kRtrWrite}},
        {"device connects, revision 2, RTR Send",
         {.device_connects = true,
          .revision = 2,
          .enhanced = true,
          .p2p = true,
          .rtr = wire::kRtrSend}},
        {"device connects, revision 2, RTR Write",
         {.device_connects = true,
          .revision = 2,
          .enhanced = true,
          .p2p = true,
          .rtr = wire::kRtrWrite}},
        {"device connects, revision 2, RTR Read",
         {.device_connects = true,
          .revision = 2,
          .enhanced = true,
          .p2p = true,
          .rtr = wire::kRtrRead}},
        {"revision 0", {.revision = 0, .markers = true}},
    };
    return all;
}

/* Those of RFC 7306 came later than revision 0. */
bool fits(const Startup &startup, const Script &script) {
    if (startup.revision != 0)
        return true;
    const Consumer &consumer = script.consumer;
    return consumer.atomics == 0 && consumer.writes_imm.empty() && consumer.bare_imms == 0 &&
           std::none_of(script.messages.begin(), script.messages.end(), [](const Message &message) {
               return message.what == What::atomic || message.what == What::value ||
                      message.what == What::immediate;
           });
}

/* The RTR, or the answer to it, which comes before all else. */
void add_rtr(const Startup &startup, std::vector<Message> &messages) {
    if (!startup.p2p)
        return;
    if (startup.device_connects) {
        if (startup.rtr == wire::kRtrRead)
            messages.insert(messages.begin(), response(kRtrNumber, 0));
        return;
    }
    Message rtr;
    if (startup.rtr == wire::kRtrRead)
        rtr = read(0);
    else if (startup.rtr == wire::kRtrSend)
        rtr = send(0);
    else
        rtr = write(0);
    messages.insert(messages.begin(), rtr);
}

class Assembler {
  public:
    Assembler(const Target &target, const Consumer &consumer)
        : target_(target), reads_(consumer.reads.size()), atomics_(consumer.atomics) {}

    void add(const Message &message) {
        switch (message.what) {
        case What::send: add_send(message); break;
        case What::write: add_write(message); break;
        case What::read: add_read(message); break;
        case What::response: add_response(message); break;
        case What::terminate: add_terminate(message); break;
        case What::atomic: add_atomic(message); break;
        case What::value: add_value(message); break;
        case What::immediate: add_immediate(message); break;
        }
    }
    std::vector<Frame> take() { return std::move(frames_); }

  private:
    Frame &put(const Message &message, Bytes ulpdu) {
        Frame frame{.ulpdu = std::move(ulpdu), .mutated = message.mutated};
        if (message.pad)
            frame.pad = Bytes((4 - (2 + frame.ulpdu.size()) % 4) % 4, 0xff);
        frames_.push_back(std::move(frame));
        return frames_.back();
    }

    /* Calls piece(offset, size, last) for each segment of a message. */
    template<typename Piece>
    void cut(const Message &message, uint32_t header, Piece &&piece) {
        uint32_t most = std::clamp<uint32_t>(message.segment, 1, 65535 - header);
        uint32_t offset = 0;
        do {
            uint32_t size = std::min(most, message.size - offset);
            piece(offset, size, offset + size == message.size);
            offset += size;
        } while (offset < message.size);
    }

    static uint8_t control(const Message &message, bool tagged, bool last) {
        return static_cast<uint8_t>(kDdpVersion | (tagged ? kDdpTagged : 0) |
                                    (last ? kDdpLast : 0) | (message.reserved & 0x3c));
    }

    static uint8_t rdmap(const Message &message, uint8_t opcode) {
        return static_cast<uint8_t>(kRdmapVersion | opcode | (message.reserved & 0x30));
    }

    void add_send(const Message &message) {
        uint8_t opcode = message.flavour == 1 ? wire::kOpSendSolicited : wire::kOpSend;
        cut(message, wire::kUntaggedHeader, [&](uint32_t offset, uint32_t size, bool last) {
            put(message, wire::Untagged{.ddp = control(message, false, last),
                                        .rdmap = rdmap(message, opcode),
                                        .invalidate = message.ignored,
                                        .qn = 0,
                                        .msn = send_msn_,
                                        .mo = offset,
                                        .payload = Bytes(size, message.fill)}
                             .bytes());
        });
        send_msn_++;
    }

    void tagged(const Message &message, uint8_t opcode, uint32_t stag, uint64_t to,
                unsigned after) {
        cut(message, wire::kTaggedHeader, [&](uint32_t offset, uint32_t size, bool last) {
            Frame &frame = put(message, wire::Tagged{.ddp = control(message, true, last),
                                                     .rdmap = rdmap(message, opcode),
                                                     .stag = stag,
                                                     .to = to + offset,
                                                     .payload = Bytes(size, message.fill)}
                                            .bytes());
            frame.after_reads = after;
        });
    }

    void add_write(const Message &message) {
        tagged(message, wire::kOpWrite, target_.open.stag, target_.open.addr + message.at, 0);
    }

    void add_response(const Message &message) {
        uint32_t number = message.flavour;
        if (number == kRtrNumber) {
            rtr_reads_ = 1;
            tagged(message, wire::kOpReadResponse, kRtrStag, 0, 1);
            return;
        }
        if (number >= reads_)
            return;
        uint64_t to = target_.sink.addr + 64 + number * (64 + Memory::kSinkSize);
        tagged(message, wire::kOpReadResponse, target_.sink.stag, to, rtr_reads_ + number + 1);
    }

    void add_read(const Message &message) {
        wire::ReadRequest request{.sink_stag = 0x7ead0000U + read_msn_,
                                  .sink_to = 0x1000U * read_msn_,
                                  .size = message.size,
                                  .src_stag = target_.readonly.stag,
                                  .src_to = target_.readonly.addr + message.at};
        put(message, wire::Untagged{.ddp = control(message, false, true),
                                    .rdmap = rdmap(message, wire::kOpReadRequest),
                                    .invalidate = message.ignored,
                                    .qn = 1,
                                    .msn = read_msn_++,
                                    .payload = request.header()}
                         .bytes());
    }

    void untagged(const Message &message, uint8_t opcode, uint32_t qn, uint32_t msn, Bytes payload,
                  unsigned after = 0) {
        put(message, wire::Untagged{.ddp = control(message, false, true),
                                    .rdmap = rdmap(message, opcode),
                                    .invalidate = message.ignored,
                                    .qn = qn,
                                    .msn = msn,
                                    .payload = std::move(payload)}
                         .bytes())
            .after_reads = after;
    }

    void add_atomic(const Message &message) {
        bool swap = message.flavour == wire::kCmpSwap;
        uint64_t data = 0x0101010101010101U * message.fill + message.at;
        wire::AtomicRequest request{.opcode = (message.ignored & ~15U) | message.flavour,
                                    .id = 0x1d000000U + read_msn_,
                                    .stag = target_.words.stag,
                                    .to = target_.words.addr + message.at,
                                    .data = data,
                                    .mask = swap ? ~uint64_t{message.fill} : message.fill,
                                    .compare = message.ignored,
                                    .compare_mask = message.ignored};
        untagged(message, wire::kOpAtomicRequest, 1, read_msn_++, request.payload());
    }

    /* The device takes the places in its send queue for identifiers; reads come first. */
    void add_value(const Message &message) {
        uint32_t number = message.flavour;
        if (number >= atomics_)
            return;
        wire::AtomicResponse response{.id = static_cast<uint32_t>(reads_) + number,
                                      .value = 0x0101010101010101U * message.fill};
        untagged(message, wire::kOpAtomicResponse, 3, value_msn_++, response.payload(),
                 static_cast<unsigned>(rtr_reads_ + reads_) + number + 1);
    }

    void add_immediate(const Message &message) {
        untagged(message, message.flavour == 1 ? wire::kOpImmediateSolicited : wire::kOpImmediate,
                 0, send_msn_++, Bytes(wire::kImmediate, message.fill));
    }

    void add_terminate(const Message &message) {
        wire::Terminate terminate{.layer = static_cast<uint8_t>(message.flavour >> 12 & 15),
                                  .etype = static_cast<uint8_t>(message.flavour >> 8 & 15),
                                  .code = static_cast<uint8_t>(message.flavour)};
        Bytes ulpdu = terminate.bytes();
        ulpdu[0] = control(message, false, true);
        put(message, std::move(ulpdu)).after_reads =
            static_cast<unsigned>(rtr_reads_ + reads_ + atomics_);
    }

    const Target &target_;
    size_t reads_;
    size_t atomics_;
    unsigned rtr_reads_ = 0;
    std::vector<Frame> frames_;
    uint32_t send_msn_ = 1;
    uint32_t read_msn_ = 1;
    uint32_t value_msn_ = 1;
};

} // namespace

const std::vector<Session> &recorded() {
    static const std::vector<Session> all = [] {
        std::vector<Session> sessions;
        for (const Kind &kind : startups()) {
            for (const Script &script : scripts()) {
                if (!fits(kind.startup, script))
                    continue;
                Session session{std::string(kind.name) + ": " + script.name, kind.startup,
                                script.consumer, script.messages};
                add_rtr(session.startup, session.messages);
                sessions.push_back(std::move(session));
            }
        }
        return sessions;
    }();
    return all;
}

wire::MpaFrame startup_frame(const Startup &startup) {
    uint8_t flags = static_cast<uint8_t>((startup.crc ? wire::kMpaCrc : 0) |
                                         (startup.markers ? wire::kMpaMarkers : 0));
    wire::MpaFrame frame =
        startup.device_connects
            ? wire::MpaFrame::reply(flags, startup.revision, startup.private_data)
            : wire::MpaFrame::request(flags, startup.revision, startup.private_data);
    if (startup.enhanced)
        frame.enhanced = wire::Enhanced{startup.ird, startup.ord, startup.p2p, startup.rtr};
    return frame;
}

std::vector<Frame> frames_of(const Session &session, const Target &target) {
    Assembler assembler(target, session.consumer);
    for (const Message &message : session.messages)
        assembler.add(message);
    std::vector<Frame> frames = assembler.take();
    /* RFC 5044 appendix C: the versions of DDP and RDMAP go with that of MPA */
    if (session.startup.revision == 0)
        for (Frame &frame : frames) {
            frame.ulpdu[0] &= 0xfc;
            frame.ulpdu[1] &= 0x3f;
        }
    return frames;
}

} // namespace softwarp::fuzz
