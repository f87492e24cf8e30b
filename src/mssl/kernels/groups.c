/* Joint feature selection: descent over features with the weights of all tasks; see mssl.h. */
#include "mssl.h"

#include "dense.h"

#define SECULAR 50
#define HALVINGS 6
#define DAMP 0.01         /* first share of its diagonal that is added to the Hessian after a failed Newton step */
#define ARMIJO 1e-4
#define FORCING 0.1       /* share of its residual at which a Newton system counts as solved */
#define MOST_PRODUCTS 60  /* limit of products for a Newton system */
#define NOTHING 1e-30     /* a smaller gain of a sweep, relative to the loss at zero, counts as rounding */
#define PATIENCE 5        /* number of sweeps after which a Newton step is tried even if the features in use still change */

/* 1/2 sum_k s_k v_k'H_k v_k + 1/2 tr(V'CV): one H for all tasks or one per task. */
typedef struct {
    int64_t K, m, n_grams;
    const double *H, *scale;
    const mssl_coupling *C;
} form;

static inline const double *gram_row(const form *f, int64_t k, int64_t j) {
    return f->H + ((f->n_grams > 1 ? k * f->m : 0) + j) * f->m;
}

static void feature_dots(const double *A, const double *B, int64_t K, int64_t m, double *restrict out) {
    memset(out, 0, (size_t)m * sizeof(double));
    for (int64_t k = 0; k < K; k++) {
        const double *restrict a = A + k * m, *restrict b = B + k * m;
        for (int64_t j = 0; j < m; j++) out[j] += a[j] * b[j];
    }
}

/* argmin 1/2 sum h_k v_k^2 - a'v + alpha |v|: v_k = a_k r / (h_k r + alpha) with r = |v|. */
static void group_minimiser(const double *a, const double *h, int64_t K, double alpha, double *out) {
    double square = 0.0;
    for (int64_t k = 0; k < K; k++) square += a[k] * a[k], out[k] = 0.0;
    if (sqrt(square) <= alpha * (1.0 + 1e-12)) return;
    /* 1 / |a / (h r + alpha)| - 1 is increasing and concave in r. Newton steps from the left therefore never overshoot, and with
       equal h the first step ends at the root. */
    double r = 0.0;
    for (int i = 0; i < SECULAR; i++) {
        double slope = 0.0;
        square = 0.0;
        for (int64_t k = 0; k < K; k++) {
            const double inverse = 1.0 / (h[k] * r + alpha), share = (a[k] * inverse) * (a[k] * inverse);
            square += share;
            slope += share * h[k] * inverse;
        }
        const double step = square * (sqrt(square) - 1.0) / slope;
        if (!(step > 0.0 && isfinite(step))) break;
        r += step;
        if (step <= 1e-15 * r) break;
    }
    for (int64_t k = 0; k < K; k++) out[k] = a[k] * r / (h[k] * r + alpha);
}

/* Minimise a majoriser over feature j; returns a lower bound of the gain. work: 3 K. */
static double visit_feature(const form *f, int64_t j, const double *lift, double alpha, double *V, double *G, double *work) {
    const int64_t K = f->K, m = f->m;
    double *a = work, *h = a + K, *step = h + K, square = 0.0;
    int used = 0;
    for (int64_t k = 0; k < K; k++) {
        used |= V[k * m + j] != 0.0;
        square += G[k * m + j] * G[k * m + j];
    }
    if (!used && square <= alpha * alpha) return 0.0;
    for (int64_t k = 0; k < K; k++) {
        h[k] = f->scale[k] * gram_row(f, k, j)[j] + lift[k];
        a[k] = h[k] * V[k * m + j] - G[k * m + j];
    }
    group_minimiser(a, h, K, alpha, step);
    double gained = 0.0;
    for (int64_t k = 0; k < K; k++) {
        const double new = step[k];
        step[k] -= V[k * m + j];
        V[k * m + j] = new;
        gained += 0.5 * h[k] * step[k] * step[k];
    }
    if (gained > 0.0)
        for (int64_t k = 0; k < K; k++) {
            add_row(f->scale[k] * step[k], gram_row(f, k, j), m, G + k * m);
            const double own = add_neighbours(f->C, k, step, 1, G + k * m + j);
            G[k * m + j] += own * step[k];
        }
    return gained;
}

/* Bound of the suboptimality on these features; squares gets the squared norms of the V_.j. */
static double group_gap(const form *f, const double *V, const double *G, const double *q, double alpha, double constant, double *squares) {
    const int64_t K = f->K, m = f->m;
    feature_dots(G, G, K, m, squares);
    double largest = 0.0, size = 0.0;
    for (int64_t j = 0; j < m; j++) largest = most(largest, squares[j]);
    feature_dots(V, V, K, m, squares);
    for (int64_t j = 0; j < m; j++) size += alpha * sqrt(squares[j]);
    const double along = dot(G, V, K * m), loss = constant + 0.5 * (along - dot(V, q, K * m));
    return most(size + along, 0.0) + most(sqrt(largest) - alpha, 0.0) * (loss + size) / alpha;
}

