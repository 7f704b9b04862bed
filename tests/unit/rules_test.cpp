// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//
// The language of libsdp.conf: each construct, each error and where it is.  The first
// examples are those that libsdp's own documentation explains.
#include "rules.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace softwarp::preload;

Endpoint at(const std::string &text) {
    const std::optional<Endpoint> endpoint = endpoint_of(text);
    EXPECT_TRUE(endpoint) << text;
    return endpoint.value_or(Endpoint{});
}

Rules rules_of(const std::string &text) {
    Rules rules;
    for (const Error &error : rules.add(text, "f"))
        ADD_FAILURE() << error.text();
    return rules;
}

// The policy that a program gets, "-" without a rule.
std::string found(const Rules &rules, Role role, const std::string &program,
                  const std::string &endpoint) {
    const Rule *rule = rules.find(role, program, at(endpoint));
    return rule != nullptr ? name_of(rule->policy) : "-";
}

std::string server(const std::string &text, const std::string &endpoint,
                   const std::string &program = "p") {
    return found(rules_of(text), Role::server, program, endpoint);
}

std::string client(const std::string &text, const std::string &endpoint,
                   const std::string &program = "p") {
    return found(rules_of(text), Role::client, program, endpoint);
}

// The one error of a text.
std::string wrong(const std::string &text) {
    Rules rules;
    const std::vector<Error> errors = rules.add(text, "f");
    EXPECT_EQ(errors.size(), 1U) << text;
    EXPECT_TRUE(rules.rules().empty());
    return errors.empty() ? "" : errors.front().text();
}

} // namespace

TEST(Rules, SubnetOfClients) {
    const std::string text = "use sdp connect * 192.168.1.0/24:*";
    EXPECT_EQ(client(text, "192.168.1.77:80"), "sdp");
    EXPECT_EQ(client(text, "192.168.2.1:80"), "-");
    EXPECT_EQ(server(text, "192.168.1.77:80"), "-");
    EXPECT_EQ(client(text, "[fd00::1]:80"), "-");
}

TEST(Rules, SubnetOfIpv6) {
    const std::string text = "use sdp connect * 1234:5678::0/64:*";
    EXPECT_EQ(client(text, "[1234:5678::99]:80"), "sdp");
    EXPECT_EQ(client(text, "[1234:5678:0:1::99]:80"), "-");
    EXPECT_EQ(client(text, "18.52.86.120:80"), "-");
}

TEST(Rules, PortOfServers) {
    const std::string text = "use sdp listen ttcp *:5001";
    EXPECT_EQ(server(text, "0.0.0.0:5001", "ttcp"), "sdp");
    EXPECT_EQ(server(text, "[::]:5001", "ttcp"), "sdp");
    EXPECT_EQ(server(text, "0.0.0.0:5002", "ttcp"), "-");
    EXPECT_EQ(server(text, "0.0.0.0:5001", "nttcp"), "-");
}

TEST(Rules, RangeOfPorts) {
    const std::string text = "use tcp server ttcp* *:22-25";
    EXPECT_EQ(server(text, "10.0.0.1:21", "ttcp"), "-");
    EXPECT_EQ(server(text, "10.0.0.1:22", "ttcp"), "tcp");
    EXPECT_EQ(server(text, "10.0.0.1:25", "ttcp6"), "tcp");
    EXPECT_EQ(server(text, "10.0.0.1:26", "ttcp"), "-");
}

TEST(Rules, BothIsAuto) {
    EXPECT_EQ(server("use both server * *:8080", "10.0.0.1:8080"), "auto");
    EXPECT_EQ(client("use both connect * 11.4.8.0/24:22", "11.4.8.255:22"), "auto");
}

TEST(Rules, FirstMatchWins) {
    const std::string text = "use tcp client * *:22\nuse sdp client * *:*\nuse both client * *:*\n";
    EXPECT_EQ(client(text, "10.0.0.1:22"), "tcp");
    EXPECT_EQ(client(text, "10.0.0.1:23"), "sdp");
}

TEST(Rules, WithoutProgramForAll) {
    EXPECT_EQ(client("use sdp client *:80", "10.0.0.1:80", "any"), "sdp");
}

