/* A disk that can be made read-only under open files, and writable again: preloaded into a process, it answers EROFS for every
 * change below $READONLY_BELOW while the file $READONLY_WHILE exists. The kernel itself refuses such a remount (EBUSY) while
 * files are open for writing, except after an error, from which there is no way back.
 *
 *     cc -shared -fPIC -o readonly.so readonly.c -ldl
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int on(void) {
    const char *flag = getenv("READONLY_WHILE");
    int before = errno, there = flag && access(flag, F_OK) == 0;
    errno = before;
    return there;
}

static int below(const char *path) {
    const char *root = getenv("READONLY_BELOW");
    size_t n = root ? strlen(root) : 0;
    return n && strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == 0);
}

static int refuses_fd(int fd) {
    char link[64], path[PATH_MAX];
    if (!on()) return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    errno = before;
    if (n < 0) return 0;
    path[n] = 0;
    return below(path);
}

static int refuses_at(int dir, const char *path) {
    if (!path || !on()) return 0;
    if (path[0] == '/') return below(path);
    if (dir != AT_FDCWD) return refuses_fd(dir);
    char cwd[PATH_MAX];
    return getcwd(cwd, sizeof cwd) && below(cwd);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#ifndef REFUSE
#define REFUSE(when) do { if (when) { errno = EROFS; return -1; } } while (0)
#endif
#define WRITES(flags) (((flags) & O_ACCMODE) != O_RDONLY || ((flags) & (O_CREAT | O_TRUNC)))

#define OPEN(name)                                                       \
    int name(const char *path, int flags, ...) {                         \
        va_list more;                                                    \
        va_start(more, flags);                                           \
        mode_t mode = va_arg(more, mode_t);                              \
        va_end(more);                                                    \
        REFUSE(WRITES(flags) && refuses_at(AT_FDCWD, path));             \
        return REAL(name)(path, flags, mode);                            \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                     \
    int name(int dir, const char *path, int flags, ...) {                \
        va_list more;                                                    \
        va_start(more, flags);                                           \
        mode_t mode = va_arg(more, mode_t);                              \
        va_end(more);                                                    \
        REFUSE(WRITES(flags) && refuses_at(dir, path));                  \
        return REAL(name)(dir, path, flags, mode);                       \
    }
OPENAT(openat)
OPENAT(openat64)

#define FD(type, name, declared, passed)                                 \
    type name declared {                                                 \
        REFUSE(refuses_fd(fd));                                          \
        return REAL(name) passed;                                        \
    }
FD(ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n))
FD(ssize_t, writev, (int fd, const struct iovec *from, int n), (fd, from, n))
FD(ssize_t, pwrite, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at))
FD(ssize_t, pwrite64, (int fd, const void *from, size_t n, off64_t at), (fd, from, n, at))
FD(ssize_t, pwritev, (int fd, const struct iovec *from, int n, off_t at), (fd, from, n, at))
FD(int, ftruncate, (int fd, off_t size), (fd, size))
FD(int, ftruncate64, (int fd, off64_t size), (fd, size))
FD(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
FD(int, fallocate64, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size))
FD(int, fchmod, (int fd, mode_t mode), (fd, mode))

#define PATH(name, declared, passed)                                     \
    int name declared {                                                  \
        REFUSE(refuses_at(AT_FDCWD, path));                              \
        return REAL(name) passed;                                        \
    }
PATH(unlink, (const char *path), (path))
PATH(rmdir, (const char *path), (path))
PATH(mkdir, (const char *path, mode_t mode), (path, mode))
PATH(chmod, (const char *path, mode_t mode), (path, mode))
PATH(symlink, (const char *from, const char *path), (from, path))
PATH(rename, (const char *path, const char *to), (path, to))
PATH(link, (const char *path, const char *to), (path, to))

#define AT(name, declared, passed)                                       \
    int name declared {                                                  \
        REFUSE(refuses_at(dir, path));                                   \
        return REAL(name) passed;                                        \
    }
AT(unlinkat, (int dir, const char *path, int flags), (dir, path, flags))
AT(mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode))
AT(renameat, (int dir, const char *path, int to, const char *name), (dir, path, to, name))
AT(linkat, (int dir, const char *path, int to, const char *name, int flags), (dir, path, to, name, flags))
