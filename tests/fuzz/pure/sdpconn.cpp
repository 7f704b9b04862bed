// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Two ends of an SDP connection against each other: the input says who does what
 * next.  No octet is lost, repeated or out of order, no message finds no buffer or
 * one that is too small, the rules on credits and on urgent octets hold, and at
 * the end, when both programs read all that comes, nothing is left undone.
 *
 * An end sends by Bcopy.  For SrcAvails the test plays the source itself: it keeps
 * its own account of what it has advertised, and its messages are numbered as the
 * end's own.  Of an octet only its position in the stream is kept.
 */
#include "input.hpp"

#include <algorithm>
#include <deque>
#include <vector>

extern "C" {
#include "proto/sdp/conn.h"
}

using softwarp::fuzz::Input;

namespace {

struct Wire {
    sdp_msg msg;
    bool invalidate;
    uint32_t stag;
    uint64_t position; /* of its payload, or of what it advertises */
};

/* What the test advertises for an end */
struct Advert {
    uint32_t stag;
    uint64_t base;
    uint32_t len, inlined, told;
};

class End {
  public:
    End(bool connector, const sdp_offer &own, const sdp_terms &terms) {
        sdp_conn_init(&c, connector, &own, &terms);
        for (uint32_t i = 0; i < own.posted; i++)
            buffers_.push_back(own.rcv_size);
        size_ = own.rcv_size;
        if (connector) {
            buffers_.pop_front(); /* HelloAck */
            repost(1);
        }
    }

    /* Something to send, if there is. */
    bool step(End &peer) {
        sdp_queue queue{payload_allowed() ? queued_ - taken_ : owed_, partial, flows};
        sdp_out out;
        uint64_t left = sdp_credits_left(&c.credits);
        bool gives = sdp_credits_gives(&c.credits);
        bool clear =
            c.credits.clear || c.credits.sent == 0 || c.credits.received == c.credits.extra;
        bool held = c.credits.held && sdp_sink_busy(&c.sink);
        if (!sdp_conn_next(&c, &queue, &out))
            return false;
        CHECK(left >= 1 || (!clear && gives && out.msg.payload == 0));
        CHECK(out.msg.payload == 0 || left >= 3);
        CHECK(left != 1 || gives || (!clear && out.msg.payload == 0));
        CHECK(out.msg.payload <= queue.octets);
        CHECK(!held || out.msg.mseq_ack == c.credits.hold);
        send(peer, out.msg, out.invalidate, out.stag);
        return true;
    }

    /* The oldest message that is under way to us */
    bool deliver(End &peer) {
        if (in_.empty())
            return false;
        Wire w = in_.front();
        in_.pop_front();
        take(w, peer);
        return true;
    }

    void take(const Wire &w, End &peer) {
        CHECK(!buffers_.empty());
        uint32_t len = sdp_kind_of(w.msg.mid).header + w.msg.payload;
        CHECK(len <= buffers_.front());
        buffers_.pop_front();
        if (w.msg.payload != 0)
            full_++;
        else
            repost(1);
        uint32_t actions;
        if (source_takes(w))
            actions = (w.msg.flags & SDP_FLAG_OOB_PEND) != 0 ? SDP_DO_URGENT : 0;
        else
            actions = sdp_conn_take(&c, &w.msg, w.invalidate);
        CHECK(c.fault == SDP_FAULT_NONE);
        if (c.state == SDP_CLOSED)
            return;
        CHECK(w.msg.payload == 0 || (actions & SDP_DO_DELIVER) != 0);
        if (w.msg.payload != 0) {
            CHECK(w.position == delivered_);
            delivered_ += w.msg.payload;
        }
        if ((actions & SDP_DO_URGENT) != 0) {
            CHECK(!urgent_);
            urgent_ = true;
            urgent_from_ = delivered_ - w.msg.payload;
        }
        if ((actions & SDP_DO_OOB) != 0) {
            CHECK(urgent_);
            urgent_ = false;
            CHECK(delivered_ - urgent_from_ <= SDP_OOB_AHEAD);
            CHECK(peer.was_marked(delivered_));
        }
        if ((actions & SDP_DO_RESIZE) != 0)
            resize_due_ = true;
        if ((actions & SDP_DO_EOF) != 0) {
            CHECK(delivered_ == peer.taken_);
            eof_ = true;
        }
    }

