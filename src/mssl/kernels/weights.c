/* Coordinate descent over the weights; see mssl.h for what each function computes. */
#include "mssl.h"

#include "dense.h"

#define SUPPORT_PASSES 5   /* number of passes over the support after a pass over all coordinates */
#define GATHERED_PASSES 20 /* number of passes over the support with a gathered Gram */
#define MEMORY 3           /* number of changes that an extrapolation combines */
#define GATHER_FROM 60     /* least number of features for which gathering the support's Gram and extrapolating is faster */
#define ROUNDING 1e-12     /* a weight is zero if its slope exceeds the threshold by at most this share */
#define SWEEP_BURST 50     /* limit of sweeps between two certificates */

/* Sweep until a sweep gains at most `enough`: TASK runs for every position in a list of n tasks and adds its gain to `decrease`.
   made[0] gets the number of sweeps, made[1] the last gain. `room` has `doubles` numbers, `active` has `integers`. */
#define TAKE_ROOM(doubles, integers)                                                 \
    (void)K; /* sizes that are unused here */                     \
    double *room = malloc((size_t)((doubles) + (integers) + 1) * sizeof(double));    \
    if (room == NULL) return MSSL_BROKE;                                             \
    int64_t *active = (int64_t *)(room + (doubles));
#define BEGIN_SWEEPS(n)                                                              \
    made[0] = made[1] = 0.0;                                                         \
    while (made[0] < (double)n_sweeps) {                                             \
        double decrease = 0.0;                                                       \
        for (int64_t place = 0; place < (n); place++) {
#define END_SWEEPS                                                                   \
            if (mssl_stopped(watch)) return free(room), MSSL_STOPPED;                \
        }                                                                            \
        made[0] += 1.0, made[1] = decrease;                                          \
        if (decrease <= enough) break;                                               \
    }                                                                                \
    return free(room), MSSL_DONE;
#define VISIT_ROOM(d) (2 * (d) * (d) + 16 * (d))

/* ---- the penalty of one weight ---- */

/* The penalty of the weights from this position on; without concavities, strengths are in their place. */
static inline mssl_penalty penalty_from(const mssl_penalty *g, int64_t first) {
    const double *t = g->strengths, *theta = g->concavities == NULL ? t : g->concavities;
    return (mssl_penalty){g->code, g->positive, t + first, theta + first};
}

/* argmin 1/2 h w^2 - a w + g(w), given inverse = 1/h. */
static inline double minimiser(const mssl_penalty *g, int64_t j, double a, double h, double inverse) {
    const double t = g->strengths[j];
    if (g->positive && a <= 0.0) return 0.0;
    if (g->code == MSSL_ABSOLUTE) {
        if (fabs(a) <= t * (1.0 + ROUNDING)) return 0.0;
        return (a > 0.0 ? a - t : a + t) * inverse;
    }
    const double theta = g->concavities[j];
    if (h * theta <= 1.0) return a * a > h * theta * t * t ? a * inverse : 0.0;
    if (fabs(a) <= t * (1.0 + ROUNDING)) return 0.0;
    if (fabs(a) >= h * theta * t) return a * inverse;
    return (a > 0.0 ? a - t : a + t) / (h - 1.0 / theta);
}

static inline double penalty_value(const mssl_penalty *g, int64_t j, double w) {
    const double size = fabs(w), t = g->strengths[j];
    if (size == 0.0) return 0.0;
    if (g->positive && w < 0.0) return INFINITY;
    if (g->code == MSSL_ABSOLUTE) return t * size;
    const double theta = g->concavities[j];
    return size <= theta * t ? t * size - 0.5 * size * size / theta : 0.5 * theta * t * t;
}

