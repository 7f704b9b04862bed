// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Socket options of the level SOL_SDP
 */
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include <poll.h>

#include "peer.hpp"
#include "softwarp_sdp.h"

namespace softwarp::sockets {

class Options : public Peers {};
INSTANTIATE_TEST_SUITE_P(All, Options, testing::ValuesIn(sdp_kinds()), name_of_kind);

static int set_layout(const Fd &fd, int value) {
    return ERRNO_OF(::setsockopt(fd.get(), SOL_SDP, SDP_LAYOUT, &value, sizeof(value)));
}

static int layout(const Fd &fd) {
    return option(fd, SOL_SDP, SDP_LAYOUT);
}

/* TCP knows nothing of the level, and says of its options what it says of any unknown one. */
TEST_P(Options, NotTcps) {
    Fd fd(::socket(GetParam().address, SOCK_STREAM, 0));
    for (int name : {SDP_LAYOUT, SDP_INFO}) {
        int value = 0;
        socklen_t len = sizeof(value);
        EXPECT_EQ(ERRNO_OF(::setsockopt(fd.get(), SOL_SDP, name, &value, len)), ENOPROTOOPT);
        int unknown = ERRNO_OF(::getsockopt(fd.get(), 1000, name, &value, &len));
        EXPECT_NE(unknown, 0);
        EXPECT_EQ(ERRNO_OF(::getsockopt(fd.get(), SOL_SDP, name, &value, &len)), unknown);
    }
}

TEST_P(Options, Unknown) {
    Pair pair = connected();
    for (int name : {-1, 0, 5, 80, 1000}) {
        int value = 0;
        socklen_t len = sizeof(value);
        EXPECT_EQ(ERRNO_OF(::setsockopt(pair.here.get(), SOL_SDP, name, &value, len)), ENOPROTOOPT)
            << name;
        EXPECT_EQ(ERRNO_OF(::getsockopt(pair.here.get(), SOL_SDP, name, &value, &len)), ENOPROTOOPT)
            << name;
    }
    /* nor is what can only be read set */
    sdp_info value = info(pair.here);
    EXPECT_EQ(ERRNO_OF(::setsockopt(pair.here.get(), SOL_SDP, SDP_INFO, &value, sizeof(value))),
              ENOPROTOOPT);
}

TEST_P(Options, LayoutValues) {
    Fd fd = make();
    EXPECT_EQ(layout(fd), SDP_INFO_LAYOUT_DRAFT);
    EXPECT_EQ(set_layout(fd, SDP_INFO_LAYOUT_IB), 0);
    EXPECT_EQ(layout(fd), SDP_INFO_LAYOUT_IB);
    EXPECT_EQ(info(fd).layout, SDP_INFO_LAYOUT_IB);
    for (int wrong : {-1, 2, 256, 1 << 30})
        EXPECT_EQ(set_layout(fd, wrong), EINVAL) << wrong;
    EXPECT_EQ(layout(fd), SDP_INFO_LAYOUT_IB);
    EXPECT_EQ(set_layout(fd, SDP_INFO_LAYOUT_DRAFT), 0);
    EXPECT_EQ(layout(fd), SDP_INFO_LAYOUT_DRAFT);
}

TEST_P(Options, LengthsAndPointers) {
    Fd fd = make();
    int value = SDP_INFO_LAYOUT_IB;
    void *bad = reinterpret_cast<void *>(16);
    for (socklen_t len : {0U, 1U, 3U})
        EXPECT_EQ(ERRNO_OF(::setsockopt(fd.get(), SOL_SDP, SDP_LAYOUT, &value, len)), EINVAL);
    EXPECT_EQ(ERRNO_OF(::setsockopt(fd.get(), SOL_SDP, SDP_LAYOUT, bad, sizeof(value))), EFAULT);
    EXPECT_EQ(layout(fd), SDP_INFO_LAYOUT_DRAFT);
    /* more than it takes is no mistake, as with TCP's */
    int values[2] = {SDP_INFO_LAYOUT_IB, 77};
    EXPECT_EQ(::setsockopt(fd.get(), SOL_SDP, SDP_LAYOUT, values, sizeof(values)), 0);
    EXPECT_EQ(layout(fd), SDP_INFO_LAYOUT_IB);
    for (int name : {SDP_LAYOUT, SDP_INFO}) {
        sdp_info found;
        socklen_t len = sizeof(found);
        EXPECT_EQ(ERRNO_OF(::getsockopt(fd.get(), SOL_SDP, name, bad, &len)), EFAULT);
        EXPECT_EQ(
            ERRNO_OF(::getsockopt(fd.get(), SOL_SDP, name, &found, static_cast<socklen_t *>(bad))),
            EFAULT);
        len = static_cast<socklen_t>(-1);
        EXPECT_EQ(ERRNO_OF(::getsockopt(fd.get(), SOL_SDP, name, &found, &len)), EINVAL);
        len = 0;
        EXPECT_EQ(::getsockopt(fd.get(), SOL_SDP, name, nullptr, &len), 0);
        EXPECT_EQ(len, 0U);
    }
}

/* A program that knows less of it, and one that knows more */
TEST_P(Options, InfoOfOtherLengths) {
    Pair pair = connected();
    ASSERT_TRUE(send_all(pair.here, pattern(100)));
    EXPECT_EQ(receive(pair.there, 100), pattern(100));
    sdp_info whole = info(pair.there);
    for (socklen_t size : {1U, 9U, static_cast<unsigned>(sizeof(sdp_info)), 1000U}) {
        std::vector<uint8_t> octets(1001, 0xee);
        socklen_t len = size;
        ASSERT_EQ(::getsockopt(pair.there.get(), SOL_SDP, SDP_INFO, octets.data(), &len), 0);
        EXPECT_EQ(len, std::min<size_t>(size, sizeof(whole)));
        EXPECT_EQ(std::memcmp(octets.data(), &whole, len), 0);
        EXPECT_EQ(std::count(octets.begin() + len, octets.end(), 0xee), 1001 - int64_t{len});
    }
}

/* It can be chosen until there is a connection or a listener, and again when there is none. */
TEST_P(Options, LayoutIsForTheNextConnection) {
    Fd l = listener();
    EXPECT_EQ(set_layout(l, SDP_INFO_LAYOUT_IB), EINVAL);
    EXPECT_EQ(layout(l), SDP_INFO_LAYOUT_DRAFT);
    Address a = name_of(l);
    Fd app = make();
    ASSERT_EQ(set_layout(app, SDP_INFO_LAYOUT_IB), 0);
    ASSERT_EQ(::connect(app.get(), a.get(), a.len), 0);
    EXPECT_EQ(set_layout(app, SDP_INFO_LAYOUT_DRAFT), EINVAL);
    EXPECT_EQ(layout(app), SDP_INFO_LAYOUT_IB);
    Fd other(::accept(l.get(), nullptr, nullptr));
    EXPECT_EQ(set_layout(other, SDP_INFO_LAYOUT_DRAFT), EINVAL);
    sockaddr none{};
    ASSERT_EQ(::connect(app.get(), &none, sizeof(none)), 0);
    EXPECT_EQ(layout(app), SDP_INFO_LAYOUT_IB);
    EXPECT_EQ(set_layout(app, SDP_INFO_LAYOUT_DRAFT), 0);
    /* where nobody listens */
    l.reset();
    EXPECT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), ECONNREFUSED);
    EXPECT_EQ(set_layout(app, SDP_INFO_LAYOUT_IB), 0);
}

