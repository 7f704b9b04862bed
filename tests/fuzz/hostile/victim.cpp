// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "hostile/victim.hpp"

#include <fmt/format.h>

namespace softwarp::fuzz {

using e2e::config;
using e2e::Deadline;
using e2e::milliseconds;

Victim::Victim(int backlog) : listener_(channel_, config().peer_ns, config().peer_addr4, backlog) {}

wire::Stream Victim::dial() const {
    return wire::Stream("", config().peer_addr4, listener_.port());
}

Victim::Connection Victim::connect(const wire::MpaFrame &request, const e2e::QpOptions &options) {
    wire::Stream peer = dial();
    peer.say(request.bytes());
    e2e::CmEvent event = channel_.expect(listener_.id(), RDMA_CM_EVENT_CONNECT_REQUEST);
    auto consumer = std::make_unique<e2e::Endpoint>(channel_, e2e::CmId(event.id), options);
    e2e::accept(*consumer);
    wire::MpaFrame reply = peer.hear_frame();
    consumer->expect(RDMA_CM_EVENT_ESTABLISHED);
    return {std::move(peer), std::move(consumer), std::move(reply)};
}

void Victim::refuse_requests() {
    while (auto event = channel_.try_next(listener_.id(), Deadline(milliseconds(0)))) {
        rdma_reject(event->id, nullptr, 0);
        rdma_destroy_id(event->id);
    }
}

void Hostile::SetUp() {
    before_ = Resources::now();
}

void Hostile::TearDown() {
    EXPECT_EQ(left_over(before_, 30), "");
    e2e::ShellResult result =
        e2e::shell(fmt::format("rping=tests/e2e/rping.sh;"
                               "ip netns exec {0} $rping -s -a {1} -p 7199 & server=$!;"
                               "for try in $(seq 100); do"
                               "  if $rping -c -a {1} -p 7199 -C 5 -V; then wait $server; exit; fi;"
                               "  sleep 0.1;"
                               "done; kill $server; exit 1",
                               config().peer_ns, config().peer_addr4),
                   Deadline(milliseconds(30000)));
    EXPECT_EQ(result.status, 0) << "rping: " << result.output;
}

void Hostile::expect_serves() {
    e2e::expect_route_works();
}

uint64_t Hostile::counter(const std::string &name) const {
    return e2e::counters(config().peer_dev)[name];
}

} // namespace softwarp::fuzz
