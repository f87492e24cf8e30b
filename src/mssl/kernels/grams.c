/* Passes over the rows of many small tasks; see mssl.h for what each function computes. */
#include "mssl.h"

#include "dense.h"

void MSSL(gather_blocks)(int64_t K, int64_t d, const double *X, const int64_t *bounds, const double *c, int64_t centre, double *out,
                         double *means) {
    for (int64_t k = 0; k < K; k++) {
        const int64_t lo = bounds[k], n = bounds[k + 1] - lo;
        double *block = out + d * lo, total = 0.0;
        const double *restrict weight = c + lo;
        /* The outer loop is over rows: reading in order and scattering is faster than gathering. */
        for (int64_t i = 0; i < n; i++) {
            const double *restrict row = X + (lo + i) * d;
            for (int64_t j = 0; j < d; j++) block[j * n + i] = row[j];
            total += weight[i];
        }
        for (int64_t j = 0; j < d; j++) {
            double *restrict column = block + j * n, mean = 0.0;
            const double first = n > 0 ? column[0] : 0.0; /* sums of deviations are more accurate */
            for (int64_t i = 0; i < n; i++) mean += weight[i] * (column[i] - first);
            mean = total > 0.0 ? first + mean / total : 0.0;
            means[k * d + j] = mean;
            if (centre)
                for (int64_t i = 0; i < n; i++) column[i] -= mean;
        }
    }
}

int64_t MSSL(block_grams)(int64_t K, int64_t d, const double *buffer, const int64_t *bounds, const double *c, const double *r,
                       double *gram, double *sums, double *products) {
    int64_t longest = 0;
    for (int64_t k = 0; k < K; k++) longest = bounds[k + 1] - bounds[k] > longest ? bounds[k + 1] - bounds[k] : longest;
    double *room = malloc((size_t)(longest + 1) * sizeof(double));
    if (room == NULL) return MSSL_BROKE;
    for (int64_t k = 0; k < K; k++) {
        const int64_t lo = bounds[k], n = bounds[k + 1] - lo;
        const double *block = buffer + d * lo, *restrict weight = c + lo, *restrict right = r + lo;
        double *restrict weighted = room, *G = gram + k * d * d;
        for (int64_t j = 0; j < d; j++) {
            const double *restrict column = block + j * n;
            double total = 0.0, product = 0.0;
            for (int64_t i = 0; i < n; i++) {
                weighted[i] = weight[i] * column[i];
                total += weighted[i];
                product += right[i] * column[i];
            }
            sums[k * d + j] = total, products[k * d + j] = product;
            /* Four partners at a time: each load of the column serves four products. */
            for (int64_t first = 0; first <= j; first += 4) {
                const int64_t b = first + 1 < j ? first + 1 : j, e = first + 2 < j ? first + 2 : j, f = first + 3 < j ? first + 3 : j;
                const double *restrict p0 = block + first * n, *restrict p1 = block + b * n, *restrict p2 = block + e * n,
                             *restrict p3 = block + f * n;
                double t0 = 0.0, t1 = 0.0, t2 = 0.0, t3 = 0.0;
                for (int64_t i = 0; i < n; i++) {
                    const double w = weighted[i];
                    t0 += w * p0[i], t1 += w * p1[i], t2 += w * p2[i], t3 += w * p3[i];
                }
                G[j * d + f] = t3, G[j * d + e] = t2, G[j * d + b] = t1, G[j * d + first] = t0;
            }
        }
        for (int64_t j = 0; j < d; j++)
            for (int64_t i = 0; i < j; i++) G[i * d + j] = G[j * d + i];
    }
    free(room);
    return MSSL_DONE;
}