TEST(Rules, CommentsAndBlanks) {
    const Rules rules = rules_of("# first\n\n \t \n\tuse\ttcp server\tp 10.0.0.1:1 # why\r\n"
                                 "use sdp client *:*#\nuse both client *:*");
    ASSERT_EQ(rules.rules().size(), 3U);
    EXPECT_EQ(rules.rules()[0].where, "f:4");
    EXPECT_EQ(rules.rules()[0].text, "use tcp server p 10.0.0.1:1");
    EXPECT_EQ(rules.rules()[2].where, "f:6");
}

TEST(Rules, EmptyText) {
    EXPECT_TRUE(rules_of("").rules().empty());
    EXPECT_TRUE(rules_of("\n").rules().empty());
}

TEST(Rules, Addresses) {
    EXPECT_EQ(client("use sdp client 10.1.2.3:*", "10.1.2.3:9"), "sdp");
    EXPECT_EQ(client("use sdp client 10.1.2.3:*", "10.1.2.4:9"), "-");
    EXPECT_EQ(client("use sdp client 10.1.2.3/32:*", "10.1.2.3:9"), "sdp");
    EXPECT_EQ(client("use sdp client 10.128.0.0/9:*", "10.200.2.3:9"), "sdp");
    EXPECT_EQ(client("use sdp client 10.128.0.0/9:*", "10.127.2.3:9"), "-");
    // bits behind the prefix have no meaning
    EXPECT_EQ(client("use sdp client 10.1.2.3/8:*", "10.200.2.3:9"), "sdp");
    EXPECT_EQ(client("use sdp client 0.0.0.0/0:*", "10.200.2.3:9"), "sdp");
    EXPECT_EQ(client("use sdp client 0.0.0.0/0:*", "[::1]:9"), "-");
    EXPECT_EQ(client("use sdp client ::/0:*", "[::1]:9"), "sdp");
    EXPECT_EQ(client("use sdp client ::1:*", "[::1]:9"), "sdp");
    EXPECT_EQ(client("use sdp client [::1]:9", "[::1]:9"), "sdp");
    EXPECT_EQ(client("use sdp client [fd00::]/8:9", "[fd12::1]:9"), "sdp");
    EXPECT_EQ(client("use sdp client [fd00::/8]:9", "[fd12::1]:9"), "sdp");
    EXPECT_EQ(client("use sdp client [fd00::/7]:9", "[fc12::1]:9"), "sdp");
    EXPECT_EQ(client("use sdp client fd00::1/128:*", "[fd00::2]:9"), "-");
    EXPECT_EQ(client("use sdp client fd00::1/127:*", "[fd00::]:9"), "sdp");
}

// A dual-stack program says ::ffff:10.0.0.1 where others say 10.0.0.1.
TEST(Rules, MappedAddressesAreIpv4) {
    EXPECT_EQ(client("use sdp client 10.0.0.0/8:*", "[::ffff:10.1.2.3]:9"), "sdp");
    EXPECT_EQ(client("use sdp client ::ffff:10.0.0.0/104:*", "10.1.2.3:9"), "sdp");
    EXPECT_EQ(client("use sdp client ::ffff:10.0.0.0/104:*", "11.1.2.3:9"), "-");
    // The prefix ends before the IPv4 address: it is one of IPv6.
    EXPECT_EQ(client("use sdp client ::/80:*", "[::1]:9"), "sdp");
    EXPECT_EQ(client("use sdp client ::ffff:0:0/95:*", "10.1.2.3:9"), "-");
}

