/* Algebra of small dense matrices in row order, shared by the kernels. Everything here is static: one copy per SIMD level. */
#ifndef MSSL_DENSE_H
#define MSSL_DENSE_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Plain comparisons: fmin and fmax are calls into the maths library, which prevent vectorised loops. */
static inline double least(double a, double b) { return a < b ? a : b; }
static inline double most(double a, double b) { return a > b ? a : b; }

#define MSSL_TINY 1e-100 /* smaller covariances become 0, since products of two would be subnormal numbers, which are slow */

/* out += step * row. */
static inline void add_row(double step, const double *restrict row, int64_t n, double *restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] += step * row[i];
}

/* Entry a of an index; without an index, a itself. */
static inline int64_t at(const int64_t *index, int64_t a) { return index == NULL ? a : index[a]; }

/* out += sum_a x[a] * (row index[a] of W), four rows at a time. Rows have m entries, each row begins `stride` after the one before. */
static inline void add_rows(const double *restrict x, const int64_t *restrict index, int64_t n, const double *restrict W, int64_t stride,
                            int64_t m, double *restrict out) {
    int64_t a = 0;
    for (; a + 4 <= n; a += 4) {
        const double x0 = x[a], x1 = x[a + 1], x2 = x[a + 2], x3 = x[a + 3];
        const double *restrict w0 = W + at(index, a) * stride, *restrict w1 = W + at(index, a + 1) * stride;
        const double *restrict w2 = W + at(index, a + 2) * stride, *restrict w3 = W + at(index, a + 3) * stride;
        for (int64_t i = 0; i < m; i++) out[i] += x0 * w0[i] + x1 * w1[i] + x2 * w2[i] + x3 * w3[i];
    }
    for (; a < n; a++) add_row(x[a], W + at(index, a) * stride, m, out);
}

/* out += sum_{l != k} C_kl (row l of D); returns C_kk, of the compressed rows alone. */
static inline double add_neighbours(const mssl_coupling *C, int64_t k, const double *D, int64_t n, double *out) {
    double own = 0.0;
    for (int64_t p = C->starts[k]; p < C->starts[k + 1]; p++) {
        if (C->columns[p] == k) own = C->values[p];
        else add_row(C->values[p], D + C->columns[p] * n, n, out);
    }
    return own;
}

/* A = R'R: the factor into the upper triangle of R, -R' below it; log det A, or NaN if A is not positive definite.
   Only the lower triangle of A is read. */
static inline double factor(const double *A, int64_t p, double *R) {
    double total = 0.0;
    for (int64_t i = 0; i < p; i++) {
        double *row = R + i * p;
        for (int64_t j = i; j < p; j++) row[j] = A[j * p + i];
        add_rows(row, NULL, i, R + i, p, p - i, row + i); /* row holds -R[0..i, i] in its first i entries */
        const double x = row[i];
        if (!(x > 0.0)) return NAN;
        total += log(x);
        row[i] = sqrt(x);
        const double inverse = 1.0 / row[i];
        for (int64_t j = i + 1; j < p; j++) {
            row[j] *= inverse;
            R[j * p + i] = -row[j];
        }
    }
    return total;
}

/* (R'R)^-1 = TT' from the upper triangle of R, T = R^-1; the entries below it are overwritten. */
static inline void invert(double *R, int64_t p, double *out) {
    for (int64_t i = 0; i < p; i++) {
        double *restrict row = out + i * p;
        for (int64_t j = i; j < p; j++) row[j] = 0.0;
        row[i] = 1.0;
        for (int64_t k = i; k < p; k++) {
            const double *restrict other = R + k * p;
            const double x = row[k] / other[k];
            row[k] = x;
            for (int64_t j = k + 1; j < p; j++) row[j] -= x * other[j];
        }
    }
    /* Write T' to R. The rows of the result are then sums of rows, without sums across a vector. */
    for (int64_t i = 0; i < p; i++)
        for (int64_t j = i; j < p; j++) R[j * p + i] = out[i * p + j];
    for (int64_t i = 0; i < p; i++) {
        double *row = out + i * p, square = 0.0;
        memset(row, 0, (size_t)i * sizeof(double));
        add_rows(row + i, NULL, p - i, R + i * p, p, i, row);
        for (int64_t k = i; k < p; k++) square += row[k] * row[k];
        row[i] = square;
    }
    for (int64_t i = 0; i < p; i++)
        for (int64_t j = 0; j < i; j++) out[j * p + i] = out[i * p + j];
}

/* x = (R'R)^-1 b, p entries, rows of R have length stride. */
static inline void back_solve(const double *R, int64_t p, int64_t stride, const double *b, double *x) {
    memcpy(x, b, (size_t)p * sizeof(double));
    for (int64_t i = 0; i < p; i++) {
        const double *restrict other = R + i * stride;
        const double y = x[i] / other[i];
        x[i] = y;
        for (int64_t j = i + 1; j < p; j++) x[j] -= y * other[j];
    }
    for (int64_t i = p - 1; i >= 0; i--) {
        const double *restrict other = R + i * stride;
        double total = x[i];
        for (int64_t j = i + 1; j < p; j++) total -= x[j] * other[j];
        x[i] = total / other[i];
    }
}

static inline double dot(const double *restrict a, const double *restrict b, int64_t n) {
    double total = 0.0;
    for (int64_t i = 0; i < n; i++) total += a[i] * b[i];
    return total;
}

/* The positions where w is not zero; returns their number. */
static inline int64_t support_of(const double *w, int64_t d, int64_t *active) {
    int64_t n = 0;
    for (int64_t j = 0; j < d; j++)
        if (w[j] != 0.0) active[n++] = j;
    return n;
}

/* Move w towards the minimum of 1/2 w'(sG + own I)w - c'w + sum t|w| over its n active places and their signs, as far as no sign
   changes; hw = sGw is kept up to date. Returns the gain, which is 0 if an entry on the diagonal of the factor is not above `singular`.
   One factorisation replaces many sweeps if G is ill-conditioned. room: 2 n^2 + 2 n. */
static inline double face_step(const double *G, int64_t d, double s, double own, const double *c, const double *t, double *w, double *hw,
                               const int64_t *active, int64_t n, double singular, double *room) {
    double *A = room, *R = A + n * n, *slope = R + n * n, *step = slope + n, length = 1.0, along = 0.0;
    for (int64_t a = 0; a < n; a++) {
        const int64_t j = active[a];
        slope[a] = c[j] - hw[j] - own * w[j] - copysign(t[j], w[j]);
        for (int64_t b = 0; b <= a; b++) A[a * n + b] = s * G[j * d + active[b]];
        A[a * n + a] += own;
    }
    if (isnan(factor(A, n, R))) return 0.0;
    back_solve(R, n, n, slope, step);
    int64_t blocking = -1;
    for (int64_t a = 0; a < n; a++) {
        if (!(R[a * n + a] > singular)) return 0.0;
        along += slope[a] * step[a];
        const double old = w[active[a]];
        if ((old + length * step[a]) * old <= 0.0) length = -old / step[a], blocking = a;
    }
    for (int64_t a = 0; a < n; a++) {
        const int64_t j = active[a];
        const double move = a == blocking ? -w[j] : length * step[a];
        w[j] += move;
        add_row(s * move, G + j * d, d, hw);
    }
    return length * (1.0 - 0.5 * length) * along;
}

#endif
