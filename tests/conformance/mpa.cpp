// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* MPA, RFC 5044: start-up frames, FPDUs, CRC, markers, endings. */

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>

#include <fmt/format.h>

#include "fixtures.hpp"

using namespace softwarp::conformance;

namespace {

constexpr Role kRoles[] = {Role::responder, Role::initiator};

std::string role_text(Role role) {
    return role == Role::responder ? "our responder" : "our initiator";
}

/* A Send of `payload` octets takes this much of the stream, markers apart. */
size_t send_content(size_t payload) {
    return fpdu_size(kUntaggedHeader + payload);
}

/* FPDUs ----------------------------------------------------------------------- */

/* Lengths, pads and sizes of what ours says, octet for octet. */
TEST(MpaFpdu, LayoutOfWhatWeSay) {
    REQ("MPA-01", "MPA-02", "MPA-03");
    Link link;
    Region from(link.pd(), 4096);
    memset(from.at(0), 0xff, 4096); // what pads must not be taken from
    uint32_t msn = 1;
    for (size_t length : {0, 1, 2, 3, 4, 5, 6, 7, 13, 1000, 1001, 1002, 1003}) {
        SCOPED_TRACE(length);
        link.send(length, {from.sge(0, length)});
        Fpdu unit = link.peer().hear_fpdu();
        expect_octets(unit.ulpdu, Untagged{.msn = msn++, .payload = Bytes(length, 0xff)}.bytes());
        EXPECT_EQ(get16(unit.raw, 0), kUntaggedHeader + length);
        EXPECT_EQ(unit.pad.size(), (4 - (2 + 18 + length) % 4) % 4);
        EXPECT_TRUE(unit.pad_zero());
        EXPECT_EQ(unit.raw.size(), 2 + 18 + length + unit.pad.size() + 4);
        EXPECT_EQ(unit.raw.size() % 4, 0U);
        EXPECT_TRUE(unit.crc_good);
        expect_success(link.scq(), length, IBV_WC_SEND);

        link.write(length, {from.sge(0, length)}, 0x1000, 0x77);
        unit = link.peer().hear_fpdu();
        expect_octets(unit.ulpdu,
                      Tagged{.stag = 0x77, .to = 0x1000, .payload = Bytes(length, 0xff)}.bytes());
        EXPECT_EQ(get16(unit.raw, 0), kTaggedHeader + length);
        EXPECT_TRUE(unit.pad_zero());
        EXPECT_EQ(unit.raw.size(), fpdu_size(kTaggedHeader + length));
        EXPECT_TRUE(unit.crc_good);
        expect_success(link.scq(), length, IBV_WC_RDMA_WRITE);
    }
    EXPECT_TRUE(link.peer().silent(milliseconds(20)));
}

/* Pads of every size, whatever is in them, when the CRC covers it. */
TEST(MpaFpdu, PadIsNotLookedAt) {
    REQ("MPA-03", "MPA-21");
    Link link;
    Region to(link.pd(), 4096);
    for (uint32_t i = 1; i <= 8; i++) {
        link.recv(i, {to.all()});
        Bytes ulpdu = Untagged{.msn = i, .payload = pattern(i, i)}.bytes();
        link.peer().say_fpdu(
            {.ulpdu = ulpdu, .pad = Bytes((4 - (2 + ulpdu.size()) % 4) % 4, 0xee)});
        expect_success(link.rcq(), i, IBV_WC_RECV, i);
        expect_pattern(to.at(0), i, i);
    }
}

/* The smallest FPDU holds no header of DDP's: an error, and not a hang. */
TEST(MpaFpdu, TooShortForDdp) {
    REQ("MPA-01", "MPA-49");
    for (size_t length = 0; length < kTaggedHeader; length++) {
        SCOPED_TRACE(length);
        Link link;
        Bytes ulpdu = Tagged{}.bytes();
        ulpdu.resize(length);
        link.peer().say_ulpdu(ulpdu);
        Bytes said = link.peer().hear_to_end();
        if (!said.empty()) {
            EXPECT_EQ(said.at(3), kRdmapVersion | kOpTerminate) << hex(said);
        }
        link.expect_disconnected();
    }
}

/* Length is exact and order is kept, for every small size and some large. */
TEST(MpaFpdu, ExactLengthsInOrder) {
    REQ("MPA-02", "MPA-23");
    Link link({.qp = {.send_wr = 16, .recv_wr = 256}});
    constexpr size_t kSlot = 2048;
    Region to(link.pd(), 200 * kSlot);
    to.buffer.set(0xaa);
    for (uint64_t i = 0; i < 200; i++)
        link.recv(i, {to.sge(i * kSlot, kSlot)});
    Bytes stream;
    for (uint32_t i = 0; i < 200; i++)
        append(stream, link.peer().writer().encode(
                           Untagged{.msn = i + 1, .payload = pattern(i * 7, i)}.bytes()));
    link.peer().say(stream);
    for (uint64_t i = 0; i < 200; i++) {
        expect_success(link.rcq(), i, IBV_WC_RECV, static_cast<int64_t>(i * 7));
        expect_pattern(to.at(i * kSlot), i * 7, i);
        EXPECT_EQ(mismatch_value(to.at(i * kSlot + i * 7), kSlot - i * 7, 0xaa), kSlot - i * 7);
    }
}

/* TCP may cut the stream in front of any octet. */
TEST(MpaFpdu, CutAnywhere) {
    REQ("MPA-21");
    Link link({.qp = {.send_wr = 16, .recv_wr = 256}});
    Region to(link.pd(), 64);
    uint32_t msn = 1;
    size_t size = send_content(5);
    /* Two FPDUs, cut once, in front of each octet of them. */
    for (size_t cut = 1; cut < 2 * size; cut++) {
        SCOPED_TRACE(cut);
        Bytes stream;
        for (int i = 0; i < 2; i++, msn++) {
            link.recv(msn, {to.all()});
            append(stream, link.peer().writer().encode(
                               Untagged{.msn = msn, .payload = pattern(5, msn)}.bytes()));
        }
        link.peer().say(stream, SendPlan::at({cut}));
        for (uint32_t i = msn - 2; i < msn; i++)
            expect_success(link.rcq(), i, IBV_WC_RECV, 5);
        expect_pattern(to.at(0), 5, msn - 1);
    }
    /* Every octet alone, and more than one FPDU in a piece. */
    for (size_t piece : {1, 3, 45, 150}) {
        SCOPED_TRACE(piece);
        Bytes stream;
        for (int i = 0; i < 6; i++, msn++) {
            link.recv(msn, {to.all()});
            append(stream, link.peer().writer().encode(
                               Untagged{.msn = msn, .payload = pattern(5, msn)}.bytes()));
        }
        link.peer().say(stream, SendPlan::every(piece, stream.size()));
        for (uint32_t i = msn - 6; i < msn; i++)
            expect_success(link.rcq(), i, IBV_WC_RECV, 5);
        expect_pattern(to.at(0), 5, msn - 1);
    }
}

/* A burst of many FPDUs at once; TCP packs them as it likes. */
TEST(MpaFpdu, PackedTogether) {
    REQ("MPA-21", "MPA-23");
    Link link;
    constexpr size_t kPiece = 1000;
    Region to(link.pd(), 256 * kPiece);
    Bytes stream;
    for (size_t i = 0; i < 256; i++)
        append(stream, link.peer().writer().encode(Tagged{.stag = to.rkey(),
                                                          .to = to.addr(i * kPiece),
                                                          .payload = pattern(kPiece, 5, i * kPiece)}
                                                       .bytes()));
    append(stream, link.peer().writer().encode(Untagged{}.bytes()));
    link.recv(1, {});
    link.peer().say(stream);
    expect_success(link.rcq(), 1, IBV_WC_RECV, 0);
    expect_pattern(to.at(0), to.buffer.size(), 5);
}

/* TCP's urgent octets ----------------------------------------------------------- */

/* Says them with the urgent pointer on the last one. */
void say_urgent(Stream &peer, View octets) {
    ASSERT_EQ(send(peer.fd(), octets.data(), octets.size(), MSG_OOB | MSG_NOSIGNAL),
              static_cast<ssize_t>(octets.size()));
}

/* An urgent octet is one of the stream like the others, wherever it stands in an FPDU. */
TEST(MpaFpdu, UrgentOctets) {
    REQ("MPA-21");
    for (bool markers : {false, true}) {
        Policy policy(Role::responder, "markers", markers ? "on" : "off");
        Link link;
        Region to(link.pd(), 64);
        uint32_t msn = 1;
        for (size_t at : {0, 1, 2, 10, 19, 30, 51}) {
            SCOPED_TRACE(testing::Message() << "octet " << at << " markers " << markers);
            link.recv(msn, {to.all()});
            Bytes unit = link.peer().writer().encode(
                Untagged{.msn = msn, .payload = pattern(28, msn)}.bytes());
            link.peer().say(View(unit).first(at));
            say_urgent(link.peer(), View(unit).subspan(at, 1));
            link.peer().say(View(unit).subspan(at + 1));
            expect_success(link.rcq(), msn, IBV_WC_RECV, 28);
            expect_pattern(to.at(0), 28, msn);
            msn++;
        }
        /* Many, one after the other, each urgent before the last was looked at. */
        link.recv(msn, {to.all()});
        Bytes unit =
            link.peer().writer().encode(Untagged{.msn = msn, .payload = pattern(28, msn)}.bytes());
        for (size_t at = 0; at < unit.size(); at++)
            say_urgent(link.peer(), View(unit).subspan(at, 1));
        expect_success(link.rcq(), msn, IBV_WC_RECV, 28);
        expect_pattern(to.at(0), 28, msn);
        link.send_msn = msn + 1;
        link.expect_works();
    }
}

/* The same in start-up, in either role, and between its frame and the first FPDU. */
TEST(MpaStartup, UrgentOctets) {
    REQ("MPA-35", "MPA-40");
    for (size_t at : {0, 5, 19, 23}) {
        SCOPED_TRACE(at);
        Passive passive;
        Bytes request = MpaFrame::request(kMpaCrc, 1, {1, 2, 3, 4}).bytes();
        passive.peer.say(View(request).first(at));
        say_urgent(passive.peer, View(request).subspan(at, 1));
        passive.peer.say(View(request).subspan(at + 1));
        CmEvent event = passive.expect_request();
        EXPECT_EQ(Bytes(event.private_data.begin(), event.private_data.begin() + 4),
                  (Bytes{1, 2, 3, 4}));
        Endpoint &ours = passive.accept(event);
        passive.peer.hear_frame();
        ours.expect(RDMA_CM_EVENT_ESTABLISHED);
        Bytes first = fpdu(Untagged{.payload = {1, 2}}.bytes());
        Region to(ours.pd(), 64);
        ours.recv(1, {to.all()});
        say_urgent(passive.peer, View(first).first(1));
        passive.peer.say(View(first).subspan(1));
        expect_success(ours.rcq(), 1, IBV_WC_RECV, 2);
    }
    for (size_t at : {0, 19}) {
        SCOPED_TRACE(at);
        Active active;
        Bytes reply = MpaFrame::enhanced_reply({.ird = active.request.enhanced->ord,
                                                .ord = active.request.enhanced->ird,
                                                .p2p = active.request.enhanced->p2p,
                                                .rtr = active.request.enhanced->rtr})
                          .bytes();
        active.peer.say(View(reply).first(at));
        say_urgent(active.peer, View(reply).subspan(at, 1));
        active.peer.say(View(reply).subspan(at + 1));
        active.expect(RDMA_CM_EVENT_ESTABLISHED);
        Bytes first = fpdu(Untagged{.payload = {1, 2}}.bytes());
        Region to(active.ours().pd(), 64);
        active.ours().recv(1, {to.all()});
        say_urgent(active.peer, View(first).first(1));
        active.peer.say(View(first).subspan(1));
        expect_success(active.ours().rcq(), 1, IBV_WC_RECV, 2);
    }
}

/* MULPDU ---------------------------------------------------------------------- */

/* Octets that TCP's own options take of a segment here. */
size_t tcp_options() {
    int on = 0;
    std::ifstream("/proc/sys/net/ipv4/tcp_timestamps") >> on;
    return on != 0 ? 12 : 0;
}

/* Our responder, which sends to a peer with these options. */
class Sender {
  public:
    Sender(const std::string &ns, const std::string &peer_ns, const std::string &addr, bool markers,
           const StreamOptions &options)
        : listener_(channel_, ns, addr), peer_(peer_ns, addr, listener_.port(), options) {
        peer_.say(MpaFrame::request(markers ? kMpaCrc | kMpaMarkers : kMpaCrc).bytes());
        CmEvent request = channel_.expect(listener_.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
        ours_ = std::make_unique<Endpoint>(channel_, CmId(request.id), QpOptions{});
        accept(*ours_);
        peer_.hear_frame();
        ours_->expect(RDMA_CM_EVENT_ESTABLISHED);
        peer_.use_markers(false, markers);
        peer_.say_ulpdu(Tagged{}.bytes());
    }
    /* The sizes of the ULPDUs of one long Send. */
    std::vector<size_t> sizes(size_t length) {
        Region from(ours_->pd(), length);
        fill(from.at(0), length, 3);
        ours_->send(1, {from.all()});
        std::vector<size_t> sizes;
        for (size_t done = 0; done < length;) {
            Segment segment = peer_.hear_segment();
            EXPECT_EQ(segment.mo, done);
            EXPECT_EQ(mismatch(segment.payload.data(), segment.payload.size(), 3, done),
                      segment.payload.size());
            done += segment.payload.size();
            EXPECT_EQ(segment.last(), done == length);
            sizes.push_back(kUntaggedHeader + segment.payload.size());
        }
        expect_success(ours_->scq(), 1, IBV_WC_SEND);
        return sizes;
    }

  private:
    EventChannel channel_;
    Listener listener_;
    Stream peer_;
    std::unique_ptr<Endpoint> ours_;
};

/* The sizes of the ULPDUs of one long Send over a stream whose peer takes this MSS. */
std::vector<size_t> sizes_of_segments(uint16_t mss, bool markers, size_t length) {
    Sender sender(ns_of(Role::responder), ns_of(Role::initiator), addr_of(Role::responder), markers,
                  StreamOptions{.mss = mss});
    return sender.sizes(length);
}

TEST(MpaMulpdu, FollowsTheFormula) {
    REQ("MPA-18", "DDP-12");
    for (uint16_t mss : {300, 512, 537, 1000, 1001, 1002, 1003, 1460})
        for (bool markers : {false, true}) {
            SCOPED_TRACE(testing::Message() << "MSS " << mss << " markers " << markers);
            size_t emss = mss - tcp_options();
            size_t mulpdu = emss - (6 + emss % 4);
            if (markers)
                mulpdu -= 4 * ((emss + 511) / 512);
            std::vector<size_t> sizes = sizes_of_segments(mss, markers, 20000);
            ASSERT_GT(sizes.size(), 10U);
            size_t full = 0;
            for (size_t size : sizes) {
                EXPECT_LE(size, mulpdu);
                full += size == mulpdu;
            }
            /* The first may fill up a TCP segment that was begun, the last has what is left. */
            EXPECT_GE(full + 2, sizes.size());
        }
}

TEST(MpaMulpdu, TinySegments) {
    REQ("MPA-19");
    std::vector<size_t> sizes = sizes_of_segments(88, false, 5000);
    for (size_t i = 0; i + 1 < sizes.size(); i++)
        EXPECT_GE(sizes[i], 128U);
}

/* The MTU of a netdev as long as this lives. */
class Mtu {
  public:
    Mtu(Role role, int mtu)
        : ns_(ns_of(role)), netdev_(netdev_of(device_of(role), ns_)), before_(1500) {
        set(mtu);
    }
    Mtu(const std::string &netdev, int mtu) : netdev_(netdev) {
        std::ifstream(fmt::format("/sys/class/net/{}/mtu", netdev)) >> before_;
        set(mtu);
    }
    ~Mtu() { set(before_); }
    Mtu(const Mtu &) = delete;
    Mtu &operator=(const Mtu &) = delete;

