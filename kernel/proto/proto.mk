# SPDX-License-Identifier: GPL-2.0
# The pure files that are compiled on their own: into the modules, the KUnit
# suites, the fuzzers and the unit tests alike.  The headers beside them need
# no entry.
swp-proto := mpa rdmap terminate qp_fsm
sdp-proto := sdp/wire sdp/setup sdp/credit sdp/sink sdp/resize sdp/urgent sdp/close sdp/conn sdp/portmap sdp/query sdp/answer
