// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Files of rules, which users write: octets 0 to 18 of the input are an address of
 * IPv4 or IPv6 and a port, the rest is the file.
 */
#include "input.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rules.hpp"

using softwarp::fuzz::Exact;
using softwarp::fuzz::Input;
using namespace softwarp::preload;

namespace {

Endpoint endpoint_from(Input &in) {
    Endpoint endpoint;
    endpoint.v6 = (in.u8() & 1) != 0;
    for (size_t i = 0; i < endpoint.address.size(); i++) {
        uint8_t octet = in.u8();
        if (endpoint.v6 || i < 4)
            endpoint.address[i] = octet;
    }
    endpoint.port = in.u16();
    return endpoint;
}

/* An error is at a place that the text has, and a line has one at most. */
void check_errors(std::string_view text, const std::vector<Error> &errors) {
    size_t line = 1;
    for (const Error &error : errors) {
        CHECK(error.line >= line && error.column > 0 && !error.sentence.empty());
        for (; line < error.line; line++) {
            CHECK(text.find('\n') != std::string_view::npos);
            text.remove_prefix(text.find('\n') + 1);
        }
        const size_t end = std::min(text.find('\n'), text.size());
        CHECK(error.column <= end + 1);
        text.remove_prefix(std::min(end + 1, text.size()));
        line++;
    }
}

/* What is kept of a rule is the rule: read again it matches the same. */
void check_rule(const Rule &rule, const Endpoint &endpoint) {
    Rules again;
    CHECK(again.add(rule.text, "again").empty());
    CHECK(again.rules().size() == 1);
    const Rule &same = again.rules().front();
    CHECK(same.policy == rule.policy && same.role == rule.role && same.program == rule.program);
    CHECK(same.network.has(endpoint) == rule.network.has(endpoint));
    CHECK(same.ports.has(endpoint.port) == rule.ports.has(endpoint.port));
    CHECK(rule.network.prefix <= (rule.network.v6 ? 128U : 32U));
    CHECK(rule.ports.any || (rule.ports.first > 0 && rule.ports.first <= rule.ports.last));
    /* its own network has the address that it is written with */
    CHECK(rule.network.any ||
          rule.network.has({rule.network.v6, rule.network.address, endpoint.port}));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    const Endpoint endpoint = endpoint_from(in);
    const Exact octets(in.rest(), in.left());
    const std::string_view text(reinterpret_cast<const char *>(octets.get()), octets.size());

    Rules rules;
    check_errors(text, rules.add(text, "f"));
    for (const Rule &rule : rules.rules())
        check_rule(rule, endpoint);
    const Rule *found = rules.find(Role::client, "program", endpoint);
    if (found != nullptr && found->policy != Policy::tcp)
        CHECK(rules.may_use_sdp("program", Policy::tcp));
    CHECK(rules.log().min_level >= 1 && rules.log().min_level <= 9);

    /* a name is matched by itself, unless it has wildcards */
    CHECK(text.find_first_of("*?") != std::string_view::npos || matches(text, text));
    CHECK(matches("*", text));
    const std::optional<Endpoint> written = endpoint_of(text_of(endpoint).data());
    CHECK(endpoint.port == 0 || written);
    if (std::optional<Endpoint> read = endpoint_of(std::string(text)))
        CHECK(text_of(*read) == text_of(*endpoint_of(text_of(*read).data())));
    return 0;
}