/* A lower bound of the decrease of the objective by the step from old to its minimiser. */
static inline double gain(const mssl_penalty *g, int64_t j, double a, double h, double old, double new) {
    const double step = new - old;
    if (g->code == MSSL_ABSOLUTE) return 0.5 * h * step * step;
    /* On one piece of the penalty the objective is a parabola. For short steps, a difference of values would be rounding only. */
    const double theta = g->concavities[j], knee = theta * g->strengths[j];
    if (old * new > 0.0 && fabs(old) <= knee && fabs(new) <= knee && h * theta > 1.0) return 0.5 * (h - 1.0 / theta) * step * step;
    if (old * new > 0.0 && fabs(old) > knee && fabs(new) > knee) return 0.5 * h * step * step;
    return step * (a - 0.5 * h * (old + new)) + penalty_value(g, j, old) - penalty_value(g, j, new);
}

/* ---- a visit to one task: 1/2 w'(sG + own I)w - q'w + sum g(w_j), hw = sGw is kept up to date ---- */

/* One pass over some coordinates (all if they are NULL); returns the gain. Each step depends on the previous one, so the next
   entry of hw is kept in a separate variable. */
static double gram_pass(const double *G, int64_t d, double s, double own, const double *q, const mssl_penalty *g, double *w, double *hw,
                        const int64_t *coordinates, int64_t n) {
    double gained = 0.0, ahead = n > 0 ? hw[at(coordinates, 0)] : 0.0;
    for (int64_t p = 0; p < n; p++) {
        const int64_t j = at(coordinates, p), following = at(coordinates, p + 1 < n ? p + 1 : p);
        const double here = ahead;
        ahead = hw[following];
        const double *restrict row = G + j * d;
        const double h = s * row[j] + own;
        if (h <= 0.0) continue;
        const double old = w[j], a = (s * row[j] * old + q[j]) - here;
        const double new = minimiser(g, j, a, h, 1.0 / h);
        if (new != old) {
            w[j] = new;
            gained += gain(g, j, a, h, old, new);
            double step = new - old, *restrict out = hw;
            ahead += step * (s * row[following]);
            step *= s;
            for (int64_t i = 0; i < d; i++) out[i] += step * row[i];
        }
    }
    return gained;
}

static double visit_value(double own, const double *q, const mssl_penalty *g, const double *w, const double *hw, int64_t d) {
    double total = 0.0;
    for (int64_t j = 0; j < d; j++) total += w[j] * (0.5 * hw[j] + 0.5 * own * w[j] - q[j]) + penalty_value(g, j, w[j]);
    return total;
}

/* The weights of sum 1 that give the shortest combination of the successive changes in past; zeros if nothing changed. */
static void anderson_weights(const double *past, int64_t n, double *c) {
    double A[MEMORY * MEMORY], R[MEMORY * MEMORY], ones[MEMORY], trace = 0.0, total = 0.0;
    for (int a = 0; a < MEMORY; a++) {
        for (int b = 0; b <= a; b++) {
            const double *a0 = past + a * n, *a1 = a0 + n, *b0 = past + b * n, *b1 = b0 + n;
            double product = 0.0;
            for (int64_t j = 0; j < n; j++) product += (a1[j] - a0[j]) * (b1[j] - b0[j]);
            A[a * MEMORY + b] = product;
        }
        trace += A[a * MEMORY + a];
        ones[a] = 1.0, c[a] = 0.0;
    }
    for (int a = 0; a < MEMORY; a++) A[a * MEMORY + a] += 1e-12 * trace; /* a small lift makes the matrix positive definite */
    if (isnan(factor(A, MEMORY, R))) return;
    back_solve(R, MEMORY, MEMORY, ones, c);
    for (int a = 0; a < MEMORY; a++) total += c[a];
    for (int a = 0; a < MEMORY; a++) c[a] /= total;
}

