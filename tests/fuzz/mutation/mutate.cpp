// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "mutation/mutate.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace softwarp::fuzz {

namespace {

constexpr uint32_t kMaxReads = 8;     // Read Requests of one session, within the IRD asked for
constexpr uint32_t kReadable = 16391; // size of the readable region
constexpr uint32_t kWritable = 40001;

uint32_t size_near(Random &random, uint32_t limit) {
    switch (random.below(6)) {
    case 0: return static_cast<uint32_t>(random.below(4));
    case 1: return limit - static_cast<uint32_t>(random.below(4));
    case 2: return static_cast<uint32_t>(random.below(limit));
    default: return static_cast<uint32_t>(random.below(256));
    }
}

uint32_t segment_near(Random &random, uint32_t size) {
    /* no more than some thirty FPDUs to a message */
    uint32_t least = size / 30 + 1;
    switch (random.below(4)) {
    case 0: return 1 << 16;
    case 1: return least;
    case 2: return std::max(least, 1440U);
    default: return least + static_cast<uint32_t>(random.below(2000));
    }
}

Message any_message(Random &random, uint32_t &reads, uint32_t &sends) {
    Message message;
    message.mutated = true;
    message.fill = static_cast<uint8_t>(random.next());
    switch (random.below(11)) {
    case 8:
        if (reads < kMaxReads) {
            reads++;
            message.what = What::atomic;
            message.flavour = random.chance(50) ? wire::kFetchAdd : wire::kCmpSwap;
            message.at = 8 * static_cast<uint32_t>(random.below(Memory::kWords));
            return message;
        }
        [[fallthrough]];
    case 9:
        if (sends < Memory::kReceives) {
            sends++;
            message.what = What::immediate;
            message.flavour = static_cast<uint32_t>(random.below(2));
            return message;
        }
        [[fallthrough]];
    case 0:
    case 1:
        if (reads < kMaxReads) {
            reads++;
            message.what = What::read;
            message.size = size_near(random, kReadable);
            message.at = static_cast<uint32_t>(random.below(kReadable - message.size + 1));
            return message;
        }
        [[fallthrough]];
    case 2:
    case 3:
        if (sends < Memory::kReceives) {
            sends++;
            message.what = What::send;
            message.size = size_near(random, Memory::kReceiveSize);
            message.segment = segment_near(random, message.size);
            message.flavour = static_cast<uint32_t>(random.below(2));
            return message;
        }
        [[fallthrough]];
    default:
        message.what = What::write;
        message.size = size_near(random, random.chance(10) ? kWritable : 2000);
        message.at = static_cast<uint32_t>(random.below(kWritable - message.size + 1));
        message.segment = segment_near(random, message.size);
        return message;
    }
}

/* Numbers that are edges somewhere. */
uint32_t edge32(Random &random) {
    switch (random.below(6)) {
    case 0: return 0;
    case 1: return 0xffffffffU - static_cast<uint32_t>(random.below(3));
    case 2: return 0x80000000U - 1 + static_cast<uint32_t>(random.below(3));
    case 3: return 1U << random.below(32);
    case 4: return static_cast<uint32_t>(random.below(70000));
    default: return static_cast<uint32_t>(random.next());
    }
}

uint64_t edge64(Random &random, const Span &near) {
    switch (random.below(7)) {
    case 0: return 0;
    case 1: return ~uint64_t{0} - random.below(70000);
    case 2: return near.addr - 1 - random.below(4096);
    case 3: return near.addr + near.size - random.below(3);
    case 4: return near.addr + random.below(near.size + 1);
    case 5: return uint64_t{1} << random.below(64);
    default: return random.next();
    }
}

uint32_t edge_stag(Random &random, const Target &target) {
    switch (random.below(11)) {
    case 10: return target.words.stag;
    case 0: return target.readonly.stag;
    case 1: return target.local.stag;
    case 2: return target.sink.stag;
    case 3: return target.foreign.stag;
    case 4: return target.stale.stag;
    case 5: return target.open.stag;
    case 6: return target.open.stag ^ static_cast<uint32_t>(1U << random.below(32));
    case 7: return (target.open.stag & 0xffffff00U) | static_cast<uint32_t>(random.below(256));
    case 8: return static_cast<uint32_t>(random.below(256));
    default: return edge32(random);
    }
}

void set(Bytes &octets, size_t at, uint64_t value, size_t count) {
    for (size_t i = 0; i < count && at + i < octets.size(); i++)
        octets[at + i] = static_cast<uint8_t>(value >> (8 * (count - 1 - i)));
}

uint64_t get(const Bytes &octets, size_t at, size_t count) {
    uint64_t value = 0;
    for (size_t i = 0; i < count && at + i < octets.size(); i++)
        value = value << 8 | octets[at + i];
    return value;
}

bool is_tagged(const Frame &frame) {
    return !frame.ulpdu.empty() && (frame.ulpdu[0] & wire::kDdpTagged) != 0;
}

bool is_read(const Frame &frame) {
    return frame.ulpdu.size() >= 46 && (frame.ulpdu[1] & 0x0f) == wire::kOpReadRequest;
}

bool is_atomic(const Frame &frame) {
    return frame.ulpdu.size() >= wire::kUntaggedHeader + wire::kAtomicRequest &&
           (frame.ulpdu[1] & 0x0f) == wire::kOpAtomicRequest;
}

void fix_length(Frame &frame) {
    frame.pad.reset();
    frame.length.reset();
}

using Where = std::vector<Frame>::iterator;

struct Spoiler {
    const char *name;
    std::function<void(Random &, std::vector<Frame> &, size_t, const Target &)> apply;
};

const std::vector<Spoiler> &spoilers() {
    static const std::vector<Spoiler> all = {
        {"bits of the header",
         [](Random &random, auto &frames, size_t i, const Target &) {
             Bytes &u = frames[i].ulpdu;
             for (uint64_t n = random.range(1, 4); n != 0 && !u.empty(); n--)
                 u[random.below(std::min<size_t>(u.size(), 18))] ^=
                     static_cast<uint8_t>(1U << random.below(8));
         }},
        {"bits anywhere",
         [](Random &random, auto &frames, size_t i, const Target &) {
             Bytes &u = frames[i].ulpdu;
             for (uint64_t n = random.range(1, 16); n != 0 && !u.empty(); n--)
                 u[random.below(u.size())] ^= static_cast<uint8_t>(1U << random.below(8));
         }},
        {"bits behind the CRC's back",
         [](Random &random, auto &frames, size_t i, const Target &) {
             for (uint64_t n = random.range(1, 4); n != 0; n--)
                 frames[i].flips.push_back(static_cast<uint32_t>(random.next()));
         }},
        {"DDP control octet", [](Random &random, auto &frames, size_t i,
                                 const Target &) { set(frames[i].ulpdu, 0, random.next(), 1); }},
        {"RDMAP control octet",
         [](Random &random, auto &frames, size_t i, const Target &) {
             set(frames[i].ulpdu, 1, random.chance(50) ? 0x40 | random.below(16) : random.next(),
                 1);
         }},
        {"L bit",
         [](Random &, auto &frames, size_t i, const Target &) {
             if (!frames[i].ulpdu.empty())
                 frames[i].ulpdu[0] ^= wire::kDdpLast;
         }},
        {"STag",
         [](Random &random, auto &frames, size_t i, const Target &target) {
             set(frames[i].ulpdu, 2, edge_stag(random, target), 4);
         }},
        {"offset or MSN",
         [](Random &random, auto &frames, size_t i, const Target &target) {
             Bytes &u = frames[i].ulpdu;
             if (is_tagged(frames[i]))
                 set(u, 6, edge64(random, target.open), 8);
             else
                 set(u, 10,
                     random.chance(50) ? get(u, 10, 4) + random.range(0, 4) - 2 : edge32(random),
                     4);
         }},
        {"queue number",
         [](Random &random, auto &frames, size_t i, const Target &) {
             if (!is_tagged(frames[i]))
                 set(frames[i].ulpdu, 6, random.chance(70) ? random.below(5) : edge32(random), 4);
         }},
        {"message offset",
         [](Random &random, auto &frames, size_t i, const Target &) {
             Bytes &u = frames[i].ulpdu;
             if (!is_tagged(frames[i]))
                 set(u, 14,
                     random.chance(50) ? get(u, 14, 4) + random.range(0, 4) - 2 : edge32(random),
                     4);
         }},
        {"Read Request",
         [](Random &random, auto &frames, size_t i, const Target &target) {
             Bytes &u = frames[i].ulpdu;
             if (!is_read(frames[i])) {
                 u = wire::ReadRequest{1, 2, 100, target.readonly.stag, target.readonly.addr}.bytes(
                     static_cast<uint32_t>(random.range(1, 3)));
                 fix_length(frames[i]);
             }
             switch (random.below(4)) {
             case 0: set(u, 30, edge32(random), 4); break;
             case 1: set(u, 34, edge_stag(random, target), 4); break;
             case 2: set(u, 38, edge64(random, target.readonly), 8); break;
             default:
                 set(u, 30, edge32(random), 4);
                 set(u, 34, edge_stag(random, target), 4);
                 set(u, 38, edge64(random, target.open), 8);
             }
         }},
        {"Atomic Request",
         [](Random &random, auto &frames, size_t i, const Target &target) {
             Bytes &u = frames[i].ulpdu;
             if (!is_atomic(frames[i])) {
                 u = wire::AtomicRequest::fetch_add(1, target.words.stag, target.words.addr, 1)
                         .bytes(static_cast<uint32_t>(random.range(1, 3)));
                 fix_length(frames[i]);
             }
             switch (random.below(5)) {
             case 0: set(u, 18, random.chance(50) ? random.below(16) : edge32(random), 4); break;
             case 1: set(u, 26, edge_stag(random, target), 4); break;
             case 2: set(u, 30, edge64(random, target.words), 8); break;
             case 3: set(u, 30, target.words.addr + random.below(target.words.size + 16), 8); break;
             default:
                 set(u, 26, edge_stag(random, target), 4);
                 set(u, 30, edge64(random, target.open) & ~uint64_t{7}, 8);
             }
         }},
        {"unasked Atomic Response",
         [](Random &random, auto &frames, size_t i, const Target &) {
             frames[i].ulpdu =
                 wire::AtomicResponse{.id = random.chance(50)
                                                ? static_cast<uint32_t>(random.below(8))
                                                : edge32(random),
                                      .value = random.next()}
                     .bytes(static_cast<uint32_t>(random.range(1, 3)));
             fix_length(frames[i]);
         }},
        {"Immediate Data",
         [](Random &random, auto &frames, size_t i, const Target &) {
             Bytes &u = frames[i].ulpdu;
             if (is_tagged(frames[i]) || is_read(frames[i]) || is_atomic(frames[i]))
                 u = wire::Untagged{.msn = static_cast<uint32_t>(random.range(1, 4))}.bytes();
             u.resize(std::min<size_t>(u.size(), wire::kUntaggedHeader));
             u.resize(u.size() + random.pick<size_t>({0, 4, 7, 8, 8, 8, 9, 12, 100}),
                      static_cast<uint8_t>(random.next()));
             fix_length(frames[i]);
             set(u, 1, 0x40 | random.range(8, 9), 1);
         }},
        {"shorter",
         [](Random &random, auto &frames, size_t i, const Target &) {
             Bytes &u = frames[i].ulpdu;
             u.resize(random.below(std::min<size_t>(u.size(), random.chance(70) ? 50 : 65536) + 1));
             fix_length(frames[i]);
         }},
        {"longer",
         [](Random &random, auto &frames, size_t i, const Target &) {
             Bytes &u = frames[i].ulpdu;
             size_t most = 65535 - u.size();
             u.resize(u.size() + 1 +
                          random.below(random.chance(95) ? std::min<size_t>(most, 64) : most),
                      static_cast<uint8_t>(random.next()));
             fix_length(frames[i]);
         }},
        {"length field",
         [](Random &random, auto &frames, size_t i, const Target &) {
             uint64_t own = frames[i].ulpdu.size();
             uint64_t value =
                 random.chance(50)
                     ? own + random.range(0, 8) - 4
                     : random.pick<uint64_t>({0, 1, 2, 3, 13, 14, 15, 17, 18, 19, 45, 46, 47, 1459,
                                              1460, 32767, 65534, 65535});
             frames[i].length = static_cast<uint16_t>(value);
         }},
        {"CRC",
         [](Random &random, auto &frames, size_t i, const Target &) {
             frames[i].crc = random.chance(50) ? wire::Crc::bad : wire::Crc::zero;
         }},
        {"twice",
         [](Random &, auto &frames, size_t i, const Target &) {
             Frame copy = frames[i];
             frames.insert(frames.begin() + static_cast<ptrdiff_t>(i), copy);
         }},
        {"swapped",
         [](Random &random, auto &frames, size_t i, const Target &) {
             size_t j = random.below(frames.size());
             std::swap(frames[i], frames[j]);
             frames[j].mutated = true;
         }},
        {"left out",
         [](Random &, auto &frames, size_t i, const Target &) {
             if (i + 1 == frames.size())
                 return;
             frames.erase(frames.begin() + static_cast<ptrdiff_t>(i));
         }},
        {"garbage in front",
         [](Random &random, auto &frames, size_t i, const Target &) {
             for (uint64_t n = random.range(1, 40); n != 0; n--)
                 frames[i].garbage.push_back(static_cast<uint8_t>(random.next()));
         }},
        {"start-up again",
         [](Random &random, auto &frames, size_t i, const Target &) {
             frames[i].garbage = wire::mpa_frame(random.chance(50), wire::kMpaCrc, 1);
         }},
        {"any opcode",
         [](Random &random, auto &frames, size_t i, const Target &target) {
             uint8_t opcode = static_cast<uint8_t>(random.below(16));
             uint8_t last = random.chance(80) ? wire::kDdpLast : 0;
             Bytes payload(random.below(100), static_cast<uint8_t>(random.next()));
             if (random.chance(50))
                 frames[i].ulpdu =
                     wire::Tagged{.ddp = static_cast<uint8_t>(0x81 | last),
                                  .rdmap = static_cast<uint8_t>(wire::kRdmapVersion | opcode),
                                  .stag = edge_stag(random, target),
                                  .to = edge64(random, target.open),
                                  .payload = payload}
                         .bytes();
             else
                 frames[i].ulpdu =
                     wire::Untagged{.ddp = static_cast<uint8_t>(0x01 | last),
                                    .rdmap = static_cast<uint8_t>(wire::kRdmapVersion | opcode),
                                    .invalidate = edge_stag(random, target),
                                    .qn = static_cast<uint32_t>(random.below(5)),
                                    .msn = static_cast<uint32_t>(random.below(4)),
                                    .mo = random.chance(80) ? 0 : edge32(random),
                                    .payload = payload}
                         .bytes();
             fix_length(frames[i]);
         }},
        {"unasked Read Response",
         [](Random &random, auto &frames, size_t i, const Target &target) {
             frames[i].ulpdu =
                 wire::Tagged{
                     .rdmap = wire::kRdmapVersion | wire::kOpReadResponse,
                     .stag = random.chance(50) ? target.sink.stag : edge_stag(random, target),
                     .to = random.chance(50) ? target.sink.addr + 64 : edge64(random, target.sink),
                     .payload = Bytes(random.below(200), 0x55)}
                     .bytes();
             fix_length(frames[i]);
         }},
        {"Send with Invalidate",
         [](Random &random, auto &frames, size_t i, const Target &target) {
             Bytes &u = frames[i].ulpdu;
             if (is_tagged(frames[i]) || is_read(frames[i]))
                 u = wire::Untagged{.payload = Bytes(random.below(100), 1)}.bytes();
             fix_length(frames[i]);
             set(u, 1, 0x40 | random.pick<uint64_t>({4, 6}), 1);
             set(u, 2, edge_stag(random, target), 4);
         }},
        {"Terminate",
         [](Random &random, auto &frames, size_t i, const Target &) {
             wire::Terminate terminate{.layer = static_cast<uint8_t>(random.below(4)),
                                       .etype = static_cast<uint8_t>(random.below(4)),
                                       .code = static_cast<uint8_t>(random.below(10))};
             terminate.m = random.chance(50);
             terminate.d = random.chance(50);
             terminate.r = random.chance(50);
             terminate.reserved = random.chance(50) ? 0 : static_cast<uint16_t>(random.next());
             terminate.length = static_cast<uint16_t>(edge32(random));
             terminate.ddp_header = Bytes(random.pick<size_t>({0, 1, 13, 14, 17, 18, 19}),
                                          static_cast<uint8_t>(random.next()));
             terminate.rdma_header = Bytes(random.pick<size_t>({0, 1, 27, 28, 29}),
                                           static_cast<uint8_t>(random.next()));
             terminate.rest = Bytes(random.chance(80) ? 0 : random.below(300), 0x42);
             frames[i].ulpdu = terminate.bytes();
             if (random.chance(20))
                 frames[i].ulpdu.resize(random.below(frames[i].ulpdu.size()));
             fix_length(frames[i]);
         }},
        {"header of another",
         [](Random &random, auto &frames, size_t i, const Target &) {
             const Frame &other = frames[random.below(frames.size())];
             Bytes &u = frames[i].ulpdu;
             size_t n = std::min({u.size(), other.ulpdu.size(), size_t{18}});
             std::copy_n(other.ulpdu.begin(), n, u.begin());
         }},
        {"markers",
         [](Random &, auto &frames, size_t i, const Target &) { frames[i].lying_markers = true; }},
    };
    return all;
}

} // namespace

