// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The port mapper of SDP in both roles: clients that ask, a responder that answers, a
 * network that loses, repeats, changes and invents messages, the cache of answers beside
 * a map that forgets nothing, and the guard of the responder beside all that it let pass.
 *
 * Octet 0 is the size of the cache, octet 1 the rates; then a step each: what, and who.
 */
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "input.hpp"

extern "C" {
#include "proto/sdp/answer.h"
#include "proto/sdp/query.h"
}

using softwarp::fuzz::Input;

namespace {

enum Step {
    kAsk,
    kTime,
    kRespond,
    kDeliver,
    kInvent,
    kUnreachable,
    kConnect,
    kDrop,
    kFlood,
    kListen,
    kSteps,
};

constexpr size_t kMost = 200; // messages on their way, and passes to look back at

bool same(const sdp_pm_msg &a, const sdp_pm_msg &b) {
    return a.type == b.type && a.version == b.version && a.time == b.time &&
           a.ap_port == b.ap_port && a.cp_port == b.cp_port && a.handle == b.handle &&
           std::memcmp(a.cp_addr, b.cp_addr, sizeof(a.cp_addr)) == 0 &&
           std::memcmp(a.ap_addr, b.ap_addr, sizeof(a.ap_addr)) == 0;
}

/* Through the wire and back: what is sent is what is taken */
sdp_pm_msg carried(const sdp_pm_msg &msg) {
    uint8_t octets[SDP_PM_LEN];
    sdp_pm_msg back;
    sdp_pm_encode(&msg, octets);
    CHECK(sdp_pm_decode(octets, sizeof(octets), &back) == 0);
    CHECK(same(msg, back));
    return back;
}

/* What a client would ask for one of 32 services: IPv4 or IPv6, two local addresses */
sdp_pm_msg service(uint8_t number) {
    sdp_pm_msg msg{};
    msg.version = (number & 1) != 0 ? 6 : 4;
    msg.ap_addr[0] = static_cast<uint8_t>(10 + (number >> 1 & 3));
    msg.cp_addr[0] = static_cast<uint8_t>(20 + (number >> 3 & 1));
    msg.ap_port = (number & 16) != 0 ? 0 : 5000; // 0: the whole host
    return msg;
}

/* A hash that makes them share sets */
uint32_t hash_of(const sdp_pm_msg &msg) {
    return msg.ap_addr[0] * 7U + msg.version + msg.ap_port;
}

class Client {
  public:
    bool asks() const { return asked_ && q_.state == SDP_QUERY_WAIT; }
    const sdp_query &query() const { return q_; }

    void ask(sdp_pm_msg what, uint32_t wait, uint8_t tries, uint64_t handle, uint64_t now) {
        what.handle = handle;
        what.cp_port = static_cast<uint16_t>(1000 + handle);
        sdp_query_ask(&q_, &what, wait, tries, now);
        asked_ = true;
        begun_ = now;
        wait_ = wait;
        sent_ = 1;
        most_ = tries != 0 ? tries : 1;
        CHECK(q_.state == SDP_QUERY_WAIT && q_.request.type == SDP_PM_REQ && q_.request.time == 0);
    }

    /* These three do nothing before it has asked. */
    sdp_query_action timer(uint64_t now) {
        if (!asked_)
            return SDP_QUERY_NOTHING;
        bool waited = asks() && now >= q_.when;
        sdp_query_action action = sdp_query_timer(&q_, now);
        CHECK((action != SDP_QUERY_NOTHING) == waited);
        if (action == SDP_QUERY_SEND) {
            CHECK(++sent_ <= most_ && q_.state == SDP_QUERY_WAIT && q_.when > now);
        } else if (waited) {
            CHECK(action == SDP_QUERY_SILENT && sent_ == most_ && q_.state == SDP_QUERY_TCP);
            /* whoever comes on time waits for so long in all */
            CHECK(now - begun_ >= wait_ * ((1ULL << most_) - 1));
        }
        return action;
    }

