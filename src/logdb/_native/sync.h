/* sync.h -- many files made durable together; the same text is the cffi definition.
 *
 * System calls, unlike the rest of the core.  Each function may wait for the disk.  Safe without the GIL.
 * Steps: start each write, sync the file system, ask each file for its errors.  docs/inside/durability.md (Background threads). */
#ifndef LOGDB_SYNC_H
#define LOGDB_SYNC_H

#include <stddef.h>

/* Whether a sync of the file system of fd does for each file what fdatasync does.
 * 1: yes; 0: no, or it is not known to; so on every system but Linux. */
int logdb_sync_is_shared(int fd);

/* Starts to write the dirty pages of files, without waiting for them.
 * errors   out: for each file 0, or the errno of a write that could not begin */
void logdb_sync_start(const int *fds, size_t count, int *errors);

/* Returns when all of the file system of fd is durable: data, sizes and directory entries.
 * Returns 0, or the errno. */
int logdb_sync_file_system(int fd);

/* Asks for errors of writes that have ended since the file was last asked.
 * errors   out: for each file 0, or the errno */
void logdb_sync_errors(const int *fds, size_t count, int *errors);

#endif