    void queue(uint64_t octets) {
        if (sdp_conn_sends(&c) && queued_ + octets < 300000)
            queued_ += octets;
    }
    void mark() {
        if (!sdp_conn_sends(&c) || !payload_allowed())
            return;
        queued_++; /* the octet itself */
        sdp_conn_oob(&c, queued_ - taken_);
        marks_.push_back(queued_);
    }
    bool was_marked(uint64_t position) const {
        return std::find(marks_.begin(), marks_.end(), position) != marks_.end();
    }
    /* The program has read so many messages. */
    void read(uint32_t messages) {
        uint32_t count = std::min(messages, full_);
        full_ -= count;
        repost(count);
    }
    void more_buffers(uint32_t count) {
        uint32_t room = sdp_credits_room(&c.credits);
        repost(std::min({count, room, 100U}));
    }
    void resize(uint32_t size) {
        if (!resize_due_)
            return;
        resize_due_ = false;
        size_ = std::max(size_, sdp_resize_answer(&c.resize, size, c.credits.posted));
        /* larger ones at once, so that nobody waits */
        repost(2);
    }
    /* what the test has advertised the end knows nothing of */
    void close() {
        if (payload_allowed())
            sdp_conn_input(&c, SDP_IN_CLOSE);
    }
    void completed() {
        if (c.state == SDP_HALF || c.state == SDP_LAST || c.state == SDP_WAIT)
            sdp_conn_input(&c, SDP_IN_SAID_DONE);
    }

    /* The test as the source: SrcAvail, its cancel */
    bool advertise(End &peer, uint32_t len, uint32_t inlined) {
        uint64_t there = queued_ - taken_;
        if (!sdp_conn_sends(&c) || c.source.oob || c.source.oob_told || cancel_sent_ ||
            owed_ != 0 || there == 0 || adverts_.size() >= (pipelined_ ? SDP_ADVERTS : 1U) ||
            buffered_ || !sdp_credits_allow(&c.credits, true) || c.suspend_due)
            return false;
        len = static_cast<uint32_t>(std::min<uint64_t>(std::max(len, 1U), there));
        if (pipelined_)
            inlined = 0;
        else
            inlined = std::clamp<uint32_t>(inlined, 1, len);
        uint32_t room = c.resize.peer - sdp_kind_of(SDP_MID_SRC_AVAIL).header;
        inlined = std::min(inlined, room);
        sdp_msg msg{};
        msg.mid = SDP_MID_SRC_AVAIL;
        msg.payload = inlined;
        msg.avail = {len, ++stag_, taken_, 0};
        adverts_.push_back({stag_, taken_, len, inlined, 0});
        send_own(peer, msg);
        taken_ += len - inlined;
        return true;
    }
    bool cancel(End &peer) {
        if (cancel_sent_ || adverts_.empty() || !sdp_credits_allow(&c.credits, false))
            return false;
        sdp_msg msg{};
        msg.mid = SDP_MID_SRC_AVAIL_CANCEL;
        cancel_sent_ = true;
        cancel_mseq_ = static_cast<uint32_t>(c.credits.sent);
        send_own(peer, msg);
        return true;
    }
    bool change_mode(End &peer, uint8_t mode) {
        if (!sdp_conn_sends(&c) || !sdp_credits_allow(&c.credits, false) || cancel_sent_)
            return false;
        bool fits = pipelined_ ? mode == SDP_MODE_COMBINED
                               : !buffered_ && (mode == SDP_MODE_PIPELINED ||
                                                (mode == SDP_MODE_BUFFERED && adverts_.empty()));
        /* what is advertised without payload stays, so no more until it is done */
        if (!fits || (pipelined_ && (!adverts_.empty() || owed_ != 0)))
            return false;
        sdp_msg msg{};
        msg.mid = SDP_MID_MODE_CHANGE;
        msg.mode.mode = mode;
        pipelined_ = mode == SDP_MODE_PIPELINED;
        buffered_ = mode == SDP_MODE_BUFFERED;
        send_own(peer, msg);
        return true;
    }