  private:
    void set(int mtu) const {
        in_namespace(ns_, [&] { must_shell(fmt::format("ip link set {} mtu {}", netdev_, mtu)); });
    }
    std::string ns_;
    std::string netdev_;
    int before_ = 0;
};

/* RFC 5044 s. 3: 64768 octets, though the MSS of lo has room for more. */
TEST(MpaMulpdu, HugeSegments) {
    REQ("MPA-18", "MPA-50");
    for (bool markers : {false, true}) {
        SCOPED_TRACE(markers ? "markers" : "no markers");
        Sender sender("", "", "127.0.0.1", markers, StreamOptions{.receive = 1 << 20});
        /* TCP makes no segment longer than half of the window that it saw last. */
        sender.sizes(1000000);
        Mtu smaller("lo", 65500);
        sender.sizes(100000);
        std::vector<size_t> sizes = sender.sizes(1000000);
        size_t most = *std::max_element(sizes.begin(), sizes.end());
        EXPECT_LE(most, 64768U);
        EXPECT_GE(most, markers ? 64000U : 64768U);
        EXPECT_LE(sizes.size(), 1000000 / 64000 + 3U);
    }
    /* Whoever sends a longer one is not refused: the field is what limits it. */
    Link link;
    Region to(link.pd(), 65535);
    link.recv(1, {to.all()});
    Bytes longest = Untagged{.payload = pattern(65535 - kUntaggedHeader, 5)}.bytes();
    ASSERT_EQ(longest.size(), 65535U);
    link.say(longest);
    expect_success(link.rcq(), 1, IBV_WC_RECV, 65535 - kUntaggedHeader);
    expect_pattern(to.at(0), 65535 - kUntaggedHeader, 5);
}

/* Only if the administrator wants it: an FPDU as long as many segments, which no receiver may
 * refuse. */
TEST(MpaMulpdu, LongerThanSegments) {
    REQ("MPA-50");
    ParameterOverride all("large_fpdus", "2");
    std::vector<size_t> sizes = sizes_of_segments(1460, false, 200000);
    const size_t most = *std::max_element(sizes.begin(), sizes.end());
    EXPECT_GT(most, 2 * 1460U);
    EXPECT_LE(most, 15000U);
    /* with markers a FPDU is never longer */
    sizes = sizes_of_segments(1460, true, 200000);
    EXPECT_LT(*std::max_element(sizes.begin(), sizes.end()), 1460U);
}

TEST(MpaMulpdu, FollowsThePathMtu) {
    REQ("MPA-22");
    Link link;
    Region from(link.pd(), 20000);
    auto longest = [&](uint64_t id) {
        link.send(id, {from.all()});
        size_t longest = 0;
        for (bool last = false; !last;) {
            Segment segment = link.hear();
            longest = std::max(longest, kUntaggedHeader + segment.payload.size());
            last = segment.last();
        }
        expect_success(link.scq(), id, IBV_WC_SEND);
        return longest;
    };
    auto mulpdu = [](size_t mtu) {
        size_t emss = mtu - 40 - tcp_options();
        return emss - 6 - emss % 4;
    };
    EXPECT_EQ(longest(1), mulpdu(1500));
    {
        /* No less than 1280, or the netdev loses its IPv6 addresses for good. */
        Mtu smaller(Role::responder, 1300);
        /* TCP notices when it sends; what is cut by then stays as it is. */
        EXPECT_LE(longest(2), mulpdu(1500));
        EXPECT_EQ(longest(3), mulpdu(1300));
    }
    /* Larger than that again, though TCP may take its time to find out. */
    EXPECT_GE(longest(4), mulpdu(1300));
}

/*
 * Messages of all sizes in front of a long one: what is left of a TCP segment is
 * filled with a whole message or with no less than the least MULPDU.
 */
TEST(MpaMulpdu, NoScraps) {
    REQ("MPA-19");
    constexpr size_t kLength = 4000;
    Link link({.qp = {.send_wr = 256}});
    Region from(link.pd(), kLength);
    std::vector<size_t> sizes;
    for (size_t i = 0; i < 60; i++) {
        sizes.push_back(i * 97 % 1500);
        sizes.push_back(kLength);
    }
    for (size_t i = 0; i < sizes.size(); i++)
        link.send(i, {from.sge(0, sizes[i])}, i + 1 == sizes.size() ? IBV_SEND_SIGNALED : 0);
    for (size_t size : sizes) {
        size_t done = 0;
        for (bool last = false; !last;) {
            Segment segment = link.hear();
            done += segment.payload.size();
            last = segment.last();
            if (!last) {
                EXPECT_GE(kUntaggedHeader + segment.payload.size(), 128U);
            }
        }
        EXPECT_EQ(done, size);
    }
    expect_success(link.scq(), sizes.size() - 1, IBV_WC_SEND);
}

/*
 * Where TCP segments of a connection begin, by a look at the link: sequence
 * numbers as they were before the receiver's TCP put them together.
 */
class SegmentWatch {
  public:
    SegmentWatch() {
        std::string netdev = netdev_of(device_of(Role::initiator), ns_of(Role::initiator));
        fd_ = Fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_IP)));
        require(fd_.get() >= 0, "socket AF_PACKET");
        int on = 1, room = 8 << 20;
        /* Segments that travel as one carry their size in this header. */
        require(setsockopt(fd_.get(), SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) == 0,
                "PACKET_VNET_HDR");
        setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
        sockaddr_ll where{};
        where.sll_family = AF_PACKET;
        where.sll_protocol = htons(ETH_P_IP);
        where.sll_ifindex = static_cast<int>(if_nametoindex(netdev.c_str()));
        require(bind(fd_.get(), reinterpret_cast<sockaddr *>(&where), sizeof(where)) == 0, "bind");
    }

    /* Starts of segments from this port, counted from the first octet behind its SYN. */
    std::set<uint32_t> starts(uint16_t port) {
        std::set<uint32_t> found;
        std::optional<uint32_t> first;
        Bytes packet(70000);
        for (;;) {
            ssize_t n = recv(fd_.get(), packet.data(), packet.size(), 0);
            if (n < 0)
                return found;
            View frame = View(packet).first(static_cast<size_t>(n));
            OffloadHeader meta{};
            memcpy(&meta, frame.data(), sizeof(meta));
            frame = frame.subspan(sizeof(meta) + 14);
            size_t ip = (frame[0] & 0xfU) * 4;
            if (frame[9] != IPPROTO_TCP || get16(frame, ip) != port)
                continue;
            View tcp = frame.subspan(ip);
            uint32_t sequence = get32(tcp, 4);
            size_t payload = get16(frame, 2) - ip - (tcp[12] >> 4) * 4U;
            if ((tcp[13] & 2) != 0)
                first = sequence + 1;
            size_t size = meta.gso_type != 0 ? meta.gso_size : payload;
            for (size_t at = 0; first && at < payload; at += size)
                found.insert(sequence + static_cast<uint32_t>(at) - *first);
        }
    }

  private:
    /* linux/virtio_net.h, which is not C++. */
    struct OffloadHeader {
        uint8_t flags;
        uint8_t gso_type;
        uint16_t hdr_len, gso_size, csum_start, csum_offset;
    };
    Fd fd_;
};