TEST(Rules, SocketAddresses) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(80);
    inet_pton(AF_INET, "10.1.2.3", &v4.sin_addr);
    const auto *address = reinterpret_cast<const sockaddr *>(&v4);
    EXPECT_STREQ(text_of(Endpoint::of(address, sizeof(v4)).value()).data(), "10.1.2.3:80");
    EXPECT_FALSE(Endpoint::of(address, sizeof(v4) - 1));
    EXPECT_FALSE(Endpoint::of(nullptr, sizeof(v4)));
    EXPECT_FALSE(Endpoint::of(address, 1));
    v4.sin_family = AF_UNSPEC;
    EXPECT_FALSE(Endpoint::of(address, sizeof(v4)));
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(81);
    inet_pton(AF_INET6, "fd00::1", &v6.sin6_addr);
    const auto *address6 = reinterpret_cast<const sockaddr *>(&v6);
    EXPECT_STREQ(text_of(Endpoint::of(address6, sizeof(v6)).value()).data(), "[fd00::1]:81");
    // RFC 2133 had no scope, and the kernel still takes such an address.
    EXPECT_TRUE(Endpoint::of(address6, 24));
    EXPECT_FALSE(Endpoint::of(address6, 23));
    inet_pton(AF_INET6, "::ffff:10.1.2.3", &v6.sin6_addr);
    EXPECT_STREQ(text_of(Endpoint::of(address6, sizeof(v6)).value()).data(), "10.1.2.3:81");
}

// A listener without a port yet matches only rules for all ports.
TEST(Rules, PortThatIsNotKnown) {
    const Rules rules = rules_of("use sdp server *:1-65535\nuse tcp server *:*");
    const Rule *rule = rules.find(Role::server, "p", Endpoint{});
    ASSERT_NE(rule, nullptr);
    EXPECT_EQ(rule->policy, Policy::tcp);
}

TEST(Rules, Wildcards) {
    EXPECT_TRUE(matches("*", ""));
    EXPECT_TRUE(matches("", ""));
    EXPECT_FALSE(matches("", "a"));
    EXPECT_TRUE(matches("db2*", "db2"));
    EXPECT_TRUE(matches("db2*", "db2sysc"));
    EXPECT_FALSE(matches("db2*", "db"));
    EXPECT_TRUE(matches("t?cp", "ttcp"));
    EXPECT_FALSE(matches("t?cp", "tcp"));
    EXPECT_TRUE(matches("*a*b", "xaabab"));
    EXPECT_FALSE(matches("*a*b", "xaaba"));
    EXPECT_TRUE(matches("a**?", "ab"));
    EXPECT_FALSE(matches("a**?", "a"));
    EXPECT_FALSE(matches("[ab]", "a"));
    // what takes forever if each * tries everything behind it
    EXPECT_FALSE(matches("*a*a*a*a*a*a*a*a*a*a*b", std::string(5000, 'a')));
}

TEST(Rules, InlineSeparator) {
    Rules rules;
    const std::vector<Error> errors =
        rules.add("use tcp client *:22; use sdp client *:*;use what", "SDP_RULES", ';');
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_EQ(errors.front().text(), "SDP_RULES:1:45: \"what\" is not a family: sdp, tcp or both");
    ASSERT_EQ(rules.rules().size(), 2U);
    EXPECT_EQ(found(rules, Role::client, "p", "10.0.0.1:22"), "tcp");
}

TEST(Rules, OneErrorForEachStatement) {
    Rules rules;
    const std::vector<Error> errors = rules.add("use\nuse sdp client *:*\nlgo\n", "f");
    ASSERT_EQ(errors.size(), 2U);
    EXPECT_EQ(errors[0].line, 1U);
    EXPECT_EQ(errors[1].line, 3U);
    EXPECT_EQ(rules.rules().size(), 1U);
}

TEST(RulesErrors, Statement) {
    EXPECT_EQ(wrong("\n  match sdp"),
              "f:2:3: \"match\" is not a statement; write \"use\" or \"log\"");
}

TEST(RulesErrors, Family) {
    EXPECT_EQ(wrong("use udp client *:*"), "f:1:5: \"udp\" is not a family: sdp, tcp or both");
    EXPECT_EQ(wrong("use  # sdp"),
              "f:1:4: the statement ends where a family: sdp, tcp or both is expected");
}

TEST(RulesErrors, Role) {
    EXPECT_EQ(wrong("use sdp peer *:*"),
              "f:1:9: \"peer\" is not a role: server (or listen), client (or connect)");
    EXPECT_EQ(wrong("use sdp"), "f:1:8: the statement ends where a role: server (or listen), "
                                "client (or connect) is expected");
}

