/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The release, for modinfo.  The tools' --version, the packages and the first
 * heading of CHANGELOG.md have the same number; CMake and scripts/deb read it
 * here.
 */
#ifndef SOFTWARP_VERSION_H
#define SOFTWARP_VERSION_H

#define SOFTWARP_VERSION "0.1"

#endif /* SOFTWARP_VERSION_H */