/* The Hessian of the smooth part times D, which holds n features (all if `used` is NULL). */
static void hessian_product(const form *f, const double *D, const int64_t *used, int64_t n, double *out) {
    const int64_t K = f->K, m = f->m;
    for (int64_t k = 0; k < K; k++) {
        double *restrict row = out + k * m;
        memset(row, 0, (size_t)m * sizeof(double));
        add_rows(D + k * n, used, n, gram_row(f, k, 0), m, m, row);
        for (int64_t j = 0; j < m; j++) row[j] *= f->scale[k];
        if (used == NULL) {
            const double own = add_neighbours(f->C, k, D, m, row);
            add_row(own, D + k * m, m, row);
            continue;
        }
        for (int64_t p = f->C->starts[k]; p < f->C->starts[k + 1]; p++)
            for (int64_t i = 0; i < n; i++) row[used[i]] += f->C->values[p] * D[f->C->columns[p] * n + i];
    }
}

/* The quantities of a Newton step if no feature is at zero. alpha |v| has the curvature bend (I - u u'). The Hessian's blocks of a feature,
   with only the diagonal of C and with damp times their own diagonal added, have the inverse E + pull (E u)(E u)'. */
static void linearise(const form *f, double alpha, double damp, const double *V, const double *G, const double *sizes, double *U,
                      double *E, double *bend, double *pull, double *R) {
    const int64_t K = f->K, m = f->m;
    for (int64_t j = 0; j < m; j++) bend[j] = alpha / sizes[j], pull[j] = 0.0;
    for (int64_t k = 0; k < K; k++) {
        double own = 0.0;
        for (int64_t p = f->C->starts[k]; p < f->C->starts[k + 1]; p++)
            if (f->C->columns[p] == k) own = f->C->values[p];
        for (int64_t j = 0; j < m; j++) {
            const int64_t a = k * m + j;
            U[a] = V[a] / sizes[j];
            E[a] = 1.0 / ((1.0 + damp) * (f->scale[k] * gram_row(f, k, j)[j] + own + bend[j]));
            pull[j] += U[a] * U[a] * E[a];
            R[a] = -(G[a] + alpha * U[a]);
        }
    }
    for (int64_t j = 0; j < m; j++) pull[j] = bend[j] / most(1.0 - bend[j] * pull[j], 1e-10);
}

static void precondition(const double *U, const double *E, const double *pull, const double *R, int64_t K, int64_t m, double *dots,
                         double *out) {
    memset(dots, 0, (size_t)m * sizeof(double));
    for (int64_t k = 0; k < K; k++)
        for (int64_t j = 0; j < m; j++) {
            const int64_t a = k * m + j;
            out[a] = E[a] * R[a];
            dots[j] += U[a] * out[a];
        }
    for (int64_t k = 0; k < K; k++)
        for (int64_t j = 0; j < m; j++) out[k * m + j] += pull[j] * dots[j] * E[k * m + j] * U[k * m + j];
}

/* Conjugate gradients for the Newton step into D; R changes. Returns the number of products. room: 3 K m. */
static int64_t newton_direction(const form *f, double damp, const double *U, const double *E, const double *bend, const double *pull,
                                double *R, double *dots, double *D, double *room) {
    const int64_t K = f->K, m = f->m, n = K * m;
    double *Z = room, *P = Z + n, *Q = P + n;
    precondition(U, E, pull, R, K, m, dots, Z);
    memcpy(P, Z, (size_t)n * sizeof(double));
    memset(D, 0, (size_t)n * sizeof(double));
    double size = dot(R, Z, n);
    const double stop = FORCING * FORCING * size, more = damp / (1.0 + damp);
    int64_t made = 0;
    while (made < MOST_PRODUCTS && size > stop) {
        made++;
        hessian_product(f, P, NULL, m, Q);
        feature_dots(U, P, K, m, dots);
        for (int64_t k = 0; k < K; k++)
            for (int64_t j = 0; j < m; j++) {
                const int64_t a = k * m + j;
                Q[a] += bend[j] * (P[a] - dots[j] * U[a]) + more / E[a] * P[a];
            }
        const double curved = dot(P, Q, n);
        if (!(curved > 0.0)) break;
        const double t = size / curved;
        for (int64_t a = 0; a < n; a++) D[a] += t * P[a], R[a] -= t * Q[a];
        precondition(U, E, pull, R, K, m, dots, Z);
        const double before = size;
        size = dot(R, Z, n);
        for (int64_t a = 0; a < n; a++) P[a] = Z[a] + size / before * P[a];
    }
    return made;
}

/* out = t D, shortened to end at zero if a feature would pass it; returns the change of sum_j |V_.j|. dots: the products of
   the D_.j with the directions of the V_.j. */