TEST(RulesErrors, Place) {
    EXPECT_EQ(wrong("use sdp client"), "f:1:15: the statement ends where ADDRESS:PORT is expected");
    EXPECT_EQ(wrong("use sdp client p"),
              "f:1:16: \"p\" has no port; write ADDRESS:PORT, or *:* for all");
    EXPECT_EQ(wrong("use sdp client p [::1]"),
              "f:1:18: \"[::1]\" has no port; write ADDRESS:PORT, or *:* for all");
    EXPECT_EQ(wrong("use sdp client p *:* q"), "f:1:22: nothing may follow ADDRESS:PORT");
}

TEST(RulesErrors, Address) {
    EXPECT_EQ(wrong("use sdp client p 10.0.0:80"), "f:1:18: \"10.0.0\" is not an address; write "
                                                   "*, an IPv4 or an IPv6 address");
    EXPECT_EQ(wrong("use sdp client p host:80"), "f:1:18: \"host\" is not an address; write *, "
                                                 "an IPv4 or an IPv6 address");
    EXPECT_EQ(wrong("use sdp client p :80"),
              "f:1:18: \"\" is not an address; write *, an IPv4 or an IPv6 address");
    EXPECT_EQ(wrong("use sdp client p [fg::]:80"), "f:1:19: \"fg::\" is not an address; write *, "
                                                   "an IPv4 or an IPv6 address");
    EXPECT_EQ(wrong("use sdp client p [::1:80"), "f:1:18: the bracket [ is not closed");
    EXPECT_EQ(wrong("use sdp client p [::1]x:80"), "f:1:23: only / and a prefix may follow the ]");
}

TEST(RulesErrors, Prefix) {
    EXPECT_EQ(wrong("use sdp client p 10.0.0.0/33:80"),
              "f:1:27: \"33\" is not a length of a prefix; write 0 to 32");
    EXPECT_EQ(wrong("use sdp client p fd00::/129:80"),
              "f:1:25: \"129\" is not a length of a prefix; write 0 to 128");
    EXPECT_EQ(wrong("use sdp client p 10.0.0.0/:80"),
              "f:1:27: \"\" is not a length of a prefix; write 0 to 32");
    EXPECT_EQ(wrong("use sdp client p 10.0.0.0/-1:80"),
              "f:1:27: \"-1\" is not a length of a prefix; write 0 to 32");
    EXPECT_EQ(wrong("use sdp client p [fd00::/8]/8:80"), "f:1:29: there is a prefix already");
}

TEST(RulesErrors, Ports) {
    const std::string tail = "\" is not a port; write *, N or N-M, with numbers from 1 to 65535";
    EXPECT_EQ(wrong("use sdp client p *:0"), "f:1:20: \"0" + tail);
    EXPECT_EQ(wrong("use sdp client p *:65536"), "f:1:20: \"65536" + tail);
    EXPECT_EQ(wrong("use sdp client p *:http"), "f:1:20: \"http" + tail);
    EXPECT_EQ(wrong("use sdp client p *:"), "f:1:20: \"" + tail);
    EXPECT_EQ(wrong("use sdp client p *:80-"), "f:1:23: \"" + tail);
    EXPECT_EQ(wrong("use sdp client p *:80-x"), "f:1:23: \"x" + tail);
    EXPECT_EQ(wrong("use sdp client p *:80-70"), "f:1:20: the range of ports 80-70 is empty: its "
                                                 "first port is greater than its last");
}

TEST(RulesLog, Settings) {
    Rules rules = rules_of("log min-level 7 destination file libsdp.log");
    EXPECT_EQ(rules.log().min_level, 7);
    EXPECT_EQ(rules.log().destination, LogSettings::Destination::file);
    EXPECT_EQ(rules.log().file, "libsdp.log");
    EXPECT_TRUE(rules.add("log destination stderr\nlog min-level 1", "f").empty());
    EXPECT_EQ(rules.log().min_level, 1);
    EXPECT_EQ(rules.log().destination, LogSettings::Destination::standard_error);
    EXPECT_TRUE(rules.add_log("destination syslog", "SDP_LOG").empty());
    EXPECT_EQ(rules.log().min_level, 1);
    EXPECT_EQ(rules.log().destination, LogSettings::Destination::system);
}