    sdp_query_action take(const sdp_pm_msg &msg) {
        if (!asked_)
            return SDP_QUERY_NOTHING;
        bool waited = asks();
        sdp_pm_msg request = q_.request;
        sdp_query_action action = sdp_query_take(&q_, &msg);
        bool ours = msg.handle == request.handle && msg.cp_port == request.cp_port &&
                    msg.version == request.version &&
                    std::memcmp(msg.cp_addr, request.cp_addr, sizeof(msg.cp_addr)) == 0;
        bool denied = msg.type == SDP_PM_DENY;
        bool accepted = msg.type == SDP_PM_ACCEPT && msg.ap_port != 0;
        if (!waited || !ours || (!denied && !accepted)) {
            CHECK(action == SDP_QUERY_NOTHING && asks() == waited);
        } else if (denied) {
            CHECK(action == SDP_QUERY_DENIED && q_.state == SDP_QUERY_TCP);
        } else {
            CHECK(action == SDP_QUERY_ACK && q_.state == SDP_QUERY_SDP);
            sdp_pm_msg ack = msg;
            ack.type = SDP_PM_ACK;
            ack.time = 0;
            CHECK(same(q_.answer, ack));
        }
        return action;
    }

    sdp_query_action unreachable() {
        if (!asked_)
            return SDP_QUERY_NOTHING;
        bool waited = asks();
        sdp_query_action action = sdp_query_unreachable(&q_);
        CHECK(action == (waited ? SDP_QUERY_DENIED : SDP_QUERY_NOTHING));
        return action;
    }

  private:
    sdp_query q_{};
    bool asked_ = false;
    uint64_t begun_ = 0, wait_ = 0;
    unsigned sent_ = 0, most_ = 0;
};

/* The cache, and what it has been told: it may forget, but what it says is true. */
class Cache {
  public:
    explicit Cache(uint32_t sets) : entries_(sets * SDP_PM_WAYS) {
        cache_.entries = entries_.data();
        cache_.sets = sets;
    }

    bool find(const sdp_pm_msg &asked, uint64_t now) const {
        const sdp_pm_entry *e = sdp_pm_cache_find(&cache_, &asked, hash_of(asked), now);
        if (e == nullptr)
            return false;
        CHECK(e >= entries_.data() && e < entries_.data() + entries_.size());
        auto it = told_.find(key(asked));
        CHECK(it != told_.end() && now < it->second.until && e->until == it->second.until);
        CHECK(e->sdp == it->second.answer.has_value());
        if (e->sdp) {
            CHECK(e->port == it->second.answer->ap_port && e->version == asked.version);
            CHECK(std::memcmp(e->addr, it->second.answer->ap_addr, sizeof(e->addr)) == 0);
        }
        return true;
    }

    void keep(const sdp_pm_msg &asked, const sdp_pm_msg *answer, uint8_t time, uint64_t ms,
              uint64_t now) {
        std::map<uint8_t, uint64_t> before = alive(asked, now);
        sdp_pm_cache_keep(&cache_, &asked, hash_of(asked), answer, time, ms, now);
        uint64_t life = answer != nullptr ? sdp_pm_time_ms(time) : ms;
        told_.erase(key(asked));
        if (life != 0) {
            uint64_t until = life < UINT64_MAX - now ? now + life : UINT64_MAX;
            told_[key(asked)] = {until, answer != nullptr ? std::optional(*answer) : std::nullopt};
        }
        CHECK(find(asked, now) == (life != 0 && now != UINT64_MAX));
        /* at most one went for it, the one that would have gone first */
        std::map<uint8_t, uint64_t> after = alive(asked, now);
        CHECK(before.size() - after.size() <= 1);
        for (auto &[lost, when] : before)
            for (auto &[left, until] : after)
                CHECK(after.contains(lost) || when <= until);
    }