/* With and without markers, in a stream of long messages and one of short ones. */
TEST(MpaMulpdu, FpdusBeginWhereSegmentsBegin) {
    REQ("MPA-20");
    for (bool markers : {false, true}) {
        SCOPED_TRACE(markers ? "markers" : "no markers");
        SegmentWatch watch;
        Link link({.flags = static_cast<uint8_t>(kMpaCrc | (markers ? kMpaMarkers : 0))});
        sockaddr_in from_whom{};
        socklen_t length = sizeof(from_whom);
        require(getpeername(link.peer().fd(), reinterpret_cast<sockaddr *>(&from_whom), &length) ==
                    0,
                "getpeername");
        /* Less than any window, so that it is not TCP's flow control that cuts. */
        constexpr size_t kLength = 20000;
        Region from(link.pd(), kLength);
        uint32_t begin = static_cast<uint32_t>(link.reply.bytes().size());
        std::vector<uint32_t> fpdus;
        for (int message = 0; message < 20; message++) {
            link.send(1, {from.all()});
            for (bool last = false; !last;) {
                fpdus.push_back(begin + static_cast<uint32_t>(link.peer().reader().position()));
                last = link.hear().last();
            }
            expect_success(link.scq(), 1, IBV_WC_SEND);
        }
        std::set<uint32_t> segments = watch.starts(ntohs(from_whom.sin_port));
        size_t aligned = 0;
        for (uint32_t start : fpdus)
            aligned += segments.count(start);
        EXPECT_GT(fpdus.size(), 200U);
        EXPECT_GE(aligned * 100, fpdus.size() * 95)
            << aligned << " of " << fpdus.size() << " FPDUs begin with one of " << segments.size()
            << " segments";
    }
}

/* CRC ------------------------------------------------------------------------- */

TEST(MpaCrc, KnownValues) {
    REQ("MPA-05");
    Link link;
    link.send(1, {});
    expect_octets(link.peer().hear(24),
                  Bytes{0x00, 0x12, 0x41, 0x43, 0, 0, 0, 0, 0,    0,    0,    0,
                        0,    0,    0,    0x01, 0, 0, 0, 0, 0x58, 0x7b, 0xe8, 0xc4});
    link.write(2, {}, 0, 0);
    expect_octets(
        link.peer().hear(20),
        Bytes{0x00, 0x0e, 0xc1, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x05, 0x72, 0xab});
    /* And from the peer, as plain octets. */
    link.recv(1, {});
    link.peer().say(Bytes{0x00, 0x12, 0x41, 0x43, 0, 0, 0, 0, 0,    0,    0,    0,
                          0,    0,    0,    0x01, 0, 0, 0, 0, 0x58, 0x7b, 0xe8, 0xc4});
    expect_success(link.rcq(), 1, IBV_WC_RECV, 0);
}