/* Passes over the support on a copy of its Gram, small enough to stay in the cache, with Anderson's extrapolation. */
static double gathered_passes(const double *G, int64_t d, double s, double own, const double *q, const mssl_penalty *g, double *w,
                              double *hw, const int64_t *active, int64_t n, double *room, double stop) {
    double *sub = room, *v = sub + n * n, *hv = v + n, *p = hv + n, *t = p + n, *theta = t + n, *past = theta + n;
    double *past_h = past + (MEMORY + 1) * n, c[MEMORY], total = 0.0;
    for (int64_t a = 0; a < n; a++) {
        const int64_t j = active[a];
        v[a] = w[j], hv[a] = hw[j], p[a] = q[j], t[a] = g->strengths[j], theta[a] = g->concavities[j];
        const double *row = G + j * d;
        for (int64_t b = 0; b < n; b++) sub[a * n + b] = row[active[b]];
    }
    const mssl_penalty own_g = {g->code, g->positive, t, theta};
    for (int visit = 0; visit < GATHERED_PASSES; visit++) {
        const int slot = visit % (MEMORY + 1);
        memcpy(past + slot * n, v, (size_t)n * sizeof(double));
        memcpy(past_h + slot * n, hv, (size_t)n * sizeof(double));
        if (slot == MEMORY) {
            anderson_weights(past, n, c);
            for (int64_t j = 0; j < n; j++) {
                double x = 0.0, y = 0.0;
                for (int a = 0; a < MEMORY; a++) x += c[a] * past[(a + 1) * n + j], y += c[a] * past_h[(a + 1) * n + j];
                past[j] = x, past_h[j] = y;
            }
            const double gained = visit_value(own, p, &own_g, v, hv, n) - visit_value(own, p, &own_g, past, past_h, n);
            if (gained > 0.0) {
                memcpy(v, past, (size_t)n * sizeof(double));
                memcpy(hv, past_h, (size_t)n * sizeof(double));
                total += gained;
            }
        }
        const double gained = gram_pass(sub, n, s, own, p, &own_g, v, hv, NULL, n);
        total += gained;
        if (gained <= stop) break;
    }
    for (int64_t a = 0; a < n; a++) {
        const double step = s * (v[a] - w[active[a]]);
        if (step == 0.0) continue;
        w[active[a]] = v[a];
        const double *restrict row = G + active[a] * d;
        for (int64_t i = 0; i < d; i++) hw[i] += step * row[i];
    }
    return total;
}

/* A pass over all coordinates and some over the support, until a pass gains at most `enough` or a hundredth of the first gain.
   room: 2 d^2 + 16 d; active: d. Returns the gain. */
static double visit(const double *G, int64_t d, double s, double own, const double *q, const mssl_penalty *g, double *w, double *hw,
                    int64_t *active, double *room, double enough) {
    double total = gram_pass(G, d, s, own, q, g, w, hw, NULL, d);
    const double stop = most(0.01 * total, enough);
    if (total <= stop) return total;
    int64_t n = support_of(w, d, active);
    if (d >= GATHER_FROM) return total + gathered_passes(G, d, s, own, q, g, w, hw, active, n, room, stop);
    for (int pass = 0; pass < SUPPORT_PASSES; pass++) {
        const double gained = gram_pass(G, d, s, own, q, g, w, hw, active, n);
        total += gained;
        if (gained <= stop) return total;
    }
    if (g->code != MSSL_ABSOLUTE) return total;
    n = support_of(w, d, active);
    return total + face_step(G, d, s, own, q, g->strengths, w, hw, active, n, 0.0, room);
}

/* ---- the coupling C = P - rho u u', P in compressed rows, mean = W'u ---- */

/* out = sum_{l != k} C_kl w_l on some features (all if they are NULL), with task k removed from mean; returns C_kk. */
static double pull_of(const mssl_coupling *C, int64_t k, const double *W, int64_t d, double *mean, const int64_t *features, int64_t m,
                      double *out) {
    const double u = C->u[k];
    double own = -C->rho * u * u;
    if (features == NULL) {
        add_row(-u, W + k * d, d, mean);
        for (int64_t j = 0; j < d; j++) out[j] = -C->rho * u * mean[j];
        return own + add_neighbours(C, k, W, d, out);
    }
    for (int64_t a = 0; a < m; a++) {
        const int64_t j = features[a];
        mean[j] -= u * W[k * d + j];
        out[a] = -C->rho * u * mean[j];
    }
    for (int64_t p = C->starts[k]; p < C->starts[k + 1]; p++) {
        const double value = C->values[p], *restrict row = W + C->columns[p] * d;
        if (C->columns[p] == k) own += value;
        else
            for (int64_t a = 0; a < m; a++) out[a] += value * row[features[a]];
    }
    return own;
}