/* What a listener says is not its own choice: who was accepted has the peer's. */
TEST_P(Options, BothLayoutsAtOneListener) {
    Fd l = make();
    Address a = loopback();
    ASSERT_EQ(set_layout(l, SDP_INFO_LAYOUT_IB), 0);
    ASSERT_EQ(::bind(l.get(), a.get(), a.len), 0);
    ASSERT_EQ(::listen(l.get(), 2), 0);
    a = name_of(l);
    for (int wanted : {SDP_INFO_LAYOUT_IB, SDP_INFO_LAYOUT_DRAFT}) {
        Fd here = make();
        ASSERT_EQ(set_layout(here, wanted), 0);
        ASSERT_EQ(::connect(here.get(), a.get(), a.len), 0);
        Fd there(::accept(l.get(), nullptr, nullptr));
        ASSERT_TRUE(there);
        EXPECT_EQ(layout(there), wanted);
        EXPECT_EQ(info(there).layout, wanted);
        EXPECT_EQ(info(here).layout, wanted);
        ASSERT_TRUE(send_all(here, pattern(50000)) && send_all(there, pattern(50000, 3)));
        EXPECT_EQ(receive(there, 50000), pattern(50000));
        EXPECT_EQ(receive(here, 50000), pattern(50000, 3));
    }
}