/* The two FPDUs that RFC 5044 shows, both ways: a marker first, a marker inside. */
TEST(MpaCrc, FpdusOfTheRfc) {
    REQ("MPA-55", "MPA-06", "MPA-14");
    const Bytes zeros(24);
    auto header = [](uint8_t msn) {
        return Bytes{0x00, 0x2a, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, msn, 0, 0, 0, 0};
    };
    const Bytes first =
        join({Bytes(4), header(1), zeros, Bytes{0x52, 0x23, 0x99, 0x83}}); // Figure 5
    const Bytes second = join({header(2), Bytes{0, 0, 0, 0x14}, zeros,
                               Bytes{0x84, 0x92, 0x58, 0x98}}); // Figure 6, at 492
    constexpr size_t kBefore = 492, kPayload = kBefore - 4 - 2 - kUntaggedHeader - 4;
    for (bool marker_inside : {false, true}) {
        SCOPED_TRACE(marker_inside);
        Policy policy(Role::responder, "markers", "on");
        Link link({.flags = kMpaCrc | kMpaMarkers, .open = false});
        Region memory(link.pd(), 1024);
        for (uint64_t i = 1; i <= 2; i++)
            link.recv(i, {memory.all()});
        if (!marker_inside) {
            link.peer().say(first);
            expect_success(link.rcq(), 1, IBV_WC_RECV, 24);
            link.send(3, {memory.sge(0, 24)});
            expect_octets(link.peer().hear(first.size()), first);
            continue;
        }
        link.say(Untagged{.payload = Bytes(kPayload)});
        ASSERT_EQ(link.peer().writer().position(), kBefore);
        link.peer().say(second);
        expect_success(link.rcq(), 1, IBV_WC_RECV, kPayload);
        expect_success(link.rcq(), 2, IBV_WC_RECV, 24);
        memory.buffer.set(0);
        link.send(3, {memory.sge(0, kPayload)});
        expect_success(link.scq(), 3, IBV_WC_SEND);
        EXPECT_EQ(link.peer().hear(kBefore).size(), kBefore);
        link.send(4, {memory.sge(0, 24)});
        expect_octets(link.peer().hear(second.size()), second);
    }
}

/* On by default, in Request and Reply. */
TEST(MpaCrc, IsTheDefault) {
    REQ("MPA-07");
    Active active;
    EXPECT_TRUE(active.request.has(kMpaCrc));
    Link link({.flags = 0});
    EXPECT_TRUE(link.reply.has(kMpaCrc));
    link.expect_works();
}

/* It takes both sides to do without. */
TEST(MpaCrc, UsedUnlessBothDecline) {
    REQ("MPA-04", "MPA-07", "MPA-08");
    for (Role role : kRoles)
        for (const char *ours : {"off", "prefer"})
            for (bool theirs : {false, true}) {
                SCOPED_TRACE(role_text(role) + " crc " + ours + (theirs ? ", peer C" : ""));
                Policy policy(role, "crc", ours);
                uint8_t flags = theirs ? kMpaCrc : 0;
                Link link({.role = role, .flags = flags});
                bool used = theirs || std::string(ours) == "prefer";
                if (role == Role::initiator) {
                    EXPECT_EQ(link.request.has(kMpaCrc), std::string(ours) == "prefer");
                } else {
                    EXPECT_EQ(link.reply.has(kMpaCrc), used);
                }
                Region to(link.pd(), 64);
                Region from(link.pd(), 64);
                link.recv(1, {to.all()});
                link.send(1, {from.sge(0, 5)});
                Fpdu unit = link.peer().hear_fpdu();
                /* The field is there in any case. */
                EXPECT_EQ(unit.raw.size(), send_content(5));
                if (used) {
                    EXPECT_TRUE(unit.crc_good);
                }
                expect_success(link.scq(), 1, IBV_WC_SEND);
                link.peer().say_fpdu(
                    {.ulpdu = Untagged{.payload = {1, 2, 3}}.bytes(), .crc = Crc::bad});
                if (used) {
                    link.expect_terminate(2, 0, 2);
                    expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
                } else {
                    expect_success(link.rcq(), 1, IBV_WC_RECV, 3);
                    link.send_msn = 2;
                    link.expect_works();
                }
            }
}

/*
 * Asked for at the start by either side, it is there to the end; and the program
 * sees the same with and without.
 */
TEST(MpaCrc, ToTheEndAndUnseen) {
    REQ("MPA-56", "MPA-59", "MPA-08");
    constexpr uint32_t kMessages = 60;
    std::vector<std::string> expected;
    for (Role role : kRoles)
        for (const char *ours : {"prefer", "off"})
            for (bool theirs : {true, false}) {
                SCOPED_TRACE(role_text(role) + " crc " + ours + (theirs ? ", peer C" : ""));
                Policy policy(role, "crc", ours);
                bool used = theirs || std::string(ours) == "prefer";
                Link link({.role = role, .flags = theirs ? kMpaCrc : uint8_t{0}});
                Region memory(link.pd(), 8192);
                std::vector<std::string> seen;
                auto see = [&](const ibv_wc &wc) {
                    seen.push_back(fmt::format("{} {} {} {} {}", wc.wr_id, int(wc.status),
                                               int(wc.opcode), wc.byte_len, wc.wc_flags));
                };
                for (uint32_t i = 1; i <= kMessages; i++) {
                    size_t length = i * 131 % 4000;
                    link.recv(i, {memory.sge(0, 4096)});
                    link.peer().say_fpdu(
                        {.ulpdu = Untagged{.msn = i, .payload = pattern(length, i)}.bytes(),
                         .crc = used ? Crc::good : Crc::bad});
                    see(next_wc(link.rcq()));
                    expect_pattern(memory.at(0), length, i);
                    link.send(i, {memory.sge(0, length)});
                    for (bool last = false; !last;) {
                        Fpdu unit = link.peer().hear_fpdu();
                        EXPECT_EQ(unit.raw.size(), fpdu_size(unit.ulpdu.size()));
                        EXPECT_TRUE(unit.crc_good || !used);
                        last = (unit.ulpdu.at(0) & kDdpLast) != 0;
                    }
                    see(next_wc(link.scq()));
                }
                if (expected.empty())
                    expected = seen;
                EXPECT_EQ(seen, expected);
                if (!used)
                    continue;
                link.peer().say_fpdu({.ulpdu = Tagged{}.bytes(), .crc = Crc::bad});
                link.expect_terminate(2, 0, 2);
            }
}

/* The strict policy refuses who does not ask for it. */
TEST(MpaCrc, Required) {
    REQ("MPA-07");
    {
        Policy policy(Role::responder, "crc", "require");
        Passive passive;
        passive.peer.say(MpaFrame::request(0).bytes());
        MpaFrame reply = passive.peer.hear_frame();
        EXPECT_TRUE(reply.has(kMpaReject));
        EXPECT_EQ(passive.peer.ending(), Ending::fin);
        EXPECT_TRUE(passive.no_request(milliseconds(0)));
        Link link;
        link.expect_works();
    }
    Policy policy(Role::initiator, "crc", "require");
    Active active;
    EXPECT_TRUE(active.request.has(kMpaCrc));
    active.peer.say(MpaFrame::enhanced_reply(*active.request.enhanced, 0).bytes());
    EXPECT_TRUE(active.peer.closed_by_peer());
    EXPECT_NE(active.channel.expect(active.ours().id(), RDMA_CM_EVENT_CONNECT_ERROR).status, 0);
}

/* A bit off anywhere: nothing is delivered, the stream ends with 2/0/2. */
TEST(MpaCrc, MismatchEndsTheStream) {
    REQ("MPA-09", "MPA-46", "MPA-47", "MPA-53");
    size_t size = send_content(5);
    /* The length field is not among them: it says how much there is to check. */
    for (size_t at = 2; at < size; at++) {
        SCOPED_TRACE(at);
        Link link;
        Region to(link.pd(), 64);
        to.buffer.set(0xaa);
        link.recv(1, {to.all()});
        link.recv(2, {to.all()});
        Bytes bad = fpdu(Untagged{.payload = pattern(5, 1)}.bytes());
        bad[at] ^= 0x10;
        /* A good one right behind it is not looked at. */
        link.peer().say(join({bad, fpdu(Untagged{.payload = pattern(5, 1)}.bytes())}));
        link.expect_terminate(2, 0, 2, Headers::none());
        link.expect_disconnected();
        expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
        expect_wc(link.rcq(), 2, IBV_WC_WR_FLUSH_ERR);
        expect_value(to.at(0), 64, 0xaa);
    }
}

/* A Write with a bad CRC leaves memory as it is. */
TEST(MpaCrc, NothingIsPlaced) {
    REQ("MPA-09", "MPA-47");
    Link link;
    Region to(link.pd(), 4096);
    to.buffer.set(0xaa);
    Bytes payload = pattern(1000, 1);
    link.peer().say_fpdu(
        {.ulpdu = Tagged{.stag = to.rkey(), .to = to.addr(), .payload = payload}.bytes(),
         .crc = Crc::bad});
    link.say(Tagged{.stag = to.rkey(), .to = to.addr(2000), .payload = payload});
    link.expect_terminate(2, 0, 2);
    link.expect_disconnected();
    expect_value(to.at(0), 4096, 0xaa);
}

/* Markers --------------------------------------------------------------------- */

/*
 * Payloads of Sends that bring markers to all the places that matter.  The
 * content of an FPDU that begins at a position is chosen so that it ends
 *   exactly at a marker's place, which then leads the next one,
 *   a word behind, so that the marker stands between pad and CRC,
 *   a word before, so that the next one has it behind its first word,
 * each with pads of every size; and then lengths of no pattern.
 */
class Sweep {
  public:
    explicit Sweep(size_t most) : most_(most) {}
    static constexpr size_t kRounds = 120;