    void drop(const sdp_pm_msg &asked, uint64_t now) {
        sdp_pm_cache_drop(&cache_, &asked, hash_of(asked));
        told_.erase(key(asked));
        CHECK(!find(asked, now));
    }

    /* What is said of each service is true, and no longer than its time. */
    void check(uint64_t now) const {
        for (uint8_t i = 0; i < 32; i++) {
            find(service(i), now);
            find(service(i), until_of(service(i)));
        }
    }

  private:
    struct Told {
        uint64_t until;
        std::optional<sdp_pm_msg> answer;
    };
    uint64_t until_of(const sdp_pm_msg &asked) const {
        auto it = told_.find(key(asked));
        return it != told_.end() ? it->second.until : 0;
    }

    /* The other services of its set, with their ends */
    std::map<uint8_t, uint64_t> alive(const sdp_pm_msg &asked, uint64_t now) const {
        std::map<uint8_t, uint64_t> found;
        for (uint8_t i = 0; i < 32; i++) {
            sdp_pm_msg other = service(i);
            if (((hash_of(other) ^ hash_of(asked)) & (cache_.sets - 1)) == 0 &&
                key(other) != key(asked) && find(other, now))
                found[i] = until_of(other);
        }
        return found;
    }

    using Key = std::tuple<uint8_t, uint16_t, uint8_t, uint8_t>;
    static Key key(const sdp_pm_msg &m) {
        return {m.version, m.ap_port, m.ap_addr[0], m.cp_addr[0]};
    }

    std::vector<sdp_pm_entry> entries_;
    sdp_pm_cache cache_{};
    std::map<Key, Told> told_;
};

/* No more answers in any time than a burst and what the rate allows meanwhile */
class Passes {
  public:
    void add(uint64_t now, const sdp_pm_rate &rate) {
        times_.push_back(now);
        if (times_.size() > kMost)
            times_.pop_front();
        for (size_t i = 0; i < times_.size(); i++)
            CHECK((times_.size() - i) * 1000ULL <=
                  1000ULL * rate.burst + saturated(now - times_[i], rate.per_second));
    }

  private:
    static uint64_t saturated(uint64_t ms, uint64_t rate) {
        return ms > 1U << 30 ? 1ULL << 60 : ms * rate;
    }
    std::deque<uint64_t> times_;
};

class World {
  public:
    World(uint8_t size, uint8_t rates) : cache_(1U << (size & 3)) {
        /* as in the kernel: a burst as large as the rate of a second */
        source_ = {1U + (rates & 7), 1U + (rates & 7)};
        all_ = {1U + (rates >> 3), 1U + (rates >> 3)};
        sdp_pm_guard_init(&guard_, source_, all_);
    }

    void step(Input &in) {
        uint8_t what = in.u8();
        uint8_t who = in.u8();
        Client &client = clients_[who % clients_.size()];
        switch (what % kSteps) {
        case kAsk:
            client.ask(service(who), 1U + in.u8(), in.u8() % 9, ++handle_, now_);
            say(client.query().request);
            break;
        case kTime:
            now_ += (who & 1) != 0 ? in.u32() : in.u8();
            for (Client &each : clients_)
                concludes(each, each.timer(now_), 0);
            break;
        case kRespond: respond(who); break;
        case kDeliver:
            if (!wire_.empty())
                deliver(wire_[who % wire_.size()], in.u8());
            break;
        case kInvent: invent(in); break;
        case kUnreachable: concludes(client, client.unreachable(), 0); break;
        case kConnect:
            /* what connect() does: ask the cache, then the host's silence */
            cache_.find(service(who), now_);
            cache_.find(service(who | 16), now_);
            break;
        case kDrop: cache_.drop(service(who), now_); break;
        case kFlood: pass(who); break;
        default: port_ = static_cast<uint16_t>(who << 4); break;
        }
        cache_.check(now_);
    }

  private:
    void say(const sdp_pm_msg &msg) {
        wire_.push_back(carried(msg));
        if (wire_.size() > kMost)
            wire_.pop_front();
    }

