"""What Windows offers by other calls than the other systems. It can be imported there only."""

from __future__ import annotations

import ctypes
import sys

assert sys.platform == "win32"  # types are then checked as on Windows, and only there
import msvcrt  # noqa: E402

# Of the Windows API.
_ASK_A_LITTLE = 0x1000
_NO_SUCH_PROCESS = 87
_STILL_ACTIVE = 259
_LARGEST_PROCESS = 2**32 - 1


def is_alive(process: int) -> bool:
    """Whether a process runs; True if that cannot be found out. os.kill would end it."""
    if process > _LARGEST_PROCESS:
        return False
    system = ctypes.WinDLL("kernel32", use_last_error=True)
    system.OpenProcess.restype = ctypes.c_void_p
    handle = system.OpenProcess(_ASK_A_LITTLE, False, ctypes.c_ulong(process))
    if not handle:
        return ctypes.get_last_error() != _NO_SUCH_PROCESS
    try:
        code = ctypes.c_ulong()
        known = system.GetExitCodeProcess(ctypes.c_void_p(handle), ctypes.byref(code))
        return not known or code.value == _STILL_ACTIVE
    finally:
        system.CloseHandle(ctypes.c_void_p(handle))


def memory() -> int | None:
    """The memory of this machine in bytes; None if the system does not say it."""
    # MEMORYSTATUSEX: its own length, the share in use, then seven numbers of 8 bytes, of which the
    # first is the whole memory.
    status = (ctypes.c_ulonglong * 8)(64)
    known = ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status))
    return int(status[1]) if known else None


def lock(file: int) -> None:
    """Lock an open file until it is closed. BlockingIOError if another process has it."""
    try:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(error.errno, error.strerror) from error