    size_t payload(uint64_t position) {
        size_t round = round_++;
        size_t pad = round / 4 % 4;
        if (round % 4 == 3)
            return (round * 197) % most_;
        size_t content = position % 512 == 0 ? 508 : 512 - position % 512;
        if (round % 4 == 1)
            content += 4;
        if (round % 4 == 2)
            content = content < 4 ? content + 508 : content - 4;
        while (content < 24 + pad)
            content += 508;
        return content - 24 - pad;
    }
    /* Notes what an FPDU had, to see in the end that all was there. */
    void saw(const Fpdu &unit) {
        size_t end = unit.start + unit.raw.size();
        for (const Marker &marker : unit.markers) {
            leading += marker.position + 4 == unit.start;
            if (marker.position + 4 != unit.start) {
                behind_first_word += marker.position == unit.start + 4;
                size_t lead = unit.markers.front().position + 4 == unit.start ? 4 : 0;
                before_crc += marker.position + 8 == end - lead;
            }
            all++;
        }
    }
    size_t all = 0, leading = 0, behind_first_word = 0, before_crc = 0;

  private:
    size_t most_;
    size_t round_ = 0;
};

/* Ours puts them in, at all places, when the peer asks. */
TEST(MpaMarkers, Sent) {
    REQ("MPA-06", "MPA-10", "MPA-12", "MPA-13", "MPA-14", "MPA-15", "MPA-16", "MPA-02");
    for (Role role : kRoles) {
        SCOPED_TRACE(role_text(role));
        Link link({.role = role, .flags = kMpaCrc | kMpaMarkers});
        ASSERT_TRUE(link.peer().reader().markers());
        Region from(link.pd(), 8192);
        fill(from.at(0), 8192, 9);
        Sweep sweep(1300);
        for (uint64_t i = 0; i < Sweep::kRounds; i++) {
            uint64_t position = link.peer().reader().position();
            size_t length = sweep.payload(position);
            SCOPED_TRACE(testing::Message()
                         << "round " << i << " position " << position << " payload " << length);
            link.send(i, {from.sge(i, length)});
            Fpdu unit = link.peer().hear_fpdu();
            ASSERT_TRUE(unit.markers_good()) << hex(unit.raw, 2000);
            ASSERT_TRUE(unit.crc_good) << hex(unit.raw, 2000);
            EXPECT_TRUE(unit.pad_zero());
            EXPECT_EQ(
                get16(unit.raw, unit.markers.empty() || unit.markers[0].expected != 0 ? 0 : 4),
                unit.ulpdu.size());
            Segment segment = Segment::parse(unit.ulpdu);
            ASSERT_EQ(segment.payload.size(), length);
            EXPECT_EQ(mismatch(segment.payload.data(), length, 9, i), length);
            expect_success(link.scq(), i, IBV_WC_SEND);
            sweep.saw(unit);
        }
        EXPECT_GE(sweep.all, 60U);
        EXPECT_GE(sweep.leading, 20U);
        EXPECT_GE(sweep.behind_first_word, 20U);
        EXPECT_GE(sweep.before_crc, 20U);
    }
}

/* The first octets in full operation are a marker. */
TEST(MpaMarkers, FirstOctets) {
    REQ("MPA-13", "MPA-15", "MPA-57");
    Link link({.flags = kMpaCrc | kMpaMarkers});
    link.send(1, {});
    Bytes unit = link.peer().hear(28);
    expect_octets(View(unit).first(6), Bytes{0, 0, 0, 0, 0, 18});
    EXPECT_EQ(crc32c(View(unit).first(24)),
              unit[24] | unit[25] << 8 | unit[26] << 16 | static_cast<uint32_t>(unit[27]) << 24);
    EXPECT_TRUE(link.peer().silent(milliseconds(20)));
}

/* A long transfer of many kinds, with markers in both directions. */
TEST(MpaMarkers, LongTransfer) {
    REQ("MPA-10", "MPA-13", "MPA-14", "MPA-18");
    Policy policy(Role::responder, "markers", "on");
    Link link({.flags = kMpaCrc | kMpaMarkers});
    ASSERT_TRUE(link.peer().writer().markers());
    constexpr size_t kLength = 300000;
    Region ours(link.pd(), kLength);
    fill(ours.at(0), kLength, 1);
    link.send(1, {ours.all()});
    link.write(2, {ours.all()}, 0x100, 0x55);
    link.say_read(
        {.sink_stag = 7, .size = kLength, .src_stag = ours.rkey(), .src_to = ours.addr()});
    size_t octets = 0;
    for (int messages = 0; messages < 3; messages++) {
        Link::Message message = link.hear_message();
        ASSERT_EQ(message.payload.size(), kLength);
        EXPECT_EQ(mismatch(message.payload.data(), kLength, 1), kLength);
        octets += kLength;
    }
    EXPECT_EQ(octets, 3 * kLength);
    expect_success(link.scq(), 1, IBV_WC_SEND);
    expect_success(link.scq(), 2, IBV_WC_RDMA_WRITE);

    /* Towards ours: writes in pieces of uneven size, then one Send. */
    Region to(link.pd(), kLength);
    Bytes stream;
    for (size_t done = 0, i = 0; done < kLength; i++) {
        size_t piece = std::min(kLength - done, 1 + (i * 389) % 1400);
        append(stream,
               link.peer().writer().encode(Tagged{
                   .stag = to.rkey(), .to = to.addr(done), .payload = pattern(piece, 2, done)}
                                               .bytes()));
        done += piece;
    }
    append(stream, link.peer().writer().encode(Untagged{}.bytes()));
    link.recv(3, {});
    link.peer().say(stream);
    expect_success(link.rcq(), 3, IBV_WC_RECV, 0);
    expect_pattern(to.at(0), kLength, 2);
}

/* Ours takes them out, from all places, when it asked for them. */
TEST(MpaMarkers, Received) {
    REQ("MPA-06", "MPA-12", "MPA-13", "MPA-14", "MPA-15", "MPA-16");
    for (Role role : kRoles) {
        SCOPED_TRACE(role_text(role));
        Policy policy(role, "markers", "on");
        Link link({.role = role});
        ASSERT_TRUE(link.peer().writer().markers());
        ASSERT_FALSE(link.peer().reader().markers());
        /* Reserved bits mean nothing, nor do the low bits of the pointer. */
        link.peer().writer().marker_value = [](uint64_t position, uint16_t pointer) {
            return position % 1024 == 0 ? 0xabcd0003U | pointer : pointer;
        };
        Region to(link.pd(), 8192);
        Sweep sweep(1300);
        for (uint32_t i = 0; i < Sweep::kRounds; i++) {
            uint64_t position = link.peer().writer().position();
            size_t length = sweep.payload(position);
            SCOPED_TRACE(testing::Message()
                         << "round " << i << " position " << position << " payload " << length);
            link.recv(i, {to.all()});
            link.say(Untagged{.msn = i + 1, .payload = pattern(length, i)});
            expect_success(link.rcq(), i, IBV_WC_RECV, static_cast<int64_t>(length));
            expect_pattern(to.at(0), length, i);
        }
        link.send_msn = Sweep::kRounds + 1;
        link.expect_works();
    }
}

/* Markers, cut by TCP in front of every octet. */
TEST(MpaMarkers, ReceivedInPieces) {
    REQ("MPA-13", "MPA-16", "MPA-21");
    Policy policy(Role::responder, "markers", "on");
    Link link({.qp = {.send_wr = 16, .recv_wr = 64}});
    Region to(link.pd(), 4096);
    for (size_t piece : {1, 2, 3, 5, 511, 513}) {
        SCOPED_TRACE(piece);
        uint32_t msn = link.send_msn;
        Bytes stream;
        for (uint32_t i = 0; i < 4; i++) {
            link.recv(i, {to.sge(i * 1024, 1024)});
            append(stream, link.peer().writer().encode(
                               Untagged{.msn = msn + i, .payload = pattern(300 + i, i)}.bytes()));
        }
        link.peer().say(stream, SendPlan::every(piece, stream.size()));
        for (uint32_t i = 0; i < 4; i++) {
            expect_success(link.rcq(), i, IBV_WC_RECV, 300 + i);
            expect_pattern(to.at(i * 1024), 300 + i, i);
        }
        link.send_msn += 4;
    }
}

/* None where nobody asked, in each direction for itself, both roles. */
TEST(MpaMarkers, EachDirectionForItself) {
    REQ("MPA-11", "MPA-26");
    for (Role role : kRoles)
        for (bool ours : {false, true})
            for (bool theirs : {false, true}) {
                SCOPED_TRACE(role_text(role) + (ours ? " M" : "") + (theirs ? ", peer M" : ""));
                Policy policy(role, "markers", ours ? "on" : "off");
                Link link({.role = role,
                           .flags = static_cast<uint8_t>(kMpaCrc | (theirs ? kMpaMarkers : 0))});
                const MpaFrame &frame = role == Role::initiator ? link.request : link.reply;
                EXPECT_EQ(frame.has(kMpaMarkers), ours);
                Region from(link.pd(), 3000);
                link.send(1, {from.all()});
                size_t content = 0, markers = 0;
                for (bool last = false; !last;) {
                    Fpdu unit = link.peer().hear_fpdu();
                    ASSERT_TRUE(unit.crc_good);
                    content += fpdu_size(unit.ulpdu.size());
                    markers += unit.markers.size();
                    last = (unit.ulpdu.at(0) & kDdpLast) != 0;
                }
                EXPECT_EQ(markers, theirs ? (content + 507) / 508 : 0);
                expect_success(link.scq(), 1, IBV_WC_SEND);
                link.expect_works();
            }
}

