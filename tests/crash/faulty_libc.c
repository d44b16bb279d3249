/* faulty_libc.c -- a disk that fails on demand, under all that calls libc: CPython, LMDB, C of our own.
 *
 * gcc -shared -fPIC -O2 -o faulty_libc.so faulty_libc.c -ldl        LD_PRELOAD=…/faulty_libc.so python …
 *
 * A plan says which calls of the process are counted, and what becomes of one of them.  It comes in the variable
 * LOGDB_FAULT, or by faulty_libc_plan() from a process that was forked for it: fields, each "name=value", a line each.
 *
 *   root    directory, absolute and without links; calls on paths outside of it are not looked at.  Needed
 *   report  file for what is told, opened to append; outside of root
 *   log     1: tell of every call under root as "call KIND PATH COUNT"; COUNT: bytes asked for, 0 where there are none
 *   kinds   names of the table below, with commas between them; absent: all
 *   path    glob over the path below root ("*" alone is special, and goes over "/"); absent: all
 *   at      the number, from 1, of the call that it is about, of those that match; 0 or absent: none
 *   bytes   so many at most are let through, if the call moves more; then the call ends as a short one
 *   errno   the call fails with this one; with "bytes", the calls after it do
 *   keep    1: every later call that matches fails with "errno" too, as on a disk that dies or is full
 *   die     "before" or "after" the call (with "bytes": in the middle of it) the process gets SIGKILL
 *   switch  file of a byte, which another process may change: what every call under root meets until it changes.
 *           "h": a sync hangs; "e": a sync fails with EIO; "f": what takes room fails with ENOSPC; "s": a write moves
 *           half of its bytes; anything else: nothing
 *
 * What is done is told in the report as "fired KIND PATH", before it is done.
 *
 * What it does not see: system calls that libc makes for itself (fopen's own open, posix_fallocate where a file system
 * has none) or that a program makes without libc, stores into mapped memory (LMDB's lock.mdb), io_uring.
 *
 * A call whose number comes is counted by an atomic add: threads share one count.  A fork inherits plan and count.  No
 * hook takes memory or a lock.  Needs 64 bits, where off_t and off64_t are one.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8, "off_t and off64_t must be one type");

#define PATH_SIZE 4096
#define REPORT_FD_MIN 1000 /* out of the way of what the process opens */

static struct {
    char root[PATH_SIZE], path[256], kinds[512];
    size_t root_size;
    int report, error;
    long at, bytes; /* bytes < 0: all */
    bool log, keep, dies_before, dies_after;
} plan = {.report = -1};

static atomic_bool armed;
static atomic_long matched;
static const _Atomic char no_switch, *disk = &no_switch;

/* ---------------------------------------------------------------- the plan */

static void set_field(const char *name, const char *value) {
    if (!strcmp(name, "root")) snprintf(plan.root, sizeof plan.root, "%s", value);
    else if (!strcmp(name, "path")) snprintf(plan.path, sizeof plan.path, "%s", value);
    else if (!strcmp(name, "kinds")) snprintf(plan.kinds, sizeof plan.kinds, ",%s,", value);
    else if (!strcmp(name, "log")) plan.log = atoi(value);
    else if (!strcmp(name, "at")) plan.at = atol(value);
    else if (!strcmp(name, "bytes")) plan.bytes = atol(value);
    else if (!strcmp(name, "errno")) plan.error = atoi(value);
    else if (!strcmp(name, "keep")) plan.keep = atoi(value);
    else if (!strcmp(name, "die")) plan.dies_before = !strcmp(value, "before"), plan.dies_after = !strcmp(value, "after");
    else if (!strcmp(name, "report")) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, value, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        plan.report = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, REPORT_FD_MIN);
        syscall(SYS_close, fd);
    } else if (!strcmp(name, "switch")) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, value, O_RDONLY | O_CLOEXEC);
        long mapped = syscall(SYS_mmap, NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
        if (mapped < 0 && mapped > -4096) {
            fprintf(stderr, "faulty_libc: %s cannot be mapped\n", value);
            _exit(99);
        }
        disk = (const _Atomic char *)mapped;
        syscall(SYS_close, fd);
    } else {
        fprintf(stderr, "faulty_libc: unknown field %s\n", name);
        _exit(99);
    }
}

