# SPDX-License-Identifier: GPL-2.0
# The pure source files.  Kbuild, tests/kunit and tests/fuzz/pure read this list and
# compile all of them; headers need no entry.
swp-proto := mpa rdmap terminate qp_fsm pair
sdp-proto := sdp/wire sdp/setup sdp/credit sdp/sink sdp/resize sdp/urgent sdp/close sdp/conn sdp/portmap sdp/query sdp/answer