/* The default asks for none. */
TEST(MpaMarkers, NotWantedByDefault) {
    REQ("MPA-11", "MPA-26");
    Active active;
    EXPECT_FALSE(active.request.has(kMpaMarkers));
    Link link;
    EXPECT_FALSE(link.reply.has(kMpaMarkers));
}

/* Lies in a marker of an FPDU whose CRC is good. */
TEST(MpaMarkers, ContradictionEndsTheStream) {
    REQ("MPA-17", "MPA-46", "MPA-47", "MPA-53");
    for (uint64_t place : {0, 512, 1024}) {
        SCOPED_TRACE(place);
        Policy policy(Role::responder, "markers", "on");
        Link link({.open = false});
        link.peer().writer().marker_value = [&](uint64_t position, uint16_t pointer) {
            return position == place ? pointer + 4U : pointer;
        };
        Region to(link.pd(), 4096);
        to.buffer.set(0xaa);
        link.recv(1, {to.all()});
        link.recv(2, {to.all()});
        /* So that there is one FPDU before the lie, which lifts the fence. */
        if (place > 0)
            link.say(Tagged{});
        Bytes bad = link.peer().writer().encode(Untagged{.payload = pattern(1200, 1)}.bytes());
        append(bad, link.peer().writer().encode(Untagged{.msn = 2}.bytes()));
        link.peer().say(bad);
        if (place > 0)
            link.expect_terminate(2, 0, 3, Headers::none());
        else
            link.expect_end();
        link.expect_disconnected();
        expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
        expect_wc(link.rcq(), 2, IBV_WC_WR_FLUSH_ERR);
        expect_value(to.at(0), 4096, 0xaa);
    }
}

/* The CRC covers markers: a changed one is a bad CRC, also in front of the length. */
TEST(MpaMarkers, CoveredByTheCrc) {
    REQ("MPA-06");
    for (size_t at : {0, 1, 2, 3}) {
        SCOPED_TRACE(at);
        Policy policy(Role::responder, "markers", "on");
        Link link;
        /* Bring the next FPDU to a marker: what was said takes 24 octets with its marker. */
        Region to(link.pd(), 4096);
        link.recv(1, {to.all()});
        uint64_t position = link.peer().writer().position();
        link.say(Untagged{.payload = Bytes(512 - position - 24)});
        expect_success(link.rcq(), 1, IBV_WC_RECV);
        ASSERT_EQ(link.peer().writer().position() % 512, 0U);
        Bytes unit = link.peer().writer().encode(Untagged{.msn = 2}.bytes());
        unit[at] ^= 0x40;
        link.peer().say(unit);
        link.expect_terminate(2, 0, 2);
    }
}

/* Start-up frames ------------------------------------------------------------- */

TEST(MpaStartup, RequestOctets) {
    REQ("MPA-24", "MPA-25", "MPA-27", "MPA-28");
    Policy revision(Role::initiator, "revision", "1");
    Active active({.private_data = {'h', 'e', 'l', 'l', 'o'}});
    expect_octets(active.request_octets, Bytes{0x4d, 0x50, 0x41, 0x20, 0x49, 0x44, 0x20, 0x52, 0x65,
                                               0x71, 0x20, 0x46, 0x72, 0x61, 0x6d, 0x65, 0x40, 0x01,
                                               0x00, 0x05, 'h',  'e',  'l',  'l',  'o'});
    EXPECT_TRUE(active.peer.silent(milliseconds(20)));
}

TEST(MpaStartup, ReplyOctets) {
    REQ("MPA-24", "MPA-25", "MPA-28");
    Passive passive;
    passive.peer.say(MpaFrame::request().bytes());
    passive.accept(passive.expect_request(), {.private_data = {'h', 'i'}});
    expect_octets(passive.peer.hear_mpa(),
                  Bytes{0x4d, 0x50, 0x41, 0x20, 0x49, 0x44, 0x20, 0x52, 0x65, 0x70, 0x20,
                        0x46, 0x72, 0x61, 0x6d, 0x65, 0x40, 0x01, 0x00, 0x02, 'h',  'i'});
    EXPECT_TRUE(passive.peer.silent(milliseconds(20)));
}

TEST(MpaStartup, Rejection) {
    REQ("MPA-27", "MPA-43", "MPA-51");
    Passive passive;
    passive.peer.say(MpaFrame::request().bytes());
    passive.reject(passive.expect_request(), {'n', 'o'});
    MpaFrame reply = passive.peer.hear_frame();
    EXPECT_EQ(reply.key, kReplyKey);
    EXPECT_TRUE(reply.has(kMpaReject));
    EXPECT_EQ(reply.private_data, (Bytes{'n', 'o'}));
    EXPECT_EQ(passive.peer.ending(), Ending::fin);

    Active active;
    active.peer.say(
        MpaFrame::enhanced_reply({}, kMpaCrc | kMpaReject, {'n', 'e', 'v', 'e', 'r'}).bytes());
    CmEvent event = active.expect(RDMA_CM_EVENT_REJECTED);
    EXPECT_EQ(event.status, -ECONNREFUSED);
    EXPECT_EQ(event.private_data, (Bytes{'n', 'e', 'v', 'e', 'r'}));
    EXPECT_TRUE(active.peer.closed_by_peer());
}

/* R in a Request, reserved bits in both frames. */
TEST(MpaStartup, BitsThatMeanNothing) {
    REQ("MPA-27", "MPA-28");
    for (uint8_t bits : {0x20, 0x01, 0x02, 0x04, 0x08, 0x2f}) {
        SCOPED_TRACE(testing::Message() << "flags " << int{bits});
        Link link({.flags = static_cast<uint8_t>(kMpaCrc | bits)});
        EXPECT_EQ(link.reply.flags, kMpaCrc);
        link.expect_works();
    }
    /* The bit that is S in revision 2 is reserved in revision 1. */
    Link plain({.flags = kMpaCrc | kMpaEnhanced, .private_data = {1, 2}});
    EXPECT_EQ(plain.event.private_data, (Bytes{1, 2}));
    EXPECT_EQ(plain.reply.flags, kMpaCrc);
    for (uint8_t bits : {0x01, 0x02, 0x04, 0x08, 0x0f}) {
        Link link({.role = Role::initiator, .flags = static_cast<uint8_t>(kMpaCrc | bits)});
        link.expect_works();
    }
}

/*
 * Revisions 1 and 2 go with version 1 of DDP and of RDMAP, in both directions;
 * revision 0, whose version is 0, is not spoken unless somebody asks for it.
 */
TEST(MpaStartup, VersionsOfTheHeaders) {
    REQ("MPA-54");
    for (Role role : kRoles)
        for (uint8_t revision : {1, 2})
            for (bool ddp : {false, true}) {
                SCOPED_TRACE(testing::Message()
                             << role_text(role) << " revision " << int{revision} << ' ' << ddp);
                Link link({.role = role, .revision = revision});
                link.send(1, {});
                link.expect_ulpdu(Untagged{.ddp = 0x41, .rdmap = 0x43});
                expect_success(link.scq(), 1, IBV_WC_SEND);
                link.recv(1, {});
                link.say(Untagged{.ddp = 0x41, .rdmap = 0x43});
                expect_success(link.rcq(), 1, IBV_WC_RECV, 0);
                link.recv(2, {});
                Untagged old{.msn = 2};
                if (ddp)
                    old.ddp = 0x40;
                else
                    old.rdmap = 0x03;
                link.say(old);
                if (ddp)
                    link.expect_terminate(1, 2, 0x06, Headers::ddp(old.bytes()));
                else
                    link.expect_terminate(0, 2, 0x05, Headers::ddp(old.bytes()));
                link.expect_disconnected();
            }
    Passive passive;
    passive.peer.say(MpaFrame::request(kMpaCrc | kMpaMarkers, 0).bytes());
    EXPECT_TRUE(passive.peer.hear_to_end().empty());
    EXPECT_TRUE(passive.no_request(milliseconds(0)));
}

struct BadFrame {
    const char *name;
    MpaFrame frame; // a Request; sent as Reply with the other key
};

std::vector<BadFrame> bad_frames() {
    std::vector<BadFrame> frames;
    auto add = [&](const char *name, auto change) {
        frames.push_back({name, MpaFrame::request()});
        change(frames.back().frame);
    };
    add("first octet of the key", [](MpaFrame &f) { f.key[0] = 'm'; });
    add("last octet of the key", [](MpaFrame &f) { f.key[15] = 'E'; });
    add("revision 0", [](MpaFrame &f) { f.revision = 0; });
    add("revision 3", [](MpaFrame &f) { f.revision = 3; });
    add("revision 7", [](MpaFrame &f) { f.revision = 7; });
    add("revision 255", [](MpaFrame &f) { f.revision = 255; });
    add("length 513", [](MpaFrame &f) { f.pd_length = 513; });
    add("length 65535", [](MpaFrame &f) { f.pd_length = 65535; });
    add("length 513 with data", [](MpaFrame &f) { f.private_data = Bytes(513); });
    add("the other frame", [](MpaFrame &f) { f.key = kReplyKey; });
    return frames;
}