/* Take a plan, once in a process; what is called before counts for nothing. */
void faulty_libc_plan(const char *text) {
    static char copy[4 * PATH_SIZE];
    char *rest = copy, *line;
    snprintf(copy, sizeof copy, "%s", text);
    plan.bytes = -1;
    while ((line = strsep(&rest, "\n"))) {
        char *value = strchr(line, '=');
        if (!value) continue;
        *value++ = 0;
        set_field(line, value);
    }
    plan.root_size = strlen(plan.root);
    atomic_store(&armed, plan.root_size > 1);
}

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("LOGDB_FAULT");
    if (text) faulty_libc_plan(text);
}

/* ---------------------------------------------------------------- what becomes of a call */

static bool matches(const char *glob, const char *text) {
    for (; *glob != '*'; glob++, text++) {
        if (*glob != *text) return false;
        if (!*glob) return true;
    }
    for (;; text++) {
        if (matches(glob + 1, text)) return true;
        if (!*text) return false;
    }
}

static bool is_wanted(const char *kind, const char *path) {
    char name[32];
    snprintf(name, sizeof name, ",%s,", kind);
    return (!plan.kinds[0] || strstr(plan.kinds, name)) && (!plan.path[0] || matches(plan.path, path));
}

static void tell(const char *what, const char *kind, const char *path, size_t count) {
    char line[PATH_SIZE + 64];
    int size = snprintf(line, sizeof line, "%s %s %s %zu\n", what, kind, *path ? path : ".", count);
    if (plan.report >= 0) syscall(SYS_write, plan.report, line, size < (int)sizeof line ? (size_t)size : sizeof line);
}

static void die(void) {
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;) pause();
}

struct step {
    size_t count; /* that the call may move */
    int error;    /* that it fails with; 0: it goes on */
    bool dies;    /* after it */
};

/* The path below root; NULL if it is not there. */
static const char *below_root(const char *path) {
    if (strncmp(path, plan.root, plan.root_size)) return NULL;
    path += plan.root_size;
    return *path == '/' ? path + 1 : *path ? NULL : path;
}

/* What the switch does to a call. */
static void obey_switch(const char *kind, struct step *step) {
    static const char syncs[] = ",fsync,fdatasync,", takes_room[] = ",create,write,pwrite,copy_file_range,fallocate,mkdir,link,rename,";
    static const char writes[] = ",write,pwrite,copy_file_range,";
    const struct timespec moment = {.tv_nsec = 5000000};
    char name[32], now = *disk;
    snprintf(name, sizeof name, ",%s,", kind);
    if (now == 'h' && strstr(syncs, name)) while (*disk == 'h') syscall(SYS_nanosleep, &moment, NULL);
    else if (now == 'e' && strstr(syncs, name)) step->error = EIO;
    else if (now == 'f' && strstr(takes_room, name)) step->error = ENOSPC;
    else if (now == 's' && strstr(writes, name) && step->count > 1) step->count /= 2;
}

static struct step judge(const char *kind, const char *path, size_t count) {
    struct step step = {.count = count};
    if (plan.log) tell("call", kind, path, count);
    if (*disk) obey_switch(kind, &step);
    if (!plan.at || !is_wanted(kind, path)) return step;
    long number = atomic_fetch_add(&matched, 1) + 1;
    if (number > plan.at && plan.keep) step.error = plan.error;
    if (number != plan.at) return step;
    tell("fired", kind, path, count);
    if (plan.dies_before) die();
    step.dies = plan.dies_after;
    if (plan.bytes >= 0 && count > (size_t)plan.bytes) step.count = (size_t)plan.bytes;
    else if (!step.dies) step.error = plan.error;
    return step;
}