TEST(RulesLog, Defaults) {
    const Rules rules;
    EXPECT_EQ(rules.log().min_level, 9);
    EXPECT_EQ(rules.log().destination, LogSettings::Destination::standard_error);
}

TEST(RulesLog, Errors) {
    EXPECT_EQ(wrong("log"),
              "f:1:4: the statement ends where \"destination\" or \"min-level\" is expected");
    EXPECT_EQ(wrong("log level 7"), "f:1:5: \"level\" is not \"destination\" or \"min-level\"");
    EXPECT_EQ(wrong("log min-level 0"), "f:1:15: \"0\" is not a level, 1 to 9");
    EXPECT_EQ(wrong("log min-level 10"), "f:1:15: \"10\" is not a level, 1 to 9");
    EXPECT_EQ(wrong("log min-level"),
              "f:1:14: the statement ends where a level, 1 to 9 is expected");
    EXPECT_EQ(wrong("log destination here"),
              "f:1:17: \"here\" is not a destination: stderr, syslog or file NAME");
    EXPECT_EQ(wrong("log destination file"),
              "f:1:21: the statement ends where the name of a file is expected");
    Rules rules;
    EXPECT_EQ(rules.add_log("min-level x", "SDP_LOG").at(0).text(),
              "SDP_LOG:1:11: \"x\" is not a level, 1 to 9");
    EXPECT_EQ(rules.add("log destination syslog min-level x", "f").size(), 1U);
    // an error changes nothing
    EXPECT_EQ(rules.log().destination, LogSettings::Destination::standard_error);
}

// Whether it is worth while to make SDP sockets for a program at all.
TEST(RulesReach, MayUseSdp) {
    EXPECT_TRUE(Rules{}.may_use_sdp("p", Policy::automatic));
    EXPECT_FALSE(Rules{}.may_use_sdp("p", Policy::tcp));
    const std::string both = "use tcp server *:*\nuse tcp client *:*\n";
    EXPECT_FALSE(rules_of(both + "use sdp client *:*").may_use_sdp("p", Policy::sdp));
    EXPECT_TRUE(rules_of("use sdp client q *:*\n" + both).may_use_sdp("q", Policy::automatic));
    EXPECT_FALSE(rules_of("use sdp client q *:*\n" + both).may_use_sdp("p", Policy::automatic));
    EXPECT_TRUE(rules_of("use tcp server *:*").may_use_sdp("p", Policy::automatic));
    EXPECT_FALSE(rules_of("use tcp server *:*").may_use_sdp("p", Policy::tcp));
    EXPECT_TRUE(
        rules_of("use tcp server *:80\nuse tcp client *:80").may_use_sdp("p", Policy::automatic));
    EXPECT_TRUE(rules_of("use both server 10.0.0.1:80").may_use_sdp("p", Policy::tcp));
}

TEST(RulesNames, Policies) {
    for (const Policy policy : {Policy::sdp, Policy::automatic, Policy::tcp})
        EXPECT_EQ(policy_of(name_of(policy)), policy);
    EXPECT_FALSE(policy_of("both"));
    EXPECT_FALSE(policy_of(""));
}

TEST(RulesNames, Endpoints) {
    EXPECT_STREQ(text_of(at("10.0.0.1:80")).data(), "10.0.0.1:80");
    EXPECT_STREQ(text_of(at("[fd00::1]:80")).data(), "[fd00::1]:80");
    EXPECT_STREQ(text_of(at("fd00::1:80")).data(), "[fd00::1]:80");
    EXPECT_STREQ(text_of(at("[::ffff:10.0.0.1]:80")).data(), "10.0.0.1:80");
    for (const char *text : {"", "10.0.0.1", "10.0.0.1:*", "*:80", "10.0.0.1:80-81",
                             "10.0.0.0/8:80", "host:80", "10.0.0.1:0"})
        EXPECT_FALSE(endpoint_of(text)) << text;
}