int64_t MSSL(gram_sweeps)(int64_t K, int64_t d, int64_t n_grams, const double *H, const double *scale, const double *q,
                          const mssl_sets *sets, const mssl_coupling *C, const mssl_penalty *g, double *W, double *HW, double *mean,
                          const int64_t *tasks, int64_t n_tasks, int64_t n_sweeps, double enough, double made[2], mssl_watch *watch) {
    int64_t largest = sets == NULL ? d : 0;
    for (int64_t a = 0; a < n_tasks && sets != NULL; a++) {
        const int64_t m = sets->starts[tasks[a] + 1] - sets->starts[tasks[a]];
        if (m > largest) largest = m;
    }
    TAKE_ROOM(VISIT_ROOM(largest) + 2 * largest, largest)
    double *pull = room + VISIT_ROOM(largest), *on_set = pull + largest;
    BEGIN_SWEEPS(n_tasks)
            const int64_t k = tasks[place], lo = sets == NULL ? k * d : sets->starts[k], m = sets == NULL ? d : sets->starts[k + 1] - lo;
            const int64_t *features = sets == NULL ? NULL : sets->features + lo;
            const double *G = H + (sets != NULL ? sets->corners[k] : n_grams > 1 ? k * d * d : 0);
            double *own_W = W + k * d, *w = features == NULL ? own_W : on_set;
            const double own = pull_of(C, k, W, d, mean, features, m, pull);
            for (int64_t b = 0; b < m; b++) pull[b] = q[lo + b] - pull[b];
            for (int64_t b = 0; b < m && features != NULL; b++) w[b] = own_W[features[b]];
            const mssl_penalty own_g = penalty_from(g, lo);
            decrease += visit(G, m, scale[k], own, pull, &own_g, w, HW + lo, active, room, 0.1 * enough / (double)n_tasks);
            for (int64_t b = 0; b < m && features != NULL; b++) own_W[features[b]] = w[b];
            for (int64_t b = 0; b < m; b++) mean[at(features, b)] += C->u[k] * w[b];
    END_SWEEPS
}

/* ---- on the stored columns of the features ---- */

static double design_pass(const mssl_columns *X, int64_t k, const double *c, double total, const double *mu, const double *sums,
                          const double *h, double own, const double *pull, const mssl_penalty *g, double *w, double *v, double *state,
                          const int64_t *coordinates, int64_t n) {
    const int64_t *indptr = X->starts + X->base[k], start = X->row_start[k];
    double gained = 0.0;
    for (int64_t p = 0; p < n; p++) {
        const int64_t j = at(coordinates, p);
        const double curvature = h[j] + own;
        if (curvature <= 0.0) continue;
        const int64_t lo = indptr[j], size = indptr[j + 1] - lo;
        const double *restrict column = X->data + lo;
        double *restrict part = v + start;
        const double *restrict weight = c + start;
        double product = X->is_sparse ? 0.0 : dot(column, part, size);
        if (X->is_sparse) {
            const int64_t *restrict rows = X->rows + lo;
            for (int64_t i = 0; i < size; i++) product += column[i] * part[rows[i]];
        }
        const double old = w[j], along = product + state[0] * sums[j] - mu[j] * (state[1] + state[0] * total);
        const double a = h[j] * old + along - pull[j];
        const double new = minimiser(g, j, a, curvature, 1.0 / curvature);
        if (new != old) {
            const double step = new - old;
            w[j] = new;
            gained += gain(g, j, a, curvature, old, new);
            if (X->is_sparse) {
                const int64_t *restrict rows = X->rows + lo;
                for (int64_t i = 0; i < size; i++) part[rows[i]] -= step * weight[rows[i]] * column[i];
            } else {
                for (int64_t i = 0; i < size; i++) part[i] -= step * weight[i] * column[i];
            }
            state[0] += step * mu[j];
            state[1] -= step * sums[j];
        }
    }
    return gained;
}

