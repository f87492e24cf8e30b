/* Functions that do not depend on the SIMD level: the level of the processor, the checksum of the header,
   and the check whether a call is to stop. */
#define _POSIX_C_SOURCE 199309L
#include <time.h>

#include "mssl.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

static unsigned long long enabled_state(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((unsigned long long)high << 32) | low;
}

int64_t mssl_level(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27)) || !(c & (1u << 12))) return 0; /* OSXSAVE, FMA */
    const unsigned long long state = enabled_state();
    if ((state & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & (1u << 5))) return 0; /* AVX2 */
    const unsigned wanted = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31); /* AVX-512 F, DQ, BW, VL */
    return (state & 0xe6) == 0xe6 && (b & wanted) == wanted ? 2 : 1;
}
#else
int64_t mssl_level(void) { return 0; }
#endif

int64_t mssl_header(void) { return MSSL_HEADER; }

int64_t mssl_stopped(mssl_watch *watch) {
    if (watch == NULL) return 0;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    const double now = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
    if (now < watch->due) return 0;
    watch->due = now + watch->every;
    return watch->look();
}
