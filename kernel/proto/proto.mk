# SPDX-License-Identifier: GPL-2.0
# The pure source files.  The modules, the KUnit suites, the fuzzers and the unit
# tests all compile them; headers need no entry.
swp-proto := mpa rdmap terminate qp_fsm
sdp-proto := sdp/wire sdp/setup sdp/credit sdp/sink sdp/resize sdp/urgent sdp/close sdp/conn sdp/portmap sdp/query sdp/answer