int64_t MSSL(design_sweeps)(int64_t K, int64_t d, const mssl_columns *X, const double *c, const double *totals, const double *mu,
                            const double *sums, const double *h, const mssl_coupling *C, const mssl_penalty *g, double *W, double *v,
                            double *state, double *mean, const int64_t *tasks, int64_t n_tasks, int64_t n_sweeps, double enough,
                            double made[2], mssl_watch *watch) {
    TAKE_ROOM(d, d)
    double *pull = room;
    BEGIN_SWEEPS(n_tasks)
            const int64_t k = tasks[place], row = k * d;
            const double own = pull_of(C, k, W, d, mean, NULL, d, pull);
            const mssl_penalty own_g = penalty_from(g, row);
            double stop = 0.0;
            const int64_t *coordinates = NULL;
            int64_t n = d;
            for (int pass = 0; pass <= SUPPORT_PASSES; pass++) {
                const double gained = design_pass(X, k, c, totals[k], mu + row, sums + row, h + row, own, pull, &own_g, W + row, v,
                                                  state + 2 * k, coordinates, n);
                decrease += gained;
                if (pass == 0) {
                    stop = most(0.01 * gained, 0.1 * enough / (double)n_tasks);
                    n = support_of(W + row, d, active);
                    coordinates = active;
                }
                if (gained <= stop) break;
            }
            add_row(C->u[k], W + row, d, mean);
    END_SWEEPS
}

/* ---- tasks coupled through their residuals: A in compressed rows ---- */

int64_t MSSL(shared_sweeps)(int64_t K, int64_t d, const double *G, const double *q, const double *ridge, const mssl_coupling *A,
                            const mssl_penalty *g, double *W, double *D, int64_t n_sweeps, double enough, double made[2],
                            mssl_watch *watch) {
    TAKE_ROOM(VISIT_ROOM(d) + 2 * d, d)
    double *pull = room + VISIT_ROOM(d), *hw = pull + d;
    BEGIN_SWEEPS(K)
            const int64_t k = place;
            memset(pull, 0, (size_t)d * sizeof(double));
            const double s = add_neighbours(A, k, D, d, pull);
            for (int64_t j = 0; j < d; j++) {
                pull[j] = s * q[k * d + j] - pull[j];
                hw[j] = s * (D[k * d + j] + q[k * d + j]);
            }
            const mssl_penalty own_g = penalty_from(g, k * d);
            decrease += visit(G, d, s, ridge[k], pull, &own_g, W + k * d, hw, active, room, 0.1 * enough / (double)K);
            for (int64_t j = 0; j < d; j++) D[k * d + j] = hw[j] / s - q[k * d + j];
    END_SWEEPS
}

int64_t MSSL(aligned_sweeps)(int64_t K, int64_t d, int64_t n, const double *X, const double *H, const double *ridge,
                             const mssl_coupling *A, const mssl_penalty *g, double *W, double *HW, double *E, int64_t n_sweeps,
                             double enough, double made[2], mssl_watch *watch) {
    TAKE_ROOM(VISIT_ROOM(d) + 3 * d + n, d)
    double *q = room + VISIT_ROOM(d), *hw = q + d, *old = hw + d, *z = old + d;
    BEGIN_SWEEPS(K)
            const int64_t k = place;
            memset(z, 0, (size_t)n * sizeof(double));
            const double s = add_neighbours(A, k, E, n, z);
            add_row(s, E + k * n, n, z);
            memcpy(old, W + k * d, (size_t)d * sizeof(double));
            for (int64_t j = 0; j < d; j++) {
                hw[j] = s * HW[k * d + j];
                q[j] = dot(X + (k * d + j) * n, z, n) + hw[j];
            }
            const mssl_penalty own_g = penalty_from(g, k * d);
            decrease += visit(H + k * d * d, d, s, ridge[k], q, &own_g, W + k * d, hw, active, room, 0.1 * enough / (double)K);
            for (int64_t j = 0; j < d; j++) {
                HW[k * d + j] = hw[j] / s;
                if (W[k * d + j] != old[j]) add_row(old[j] - W[k * d + j], X + (k * d + j) * n, n, E + k * n);
            }
    END_SWEEPS
}