static struct step on_path_at(const char *kind, int directory, const char *path, size_t count) {
    struct step step = {.count = count};
    char whole[2 * PATH_SIZE];
    if (!atomic_load_explicit(&armed, memory_order_relaxed) || !path) return step;
    int before = errno;
    if (*path != '/' && directory != AT_FDCWD) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        long size = syscall(SYS_readlinkat, AT_FDCWD, link, whole, PATH_SIZE);
        if (size > 0) {
            static const char gone[] = " (deleted)"; /* what the kernel says behind the name of a file that was removed */
            const long gone_size = sizeof gone - 1;
            if (size > gone_size && !memcmp(whole + size - gone_size, gone, (size_t)gone_size)) size -= gone_size;
            snprintf(whole + size, PATH_SIZE, *path ? "/%s" : "%s", path);
            path = whole;
        }
    }
    const char *below = below_root(path);
    if (below) step = judge(kind, below, count);
    errno = before;
    return step;
}

static struct step on_path(const char *kind, const char *path) {
    return on_path_at(kind, AT_FDCWD, path, 0);
}

static struct step on_fd(const char *kind, int fd, size_t count) {
    return fd < 0 ? (struct step){.count = count} : on_path_at(kind, fd, "", count);
}

/* The result of a call that was made; the process may die of it. */
#define MADE(step, result) __extension__({ \
    __auto_type made_ = (result); \
    if ((step).dies) die(); \
    made_; })
#define FAILS(step, failure) do { if ((step).error) { errno = (step).error; return failure; } } while (0)
#define REAL(name) __extension__({ \
    static __typeof__(&name) real_; \
    if (!real_) real_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
    real_; })

/* ---------------------------------------------------------------- opening, closing */

#define MODE_OF(flags, last) __extension__({ \
    mode_t mode_ = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list all_; va_start(all_, last); mode_ = va_arg(all_, mode_t); va_end(all_); } \
    mode_; })
#define KIND_OF(flags) ((flags) & O_CREAT ? "create" : "open")

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        mode_t mode = MODE_OF(flags, flags); \
        struct step step = on_path(KIND_OF(flags), path); \
        FAILS(step, -1); \
        return MADE(step, REAL(name)(path, flags, mode)); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        mode_t mode = MODE_OF(flags, flags); \
        struct step step = on_path_at(KIND_OF(flags), directory, path, 0); \
        FAILS(step, -1); \
        return MADE(step, REAL(name)(directory, path, flags, mode)); \
    }
OPENAT(openat)
OPENAT(openat64)

int close(int fd) { /* it is closed, also where it fails */
    struct step step = on_fd("close", fd, 0);
    int result = MADE(step, REAL(close)(fd));
    FAILS(step, -1);
    return result;
}

DIR *opendir(const char *path) {
    struct step step = on_path("opendir", path);
    FAILS(step, NULL);
    return MADE(step, REAL(opendir)(path));
}

struct dirent64 *readdir64(DIR *directory) {
    struct step step = on_fd("readdir", dirfd(directory), 0);
    FAILS(step, NULL);
    return MADE(step, REAL(readdir64)(directory));
}

/* ---------------------------------------------------------------- reading, writing */

#define MOVE(kind, name, buffer) \
    ssize_t name(int fd, buffer data, size_t count) { \
        struct step step = on_fd(kind, fd, count); \
        FAILS(step, -1); \
        return MADE(step, REAL(name)(fd, data, step.count)); \
    }
MOVE("read", read, void *)
MOVE("write", write, const void *)

#define MOVE_AT(kind, name, buffer) \
    ssize_t name(int fd, buffer data, size_t count, off_t position) { \
        struct step step = on_fd(kind, fd, count); \
        FAILS(step, -1); \
        return MADE(step, REAL(name)(fd, data, step.count, position)); \
    }
MOVE_AT("pread", pread, void *)
MOVE_AT("pread", pread64, void *)
MOVE_AT("pwrite", pwrite, const void *)
MOVE_AT("pwrite", pwrite64, const void *)

static size_t size_of(const struct iovec *parts, int part_count) {
    size_t size = 0;
    for (int i = 0; i < part_count; i++) size += parts[i].iov_len;
    return size;
}

/* The parts cut down to so many bytes, in a copy if need be; returns how many are left. */
static int cut(const struct iovec **parts, struct iovec *copy, int part_count, size_t size) {
    int left = 0;
    if (size == size_of(*parts, part_count)) return part_count;
    for (; left < part_count && size > 0; left++) {
        copy[left] = (*parts)[left];
        if (copy[left].iov_len > size) copy[left].iov_len = size;
        size -= copy[left].iov_len;
    }
    *parts = copy;
    return left;
}