static double bent_step(double t, const double *V, const double *D, const double *sizes, const double *dots, int64_t K, int64_t m,
                        double *out) {
    double change = 0.0;
    for (int64_t i = 0; i < m; i++) {
        const int passes = -t * dots[i] >= sizes[i];
        double more = 0.0, square = 0.0;
        for (int64_t k = 0; k < K; k++) {
            const int64_t a = k * m + i;
            out[a] = passes ? -V[a] : t * D[a];
            more += (2.0 * V[a] + out[a]) * out[a];
            square += (V[a] + out[a]) * (V[a] + out[a]);
        }
        change += more / (sqrt(square) + sizes[i]); /* for short steps, a difference of norms would be rounding only */
    }
    return change;
}

/* A Newton step on the n features in use; V and G change. Returns the number of products; *length gets the length of the step.
   room: n_grams n^2 + (10 n + m) K + 4 n. */
static int64_t newton(const form *f, double alpha, double damp, const int64_t *used, int64_t n, double *V, double *G, double *room,
                      double *length) {
    const int64_t K = f->K, m = f->m, Kn = K * n;
    const double *H = f->H;
    if (n < m) {
        double *part = room;
        room += f->n_grams * n * n;
        for (int64_t g = 0; g < f->n_grams; g++)
            for (int64_t i = 0; i < n; i++) {
                const double *row = f->H + (g * m + used[i]) * m;
                for (int64_t j = 0; j < n; j++) part[(g * n + i) * n + j] = row[used[j]];
            }
        H = part;
    }
    const form inside = {K, n, f->n_grams, H, f->scale, f->C};
    double *v = room, *g = v + Kn, *U = g + Kn, *E = U + Kn, *R = E + Kn, *D = R + Kn, *step = D + Kn, *more = step + Kn;
    double *HD = more + 3 * Kn, *sizes = HD + K * m, *bend = sizes + n, *pull = bend + n, *dots = pull + n;
    for (int64_t k = 0; k < K; k++)
        for (int64_t i = 0; i < n; i++) v[k * n + i] = V[k * m + used[i]], g[k * n + i] = G[k * m + used[i]];
    feature_dots(v, v, K, n, sizes);
    for (int64_t i = 0; i < n; i++) sizes[i] = sqrt(sizes[i]);
    linearise(&inside, alpha, damp, v, g, sizes, U, E, bend, pull, R);
    int64_t made = newton_direction(&inside, damp, U, E, bend, pull, R, dots, D, more);
    feature_dots(U, D, K, n, dots);
    const double slope = dot(g, D, Kn) + alpha * dot(U, D, Kn);
    double t = 1.0;
    for (int halving = 0; halving < HALVINGS; halving++, t *= 0.5) {
        double change = alpha * bent_step(t, v, D, sizes, dots, K, n, step);
        hessian_product(f, step, used, n, HD);
        made++;
        change += dot(g, step, Kn);
        for (int64_t k = 0; k < K; k++)
            for (int64_t i = 0; i < n; i++) change += 0.5 * HD[k * m + used[i]] * step[k * n + i];
        if (change <= ARMIJO * t * slope && slope < 0.0) {
            for (int64_t k = 0; k < K; k++)
                for (int64_t i = 0; i < n; i++) V[k * m + used[i]] += step[k * n + i];
            for (int64_t a = 0; a < K * m; a++) G[a] += HD[a];
            *length = t;
            return made;
        }
    }
    *length = 0.0;
    return made;
}

int64_t MSSL(group_descent)(int64_t K, int64_t m, int64_t n_grams, const double *H, const double *scale, const mssl_coupling *C,
                            const double *lift, double alpha, const double *q, double constant, double *V, double *G, double tol,
                            int64_t max_iter, double made[2], mssl_watch *watch) {
    const form f = {K, m, n_grams, H, scale, C};
    double *work = malloc((size_t)(n_grams * m * m + (11 * m + 3) * K + 7 * m + 1) * sizeof(double));
    if (work == NULL) return MSSL_BROKE;
    double *squares = work + 3 * K, *rest = squares + m, moved = INFINITY, damp = 0.0;
    int64_t *active = (int64_t *)(rest + n_grams * m * m + 11 * m * K + 5 * m), ended = MSSL_DONE, before = -1, waited = 0, done = 0;
    made[1] = INFINITY;
    while (done < max_iter && moved > NOTHING * constant && ended == MSSL_DONE) {
        moved = 0.0;
        for (int64_t j = 0; j < m; j++) moved += visit_feature(&f, j, lift, alpha, V, G, work);
        done++;
        made[1] = group_gap(&f, V, G, q, alpha, constant, squares);
        if (!(made[1] > tol)) break;
        int64_t n = 0;
        for (int64_t j = 0; j < m; j++)
            if (squares[j] > 0.0) active[n++] = j;
        waited++;
        if (n > 0 && (n == before || waited == PATIENCE)) {
            double length;
            done += newton(&f, alpha, damp, active, n, V, G, rest, &length);
            /* If more features are in use than the rows determine, steps are long and inaccurate. */
            damp = length == 0.0 ? most(10.0 * damp, DAMP) : length == 1.0 ? 0.1 * damp : damp;
            waited = 0;
        }
        before = n;
        if (mssl_stopped(watch)) ended = MSSL_STOPPED;
    }
    made[0] = (double)done;
    free(work);
    return ended;
}
