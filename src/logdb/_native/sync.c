/* sync.c -- many files made durable together.
 *
 * fdatasync of one file waits for the cache of its disk, even if the file is clean: 1,000 files wait 1,000 times.
 * syncfs waits once.  Only its return is used; errors are those of each file. */
#define _GNU_SOURCE
#include "sync.h"

#include <errno.h>

#ifdef __linux__

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

/* f_type of file systems whose syncfs waits for data, metadata and the disk's cache, and which report a failed write to its file. */
enum { EXT = 0xEF53, XFS = 0x58465342, TMPFS = 0x01021994 };

int logdb_sync_is_shared(int fd)
{
    struct statfs found;

    if (fstatfs(fd, &found) != 0)
        return 0;
    return found.f_type == EXT || found.f_type == XFS || found.f_type == TMPFS;
}

static void each(const int *fds, size_t count, int *errors, unsigned flags)
{
    for (size_t i = 0; i < count; i++)
        errors[i] = sync_file_range(fds[i], 0, 0, flags) == 0 ? 0 : errno;
}

void logdb_sync_start(const int *fds, size_t count, int *errors)
{
    each(fds, count, errors, SYNC_FILE_RANGE_WRITE);
}

int logdb_sync_file_system(int fd)
{
    return syncfs(fd) == 0 ? 0 : errno;
}

void logdb_sync_errors(const int *fds, size_t count, int *errors)
{
    each(fds, count, errors, SYNC_FILE_RANGE_WAIT_BEFORE);
}

#else

int logdb_sync_is_shared(int fd)
{
    (void)fd;
    return 0;
}

void logdb_sync_start(const int *fds, size_t count, int *errors)
{
    (void)fds;
    for (size_t i = 0; i < count; i++)
        errors[i] = ENOSYS;
}

int logdb_sync_file_system(int fd)
{
    (void)fd;
    return ENOSYS;
}

void logdb_sync_errors(const int *fds, size_t count, int *errors)
{
    logdb_sync_start(fds, count, errors);
}

#endif