    bool pass(uint8_t hash) {
        bool good = sdp_pm_guard_pass(&guard_, hash, now_);
        if (good) {
            passes_[hash].add(now_, source_);
            total_.add(now_, all_);
        }
        if (now_ - asked_at_ >= 60000)
            CHECK(good); // there was quiet for a minute
        asked_at_ = now_;
        return good;
    }

    /* The server takes one of the messages on their way. */
    void respond(uint8_t which) {
        if (wire_.empty())
            return;
        sdp_pm_msg msg = wire_[which % wire_.size()];
        sdp_pm_service has{};
        sdp_pm_msg reply{};
        has.port = port_;
        has.addr[0] = 99;
        has.time = static_cast<uint8_t>(which * 7U);
        if (!pass(msg.cp_addr[0]))
            return;
        bool replies = sdp_pm_answer(&msg, port_ != 0 ? &has : nullptr, &reply);
        CHECK(replies == (msg.type == SDP_PM_REQ));
        if (!replies)
            return;
        /* who asked takes it for an answer */
        CHECK(reply.handle == msg.handle && reply.cp_port == msg.cp_port &&
              reply.version == msg.version);
        CHECK(std::memcmp(reply.cp_addr, msg.cp_addr, sizeof(msg.cp_addr)) == 0);
        CHECK(reply.type == (port_ != 0 ? SDP_PM_ACCEPT : SDP_PM_DENY));
        CHECK(reply.ap_port == (port_ != 0 ? port_ : msg.ap_port));
        say(reply);
    }

    void deliver(sdp_pm_msg msg, uint8_t spoil) {
        if ((spoil & 1) != 0)
            msg.handle ^= spoil;
        if ((spoil & 2) != 0)
            msg.cp_addr[spoil >> 6] ^= spoil;
        if ((spoil & 4) != 0)
            msg.type = static_cast<uint8_t>(spoil >> 4 & 3);
        if ((spoil & 8) != 0)
            msg.ap_port = 0;
        for (Client &client : clients_)
            concludes(client, client.take(msg), msg.time);
    }

    void invent(Input &in) {
        uint8_t octets[SDP_PM_LEN + 8];
        uint8_t len = in.u8() % (sizeof(octets) + 1);
        for (uint8_t &octet : octets)
            octet = in.u8();
        octets[0] = static_cast<uint8_t>((octets[0] & 0x30) | 0x04 | (octets[0] & 2));
        sdp_pm_msg msg;
        if (sdp_pm_decode(octets, len, &msg) == 0)
            for (Client &client : clients_)
                concludes(client, client.take(msg), msg.time);
    }

    /* As the kernel does: each outcome of a question is kept. */
    void concludes(const Client &client, sdp_query_action action, uint8_t time) {
        const sdp_query &q = client.query();
        sdp_pm_msg host = q.request;
        host.ap_port = 0;
        switch (action) {
        case SDP_QUERY_NOTHING: break;
        case SDP_QUERY_SEND: say(q.request); break;
        case SDP_QUERY_ACK:
            say(q.answer);
            cache_.keep(q.request, &q.answer, time, 0, now_);
            break;
        case SDP_QUERY_DENIED: cache_.keep(q.request, nullptr, 0, 5000, now_); break;
        case SDP_QUERY_SILENT: cache_.keep(host, nullptr, 0, 60000, now_); break;
        }
    }

    Cache cache_;
    std::array<Client, 4> clients_;
    std::deque<sdp_pm_msg> wire_;
    sdp_pm_guard guard_{};
    sdp_pm_rate source_{}, all_{};
    std::map<uint8_t, Passes> passes_;
    Passes total_;
    uint16_t port_ = 0;
    uint64_t now_ = 100000, handle_ = 0, asked_at_ = 0;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    uint8_t cache = in.u8();
    World world(cache, in.u8());
    while (in.left() != 0)
        world.step(in);
    return 0;
}