#define MOVE_PARTS(kind, name, more, ...) \
    ssize_t name(int fd, const struct iovec *parts, int part_count more) { \
        struct iovec copy[IOV_MAX]; \
        struct step step = on_fd(kind, fd, size_of(parts, part_count)); \
        FAILS(step, -1); \
        part_count = cut(&parts, copy, part_count, step.count); \
        return MADE(step, REAL(name)(fd, parts, part_count __VA_ARGS__)); \
    }
#define AND ,
MOVE_PARTS("read", readv, )
MOVE_PARTS("write", writev, )
MOVE_PARTS("pread", preadv, AND off_t position, , position)
MOVE_PARTS("pread", preadv64, AND off_t position, , position)
MOVE_PARTS("pread", preadv2, AND off_t position AND int flags, , position, flags)
MOVE_PARTS("pread", preadv64v2, AND off_t position AND int flags, , position, flags)
MOVE_PARTS("pwrite", pwritev, AND off_t position, , position)
MOVE_PARTS("pwrite", pwritev64, AND off_t position, , position)
MOVE_PARTS("pwrite", pwritev2, AND off_t position AND int flags, , position, flags)
MOVE_PARTS("pwrite", pwritev64v2, AND off_t position AND int flags, , position, flags)

ssize_t copy_file_range(int source, off64_t *from, int target, off64_t *to, size_t count, unsigned flags) {
    struct step step = on_fd("copy_file_range", target, count);
    FAILS(step, -1);
    return MADE(step, REAL(copy_file_range)(source, from, target, to, step.count, flags));
}

/* ---------------------------------------------------------------- syncing, sizes, maps, locks */

int fsync(int fd) {
    struct step step = on_fd("fsync", fd, 0);
    FAILS(step, -1);
    return MADE(step, REAL(fsync)(fd));
}

int fdatasync(int fd) {
    struct step step = on_fd("fdatasync", fd, 0);
    FAILS(step, -1);
    return MADE(step, REAL(fdatasync)(fd));
}