static double feature_pass(const double *X, int64_t n, const double *h, double s, double own, const mssl_penalty *g, double *w, double *z,
                           const int64_t *coordinates, int64_t m) {
    double gained = 0.0;
    for (int64_t p = 0; p < m; p++) {
        const int64_t j = at(coordinates, p);
        const double curvature = s * h[j] + own;
        if (curvature <= 0.0) continue;
        const double old = w[j], a = s * h[j] * old + dot(X + j * n, z, n);
        const double new = minimiser(g, j, a, curvature, 1.0 / curvature);
        if (new != old) {
            w[j] = new;
            gained += gain(g, j, a, curvature, old, new);
            add_row(s * (old - new), X + j * n, n, z);
        }
    }
    return gained;
}

int64_t MSSL(feature_sweeps)(int64_t K, int64_t d, int64_t n, int64_t n_blocks, const double *X, const double *h,
                             const double *ridge, const mssl_coupling *A, const mssl_penalty *g, double *W, double *E,
                             int64_t n_sweeps, double enough, double made[2], mssl_watch *watch) {
    TAKE_ROOM(2 * n, d)
    double *z = room, *others = z + n;
    BEGIN_SWEEPS(K)
            const int64_t k = place;
            const int64_t block = n_blocks > 1 ? k : 0;
            memset(z, 0, (size_t)n * sizeof(double));
            const double s = add_neighbours(A, k, E, n, z);
            memcpy(others, z, (size_t)n * sizeof(double));
            add_row(s, E + k * n, n, z);
            const mssl_penalty own_g = penalty_from(g, k * d);
            const double *own_X = X + block * d * n, *own_h = h + block * d;
            double gained = feature_pass(own_X, n, own_h, s, ridge[k], &own_g, W + k * d, z, NULL, d);
            decrease += gained;
            const double stop = most(0.01 * gained, 0.1 * enough / (double)K);
            const int64_t m = support_of(W + k * d, d, active);
            for (int pass = 0; pass < SUPPORT_PASSES && gained > stop; pass++) {
                gained = feature_pass(own_X, n, own_h, s, ridge[k], &own_g, W + k * d, z, active, m);
                decrease += gained;
            }
            for (int64_t i = 0; i < n; i++) E[k * n + i] = (z[i] - others[i]) / s;
    END_SWEEPS
}

/* ---- whole weight steps of few tasks, certificate included: P and its inverse are dense ---- */

static void dense_product(const double *A, const double *B, int64_t K, int64_t d, double *out) {
    memset(out, 0, (size_t)(K * d) * sizeof(double));
    for (int64_t k = 0; k < K; k++) add_rows(A + k * K, NULL, K, B, d, d, out + k * d);
}

/* out = C W, C = P - rho u u', and mean = W'u. */
static void coupled(const mssl_prior *C, int64_t K, int64_t d, const double *W, double *mean, double *out) {
    memset(mean, 0, (size_t)d * sizeof(double));
    add_rows(C->u, NULL, K, W, d, d, mean);
    dense_product(C->P, W, K, d, out);
    if (C->rho == 0.0) return;
    for (int64_t k = 0; k < K; k++) add_row(-C->rho * C->u[k], mean, d, out + k * d);
}

