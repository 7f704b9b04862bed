// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "why.hpp"

#include <fmt/core.h>
#include <softwarp_sdp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "preload/kernel.hpp"
#include "words.hpp"

namespace softwarp::tools {
namespace {

using preload::Policy;

// Indexed by enum sdp_info_reason
constexpr std::array reasons{"",       "policy",  "no_device", "no_answer",
                             "denied", "refused", "setup",     "peer"};
// Indexed by enum sdp_info_state; the words of softwarp_sdp
constexpr std::array states{"idle", "listen",  "tcp",      "hello",     "mpa",          "hello-ack",
                            "open", "closing", "half",     "peer-half", "peer-closing", "last",
                            "wait", "finish",  "aborting", "closed",    "down",         "moving"};
// Indexed by enum sdp_info_fault
constexpr std::array faults{"",           "malformed",  "mseq",      "ack",     "overrun",
                            "size",       "unexpected", "mode",      "adverts", "payload",
                            "unfinished", "resize",     "invalidate"};

// Fewer credits than this do not allow payload, section 10.5 of the draft.
constexpr std::uint64_t credits_for_payload = 3;
// net.softwarp_sdp.rx_size_max before it is changed
constexpr std::uint64_t usual_size = 135168;

template<std::size_t count>
const char *word_in(const std::array<const char *, count> &words, unsigned index) noexcept {
    return index < count ? words[index] : "?";
}

std::uint64_t setting(const Surroundings &around, const char *name, std::uint64_t otherwise) {
    const auto found = around.settings.find(name);
    return found == around.settings.end() ? otherwise : found->second;
}

std::string peer_of(const Surroundings &around) {
    if (!around.peer)
        return "the peer";
    const std::string text = preload::text_of(*around.peer).data();
    return around.peer->port != 0 ? text : text.substr(0, text.rfind(':'));
}

std::string seconds_of(std::uint64_t ms) {
    return fmt::format("{}.{} s", ms / 1000, ms % 1000 / 100);
}

void append(Sentences &to, Sentences more) {
    std::move(more.begin(), more.end(), std::back_inserter(to));
}

const Answer *known(const Surroundings &around) {
    if (!around.answers || !around.peer)
        return nullptr;
    return answer_for(*around.answers, *around.peer);
}

// Until when a remembered answer keeps connections on TCP.
Sentences on_cache(const Surroundings &around) {
    if (const Answer *answer = known(around))
        return {sentence_on(*answer)};
    if (!around.answers)
        return {"Answers of port mappers are remembered for some time; as root sdp_stat also says "
                "whether this one is."};
    return {};
}

Sentences on_device(const Surroundings &around) {
    if (!around.route)
        return {"Look at the route with ip route get, and make a device over its netdev."};
    if (around.route->error != 0)
        return {fmt::format("There is no route to {}: {}.", peer_of(around),
                            describe(around.route->error))};
    if (!around.device)
        return {fmt::format("There is none over {}; make one as root: {}", around.route->netdev,
                            add_command(around.devices, around.route->netdev))};
    if (!around.device->softwarp)
        return {fmt::format("{} over {} is not softwarp's, and the policy auto uses softwarp's "
                            "devices alone; make one as root: {}",
                            around.device->name, around.route->netdev,
                            add_command(around.devices, around.route->netdev))};
    return {fmt::format("By now {} is on the route: new connections can use SDP.",
                        around.device->name)};
}

Sentences on_policy(const Surroundings &around) {
    Sentences found;
    if (setting(around, "policy", SDP_INFO_POLICY_SDP) == SDP_INFO_POLICY_TCP)
        found.emplace_back("net.softwarp_sdp.policy is 2, so that new sockets use TCP; set it to 1 "
                           "for SDP where the peer has it.");
    found.emplace_back(
        "A rule or option of sdp_run can have said so (sdp_run --check ADDRESS:PORT "
        "PROGRAM shows the rule), or the program itself, by SDP_POLICY or because it "
        "has asked for signed segments (TCP_MD5SIG, TCP-AO), which SDP does not have.");
    return found;
}

Sentences on_peer(const Surroundings &around) {
    return {fmt::format("The client at {} decides: start it under sdp_run, and see that it has "
                        "an RDMA device on its route to this host.",
                        peer_of(around)),
            "There, sdp_run --check THIS-HOST:PORT --connect says what keeps it from SDP."};
}

// What the readings say of one direction ------------------------------------------------

bool is_short_of_credit(const Socket &socket) {
    return socket.tx_queue > 0 && socket.peer_credits < credits_for_payload;
}

// Octets that its program has taken; those in the queue have only arrived.
std::uint64_t taken(const Socket &socket) {
    return socket.rx_bcopy - std::min(socket.rx_bcopy, socket.rx_queue);
}

Sentences on_reading(const Socket &before, const Socket &after, double seconds) {
    if (before.rx_queue == 0 || after.rx_queue == 0)
        return {};
    const std::string waiting = octets(static_cast<double>(after.rx_queue));
    Sentences found;
    if (taken(before) == taken(after))
        found = {fmt::format("The program here has read nothing for {:.1f} s; {} wait for it.",
                             seconds, waiting)};
    else
        found = {fmt::format("The program here reads behind: {} wait for it.", waiting)};
    if (before.own_credits < credits_for_payload && after.own_credits < credits_for_payload)
        found.push_back(fmt::format("Of the {} receive buffers of this end only {} are free, too "
                                    "few for data: the peer cannot send until the program reads.",
                                    after.buffers, after.own_credits));
    return found;
}

Sentences on_sending(const Reading &before, const Reading &after) {
    const Socket &first = before.socket;
    const Socket &last = after.socket;
    if (first.tx_queue == 0 || last.tx_queue == 0)
        return {};
    const std::string waiting = octets(static_cast<double>(last.tx_queue));
    if (is_short_of_credit(first) && is_short_of_credit(last)) {
        if (first.tx_bcopy == last.tx_bcopy)
            return {fmt::format("The program at the peer does not read: the peer has no free "
                                "receive buffers, and {} wait here.  Look at that program.",
                                waiting)};
        return {fmt::format("The peer's receive buffers are used up again and again, so its "
                            "program sets the pace; {} wait here.",
                            waiting)};
    }
    Sentences found{fmt::format("{} wait to be sent or acknowledged although the peer has buffers "
                                "({} credits): the network or a processor sets the pace.",
                                waiting, last.peer_credits)};
    if (before.own && after.own && before.own->retransmissions && after.own->retransmissions &&
        *after.own->retransmissions > *before.own->retransmissions)
        found.push_back(fmt::format("TCP below has retransmitted {} segments meanwhile: packets "
                                    "are lost on the way.",
                                    *after.own->retransmissions - *before.own->retransmissions));
    return found;
}

Sentences on_buffers(const Reading &before, const Reading &after, const Surroundings &around) {
    Sentences found;
    const std::uint64_t most = setting(around, "rx_size_max", usual_size);
    if (after.own && after.own->send_buffer > 0 &&
        before.socket.tx_queue >= after.own->send_buffer / 2 &&
        after.socket.tx_queue >= after.own->send_buffer / 2)
        found.push_back(fmt::format("The program has limited its send buffer to {} (SO_SNDBUF), "
                                    "and that is full.",
                                    octets(static_cast<double>(after.own->send_buffer))));
    if (after.socket.rx_bcopy == before.socket.rx_bcopy)
        return found;
    if (after.own && after.own->receive_buffer > 0 && after.socket.buffer_size < most)
        found.push_back(fmt::format("Receive buffers have {} each, because the program has set "
                                    "SO_RCVBUF to {}.",
                                    octets(static_cast<double>(after.socket.buffer_size)),
                                    octets(static_cast<double>(after.own->receive_buffer))));
    else if (most < usual_size && after.socket.buffer_size >= most)
        found.push_back(fmt::format("Receive buffers have {} each, which net.softwarp_sdp."
                                    "rx_size_max allows; {} is usual.",
                                    octets(static_cast<double>(after.socket.buffer_size)),
                                    usual_size));
    return found;
}

} // namespace

const char *reason_word(unsigned reason) noexcept {
    return word_in(reasons, reason);
}

const char *state_word(unsigned state) noexcept {
    return word_in(states, state);
}

const char *mode_word(unsigned mode) noexcept {
    constexpr std::array modes{"buffered", "combined", "pipelined"};
    return mode == SDP_INFO_MODE_NONE ? "" : word_in(modes, mode);
}

const char *fault_word(unsigned fault) noexcept {
    return word_in(faults, fault);
}

std::string because(const std::string &reason) {
    const auto *found = std::find(reasons.begin() + 1, reasons.end(), reason);
    if (found == reasons.end())
        return {};
    return preload::sentence_of(static_cast<unsigned>(found - reasons.begin()));
}

Sentences remedy(const std::string &reason, const Surroundings &around) {
    Sentences found;
    if (reason == "policy")
        return on_policy(around);
    if (reason == "no_device")
        return on_device(around);
    if (reason == "peer")
        return on_peer(around);
    if (reason == "no_answer")
        found = {fmt::format("At {} nothing answers at UDP port {}: start the service under "
                             "sdp_run, or with the policy auto, load softwarp_sdp there, and let "
                             "that port pass firewalls.",
                             peer_of(around), setting(around, "pm_port", 3935))};
    else if (reason == "denied")
        found = {fmt::format("{} has a port mapper, but no SDP port for this service: start that "
                             "service under sdp_run, or with the policy auto, and see that an RDMA "
                             "device is over the netdev with that address.",
                             peer_of(around))};
    else if (reason == "refused")
        found = {"The peer had announced an SDP port at which nobody listened: the service was "
                 "just ending, or a firewall there refuses that port.  Connect again."};
    else if (reason == "setup")
        found = {"The peer had an SDP port, but SDP's set-up failed or took too long: a firewall "
                 "may pass UDP and not that TCP port, or this host has no free local port.",
                 "The counters setup_timeouts and bad_hello_ack (sdp_stat counters) tell more."};
    else
        return {};
    append(found, on_cache(around));
    return found;
}

std::string sentence_on(const Answer &answer) {
    const std::string rest = seconds_of(answer.expires_ms);
    const std::string host = answer.service.substr(0, answer.service.rfind(':'));
    if (answer.answer == "sdp")
        return fmt::format("This host remembers for {} more that {} is reached by SDP at {}.", rest,
                           answer.service, answer.sdp);
    if (answer.answer == "silent")
        return fmt::format(
            "This host remembers for {} more that {} has no port mapper; until "
            "then connections to it use TCP at once (net.softwarp_sdp.pm_silent_ms).",
            rest, host);
    return fmt::format("This host remembers for {} more that {} has no SDP; until then "
                       "connections to it use TCP at once (net.softwarp_sdp.pm_denied_ms).",
                       rest, answer.service);
}

const char *name_of(Forecast::Way way) noexcept {
    switch (way) {
    case Forecast::Way::sdp: return "sdp";
    case Forecast::Way::asked: return "asked";
    case Forecast::Way::tcp: return "tcp";
    case Forecast::Way::fails: break;
    }
    return "fails";
}

Forecast forecast(Policy policy, const Surroundings &around) {
    using Way = Forecast::Way;
    if (!around.route || around.route->error != 0) {
        Forecast found{Way::fails, {"A new connection fails."}};
        append(found.sentences, on_device(around));
        return found;
    }
    if (policy == Policy::tcp)
        return {Way::tcp, {"A new connection uses TCP, because the policy allows nothing else."}};
    if (!around.device || (!around.device->softwarp && policy == Policy::automatic)) {
        Forecast found{Way::tcp,
                       {"A new connection uses TCP, because there is no RDMA device "
                        "of softwarp on the route."}};
        if (policy == Policy::sdp)
            found = {Way::fails,
                     {"A new connection fails, because the policy is sdp and there is "
                      "no RDMA device on the route."}};
        append(found.sentences, on_device(around));
        return found;
    }
    const std::string way =
        fmt::format("{} on the route by {}", around.device->name, around.route->netdev);
    if (policy == Policy::sdp)
        return {Way::sdp, {fmt::format("A new connection uses SDP over {}, or fails.", way)}};
    const Answer *answer = known(around);
    if (answer == nullptr) {
        Forecast found{Way::asked,
                       {fmt::format("A new connection asks {} whether it has SDP, and then uses {} "
                                    "or TCP; sdp_run --check ADDRESS:PORT --connect tries.",
                                    peer_of(around), way)}};
        append(found.sentences, on_cache(around));
        return found;
    }
    if (answer->answer == "sdp")
        return {Way::sdp,
                {fmt::format("A new connection uses SDP over {}.", way), sentence_on(*answer)}};
    const std::string reason = answer->answer == "silent" ? "no_answer" : "denied";
    Forecast found{Way::tcp,
                   {fmt::format("A new connection uses TCP, because {}.", because(reason))}};
    append(found.sentences, remedy(reason, around));
    return found;
}

Sentences what_slows(const Reading &before, const Reading &after, double seconds,
                     const Surroundings &around) {
    const Socket &first = before.socket;
    const Socket &last = after.socket;
    Sentences found;
    if (last.kind() == Socket::Kind::tcp) {
        if (first.rx_queue > 0 && last.rx_queue > 0)
            found.push_back(fmt::format("{} wait for the program here to read them.",
                                        octets(static_cast<double>(last.rx_queue))));
        if (first.tx_queue > 0 && last.tx_queue > 0)
            found.push_back(fmt::format("{} wait to be sent or acknowledged; ss -ti shows what "
                                        "TCP waits for.",
                                        octets(static_cast<double>(last.tx_queue))));
        return found;
    }
    if (!last.is_connected() || !first.is_connected())
        return {};
    append(found, on_reading(first, last, seconds));
    append(found, on_sending(before, after));
    append(found, on_buffers(before, after, around));
    if (found.empty())
        found.emplace_back("Nothing waits at this end: neither octets to be read nor octets to be "
                           "sent, in both readings.");
    return found;
}

std::string octets(double count) {
    constexpr std::array units{"kB", "MB", "GB", "TB"};
    if (count < 1000)
        return fmt::format("{:.0f} octets", count);
    std::size_t unit = 0;
    for (count /= 1000; count >= 999.95 && unit + 1 < units.size(); ++unit)
        count /= 1000;
    return fmt::format("{:.1f} {}", count, units[unit]);
}

} // namespace softwarp::tools