/* To our responder: closed at once, without a word, and counted. */
TEST(MpaStartup, InvalidRequest) {
    REQ("MPA-24", "MPA-29", "MPA-30", "MPA-36", "MPA-37", "MPA-48");
    for (const BadFrame &bad : bad_frames()) {
        SCOPED_TRACE(bad.name);
        uint64_t before = counter(Role::responder, "mpa_bad_frame");
        Passive passive;
        passive.peer.say(bad.frame.bytes());
        EXPECT_TRUE(passive.peer.hear_to_end().empty()) << "an answer to an invalid frame";
        EXPECT_TRUE(passive.no_request(milliseconds(0)));
        EXPECT_EQ(counter(Role::responder, "mpa_bad_frame"), before + 1);
    }
}

/* To our initiator: closed at once, without a word, and told. */
TEST(MpaStartup, InvalidReply) {
    REQ("MPA-24", "MPA-29", "MPA-30", "MPA-36", "MPA-37", "MPA-46", "MPA-48");
    for (const BadFrame &bad : bad_frames()) {
        SCOPED_TRACE(bad.name);
        Active active;
        MpaFrame frame = bad.frame;
        if (frame.key == kRequestKey)
            frame.key = kReplyKey;
        else if (frame.key == kReplyKey)
            frame.key = kRequestKey;
        else
            frame.key[10] = 'p';
        active.peer.say(frame.bytes());
        EXPECT_TRUE(active.peer.hear_to_end().empty()) << "an answer to an invalid frame";
        CmEvent event = active.expect(RDMA_CM_EVENT_CONNECT_ERROR);
        EXPECT_EQ(event.status, -EPROTO);
        EXPECT_TRUE(active.acceptor().lonely(milliseconds(0))) << "tried again after an answer";
    }
}

/* Less private data than said, then the end: nobody hears of that Request. */
TEST(MpaStartup, LessThanItsLength) {
    REQ("MPA-30", "MPA-49");
    MpaFrame frame = MpaFrame::request(kMpaCrc, 1, Bytes(7, 1));
    frame.pd_length = 8;
    Bytes octets = frame.bytes();
    for (size_t length = 0; length <= octets.size(); length++) {
        SCOPED_TRACE(length);
        Passive passive;
        passive.peer.say(View(octets).first(length));
        passive.peer.shut_down();
        EXPECT_TRUE(passive.peer.hear_to_end().empty());
        EXPECT_TRUE(passive.no_request(milliseconds(0)));
    }
}

/* In pieces, and nothing is said before all of it is there. */
TEST(MpaStartup, RequestInPieces) {
    REQ("MPA-35", "MPA-30");
    Bytes octets = MpaFrame::request(kMpaCrc, 1, {1, 2, 3, 4, 5}).bytes();
    {
        Passive passive;
        passive.peer.say(View(octets).first(octets.size() - 1),
                         SendPlan::every(1, octets.size() - 1));
        EXPECT_TRUE(passive.peer.silent(kSilence));
        EXPECT_TRUE(passive.no_request(milliseconds(0)));
        passive.peer.say(View(octets).last(1));
        CmEvent event = passive.expect_request();
        EXPECT_EQ(event.private_data, (Bytes{1, 2, 3, 4, 5}));
        /* The program has the word now. */
        EXPECT_TRUE(passive.peer.silent(kSilence));
        passive.accept(event);
        EXPECT_EQ(passive.peer.hear_frame().key, kReplyKey);
    }
    for (size_t cut = 1; cut < octets.size(); cut++) {
        Passive passive;
        passive.peer.say(octets, SendPlan::at({cut}));
        CmEvent event = passive.expect_request();
        EXPECT_EQ(event.private_data, (Bytes{1, 2, 3, 4, 5})) << "cut at " << cut;
        passive.reject(event);
    }
}

TEST(MpaStartup, ReplyInPieces) {
    REQ("MPA-40", "MPA-21");
    for (size_t piece : {1, 7, 19, 20, 21}) {
        SCOPED_TRACE(piece);
        Active active;
        Bytes octets = MpaFrame::enhanced_reply({.ird = 1, .ord = 1, .p2p = true, .rtr = kRtrWrite},
                                                kMpaCrc, {9, 8, 7})
                           .bytes();
        active.peer.say(octets, SendPlan::every(piece, octets.size()));
        CmEvent event = active.expect(RDMA_CM_EVENT_ESTABLISHED);
        EXPECT_EQ(event.private_data, (Bytes{9, 8, 7}));
    }
}

/* Private data, both ways in both roles, as much as the RDMA core carries. */
TEST(MpaStartup, PrivateData) {
    REQ("MPA-30", "MPA-31", "MPA-43");
    for (size_t length : {0, 1, 2, 196, 255}) {
        SCOPED_TRACE(length);
        Bytes there = pattern(length, 1), back = pattern(length, 2);
        {
            Link link({.private_data = there, .qp = {.private_data = back}});
            EXPECT_EQ(link.event.private_data, there);
            EXPECT_EQ(link.reply.private_data, back);
            link.expect_works();
        }
        /* rdma_connect(3) wants some of the 255 for itself. */
        if (length > 196)
            there.resize(196);
        Link link({.role = Role::initiator, .private_data = back, .qp = {.private_data = there}});
        EXPECT_EQ(link.request.private_data, there);
        EXPECT_EQ(link.event.private_data, back);
        link.expect_works();
    }
}

/*
 * More than iw_cm carries and not more than MPA allows: taken in to its end, and
 * then like a malformed frame.  Nothing is cut off and passed on, and no Reply
 * pretends that the consumer has refused.
 */
TEST(MpaStartup, MorePrivateDataThanTheCoreCarries) {
    REQ("MPA-31", "MPA-43", "MPA-52");
    for (size_t length : {256, 511, 512}) {
        SCOPED_TRACE(length);
        Passive passive;
        passive.peer.say(MpaFrame::request(kMpaCrc, 1, Bytes(length, 1)).bytes());
        EXPECT_EQ(passive.peer.ending(), Ending::reset);
        EXPECT_TRUE(passive.no_request(milliseconds(0)));

        Active active;
        active.peer.say(
            MpaFrame::enhanced_reply({.p2p = true, .rtr = kRtrWrite}, kMpaCrc, Bytes(length - 4, 1))
                .bytes());
        CmEvent event = length - 4 > 255 ? active.expect(RDMA_CM_EVENT_CONNECT_ERROR)
                                         : active.expect(RDMA_CM_EVENT_ESTABLISHED);
        if (length - 4 > 255) {
            EXPECT_EQ(event.status, -EMSGSIZE);
        } else {
            EXPECT_EQ(event.private_data.size(), length - 4);
        }

        /* Nor does a refusal count that cannot be handed on whole. */
        Active refused;
        refused.peer.say(MpaFrame::reply(kMpaCrc | kMpaReject, 1, Bytes(length, 1)).bytes());
        EXPECT_EQ(refused.expect(RDMA_CM_EVENT_CONNECT_ERROR).status, -EMSGSIZE);
        EXPECT_EQ(refused.peer.ending(), Ending::reset);
    }
}

/* Who may speak when ---------------------------------------------------------- */

TEST(MpaOrder, InitiatorWaitsForTheReply) {
    REQ("MPA-33", "DDP-36", "MPA-57");
    Active active;
    EXPECT_TRUE(active.peer.silent(kSilence));
    EXPECT_TRUE(active.undecided(milliseconds(0)));
    /* Nor is half a Reply enough. */
    Bytes reply =
        MpaFrame::enhanced_reply({.ird = 1, .ord = 1, .p2p = true, .rtr = kRtrWrite}).bytes();
    active.peer.say(View(reply).first(reply.size() - 1));
    EXPECT_TRUE(active.peer.silent(kSilence));
    active.peer.say(View(reply).last(1));
    EXPECT_EQ(active.peer.hear_segment().rdmap, kRdmapVersion | kOpWrite);
}

TEST(MpaOrder, ResponderWaitsForTheFirstFpdu) {
    REQ("MPA-34", "MPA-57");
    Link link({.open = false});
    Region from(link.pd(), 100);
    link.send(1, {from.sge(0, 5)});
    link.write(2, {from.sge(0, 5)}, 0, 1);
    link.expect_nothing_for();
    /* All of the FPDU has to be there, and it has to be good. */
    Bytes first = link.peer().writer().encode(Tagged{}.bytes());
    link.peer().say(View(first).first(first.size() - 1));
    link.expect_nothing_for();
    link.peer().say(View(first).last(1));
    EXPECT_EQ(link.hear().rdmap, kRdmapVersion | kOpSend);
    EXPECT_EQ(link.hear().rdmap, kRdmapVersion | kOpWrite);
}