void vary(Random &random, Session &session, Changes &changes) {
    std::vector<Message> &messages = session.messages;
    /* a message that ends the stream stays at the end */
    size_t keep = 0;
    if (!messages.empty() && messages.back().what == What::terminate)
        keep = 1;
    /* and one that opens it at the start */
    size_t open = session.startup.p2p && !messages.empty() &&
                          (!session.startup.device_connects || messages[0].flavour == 0xffff)
                      ? 1
                      : 0;

    uint32_t reads = 0, sends = 0;
    for (const Message &message : messages) {
        reads += message.what == What::read || message.what == What::atomic;
        sends += message.what == What::send || message.what == What::immediate;
    }
    for (size_t i = open; i + keep < messages.size(); i++) {
        Message &message = messages[i];
        message.mutated = true;
        switch (message.what) {
        case What::send: message.size = size_near(random, Memory::kReceiveSize); break;
        case What::write:
            message.size = size_near(random, random.chance(10) ? kWritable : 2000);
            message.at = static_cast<uint32_t>(random.below(kWritable - message.size + 1));
            break;
        case What::read:
            message.size = size_near(random, kReadable);
            message.at = static_cast<uint32_t>(random.below(kReadable - message.size + 1));
            break;
        case What::atomic:
            message.flavour = random.chance(50) ? wire::kFetchAdd : wire::kCmpSwap;
            message.at = 8 * static_cast<uint32_t>(random.below(Memory::kWords));
            break;
        case What::immediate: message.flavour = static_cast<uint32_t>(random.below(2)); break;
        case What::value:
        case What::response:
        case What::terminate: break;
        }
        message.segment = segment_near(random, message.size);
    }
    changes["contents, sizes, places and segments"]++;

    uint64_t more = random.range(1, 12);
    for (uint64_t n = 0; n < more; n++) {
        size_t at = random.range(open, messages.size() - keep);
        messages.insert(messages.begin() + static_cast<ptrdiff_t>(at),
                        any_message(random, reads, sends));
    }
    changes["messages added"] += more;

    for (Message &message : messages) {
        message.fill = static_cast<uint8_t>(random.next());
        if (random.chance(15)) {
            message.reserved = static_cast<uint8_t>(random.next());
            message.mutated = true;
            changes["reserved bits"]++;
        }
        if (random.chance(10)) {
            message.ignored = static_cast<uint32_t>(random.next());
            message.mutated = true;
            changes["fields without meaning"]++;
        }
        if (random.chance(10)) {
            message.pad = true;
            message.mutated = true;
            changes["pad"]++;
        }
    }
}