/* 1/2 tr(R C^-1 R'), C^-1 = P^-1 + tau 11'. */
static double inverse_quadratic(const mssl_prior *C, int64_t K, int64_t d, const double *R, double *room) {
    dense_product(C->inverse, R, K, d, room);
    double total = dot(R, room, K * d);
    if (C->tau > 0.0)
        for (int64_t j = 0; j < d; j++) {
            double column = 0.0;
            for (int64_t k = 0; k < K; k++) column += R[k * d + j];
            total += C->tau * column * column;
        }
    return 0.5 * total;
}

/* The bound of mssl.model.bounds.WeightBound; mean = W'u is written. room: 3 K d. */
static double weight_gap(const mssl_prior *C, int64_t K, int64_t d, const double *q, const mssl_penalty *g, const double *W,
                         const double *HW, double *mean, double *room) {
    const int64_t n = K * d;
    double *G = room, *U = G + n, *T = U + n, slack = 0.0;
    coupled(C, K, d, W, mean, G);
    for (int64_t a = 0; a < n; a++) {
        const double x = G[a] + HW[a] - q[a], t = g->strengths[a];
        double clipped = least(-x, t);
        if (!g->positive) clipped = most(clipped, -t);
        G[a] = U[a] = x + clipped;
        if (W[a] != 0.0) {
            slack += t * fabs(W[a]) - clipped * W[a];
            U[a] = x + copysign(t, W[a]);
        }
    }
    const double on_support = inverse_quadratic(C, K, d, U, T);
    if (slack >= on_support) return on_support;
    return least(on_support, inverse_quadratic(C, K, d, G, T) + most(slack, 0.0));
}

int64_t MSSL(weight_descent)(int64_t K, int64_t d, int64_t n_grams, const double *H, const double *scale, const double *q,
                             const mssl_penalty *g, const mssl_prior *C, double *W, double *HW, double tol, int64_t max_sweeps,
                             double made[2], mssl_watch *watch) {
    double *mean = malloc((size_t)(d + 2 * K * K + 3 * K * d + 2 * K + 1) * sizeof(double));
    made[0] = 0.0, made[1] = INFINITY;
    if (mean == NULL) return MSSL_BROKE;
    double *values = mean + d, *rest = values + K * K, enough = tol;
    int64_t *tasks = (int64_t *)(rest + 3 * K * d), *starts = tasks + K, *columns = starts + K + 1, n = 0;
    for (int64_t k = 0; k < K; k++) {
        tasks[k] = k, starts[k] = n;
        for (int64_t m = 0; m < K; m++)
            if (C->P[k * K + m] != 0.0 || k == m) columns[n] = m, values[n++] = C->P[k * K + m];
    }
    starts[K] = n;
    const mssl_coupling sparse = {starts, columns, values, C->u, C->rho};
    made[1] = weight_gap(C, K, d, q, g, W, HW, mean, rest);
    int64_t ended = MSSL_DONE;
    while (made[1] > tol && made[0] < (double)max_sweeps) {
        const int64_t left = max_sweeps - (int64_t)made[0], burst = left < SWEEP_BURST ? left : SWEEP_BURST;
        double swept[2];
        ended = MSSL(gram_sweeps)(K, d, n_grams, H, scale, q, NULL, &sparse, g, W, HW, mean, tasks, K, burst, enough, swept, watch);
        if (ended != MSSL_DONE) break;
        made[0] += swept[0];
        made[1] = weight_gap(C, K, d, q, g, W, HW, mean, rest);
        if (swept[1] == 0.0) break; /* no weight changes any more */
        if (made[1] > tol) enough = least(enough, 0.5 * swept[1] * tol / made[1]);
    }
    free(mean);
    return ended == MSSL_DONE && made[1] > tol ? MSSL_LIMIT : ended;
}