    /* The sink's Reads */
    bool start_read(uint32_t most) {
        uint32_t stag = 0;
        __u64 va = 0;
        uint32_t octets = sdp_sink_want(&c.sink, most, &stag, &va);
        if (octets == 0)
            return false;
        CHECK(va == delivered_ + reading_);
        reading_ += octets;
        reads_.push_back(octets);
        return true;
    }
    bool end_read() {
        if (reads_.empty())
            return false;
        sdp_sink_read(&c.sink, reads_.front());
        delivered_ += reads_.front();
        reading_ -= reads_.front();
        reads_.pop_front();
        return true;
    }
    void refuse() { sdp_sink_refuse(&c.sink); }

    bool idle() const { return in_.empty() && reads_.empty(); }
    void check_done(const End &peer) const {
        CHECK(taken_ == queued_);
        CHECK(peer.delivered_ == queued_);
        CHECK(adverts_.empty() && !cancel_sent_ && owed_ == 0);
        CHECK(!peer.urgent_ && !c.source.oob && !c.source.oob_told);
    }
    bool starved() const {
        sdp_queue queue{queued_ - taken_, true, flows};
        return sdp_conn_starved(&c, &queue);
    }
    bool eof() const { return eof_; }

    sdp_conn c;
    bool partial = true, flows = false;

  private:
    bool payload_allowed() const { return adverts_.empty() && !cancel_sent_ && owed_ == 0; }

    void repost(uint32_t count) {
        for (uint32_t i = 0; i < count; i++)
            buffers_.push_back(size_);
        sdp_credits_post(&c.credits, count);
    }

    void send(End &peer, const sdp_msg &msg, bool invalidate, uint32_t stag) {
        if (owed_ != 0) {
            peer.in_.push_back({msg, invalidate, stag, owed_end_ - owed_});
            owed_ -= msg.payload;
        } else {
            peer.in_.push_back({msg, invalidate, stag, taken_});
            taken_ += msg.payload;
        }
    }
    void send_own(End &peer, sdp_msg msg) {
        sdp_credits_stamp(&c.credits, &msg);
        send(peer, msg, false, 0);
    }

    /* An answer to what the test has advertised */
    bool source_takes(const Wire &w) {
        if (w.msg.mid != SDP_MID_RDMA_RD_COMPL && w.msg.mid != SDP_MID_SEND_SM)
            return false;
        CHECK(sdp_credits_take(&c.credits, &w.msg) == SDP_CREDIT_OK);
        if (w.msg.mid == SDP_MID_RDMA_RD_COMPL) {
            CHECK(!adverts_.empty() && owed_ == 0);
            Advert &a = adverts_.front();
            a.told += w.msg.size;
            CHECK(w.msg.size >= 1 && a.inlined + a.told <= a.len);
            CHECK(w.invalidate == (a.inlined + a.told == a.len));
            CHECK(!w.invalidate || w.stag == a.stag);
            if (a.inlined + a.told == a.len)
                adverts_.pop_front();
            if (adverts_.empty())
                cancel_sent_ = false;
            return true;
        }
        CHECK(!w.invalidate);
        if (cancel_sent_ && static_cast<int32_t>(w.msg.mseq_ack - cancel_mseq_) >= 0) {
            /* the rest stays with the program: nothing behind it was sent */
            CHECK(!adverts_.empty());
            const Advert &a = adverts_.front();
            taken_ = a.base + a.inlined + a.told;
            adverts_.clear();
            cancel_sent_ = false;
            return true;
        }
        CHECK(!adverts_.empty());
        const Advert &a = adverts_.front();
        /* by Data now, before what else is advertised; the sink asks for one at a time */
        CHECK(owed_ == 0);
        owed_ = a.len - a.inlined - a.told;
        owed_end_ = a.base + a.len;
        adverts_.pop_front();
        if (adverts_.empty())
            cancel_sent_ = false;
        return true;
    }

