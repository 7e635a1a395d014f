/* A process that is killed at the Nth change of a file: preloaded into it, it sends SIGKILL in the place of the call numbered $KILLED_AT
 * (the first is 1) among those that change something below $READONLY_BELOW. READONLY_WHILE must name something that exists.
 *
 *     cc -shared -fPIC -o killed.so killed.c -ldl
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void perhaps_killed(void) {
    static long calls;
    const char *at = getenv("KILLED_AT");
    if (at && __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) == atol(at)) kill(getpid(), SIGKILL);
}

#define REFUSE(when) do { if (when) perhaps_killed(); } while (0)
#include "readonly.c"