/* Row k of out = s_k H_k v_k (scale NULL: ones); rows of a Gram whose weight is zero are not read. */
void MSSL(gram_products)(int64_t K, int64_t d, int64_t n_grams, const double *H, const double *scale, const double *V, double *out) {
    memset(out, 0, (size_t)(K * d) * sizeof(double));
    for (int64_t k = 0; k < K; k++) {
        double *restrict row = out + k * d, x[4];
        int64_t used[4], n = 0;
        const double *v = V + k * d, *G = H + (n_grams > 1 ? k * d * d : 0);
        for (int64_t j = 0; j < d; j++) {
            if (v[j] != 0.0) x[n] = scale == NULL ? v[j] : scale[k] * v[j], used[n++] = j;
            if (n == 4 || (j + 1 == d && n > 0)) add_rows(x, used, n, G, d, d, row), n = 0;
        }
    }
}

/* Renew the inverses of H_k + C_kk I whose ridge has changed too much; returns 0 if a block is not positive definite. */
static int precondition(int64_t K, int64_t d, int64_t n_grams, const double *H, const double *scale, const mssl_prior *C, double *ridge,
                        double *inverses, double *room) {
    double *block = room, *R = block + d * d;
    for (int64_t k = 0; k < K; k++) {
        const double own = C->P[k * K + k] - C->rho * C->u[k] * C->u[k];
        if (ridge[k] <= 2.0 * own && own <= 2.0 * ridge[k]) continue;
        const double *G = H + (n_grams > 1 ? k * d * d : 0);
        double trace = 0.0;
        for (int64_t j = 0; j < d; j++) trace += scale[k] * G[j * d + j];
        const double lift = own + 1e-12 * (trace / (double)d + own);
        for (int64_t a = 0; a < d * d; a++) block[a] = scale[k] * G[a];
        for (int64_t j = 0; j < d; j++) block[j * d + j] += lift;
        if (isnan(factor(block, d, R))) return 0;
        invert(R, d, inverses + k * d * d);
        ridge[k] = own;
    }
    return 1;
}

int64_t MSSL(weight_system)(int64_t K, int64_t d, int64_t n_grams, const double *H, const double *scale, const double *q,
                            const mssl_prior *C, double *W, double *HW, double *ridge, double *inverses, double tol, int64_t max_iter,
                            double gap[1]) {
    const int64_t n = K * d;
    double *room = malloc((size_t)(5 * n + 2 * d * d + d + 1) * sizeof(double));
    *gap = INFINITY;
    if (room == NULL) return 0;
    double *R = room, *Z = R + n, *D = Z + n, *A = D + n, *T = A + n, *mean = T + n;
    int64_t made = 0;
    const int regular = precondition(K, d, n_grams, H, scale, C, ridge, inverses, mean + d);
    for (int restart = 0; regular && restart < 3; restart++) { /* a restart computes the true bound */
        coupled(C, K, d, W, mean, A);
        for (int64_t a = 0; a < n; a++) R[a] = q[a] - HW[a] - A[a];
        const double previous = *gap;
        *gap = inverse_quadratic(C, K, d, R, T);
        if (*gap <= tol || !(*gap < 0.5 * previous) || made >= max_iter) break;
        memset(D, 0, (size_t)n * sizeof(double));
        double last = INFINITY;
        while (made < max_iter) {
            MSSL(gram_products)(K, d, K, inverses, NULL, R, Z);
            const double now = dot(R, Z, n);
            if (!(now > 0.0)) break;
            const double keep = now / last;
            for (int64_t a = 0; a < n; a++) D[a] = Z[a] + keep * D[a];
            last = now;
            coupled(C, K, d, D, mean, A);
            MSSL(gram_products)(K, d, n_grams, H, scale, D, T);
            double curved = 0.0;
            for (int64_t a = 0; a < n; a++) curved += D[a] * (A[a] + T[a]);
            if (!(curved > 0.0)) break;
            const double step = now / curved;
            for (int64_t a = 0; a < n; a++) {
                W[a] += step * D[a];
                HW[a] += step * T[a];
                R[a] -= step * (A[a] + T[a]);
            }
            made++;
            if (!(inverse_quadratic(C, K, d, R, T) > tol)) break;
        }
    }
    free(room);
    return made;
}