/* The octets of a Hello, and of what comes behind it */
TEST_P(Options, LayoutOnTheWire) {
    Fd l = tcp_listener();
    Address a = name_of(l);
    Fd app = make();
    ASSERT_EQ(set_layout(app, SDP_INFO_LAYOUT_IB), 0);
    set_nonblocking(app);
    ASSERT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), EINPROGRESS);
    Peer peer(::accept(l.get(), nullptr, nullptr));
    peer.layout = kLayoutIb;
    wire::Bytes hello = peer.stream.hear(kSdpHelloLen);
    /* MID, Flags, Bufs, Len */
    EXPECT_EQ(hello[0], kSdpHello);
    EXPECT_EQ(hello[1], 0);
    EXPECT_GE(hello[2] << 8 | hello[3], 3);
    EXPECT_EQ(hello[7], kSdpHelloLen);
    peer.start_mpa();
    peer.say_hello_ack(encode(good_hello_ack(), kLayoutIb));
    EXPECT_NE(events(app, POLLOUT, 10000) & POLLOUT, 0);
    ASSERT_TRUE(send_all(app, pattern(10)));
    Heard h = peer.hear_other();
    EXPECT_EQ(h.octets[0], kSdpData);
    EXPECT_EQ(h.payload(), pattern(10));
}

TEST_P(Options, InfoBeforeConnecting) {
    Fd fd = make();
    sdp_info i = info(fd);
    EXPECT_EQ(i.state, SDP_INFO_IDLE);
    EXPECT_EQ(i.transport, SDP_INFO_TRANSPORT_NONE);
    EXPECT_EQ(i.tx_mode, SDP_INFO_MODE_NONE);
    EXPECT_EQ(i.rx_mode, SDP_INFO_MODE_NONE);
    EXPECT_EQ(i.reason, SDP_INFO_REASON_NONE);
    EXPECT_EQ(i.own_bufs, 0U);
    EXPECT_STREQ(i.device, "");
    Fd l = listener();
    EXPECT_EQ(info(l).state, SDP_INFO_LISTEN);
}

TEST_P(Options, InfoWhileConnecting) {
    Fd l = tcp_listener();
    Address a = name_of(l);
    Fd app = make();
    set_nonblocking(app);
    ASSERT_EQ(ERRNO_OF(::connect(app.get(), a.get(), a.len)), EINPROGRESS);
    ASSERT_TRUE(eventually([&] { return info(app).state == SDP_INFO_MPA; }));
    EXPECT_EQ(info(app).tx_mode, SDP_INFO_MODE_NONE);
    EXPECT_STRNE(info(app).device, "");
    Peer peer(::accept(l.get(), nullptr, nullptr));
    peer.hear_hello();
    peer.start_mpa();
    ASSERT_TRUE(eventually([&] { return info(app).state == SDP_INFO_HELLO_ACK; }));
}

