// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the scenarios share: the host under attack, and the look at what it has
 * in use before and after.
 */
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "lib/connection.hpp"
#include "lib/network.hpp"
#include "lib/resources.hpp"
#include "wire/codec.hpp"
#include "wire/stream.hpp"

namespace softwarp::fuzz {

/* Where peers connect to: the device of the namespace "peer", from this one. */
class Victim {
  public:
    explicit Victim(int backlog = 64);
    uint16_t port() const { return listener_.port(); }
    e2e::Listener &listener() { return listener_; }
    e2e::EventChannel &channel() { return channel_; }

    wire::Stream dial() const;

    struct Connection {
        wire::Stream peer;
        std::unique_ptr<e2e::Endpoint> consumer;
        wire::MpaFrame reply;
    };
    /* A connection in full operation; the peer has said nothing but its Request. */
    Connection connect(const wire::MpaFrame &request = wire::MpaFrame::request(),
                       const e2e::QpOptions &options = {});

    /* Requests that nobody waits for are refused. */
    void refuse_requests();

  private:
    e2e::EventChannel channel_;
    e2e::Listener listener_;
};

/* A fixture that wants everything back, and a device that works. */
class Hostile : public testing::Test {
  protected:
    void SetUp() override;
    void TearDown() override;

    /* Another program's connection works, now, within the usual time. */
    void expect_serves();
    uint64_t counter(const std::string &name) const;

  private:
    Resources before_;
};

} // namespace softwarp::fuzz
