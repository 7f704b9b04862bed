# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A program for mpirun: messages in a ring, all to all, sums; every octet is compared.  Uses Open MPI's library by ctypes."""

import ctypes
import sys

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)


def handle(name: str) -> ctypes.c_void_p:
    """A predefined object of Open MPI."""
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))


WORLD, BYTE, UINT64, SUM = (handle(name) for name in ("ompi_mpi_comm_world", "ompi_mpi_byte", "ompi_mpi_uint64_t",
                                                       "ompi_mpi_op_sum"))


def call(name: str, *args) -> None:
    """An MPI function, which has to succeed."""
    code = getattr(mpi, f"MPI_{name}")(*args)
    if code:
        sys.exit(f"MPI_{name} returned {code}")


def number(name: str) -> int:
    """Rank or size."""
    value = ctypes.c_int()
    call(name, WORLD, ctypes.byref(value))
    return value.value


def pattern(rank: int, size: int) -> bytes:
    """What a rank says."""
    return bytes((rank * 37 + i * 7 + (i >> 8)) & 255 for i in range(min(size, 65536))) * (size // 65536 or 1)


call("Init", None, None)
RANK, SIZE = number("Comm_rank"), number("Comm_size")
if SIZE != 4:
    sys.exit(f"{SIZE} ranks instead of 4")
for length in (0, 1, 100, 4096, 12288, 65536, 1 << 20, 4 << 20):
    mine = pattern(RANK, length)
    other = (RANK - 1) % SIZE
    got = ctypes.create_string_buffer(len(mine) + 1)
    for tag in range(5):
        call("Sendrecv", mine, len(mine), BYTE, (RANK + 1) % SIZE, tag, got, len(mine), BYTE, other, tag, WORLD, None)
        if got.raw[:-1] != pattern(other, length):
            sys.exit(f"rank {RANK}: {length} octets from rank {other} are not what it sent")
block = 3000
mine = b"".join(pattern(RANK * SIZE + to, block) for to in range(SIZE))
got = ctypes.create_string_buffer(block * SIZE)
call("Alltoall", mine, block, BYTE, got, block, BYTE, WORLD)
if got.raw != b"".join(pattern(source * SIZE + RANK, block) for source in range(SIZE)):
    sys.exit(f"rank {RANK}: all to all went wrong")
values, sums = (ctypes.c_uint64 * 1000)(*range(RANK, RANK + 1000)), (ctypes.c_uint64 * 1000)()
for _ in range(20):
    call("Allreduce", values, sums, 1000, UINT64, SUM, WORLD)
    if list(sums) != [SIZE * i + SIZE * (SIZE - 1) // 2 for i in range(1000)]:
        sys.exit(f"rank {RANK}: a sum is wrong")
call("Barrier", WORLD)
call("Finalize")
