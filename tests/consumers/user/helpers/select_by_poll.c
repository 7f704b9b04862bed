/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * To preload before librspreload, whose select() tells of the wrong descriptor:
 * it compares the number of an rsocket with those of the program, of which the
 * program may have asked for none.  Its poll() is right.
 */
#include <poll.h>
#include <sys/select.h>

int select(int count, fd_set *in, fd_set *out, fd_set *other,
	   struct timeval *limit)
{
	struct pollfd polled[FD_SETSIZE];
	fd_set wanted[2] = {};
	int fd, i, n = 0, found = 0;
	int ms = limit ? limit->tv_sec * 1000 + (limit->tv_usec + 999) / 1000 : -1;

	for (fd = 0; fd < count; fd++) {
		short events = (in && FD_ISSET(fd, in) ? POLLIN : 0) |
			       (out && FD_ISSET(fd, out) ? POLLOUT : 0);

		if (events)
			polled[n++] = (struct pollfd){ .fd = fd, .events = events };
	}
	if (in)
		wanted[0] = *in;
	if (out)
		wanted[1] = *out;
	if (poll(polled, n, ms) < 0)
		return -1;
	if (in)
		FD_ZERO(in);
	if (out)
		FD_ZERO(out);
	if (other)
		FD_ZERO(other);
	for (i = 0; i < n; i++) {
		fd = polled[i].fd;
		if (FD_ISSET(fd, &wanted[0]) &&
		    (polled[i].revents & (POLLIN | POLLHUP | POLLERR))) {
			FD_SET(fd, in);
			found++;
		}
		if (FD_ISSET(fd, &wanted[1]) &&
		    (polled[i].revents & (POLLOUT | POLLERR))) {
			FD_SET(fd, out);
			found++;
		}
	}
	return found;
}