    std::deque<uint32_t> buffers_;
    std::deque<Wire> in_;
    std::deque<uint32_t> reads_;
    std::deque<Advert> adverts_;
    std::vector<uint64_t> marks_;
    uint64_t queued_ = 0, taken_ = 0, delivered_ = 0, reading_ = 0;
    uint64_t owed_ = 0, owed_end_ = 0, urgent_from_ = 0;
    uint32_t size_ = 0, full_ = 0, stag_ = 0, cancel_mseq_ = 0;
    bool urgent_ = false, resize_due_ = false, eof_ = false;
    bool cancel_sent_ = false, pipelined_ = false, buffered_ = false;
};

sdp_offer offer_of(Input &in) {
    sdp_offer own{};
    own.posted = SDP_BUFS_MIN + SDP_BUFS_SPARE + in.u8() % 20U;
    own.rcv_size = SDP_RCV_SIZE_MIN + in.u16() % 2000U;
    own.max_adverts = SDP_ADVERTS;
    own.ird = own.ord = 1;
    return own;
}

/* One thing that an end does */
void act(Input &in, End &e, End &peer) {
    switch (in.u8() % 18U) {
    case 0:
    case 1:
    case 2: e.step(peer); break;
    case 3:
    case 4:
    case 5: e.deliver(peer); break;
    case 6: e.queue(in.u8()); break;
    case 7: e.queue(in.u16() * (in.u8() % 16U)); break;
    case 8: e.read(in.u8()); break;
    case 9: e.mark(); break;
    case 10:
        e.flows ^= e.partial;
        e.partial = !e.partial;
        break;
    case 11: e.more_buffers(in.u8()); break;
    case 12: sdp_resize_ask(&e.c.resize, in.u16()); break;
    case 13: e.resize(in.u16()); break;
    case 14: e.advertise(peer, in.u16(), in.u8()); break;
    case 15: {
        uint8_t what = in.u8();
        if (what % 8 == 0)
            e.cancel(peer);
        else if (what % 8 < 4)
            e.change_mode(peer, what / 8U % 3U);
        else
            e.completed();
        break;
    }
    case 16: e.start_read(in.u16() + 1U); break;
    default: {
        uint8_t what = in.u8();
        if (what % 4 < 2)
            e.end_read();
        else if (what % 4 == 2)
            e.refuse();
        else if (what >= 200)
            e.close();
        else
            sdp_conn_probe(&e.c);
        break;
    }
    }
}

/* All that an end does by itself as long as its program reads and its timers run */
bool settle_one(End &e, End &peer) {
    bool moved = e.step(peer);
    moved |= e.deliver(peer);
    moved |= e.start_read(1000);
    moved |= e.end_read();
    e.read(1000);
    e.resize(500);
    return moved;
}

bool settle(End &one, End &other) {
    bool moved = settle_one(one, other);
    return settle_one(other, one) || moved;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    sdp_offer offers[2] = {offer_of(in), offer_of(in)};
    sdp_terms terms[2];
    sdp_msg hello, ack;
    sdp_hello_make(&offers[0], &hello);
    CHECK(sdp_hello_check(&offers[1], &hello, &terms[1]) == SDP_ACCEPTABLE);
    sdp_hello_ack_make(&offers[1], &ack);
    CHECK(sdp_hello_ack_check(&offers[0], &ack, &terms[0]) == SDP_ACCEPTABLE);
    End connector(true, offers[0], terms[0]), acceptor(false, offers[1], terms[1]);

    while (in.left() != 0) {
        if ((in.u8() & 1) != 0)
            act(in, connector, acceptor);
        else
            act(in, acceptor, connector);
    }
    connector.partial = acceptor.partial = true;
    connector.flows = acceptor.flows = false;
    /* an end without credit asks now and then; more often than a few times it need not */
    for (int quiet = 0; quiet < 8; quiet++) {
        /* many more than what may be queued takes */
        for (uint32_t i = 0; settle(connector, acceptor); i++) {
            CHECK(i < 1000000);
            quiet = 0;
        }
        sdp_conn_probe(&connector.c);
        sdp_conn_probe(&acceptor.c);
    }
    connector.check_done(acceptor);
    acceptor.check_done(connector);

    connector.close();
    acceptor.close();
    do {
        connector.completed();
        acceptor.completed();
    } while (settle(connector, acceptor));
    CHECK(connector.eof() && acceptor.eof());
    for (const End *e : {&connector, &acceptor})
        CHECK(e->c.state == SDP_FINISH || e->c.state == SDP_WAIT);
    CHECK(connector.c.state == SDP_FINISH || acceptor.c.state == SDP_FINISH);
    return 0;
}