void spoil(Random &random, std::vector<Frame> &frames, const Target &target, Changes &changes) {
    if (frames.empty())
        frames.push_back({.ulpdu = wire::Untagged{}.bytes()});
    /* late ones more often, as the stream seldom survives one */
    size_t first = std::max(random.below(frames.size()), random.below(frames.size()));
    uint64_t count = random.chance(75) ? 1 : random.range(2, 3);
    for (uint64_t n = 0; n < count; n++) {
        size_t at = n == 0 ? first : random.range(first, frames.size() - 1);
        at = std::min(at, frames.size() - 1);
        const Spoiler &spoiler = spoilers()[random.below(spoilers().size())];
        spoiler.apply(random, frames, at, target);
        frames[std::min(at, frames.size() - 1)].mutated = true;
        changes[spoiler.name]++;
    }
    /* what comes behind is looked at by few */
    size_t end = std::min(frames.size(), first + 4);
    frames.resize(end);
}

void spoil_startup(Random &random, const wire::MpaFrame &legal, Bytes &octets, Changes &changes) {
    wire::MpaFrame frame = legal;
    switch (random.below(9)) {
    case 0:
        for (uint64_t n = random.range(1, 4); n != 0; n--)
            octets[random.below(octets.size())] ^= static_cast<uint8_t>(1U << random.below(8));
        changes["start-up: bits"]++;
        return;
    case 1:
        frame.flags = static_cast<uint8_t>(random.next());
        changes["start-up: flags"]++;
        break;
    case 2:
        frame.revision = random.pick<uint8_t>({0, 1, 2, 3, 127, 255});
        changes["start-up: revision"]++;
        break;
    case 3:
        frame.pd_length =
            random.pick<uint16_t>({0, 1, 3, 4, 5, 255, 256, 508, 509, 511, 512, 513, 32768, 65535});
        changes["start-up: length"]++;
        break;
    case 4:
        frame.private_data =
            Bytes(random.pick<size_t>({1, 4, 251, 252, 255, 256, 504, 508, 509, 512, 513, 600}),
                  static_cast<uint8_t>(random.next()));
        changes["start-up: private data"]++;
        break;
    case 5:
        if (!frame.enhanced)
            frame.enhanced.emplace();
        frame.revision = 2;
        frame.enhanced->ird = random.pick<uint16_t>({0, 1, 16, 128, 129, 255, 256, 0x3ffe, 0x3fff});
        frame.enhanced->ord = random.pick<uint16_t>({0, 1, 16, 128, 129, 255, 256, 0x3ffe, 0x3fff});
        frame.enhanced->p2p = random.chance(50);
        frame.enhanced->rtr = static_cast<unsigned>(random.below(8));
        changes["start-up: enhanced data"]++;
        break;
    case 6:
        frame.key[random.below(16)] ^= static_cast<char>(1U << random.below(7));
        changes["start-up: key"]++;
        break;
    case 7:
        octets.resize(random.below(octets.size()));
        changes["start-up: cut"]++;
        return;
    default:
        for (uint64_t n = random.range(1, 100); n != 0; n--)
            octets.push_back(static_cast<uint8_t>(random.next()));
        changes["start-up: octets behind"]++;
        return;
    }
    octets = frame.bytes();
}

} // namespace softwarp::fuzz