TEST_P(Options, InfoOfAConnection) {
    Talk talk = accepted();
    sdp_info before = info(talk.app);
    EXPECT_EQ(before.state, SDP_INFO_OPEN);
    EXPECT_EQ(before.transport, SDP_INFO_TRANSPORT_SDP);
    EXPECT_EQ(before.tx_mode, SDP_INFO_MODE_COMBINED);
    EXPECT_EQ(before.rx_mode, SDP_INFO_MODE_COMBINED);
    EXPECT_EQ(before.layout, SDP_INFO_LAYOUT_DRAFT);
    EXPECT_EQ(before.fault, SDP_INFO_FAULT_NONE);
    EXPECT_EQ(before.error, 0U);
    EXPECT_EQ(before.peer_size, 4096U);
    EXPECT_EQ(before.own_size, talk.first.hello.rcv_size);
    EXPECT_EQ(before.own_bufs, talk.first.bufs + kSpareBufs);
    EXPECT_EQ(before.own_credits, before.own_bufs);
    EXPECT_STRNE(before.device, "");
    talk.peer->say(message(kSdpData), pattern(70));
    ASSERT_TRUE(send_all(talk.app, pattern(500)));
    EXPECT_EQ(talk.peer->hear_other().payload(), pattern(500));
    ASSERT_TRUE(eventually([&] { return info(talk.app).rx_bcopy == 70; }));
    sdp_info after = info(talk.app);
    EXPECT_EQ(after.rx_queue, 70U);
    EXPECT_EQ(after.own_credits, before.own_credits - 1);
    EXPECT_EQ(after.tx_bcopy, 500U);
    EXPECT_EQ(after.rx_read + after.rx_write + after.tx_read + after.tx_write, 0U);
    /* 100 were told of by the message that has come, which has acknowledged nothing of ours */
    EXPECT_LE(after.peer_credits, 100U);
    EXPECT_GE(after.peer_credits, 98U);
    EXPECT_EQ(receive(talk.app, 70), pattern(70));
    EXPECT_EQ(info(talk.app).rx_queue, 0U);
    EXPECT_EQ(info(talk.app).rx_bcopy, 70U);
}

TEST_P(Options, InfoOfAnEnd) {
    Pair pair = connected();
    ASSERT_EQ(::shutdown(pair.here.get(), SHUT_WR), 0);
    ASSERT_TRUE(eventually([&] { return info(pair.there).state == SDP_INFO_PEER_HALF; }));
    EXPECT_EQ(info(pair.here).state, SDP_INFO_HALF);
    ASSERT_EQ(::shutdown(pair.there.get(), SHUT_WR), 0);
    ASSERT_TRUE(eventually([&] { return info(pair.there).state == SDP_INFO_DOWN; }));
    EXPECT_EQ(info(pair.there).error, 0U);
}

TEST_P(Options, InfoOfAFault) {
    Talk talk = accepted();
    talk.peer->said++;
    talk.peer->say(message(kSdpData), pattern(5));
    char c;
    EXPECT_EQ(ERRNO_OF(::recv(talk.app.get(), &c, 1, 0)), ECONNRESET);
    sdp_info i = info(talk.app);
    EXPECT_EQ(i.state, SDP_INFO_DOWN);
    EXPECT_EQ(i.fault, SDP_INFO_FAULT_MSEQ);
    EXPECT_EQ(i.error, static_cast<unsigned>(ECONNRESET));
}

/* What does not fit into the peer's buffers waits. */
TEST_P(Options, InfoOfWhatWaits) {
    Talk talk = accepted();
    set_nonblocking(talk.app);
    std::vector<uint8_t> octets(100000);
    ssize_t sent = 0;
    for (ssize_t ret = 0; ret >= 0; ret = ::send(talk.app.get(), octets.data(), octets.size(), 0))
        sent += ret;
    EXPECT_EQ(errno, EAGAIN);
    ASSERT_TRUE(eventually([&] {
        sdp_info i = info(talk.app);
        return i.tx_queue + i.tx_bcopy == static_cast<uint64_t>(sent);
    }));
    EXPECT_GT(info(talk.app).tx_queue, 0U);
    EXPECT_LE(info(talk.app).peer_credits, 2U);
}

} // namespace softwarp::sockets