#define FTRUNCATE(name) \
    int name(int fd, off_t size) { \
        struct step step = on_fd("ftruncate", fd, 0); \
        FAILS(step, -1); \
        return MADE(step, REAL(name)(fd, size)); \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

#define POSIX_FALLOCATE(name) \
    int name(int fd, off_t position, off_t size) { \
        struct step step = on_fd("fallocate", fd, 0); \
        if (step.error) return step.error; \
        return MADE(step, REAL(name)(fd, position, size)); \
    }
POSIX_FALLOCATE(posix_fallocate)
POSIX_FALLOCATE(posix_fallocate64)

#define FALLOCATE(name) \
    int name(int fd, int mode, off_t position, off_t size) { \
        struct step step = on_fd("fallocate", fd, 0); \
        FAILS(step, -1); \
        return MADE(step, REAL(name)(fd, mode, position, size)); \
    }
FALLOCATE(fallocate)
FALLOCATE(fallocate64)

#define FADVISE(name) \
    int name(int fd, off_t position, off_t size, int advice) { \
        struct step step = on_fd("fadvise", fd, 0); \
        if (step.error) return step.error; \
        return MADE(step, REAL(name)(fd, position, size, advice)); \
    }
FADVISE(posix_fadvise)
FADVISE(posix_fadvise64)

#define MMAP(name) \
    void *name(void *where, size_t size, int protection, int flags, int fd, off_t position) { \
        struct step step = on_fd("mmap", flags & MAP_ANONYMOUS ? -1 : fd, 0); \
        FAILS(step, MAP_FAILED); \
        return MADE(step, REAL(name)(where, size, protection, flags, fd, position)); \
    }
MMAP(mmap)
MMAP(mmap64)

static bool locks(int command) {
    return command == F_SETLK || command == F_SETLKW || command == F_GETLK || command == F_OFD_SETLK || command == F_OFD_SETLKW ||
           command == F_OFD_GETLK;
}

#define FCNTL(name) \
    int name(int fd, int command, ...) { \
        va_list all; \
        va_start(all, command); \
        void *argument = va_arg(all, void *); \
        va_end(all); \
        struct step step = {0}; \
        if (locks(command)) step = on_fd("lock", fd, 0); \
        FAILS(step, -1); \
        return MADE(step, REAL(name)(fd, command, argument)); \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

int flock(int fd, int operation) {
    struct step step = on_fd("lock", fd, 0);
    FAILS(step, -1);
    return MADE(step, REAL(flock)(fd, operation));
}

/* ---------------------------------------------------------------- names */

int rename(const char *old, const char *new) {
    struct step step = on_path("rename", new);
    FAILS(step, -1);
    return MADE(step, REAL(rename)(old, new));
}

int renameat(int old_directory, const char *old, int directory, const char *new) {
    struct step step = on_path_at("rename", directory, new, 0);
    FAILS(step, -1);
    return MADE(step, REAL(renameat)(old_directory, old, directory, new));
}

int link(const char *old, const char *new) {
    struct step step = on_path("link", new);
    FAILS(step, -1);
    return MADE(step, REAL(link)(old, new));
}

int linkat(int old_directory, const char *old, int directory, const char *new, int flags) {
    struct step step = on_path_at("link", directory, new, 0);
    FAILS(step, -1);
    return MADE(step, REAL(linkat)(old_directory, old, directory, new, flags));
}

int unlink(const char *path) {
    struct step step = on_path("unlink", path);
    FAILS(step, -1);
    return MADE(step, REAL(unlink)(path));
}

int unlinkat(int directory, const char *path, int flags) {
    struct step step = on_path_at(flags & AT_REMOVEDIR ? "rmdir" : "unlink", directory, path, 0);
    FAILS(step, -1);
    return MADE(step, REAL(unlinkat)(directory, path, flags));
}

int rmdir(const char *path) {
    struct step step = on_path("rmdir", path);
    FAILS(step, -1);
    return MADE(step, REAL(rmdir)(path));
}

int mkdir(const char *path, mode_t mode) {
    struct step step = on_path("mkdir", path);
    FAILS(step, -1);
    return MADE(step, REAL(mkdir)(path, mode));
}

int mkdirat(int directory, const char *path, mode_t mode) {
    struct step step = on_path_at("mkdir", directory, path, 0);
    FAILS(step, -1);
    return MADE(step, REAL(mkdirat)(directory, path, mode));
}

/* ---------------------------------------------------------------- what a file is */

#define STAT(name, type) \
    int name(const char *path, struct type *found) { \
        struct step step = on_path("stat", path); \
        FAILS(step, -1); \
        return MADE(step, REAL(name)(path, found)); \
    }
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)

#define FSTAT(name, type) \
    int name(int fd, struct type *found) { \
        struct step step = on_fd("stat", fd, 0); \
        FAILS(step, -1); \
        return MADE(step, REAL(name)(fd, found)); \
    }
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)

#define FSTATAT(name, type) \
    int name(int directory, const char *path, struct type *found, int flags) { \
        struct step step = on_path_at("stat", directory, path, 0); \
        FAILS(step, -1); \
        return MADE(step, REAL(name)(directory, path, found, flags)); \
    }
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)

/* Of programs that were built with an older libc: py-lmdb's wheel. */
extern int __xstat(int version, const char *path, struct stat *found);
extern int __fxstat(int version, int fd, struct stat *found);

int __xstat(int version, const char *path, struct stat *found) {
    struct step step = on_path("stat", path);
    FAILS(step, -1);
    return MADE(step, REAL(__xstat)(version, path, found));
}

int __fxstat(int version, int fd, struct stat *found) {
    struct step step = on_fd("stat", fd, 0);
    FAILS(step, -1);
    return MADE(step, REAL(__fxstat)(version, fd, found));
}

int statvfs64(const char *path, struct statvfs64 *found) {
    struct step step = on_path("statvfs", path);
    FAILS(step, -1);
    return MADE(step, REAL(statvfs64)(path, found));
}

int fstatfs(int fd, struct statfs *found) {
    struct step step = on_fd("statvfs", fd, 0);
    FAILS(step, -1);
    return MADE(step, REAL(fstatfs)(fd, found));
}
