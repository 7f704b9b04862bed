// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Frames as values: MPA Request and Reply, FPDUs with pad, CRC and markers, DDP
 * segments and RDMAP headers.  Written from the RFCs and sharing nothing with
 * the kernel's code, so that the two have to agree.  What is built may be as
 * illegal as a test wants it; what is parsed is taken apart without judgement,
 * the caller compares.
 */
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace softwarp::wire {

using Bytes = std::vector<uint8_t>;
using View = std::span<const uint8_t>;

/* Octets ------------------------------------------------------------------ */

/* CRC32c (RFC 5044 s. 4.4), from its definition. */
uint32_t crc32c(View data);

/* Network byte order; get* throw e2e::Failure beyond the end. */
void put16(Bytes &to, uint16_t value);
void put32(Bytes &to, uint32_t value);
void put64(Bytes &to, uint64_t value);
uint16_t get16(View from, size_t at);
uint32_t get32(View from, size_t at);
uint64_t get64(View from, size_t at);

void append(Bytes &to, View what);
Bytes join(std::initializer_list<View> parts);
/* Octets in hex, groups of four, cut after `limit`. */
std::string hex(View octets, size_t limit = 96);

/* MPA start-up, RFC 5044 s. 7.1 and RFC 6581 ss. 6 and 9 ------------------- */

constexpr uint8_t kMpaMarkers = 0x80;  // M
constexpr uint8_t kMpaCrc = 0x40;      // C
constexpr uint8_t kMpaReject = 0x20;   // R
constexpr uint8_t kMpaEnhanced = 0x10; // S
constexpr size_t kMpaKey = 16;
constexpr size_t kMpaHeader = 20;
constexpr size_t kMpaPrivateMax = 512;
constexpr uint16_t kDepthNone = 0x3fff; // IRD or ORD left to the ULP

/* The kinds of RTR, by their flags in the enhanced data. */
enum Rtr : unsigned {
    kRtrNone = 0,
    kRtrSend = 1,  // B
    kRtrWrite = 2, // C
    kRtrRead = 4,  // D
    kRtrAll = 7,
};

/* The enhanced data, RFC 6581 s. 9. */
struct Enhanced {
    uint16_t ird = 0; // 14 bits
    uint16_t ord = 0;
    bool p2p = false; // A
    unsigned rtr = kRtrNone;

    Bytes bytes() const;
    static Enhanced parse(View octets); // at least 4
    bool operator==(const Enhanced &) const = default;
};

extern const std::string kRequestKey;
extern const std::string kReplyKey;

struct MpaFrame {
    std::string key = kRequestKey;
    uint8_t flags = kMpaCrc; // all of octet 16; S is added when there are enhanced data
    uint8_t revision = 1;
    std::optional<Enhanced> enhanced = {};
    Bytes private_data = {};                // behind the enhanced data
    std::optional<uint16_t> pd_length = {}; // a lie about the length, when set

    static MpaFrame request(uint8_t flags = kMpaCrc, uint8_t revision = 1, Bytes private_data = {});
    static MpaFrame reply(uint8_t flags = kMpaCrc, uint8_t revision = 1, Bytes private_data = {});
    static MpaFrame enhanced_request(const Enhanced &data, uint8_t flags = kMpaCrc,
                                     Bytes private_data = {});
    static MpaFrame enhanced_reply(const Enhanced &data, uint8_t flags = kMpaCrc,
                                   Bytes private_data = {});

    Bytes bytes() const;
    /* Whole frames only; enhanced data are looked for when revision >= 2 and S is set. */
    static MpaFrame parse(View octets);
    bool has(uint8_t flag) const { return (flags & flag) != 0; }
};

/* Shorthand of tests that compare octets. */
Bytes mpa_frame(bool reply, uint8_t flags, uint8_t revision, const Bytes &private_data = {});

/* DDP and RDMAP, RFC 5041 s. 4, RFC 5040 s. 4, RFC 7306 ss. 4 to 6 ----------- */

enum Opcode : uint8_t {
    kOpWrite = 0,
    kOpReadRequest = 1,
    kOpReadResponse = 2,
    kOpSend = 3,
    kOpSendInvalidate = 4,
    kOpSendSolicited = 5,
    kOpSendSolicitedInvalidate = 6,
    kOpTerminate = 7,
    /* RFC 7306 s. 4.1 */
    kOpImmediate = 8,
    kOpImmediateSolicited = 9,
    kOpAtomicRequest = 10,
    kOpAtomicResponse = 11,
};

constexpr uint8_t kDdpTagged = 0x80;
constexpr uint8_t kDdpLast = 0x40;
constexpr uint8_t kDdpVersion = 0x01;
constexpr uint8_t kRdmapVersion = 0x40;
constexpr size_t kUntaggedHeader = 18;
constexpr size_t kTaggedHeader = 14;
constexpr size_t kReadHeader = 28;
constexpr size_t kAtomicRequest = 52;
constexpr size_t kAtomicResponse = 12;
constexpr size_t kImmediate = 8;

/* Segments to send; the two control octets are what the test says. */
struct Untagged {
    uint8_t ddp = kDdpLast | kDdpVersion;
    uint8_t rdmap = kRdmapVersion | kOpSend;
    uint32_t invalidate = 0;
    uint32_t qn = 0;
    uint32_t msn = 1;
    uint32_t mo = 0;
    Bytes payload = {};
    Bytes bytes() const;
};

struct Tagged {
    uint8_t ddp = kDdpTagged | kDdpLast | kDdpVersion;
    uint8_t rdmap = kRdmapVersion | kOpWrite;
    uint32_t stag = 0;
    uint64_t to = 0;
    Bytes payload = {};
    Bytes bytes() const;
};

/* The header of a Read Request, payload of an untagged segment of QN 1. */
struct ReadRequest {
    uint32_t sink_stag = 0;
    uint64_t sink_to = 0;
    uint32_t size = 0;
    uint32_t src_stag = 0;
    uint64_t src_to = 0;

    Bytes header() const;
    /* The whole segment. */
    Bytes bytes(uint32_t msn = 1) const;
    static ReadRequest parse(View header); // 28 octets
    bool operator==(const ReadRequest &) const = default;
};

/* RFC 7306 s. 5.2.1 */
enum AtomicOpcode : uint32_t {
    kFetchAdd = 0,
    kCmpSwap = 2,
};

/* Payload of an untagged segment of QN 1, like a Read Request. */
struct AtomicRequest {
    uint32_t opcode = kFetchAdd; // the reserved 28 bits in front of it included
    uint32_t id = 0;
    uint32_t stag = 0;
    uint64_t to = 0;
    uint64_t data = 0; // to add, or to swap in
    uint64_t mask = 0;
    uint64_t compare = 0;
    uint64_t compare_mask = ~uint64_t{0};

    /* Plain forms: no carry ends but at the top; all bits are compared and swapped. */
    static AtomicRequest fetch_add(uint32_t id, uint32_t stag, uint64_t to, uint64_t add);
    static AtomicRequest cmp_swap(uint32_t id, uint32_t stag, uint64_t to, uint64_t compare,
                                  uint64_t swap);

    Bytes payload() const;
    /* The whole segment. */
    Bytes bytes(uint32_t msn = 1) const;
    static AtomicRequest parse(View payload); // 52 octets
    bool operator==(const AtomicRequest &) const = default;
};

/* Payload of an untagged segment of QN 3. */
struct AtomicResponse {
    uint32_t id = 0;
    uint64_t value = 0; // what was there before

    Bytes payload() const;
    Bytes bytes(uint32_t msn = 1) const;
    static AtomicResponse parse(View payload); // 12 octets
    bool operator==(const AtomicResponse &) const = default;
};

/* Payload of an untagged segment of QN 0. */
struct Immediate {
    uint32_t value = 0; // what the verbs show of it
    uint32_t rest = 0;
    bool solicited = false;

    Bytes payload() const;
    Bytes bytes(uint32_t msn = 1) const;
    static Immediate parse(View payload); // 8 octets
    bool operator==(const Immediate &) const = default;
};

/* A segment that came, whatever it holds. */
struct Segment {
    uint8_t ddp = 0;
    uint8_t rdmap = 0;
    uint32_t stag = 0; // tagged
    uint64_t to = 0;
    uint32_t invalidate = 0; // untagged
    uint32_t qn = 0;
    uint32_t msn = 0;
    uint32_t mo = 0;
    Bytes payload;

    bool tagged() const { return (ddp & kDdpTagged) != 0; }
    bool last() const { return (ddp & kDdpLast) != 0; }
    uint8_t opcode() const { return rdmap & 0x0f; }
    std::string text() const;
    /* Throws e2e::Failure when the ULPDU is shorter than its header. */
    static Segment parse(View ulpdu);
};

/* Terminate, RFC 5040 s. 4.8; the payload of an untagged segment of QN 2. */
struct Terminate {
    uint8_t layer = 0;
    uint8_t etype = 0;
    uint8_t code = 0;
    bool m = false;         // the segment length is valid
    bool d = false;         // length and DDP header are there
    bool r = false;         // Read Request header is there
    uint16_t reserved = 0;  // 13 bits
    uint16_t length = 0;    // of the segment that failed
    Bytes ddp_header = {};  // its header
    Bytes rdma_header = {}; // its Read Request header
    Bytes rest = {};        // octets that do not belong

    Bytes payload() const;
    /* The whole segment. */
    Bytes bytes() const;
    std::string text() const; // "1/2/0x05 M D" and so on
    static Terminate parse(View payload);
};

/* FPDUs, RFC 5044 s. 4 ------------------------------------------------------ */

enum class Crc {
    good,
    bad,  // one bit off
    zero, // as if the sender cared for none
};

struct FpduSpec {
    Bytes ulpdu = {};
    Crc crc = Crc::good;
    std::optional<Bytes> pad = {};       // instead of as many zero octets as needed
    std::optional<uint16_t> length = {}; // instead of the ULPDU's
};

/*
 * One direction of a stream in full operation, sender's side.  It counts octets
 * from the first FPDU on, for that is what the places of markers depend on.
 */
class FpduWriter {
  public:
    explicit FpduWriter(bool markers = false) : markers_(markers) {}

    Bytes encode(const FpduSpec &spec);
    Bytes encode(View ulpdu) {
        return encode(FpduSpec{.ulpdu = Bytes(ulpdu.begin(), ulpdu.end())});
    }
    /* Octets encoded so far: the position of the next one in the stream. */
    uint64_t position() const { return position_; }
    bool markers() const { return markers_; }

    /*
     * What stands in a marker: given its position and the right FPDUPTR, the
     * 32 bits to write.  For markers that lie.
     */
    std::function<uint32_t(uint64_t position, uint16_t fpduptr)> marker_value = {};

  private:
    bool markers_;
    uint64_t position_ = 0;
};

struct Marker {
    uint64_t position; // in the stream
    uint16_t reserved;
    uint16_t fpduptr;
    uint16_t expected; // what FPDUPTR has to be
    bool good() const { return reserved == 0 && fpduptr == expected; }
};

struct Fpdu {
    uint64_t start = 0; // position of ULPDU_Length
    Bytes raw = {};     // with markers, the one before it included
    Bytes ulpdu = {};
    Bytes pad = {};
    std::vector<Marker> markers = {};
    uint32_t crc = 0; // as it came
    bool crc_good = false;

    bool markers_good() const;
    bool pad_zero() const;
};

/*
 * The receiver's side.  Octets come from the source, exactly as many as asked
 * for; markers are taken out at their places and compared with what they have
 * to say.
 */
class FpduReader {
  public:
    using Source = std::function<Bytes(size_t count)>;
    explicit FpduReader(bool markers = false) : markers_(markers) {}

    Fpdu decode(const Source &source);
    uint64_t position() const { return position_; }
    bool markers() const { return markers_; }

  private:
    Bytes take(const Source &source, size_t count, Fpdu &fpdu, Bytes &content);

    bool markers_;
    uint64_t position_ = 0;
};

/* A single FPDU without markers. */
Bytes fpdu(View ulpdu);

/* Octets that an FPDU of this ULPDU takes without markers. */
size_t fpdu_size(size_t ulpdu);

} // namespace softwarp::wire