TEST(MpaOrder, ABadFpduDoesNotCount) {
    REQ("MPA-34", "MPA-09");
    Link link({.open = false});
    link.send(1, {});
    link.peer().say_fpdu({.ulpdu = Tagged{}.bytes(), .crc = Crc::bad});
    EXPECT_TRUE(link.peer().hear_to_end().empty()) << "spoke before a good FPDU";
    link.expect_disconnected();
    expect_wc(link.scq(), 1, IBV_WC_WR_FLUSH_ERR);
}

TEST(MpaOrder, NothingBetweenRequestAndReply) {
    REQ("MPA-42");
    Bytes request = MpaFrame::request().bytes();
    for (bool together : {true, false}) {
        SCOPED_TRACE(together);
        uint64_t before = counter(Role::responder, "mpa_bad_frame");
        Passive passive;
        if (together) {
            passive.peer.say(join({request, Bytes(4)}));
        } else {
            passive.peer.say(request);
            CmEvent event = passive.expect_request();
            passive.peer.say(Bytes(4));
            EXPECT_TRUE(passive.peer.hear_to_end().empty());
            /* The program may still answer, to no effect. */
            rdma_reject(event.id, nullptr, 0);
            rdma_destroy_id(event.id);
        }
        EXPECT_TRUE(passive.peer.closed_by_peer());
        EXPECT_TRUE(passive.no_request(milliseconds(0)));
        EXPECT_EQ(counter(Role::responder, "mpa_bad_frame"), before + 1);
    }
}

/* What follows the Reply in the same segment belongs to the FPDUs. */
TEST(MpaOrder, FpdusRightBehindTheReply) {
    REQ("MPA-40", "MPA-41", "MPA-57");
    Active active;
    Region to(active.ours().pd(), 4096);
    active.ours().recv(1, {to.all()});
    active.ours().recv(2, {to.all()});
    active.peer.say(
        join({MpaFrame::enhanced_reply({.ird = 1, .ord = 1, .p2p = true, .rtr = kRtrWrite}).bytes(),
              fpdu(Untagged{.payload = pattern(300, 1)}.bytes()),
              fpdu(Untagged{.msn = 2, .payload = pattern(200, 2)}.bytes())}));
    active.expect(RDMA_CM_EVENT_ESTABLISHED);
    expect_success(active.ours().rcq(), 1, IBV_WC_RECV, 300);
    expect_success(active.ours().rcq(), 2, IBV_WC_RECV, 200);
    expect_pattern(to.at(0), 200, 2);
}

/* Which of the two connected by TCP is told by the frames alone. */
TEST(MpaOrder, BothRolesWork) {
    REQ("MPA-32");
    for (Role role : kRoles)
        for (uint8_t revision : {1, 2}) {
            SCOPED_TRACE(testing::Message() << role_text(role) << " revision " << int{revision});
            Link link({.role = role, .revision = revision});
            link.expect_works();
        }
}

/* Peers that say nothing, or not enough. */
TEST(MpaOrder, SilentPeersAreTimedOut) {
    REQ("MPA-38", "SEC-22");
    ParameterOverride request("handshake_ms", "200");
    ParameterOverride reply("reply_ms", "200");
    uint64_t before = counter(Role::responder, "mpa_timeout");
    Passive passive;
    Stream half = passive.connect();
    half.say(View(MpaFrame::request().bytes()).first(19));
    EXPECT_TRUE(passive.peer.hear_to_end().empty());
    EXPECT_TRUE(half.hear_to_end().empty());
    EXPECT_TRUE(passive.no_request(milliseconds(0)));
    EXPECT_EQ(counter(Role::responder, "mpa_timeout"), before + 2);

    Active active;
    active.peer.say(View(MpaFrame::reply().bytes()).first(19));
    EXPECT_EQ(active.expect(RDMA_CM_EVENT_UNREACHABLE).status, -ETIMEDOUT);
    EXPECT_TRUE(active.peer.hear_to_end().empty());
}

/* Endings --------------------------------------------------------------------- */

/* All that was posted, then a FIN; the other direction goes on until the peer's. */
TEST(MpaEnd, DisconnectSendsWhatIsQueued) {
    REQ("MPA-44", "DDP-37");
    for (Role role : kRoles) {
        SCOPED_TRACE(role_text(role));
        Link link({.role = role});
        constexpr size_t kLength = 50000;
        Region from(link.pd(), kLength);
        fill(from.at(0), kLength, 4);
        for (uint64_t i = 0; i < 8; i++)
            link.send(i, {from.all()});
        link.ours().disconnect();
        for (uint64_t i = 0; i < 8; i++) {
            Link::Message message = link.hear_message();
            EXPECT_EQ(message.payload.size(), kLength);
            EXPECT_EQ(mismatch(message.payload.data(), message.payload.size(), 4), kLength);
        }
        link.expect_fin();
        for (uint64_t i = 0; i < 8; i++)
            expect_success(link.scq(), i, IBV_WC_SEND);
        link.expect_disconnected();
    }
}

/* The peer's FIN between two FPDUs: an end without an error. */
TEST(MpaEnd, FinBetweenFpdus) {
    REQ("MPA-44", "MPA-45");
    for (Role role : kRoles) {
        SCOPED_TRACE(role_text(role));
        Link link({.role = role});
        Region to(link.pd(), 64);
        link.recv(1, {to.all()});
        link.recv(2, {to.all()});
        Bytes last = link.peer().writer().encode(Untagged{.payload = {1, 2, 3}}.bytes());
        link.peer().say(last);
        link.peer().shut_down();
        expect_success(link.rcq(), 1, IBV_WC_RECV, 3);
        link.ours().expect(RDMA_CM_EVENT_DISCONNECTED);
        rdma_disconnect(link.ours().id());
        /* No Terminate: nothing went wrong. */
        link.expect_fin();
        expect_wc(link.rcq(), 2, IBV_WC_WR_FLUSH_ERR);
    }
}

/* FIN inside an FPDU, behind any of its octets: an error that no Terminate tells. */
TEST(MpaEnd, FinWithinAnFpdu) {
    REQ("MPA-45", "MPA-46", "MPA-48", "MPA-47");
    Bytes unit = fpdu(Untagged{.payload = {1, 2, 3, 4}}.bytes());
    for (size_t said : {1UL, 2UL, 3UL, 4UL, 19UL, 20UL, unit.size() - 4, unit.size() - 1}) {
        SCOPED_TRACE(said);
        Link link;
        Region to(link.pd(), 64);
        to.buffer.set(0xaa);
        link.recv(1, {to.all()});
        link.peer().say(View(unit).first(said));
        link.peer().shut_down();
        EXPECT_TRUE(link.peer().hear_to_end().empty()) << "a Terminate that cannot be";
        link.ours().expect(RDMA_CM_EVENT_DISCONNECTED);
        link.expect_async(IBV_EVENT_QP_FATAL);
        link.expect_state(IBV_QPS_ERR);
        expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
        expect_value(to.at(4), 60, 0xaa);
    }
}

TEST(MpaEnd, Reset) {
    REQ("MPA-45", "MPA-46", "DDP-35");
    for (Role role : kRoles) {
        SCOPED_TRACE(role_text(role));
        Link link({.role = role});
        link.recv(1, {});
        link.peer().reset();
        link.ours().expect(RDMA_CM_EVENT_DISCONNECTED);
        link.expect_async(IBV_EVENT_QP_FATAL);
        link.expect_state(IBV_QPS_ERR);
        expect_wc(link.rcq(), 1, IBV_WC_WR_FLUSH_ERR);
    }
}

/* TCP that gives up: nobody acknowledges any more. */
TEST(MpaEnd, TcpTimeout) {
    REQ("MPA-45", "MPA-48");
    Link link;
    Region from(link.pd(), 64);
    std::string netdev = netdev_of(device_of(Role::responder), ns_of(Role::responder));
    std::string peer = addr_of(Role::initiator);
    in_namespace(ns_of(Role::responder), [&] {
        must_shell(fmt::format("sysctl -qw net.ipv4.tcp_retries2=1; "
                               "ip neigh replace {} lladdr 02:00:00:00:00:99 dev {} nud permanent",
                               peer, netdev));
    });
    link.send(1, {from.all()});
    link.recv(2, {});
    std::optional<CmEvent> event =
        link.ours().channel().try_next(link.ours().id(), Deadline(milliseconds(20000)));
    in_namespace(ns_of(Role::responder), [&] {
        must_shell(fmt::format("sysctl -qw net.ipv4.tcp_retries2=15; ip neigh del {} dev {}", peer,
                               netdev));
    });
    ASSERT_TRUE(event) << "the stream outlived its TCP connection";
    EXPECT_EQ(event->type, RDMA_CM_EVENT_DISCONNECTED);
    link.expect_async(IBV_EVENT_QP_FATAL);
    link.expect_state(IBV_QPS_ERR);
    expect_wc(link.rcq(), 2, IBV_WC_WR_FLUSH_ERR);
    /* The way there works again. */
    Link again;
    again.expect_works();
}

} // namespace
