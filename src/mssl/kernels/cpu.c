/* What does not depend on the SIMD level: which one the processor has, and the clock. */
#define _POSIX_C_SOURCE 199309L
#include <stdlib.h>
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

double mssl_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void mssl_release(void *kept) { free(kept); }
