/* The graphical lasso on matrices scaled to a unit diagonal; see mssl.h for what each function computes. */
#include "mssl.h"

#include "dense.h"

#define DENSE_UP_TO 64    /* largest number of variables for which the scaled S and L are stored; otherwise columns are scaled on use */
#define PASSES 100        /* limit of passes over the variables of a column */
#define MOST_PASSES 2000  /* limit of passes if W would otherwise become indefinite */
#define FINEST 1e-12      /* a smaller change of a coefficient counts as rounding */
#define ROUNDS 20         /* limit of rounds in which violators join the variables of a column */
#define SINGULAR 1e-7     /* a factor with a smaller entry on its diagonal is not used */
#define ILL_CONDITIONED 5e-3 /* if a pivot of the start is smaller, columns are solved accurately: otherwise W may become indefinite */
#define SPARSE_FROM 150   /* least number of variables for which the factorisation uses the zeros of Omega */
#define INVERTIBLE 1e-15  /* least pivot per variable of a moment that is inverted */
#define STOP 0.3          /* the descent stops if its estimate of the gap is below this share of the target */
#define BURST 10          /* number of sweeps after which Newton steps are tried */
#define NEWTON_SWEEPS 100 /* after this number of sweeps of few variables, Newton steps are not tried again */
#define LOOK 50           /* sweeps after which large problems compute the gap: far from the optimum their estimate is too large */
#define MOST_FACE 160     /* largest number of entries of Omega for which Newton steps are faster */
#define NEWTON_STEPS 8
#define POLISHED 1e-15    /* gain of the last sweep per variable at which Omega has six digits: the gap may be 1e3 times as large */
#define POLISHING 200     /* limit of the columns that are solved again for these digits, usually in less than a fifth of the time */
#define ATTEMPTS 3        /* limit of solutions with smaller and smaller tolerances, if the gap is too large for the objective */
#define SMALL 400         /* largest number of variables for which a factorisation costs less than the wide bound of a distant point */
#define NEAR 0.2          /* relative distance of the dual point beyond which a point is distant: a larger one saves factorisations, */
#define NEAR_LARGE 0.8    /* but gives wider bounds. This one is for more variables */
#define NEAR_ENOUGH 1.0   /* largest decrement for which Newton steps from a warm start are faster than descent */

/* ---- the working state of one component ---- */

typedef struct {
    int64_t m, p;
    int filled;         /* whether S and L are stored */
    const double *whole, *weights; /* p x p: S and the edges' weights (or NULL) in the caller's units, */
    const int64_t *own;            /* m: the component's variables among the p (NULL: all of them), */
    const double *unit;            /* m: 1 / sqrt of the diagonal of S', */
    double alpha;                  /* and the penalty's strength */
    double *S, *L;      /* m x m: scaled moment and penalties (INFINITY forbids), up to DENSE_UP_TO variables */
    double *W;          /* m x m: dual point */
    int64_t *count;     /* m: non-zero regression coefficients of each column */
    int32_t *index;     /* m x m: their variables, */
    double *value;      /* m x m: and the coefficients */
    double *diagonal;   /* m: the diagonal of Omega */
    double *gram;       /* 2 m x m: room for the Gram matrix of a column's variables, and for factors of it */
    double *omega;      /* m x m: Omega where it is dense */
    double *factor;     /* m x m: its factor, or what elimination leaves of it */
    double *product;    /* m x m: Omega W - I */
    double *away;       /* m x m: a dual point less the inverse of Omega */
    int64_t *starts;    /* m + 1: rows of Omega, */
    int32_t *columns;   /* m x m: its columns (as many as there are), */
    double *entries;    /* and its entries (in gram) */
    int64_t *rank;      /* m: order of elimination */
    int64_t eliminated; /* number of eliminated variables, -1 if the factor is dense */
    double *vectors;    /* 10 m */
    int64_t *active;    /* 2 m */
    double before;      /* the gain of the last sweep, infinite at first */
    double column_tol;  /* the change of a coefficient at which a column counts as solved */
} state;

static int64_t room_for(int64_t m) { return (m <= DENSE_UP_TO ? 12 : 10) * m * m + 22 * m + 64; }

static inline double moment(const state *s, int64_t i, int64_t j) {
    if (i == j) return 1.0;
    if (s->filled) return s->S[i * s->m + j];
    return s->whole[at(s->own, i) * s->p + at(s->own, j)] * (s->unit[i] * s->unit[j]);
}

static inline double price(const state *s, int64_t i, int64_t j) {
    if (i == j) return 0.0;
    if (s->filled) return s->L[i * s->m + j];
    const double *w = s->weights;
    return (w == NULL ? s->alpha : s->alpha * w[at(s->own, i) * s->p + at(s->own, j)]) * (s->unit[i] * s->unit[j]);
}

/* Whether any edge has a price. */
static int has_price(const state *s) {
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < i; j++)
            if (price(s, i, j) > 0.0) return 1;
    return 0;
}

/* Lay out a component in the room and store the scaled S and L of few variables. A component of all variables uses the space of the
   results as room until the end. */
static void lay_out(state *s, int64_t m, double *room, double *Omega, double *Sigma) {
    const int64_t held = m <= DENSE_UP_TO ? m * m : 0;
    s->m = m;
    s->S = room, room += held;
    s->L = room, room += held;
    s->W = room, room += m * m;
    s->value = room, room += m * m;
    s->gram = room, room += 3 * m * m;
    s->omega = room, room += m * m;
    s->away = room, room += m * m;
    if (Omega == NULL) {
        s->factor = room, room += m * m;
        s->product = room, room += m * m;
    } else {
        s->factor = Omega;
        s->product = Sigma;
    }
    s->entries = s->gram;
    s->columns = (int32_t *)(s->gram + m * m);
    s->index = (int32_t *)room, room += (m * m + 1) / 2;
    s->diagonal = room, room += m;
    s->vectors = room, room += 10 * m;
    s->count = (int64_t *)room, room += m;
    s->starts = (int64_t *)room, room += m + 1;
    s->rank = (int64_t *)room, room += m;
    s->active = (int64_t *)room;
    if (m > DENSE_UP_TO) return;
    for (int64_t a = 0; a < m; a++)
        for (int64_t b = 0; b < m; b++) s->S[a * m + b] = moment(s, a, b), s->L[a * m + b] = price(s, a, b);
    s->filled = 1;
}

/* Row j of the scaled S and L; they stay valid until the next call. */
static void load_row(const state *s, int64_t j, const double **S, const double **L) {
    const int64_t m = s->m;
    if (s->filled) {
        *S = s->S + j * m, *L = s->L + j * m;
        return;
    }
    double *restrict moments = s->vectors + 8 * m, *restrict prices = s->vectors + 9 * m;
    const int64_t *restrict own = s->own, first = at(own, j) * s->p;
    const double r = s->unit[j], *restrict unit = s->unit;
    const double *restrict row = s->whole + first, *restrict w = s->weights == NULL ? NULL : s->weights + first;
    for (int64_t i = 0; i < m; i++) {
        moments[i] = row[at(own, i)] * (r * unit[i]);
        prices[i] = (w == NULL ? s->alpha : s->alpha * w[at(own, i)]) * (r * unit[i]);
    }
    moments[j] = 1.0, prices[j] = 0.0;
    *S = moments, *L = prices;
}

/* x clipped to the box of an edge. */
static inline double clipped(double x, double moment, double price) { return least(most(x, moment - price), moment + price); }

/* ---- columns ---- */

/* min 1/2 b'Gb - c'b + sum lam|b| by coordinate descent; q = Gb is kept up to date, and G has a unit diagonal. */
static void lasso_active(const double *G, int64_t m, const double *c, const double *lam, double *beta, double *q, double tol,
                         int64_t max_passes, double *room, int64_t *face) {
    for (int64_t sweep = 1; sweep <= max_passes; sweep++) {
        double change = 0.0;
        for (int64_t a = 0; a < m; a++) {
            const double old = beta[a], z = c[a] - q[a] + old;
            const double size = fabs(z) - lam[a];
            const double new = size > 0.0 ? copysign(size, z) : 0.0;
            const double step = new - old;
            if (step != 0.0) {
                beta[a] = new;
                add_row(step, G + a * m, m, q);
                change = most(change, fabs(step));
            }
        }
        if (change <= tol) break;
        if (sweep % 10 == 0) face_step(G, m, 1.0, 0.0, c, lam, beta, q, face, support_of(beta, m, face), SINGULAR, room);
    }
}

/* Solve the lasso of column j given W. On return g = W beta_j. Returns 1 - g'beta, the Schur complement. */
static double solve_column(state *s, int64_t j, const double *restrict Sj, const double *restrict Lj, double tol, int64_t max_passes) {
    const int64_t m = s->m;
    double *g = s->vectors, *beta = g + m, *c = beta + m, *lam = c + m, *b = lam + m, *q = b + m;
    int64_t *active = s->active, *face = active + m;
    int32_t *index = s->index + j * m;
    double *value = s->value + j * m;
    int64_t n = s->count[j];
    memset(g, 0, (size_t)m * sizeof(double));
    for (int64_t a = 0; a < n; a++) active[a] = index[a];
    for (int64_t a = 0; a < n; a++) beta[active[a]] = value[a];
    add_rows(value, active, n, s->W, m, m, g);
    for (int64_t round = 0; round < ROUNDS; round++) {
        int violated = round == 0;
        n = 0;
        for (int64_t k = 0; k < m; k++) {
            if (beta[k] != 0.0) {
                active[n++] = k;
            } else if (fabs(Sj[k] - g[k]) > Lj[k] + 1e-12 && k != j) {
                active[n++] = k;
                violated = 1;
            }
        }
        if (!violated || n == 0) break;
        double *G = s->gram;
        for (int64_t a = 0; a < n; a++) {
            const int64_t k = active[a];
            c[a] = Sj[k], lam[a] = Lj[k], b[a] = beta[k], q[a] = g[k];
            const double *row = s->W + k * m;
            for (int64_t e = 0; e <= a; e++) G[a * n + e] = G[e * n + a] = row[active[e]];
        }
        lasso_active(G, n, c, lam, b, q, tol, max_passes, G + n * n, face);
        int64_t moved = 0;
        for (int64_t a = 0; a < n; a++) {
            const int64_t k = active[a];
            const double step = b[a] - beta[k];
            if (step != 0.0) {
                beta[k] = b[a];
                face[moved] = k;
                c[moved++] = step;
            }
        }
        if (moved == 0) break;
        add_rows(c, face, moved, s->W, m, m, g);
    }
    double schur = 1.0;
    n = 0;
    for (int64_t k = 0; k < m; k++)
        if (beta[k] != 0.0) {
            schur -= g[k] * beta[k];
            index[n] = (int32_t)k;
            value[n++] = beta[k];
            beta[k] = 0.0;
        }
    s->count[j] = n;
    return schur;
}

/* Clip g into the box and write it as row and column j of W. Returns the squared change weighted by the diagonal; it is negative if W is
   no longer positive definite. */
static double store_column(state *s, int64_t j, const double *restrict Sj, const double *restrict Lj) {
    const int64_t m = s->m;
    double *restrict g = s->vectors, *restrict row = s->W + j * m, change = 0.0, peak = 0.0;
    const double *restrict diagonal = s->diagonal;
    g[j] = row[j] = 0.0;
    for (int64_t i = 0; i < m; i++) {
        double w = clipped(g[i], Sj[i], Lj[i]);
        w = fabs(w) < MSSL_TINY ? 0.0 : w;
        w = i == j ? 0.0 : w;
        peak = most(peak, fabs(w));
        change += (w - row[i]) * (w - row[i]) * diagonal[i];
        g[i] = w;
    }
    if (!(peak < 1.0)) return -1.0;
    if (change > 0.0) {
        memcpy(row, g, (size_t)m * sizeof(double));
        for (int64_t i = 0; i < m; i++) s->W[i * m + j] = g[i];
    }
    row[j] = 1.0;
    return change * diagonal[j];
}

/* Dual block coordinate descent until the estimated remaining ascent is at most target; *made gets the number of sweeps. MSSL_BROKE if W
   is no longer positive definite. */
static int64_t sweep_columns(state *s, double target, int64_t max_sweeps, mssl_watch *watch, int64_t *made) {
    const int64_t m = s->m;
    memset(s->vectors, 0, (size_t)(8 * m) * sizeof(double));
    for (*made = 0; *made < max_sweeps;) {
        double ascent = 0.0;
        for (int64_t j = 0; j < m; j++) {
            const double *Sj, *Lj;
            load_row(s, j, &Sj, &Lj);
            double schur = solve_column(s, j, Sj, Lj, s->column_tol, PASSES);
            if (!(schur > 1e-14)) schur = solve_column(s, j, Sj, Lj, 1e-10, MOST_PASSES);
            if (!(schur > 1e-14)) return MSSL_BROKE;
            s->diagonal[j] = 1.0 / schur;
            const double change = store_column(s, j, Sj, Lj);
            if (change < 0.0) return MSSL_BROKE;
            ascent += change;
            if (j % 16 == 15 && mssl_stopped(watch)) return MSSL_STOPPED;
        }
        ++*made;
        const double ratio = s->before < INFINITY ? least(ascent / s->before, 0.99) : 0.1;
        s->before = ascent;
        if (ascent * ratio / (1.0 - ratio) <= target) break;
        s->column_tol = most(FINEST, least(0.5 * s->column_tol, 0.3 * sqrt(ascent) / (double)m));
        if (mssl_stopped(watch)) return MSSL_STOPPED;
    }
    return MSSL_DONE;
}

/* ---- Omega, its determinant and its inverse ---- */

/* Compressed rows from the dense Omega. */
static void compress(state *s, const double *Omega) {
    const int64_t m = s->m;
    int64_t n = 0;
    for (int64_t i = 0; i < m; i++) {
        s->starts[i] = n;
        for (int64_t j = 0; j < m; j++)
            if (Omega[i * m + j] != 0.0) s->columns[n] = (int32_t)j, s->entries[n++] = Omega[i * m + j];
    }
    s->starts[m] = n;
}

/* Omega from the regressions, dense in A and in compressed rows. A penalised edge must be in the regressions of both ends. */
static void assemble(state *s, double *A) {
    const int64_t m = s->m;
    memset(A, 0, (size_t)(m * m) * sizeof(double));
    for (int64_t j = 0; j < m; j++) {
        for (int64_t a = 0; a < s->count[j]; a++) A[j * m + s->index[j * m + a]] = -s->value[j * m + a] * s->diagonal[j];
        A[j * m + j] = s->diagonal[j];
    }
    for (int64_t j = 0; j < m; j++)
        for (int64_t a = 0; a < s->count[j]; a++) {
            const int64_t i = s->index[j * m + a];
            double *one = A + j * m + i, *other = A + i * m + j;
            if (*other == 0.0) *one = *other = price(s, j, i) > 0.0 ? 0.0 : 0.5 * *one;
            else if (i < j) *one = *other = 0.5 * (*one + *other);
        }
    compress(s, A);
}

/* Replace A by its Cholesky factor, for large m by LAPACK; returns log det A, or NaN. R: room of the same size. */
static double factor_in_place(double *A, int64_t m, double *R, const mssl_lapack *lapack) {
    if (m < MSSL_LAPACK_FROM || lapack == NULL) {
        const double total = factor(A, m, R);
        memcpy(A, R, (size_t)(m * m) * sizeof(double));
        return total;
    }
    char uplo = 'L'; /* the lower triangle in column order is the upper one in row order: R of A = R'R */
    int n = (int)m, info = 0;
    lapack->potrf(&uplo, &n, A, &n, &info);
    if (info != 0) return NAN;
    double total = 0.0;
    for (int64_t i = 0; i < m; i++) total += log(A[i * m + i]);
    return 2.0 * total;
}

/* log det of A, which does not change; R gets its factor. */
static double log_det_of(const double *A, int64_t p, double *R, const mssl_lapack *lapack) {
    if (p < MSSL_LAPACK_FROM || lapack == NULL) return factor(A, p, R);
    memcpy(R, A, (size_t)(p * p) * sizeof(double));
    return factor_in_place(R, p, NULL, lapack);
}

/* The inverse from such a factor, in place. */
static void invert_in_place(double *A, int64_t m, double *room, const mssl_lapack *lapack) {
    if (m < MSSL_LAPACK_FROM || lapack == NULL) {
        invert(A, m, room);
        memcpy(A, room, (size_t)(m * m) * sizeof(double));
        return;
    }
    char uplo = 'L';
    int n = (int)m, info = 0;
    lapack->potri(&uplo, &n, A, &n, &info);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < i; j++) A[i * m + j] = A[j * m + i];
}

/* Gaussian elimination of the variables of least degree, in place, as long as it is cheaper than dense algebra. rank gets
   the position of every eliminated variable, and m for those that remain. Returns their number, or -1 if a pivot is not
   positive; *log_pivots gets the sum of their logarithms. */
static int64_t eliminate(double *A, int64_t m, int64_t *rank, int64_t *degree, int64_t *near, double *log_pivots) {
    *log_pivots = 0.0;
    for (int64_t i = 0; i < m; i++) {
        rank[i] = m;
        degree[i] = 0;
        for (int64_t j = 0; j < m; j++) degree[i] += A[i * m + j] != 0.0;
    }
    for (int64_t step = 0; step < m; step++) {
        int64_t v = -1, lowest = m + 1;
        for (int64_t i = 0; i < m; i++)
            if (rank[i] == m && degree[i] < lowest) v = i, lowest = degree[i];
        if (4 * lowest * m > (m - step) * (m - step)) return step;
        const double *row = A + v * m;
        if (!(row[v] > 0.0)) return -1;
        *log_pivots += log(row[v]);
        rank[v] = step;
        int64_t n = 0;
        for (int64_t j = 0; j < m; j++)
            if (row[j] != 0.0 && rank[j] == m) near[n++] = j;
        for (int64_t a = 0; a < n; a++) {
            const int64_t i = near[a];
            degree[i] -= 1;
            const double ratio = row[i] / row[v];
            double *other = A + i * m;
            for (int64_t b = 0; b < n; b++) {
                const int64_t j = near[b];
                degree[i] += other[j] == 0.0;
                other[j] -= ratio * row[j];
            }
        }
    }
    return m;
}

/* log det of the dense Omega in s->factor, or NaN if it is not positive definite. The factor, or the result of the elimination, takes its
   place and is kept for the inverse. */
static double log_determinant(state *s, const mssl_lapack *lapack) {
    const int64_t m = s->m, nnz = s->starts[m];
    s->eliminated = -1;
    if (m < SPARSE_FROM || nnz >= m * m / 16) return factor_in_place(s->factor, m, s->product, lapack);
    double pivots;
    s->eliminated = eliminate(s->factor, m, s->rank, s->active, s->active + m, &pivots);
    if (s->eliminated < 0) return NAN;
    const int64_t n = m - s->eliminated;
    if (n == 0) return pivots;
    int64_t *core = s->active;
    int64_t k = 0;
    for (int64_t i = 0; i < m; i++)
        if (s->rank[i] == m) core[k++] = i;
    double *C = s->omega; /* the factor of the core */
    for (int64_t a = 0; a < n; a++)
        for (int64_t b = 0; b < n; b++) C[a * n + b] = s->factor[core[a] * m + core[b]];
    return pivots + factor_in_place(C, n, s->product, lapack);
}

/* Write Omega^-1 to Sigma (m x m), from the factor that log_determinant kept. */
static void inverse(state *s, double *Sigma, const mssl_lapack *lapack) {
    const int64_t m = s->m;
    if (s->eliminated < 0) {
        memcpy(Sigma, s->factor, (size_t)(m * m) * sizeof(double));
        invert_in_place(Sigma, m, s->product, lapack);
        return;
    }
    const int64_t n = m - s->eliminated;
    int64_t *near = s->active, *order = s->active + m;
    int64_t k = 0;
    memset(Sigma, 0, (size_t)(m * m) * sizeof(double));
    for (int64_t i = 0; i < m; i++) {
        if (s->rank[i] == m) near[k++] = i;
        else order[s->rank[i]] = i;
    }
    if (n > 0) {
        invert_in_place(s->omega, n, s->product, lapack);
        for (int64_t a = 0; a < n; a++)
            for (int64_t b = 0; b < n; b++) Sigma[near[a] * m + near[b]] = s->omega[a * n + b];
    }
    double *row = s->vectors, *ratios = row + m;
    for (int64_t step = s->eliminated - 1; step >= 0; step--) {
        const int64_t v = order[step];
        const double *A = s->factor + v * m;
        k = 0;
        for (int64_t j = 0; j < m; j++)
            if (A[j] != 0.0 && s->rank[j] > step) near[k] = j, ratios[k++] = -A[j] / A[v];
        memset(row, 0, (size_t)m * sizeof(double));
        add_rows(ratios, near, k, Sigma, m, m, row);
        double corner = 1.0 / A[v];
        for (int64_t a = 0; a < k; a++) corner += ratios[a] * row[near[a]];
        row[v] = corner;
        for (int64_t j = 0; j < m; j++) {
            const double x = fabs(row[j]) < MSSL_TINY ? 0.0 : row[j];
            Sigma[v * m + j] = x;
            Sigma[j * m + v] = x;
        }
    }
}

/* ---- certificate ---- */

typedef struct {
    double gap, trace, log_determinant;
} point;

/* The sum of squared eigenvalues tr(Y Y) of a product Y = A B as it was computed, plus what rounding may have made of it: of a
   Y far from symmetric (Omega close to singular) its terms cancel. All squares are sums over the entries. */
static double with_rounding(double computed, double square_Y, double square_A, double square_B) {
    return least(most(computed, 0.0) + 2.0 * DBL_EPSILON * sqrt(square_Y) * sqrt(square_A) * sqrt(square_B), square_Y);
}

/* Spectral radius and Frobenius norm of E = Omega^1/2 W Omega^1/2 - one I, from Y = Omega W - one I, which has the same
   eigenvalues: *square gets sum of squared eigenvalues tr(Y Y), the answer is a bound of the largest |eigenvalue|. */
static double distance(state *s, const double *W, double one, double *square) {
    const int64_t m = s->m;
    double *down = s->vectors, across = 0.0, frobenius = 0.0, of_omega = 0.0, of_W = 0.0;
    int64_t *cols = s->active;
    memset(down, 0, (size_t)m * sizeof(double));
    for (int64_t i = 0; i < m; i++) {
        double *restrict row = s->product + i * m;
        memset(row, 0, (size_t)m * sizeof(double));
        const int64_t first = s->starts[i], n = s->starts[i + 1] - first;
        for (int64_t a = 0; a < n; a++) {
            cols[a] = s->columns[first + a];
            of_omega += s->entries[first + a] * s->entries[first + a];
        }
        for (int64_t j = 0; j < m; j++) of_W += W[i * m + j] * W[i * m + j];
        add_rows(s->entries + first, cols, n, W, m, m, row);
        row[i] -= one;
        double sum = 0.0, squares = 0.0;
        for (int64_t j = 0; j < m; j++) {
            const double x = fabs(row[j]);
            sum += x;
            squares += x * x;
            down[j] += x;
        }
        across = most(across, sum);
        frobenius += squares;
    }
    double largest = 0.0, total = 0.0;
    for (int64_t j = 0; j < m; j++) largest = most(largest, down[j]);
    const double *Y = s->product;
    for (int64_t i0 = 0; i0 < m; i0 += 8)
        for (int64_t j0 = 0; j0 <= i0; j0 += 8) {
            double part = 0.0;
            const int64_t i1 = i0 + 8 < m ? i0 + 8 : m, j1 = j0 + 8 < m ? j0 + 8 : m;
            for (int64_t i = i0; i < i1; i++)
                for (int64_t j = j0; j < j1; j++) part += Y[i * m + j] * Y[j * m + i];
            total += i0 == j0 ? part : 2.0 * part;
        }
    *square = with_rounding(total, frobenius, of_omega, of_W);
    return least(sqrt(*square), least(across, largest));
}

/* Put the entries of a dual point W on the support of Omega to S + L sign(Omega), so that complementarity holds exactly. Returns
   tr(S'Omega) + sum L|Omega|; *terms gets the sum of the sizes of its terms. */
static double settle(const state *s, double *W, double *terms) {
    const int64_t m = s->m;
    double trace = *terms = 0.0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t a = s->starts[i]; a < s->starts[i + 1]; a++) {
            const int64_t j = s->columns[a];
            const double w = s->entries[a], bound = moment(s, i, j) + copysign(price(s, i, j), w);
            trace += bound * w, *terms += fabs(bound * w);
            W[i * m + j] = bound;
        }
    return trace;
}

/* The gap of the Omega that is assembled in s->factor, with the dual point W of the descent: tr(Omega W) - m - log det(Omega W). */
static point certify(state *s, const mssl_lapack *lapack) {
    const int64_t m = s->m;
    double square, terms;
    point at = {INFINITY, 0.0, log_determinant(s, lapack)};
    if (isnan(at.log_determinant)) return at;
    at.trace = settle(s, s->W, &terms);
    const double radius = distance(s, s->W, 1.0, &square);
    if (radius < NEAR_LARGE) {
        at.gap = 0.5 * square / (1.0 - radius);
        return at;
    }
    const double dual = log_det_of(s->W, m, m < MSSL_LAPACK_FROM ? s->gram + 2 * m * m : s->product, lapack);
    if (!isnan(dual)) at.gap = most(at.trace - (double)m - at.log_determinant - dual, 0.0) + DBL_EPSILON * terms;
    return at;
}

/* A dual point: the entries of `nearby` clipped into the box, or first moved towards S as far as all prices require, into W. nearby NULL:
   the identity, of which free edges leave nothing. */
static void draw(const state *s, const double *nearby, int far, double *W) {
    const int64_t m = s->m;
    double share = 1.0;
    for (int writing = !far; writing < 2; writing++)
        for (int64_t i = 0; i < m; i++) {
            const double *Si, *Li;
            load_row(s, i, &Si, &Li);
            for (int64_t j = 0; j < m; j++) {
                const double away = (nearby == NULL ? 0.0 : nearby[i * m + j]) - Si[j];
                if (writing) W[i * m + j] = i == j ? 1.0 : clipped(Si[j] + share * away, Si[j], Li[j]);
                else if (i != j && fabs(away) > Li[j] && (Li[j] > 0.0 || nearby == NULL)) share = least(share, Li[j] / fabs(away));
            }
        }
}

/* The gap of a dense Omega with a known inverse Sigma, from the dual point M that is Sigma clipped into the box off the support. It is
   infinite if M is not `near`. */
static point certify_dense(state *s, const double *Omega, const double *Sigma, double log_det, double near, double *M, double *terms) {
    const int64_t m = s->m;
    double square;
    compress(s, Omega);
    for (int64_t i = 0; i < m; i++) {
        const double *Si, *Li;
        load_row(s, i, &Si, &Li);
        for (int64_t j = 0; j < m; j++) M[i * m + j] = clipped(Sigma[i * m + j], Si[j], Li[j]);
    }
    point at = {INFINITY, settle(s, M, terms), log_det};
    if (!isfinite(at.trace)) return at;
    for (int64_t a = 0; a < m * m; a++) s->away[a] = M[a] - Sigma[a];
    const double radius = distance(s, s->away, 0.0, &square);
    if (radius < near) at.gap = 0.5 * square / (1.0 - radius);
    return at;
}

/* ---- Newton steps on a face, for few variables ---- */

typedef struct {
    int64_t most, *row, *col;         /* how many pairs fit; their places, */
    double *sign, *slope, *step;      /* signs, slopes and the step, */
    double *H, *F;                    /* Hessian and factor (most x most) */
} face;

/* The pairs (i <= j) that are not zero, then those that should not be, the most wrong ones first; -1 where too many. */
static int64_t find_face(const state *s, const double *Omega, const double *Sigma, face *f, int64_t *first) {
    const int64_t m = s->m;
    int64_t n = 0;
    for (int entering = 0; entering < 2; entering++) {
        *first = n;
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = i; j < m; j++) {
                const double w = Omega[i * m + j], slope = s->S[i * m + j] - Sigma[i * m + j], l = s->L[i * m + j];
                if ((w == 0.0) != entering || (w == 0.0 && fabs(slope) <= l * (1.0 + 1e-9))) continue;
                if (n == f->most) return -1;
                const double sign = i == j ? 0.0 : (w != 0.0 ? copysign(1.0, w) : copysign(1.0, -slope));
                const double g = i == j ? slope : 2.0 * (slope + l * sign);
                int64_t place = n++;
                for (; entering && place > *first && fabs(g) > fabs(f->slope[place - 1]); place--) {
                    f->row[place] = f->row[place - 1], f->col[place] = f->col[place - 1];
                    f->sign[place] = f->sign[place - 1], f->slope[place] = f->slope[place - 1];
                }
                f->row[place] = i, f->col[place] = j, f->sign[place] = sign, f->slope[place] = g;
            }
    }
    return n;
}

/* Newton's direction on a face of n pairs from the Hessian of -log det Omega; how many entries it has, 0 where it fails.
   An entry that would enter with the wrong sign is left out with all that follow it. */
static int64_t solve_face(const state *s, const double *Sigma, face *f, int64_t n, int64_t first) {
    const int64_t m = s->m;
    for (int64_t a = 0; a < n; a++) {
        const double *one = Sigma + f->row[a] * m, *other = Sigma + f->col[a] * m;
        const double twice = f->row[a] == f->col[a] ? 1.0 : 2.0;
        for (int64_t b = 0; b <= a; b++) {
            const int64_t k = f->row[b], l = f->col[b];
            const double h = twice * (one[k] * other[l] + one[l] * other[k]);
            f->H[a * n + b] = k == l ? 0.5 * h : h;
        }
    }
    if (isnan(factor(f->H, n, f->F))) return 0;
    for (int64_t k = n;;) {
        back_solve(f->F, k, n, f->slope, f->step);
        int64_t right = first;
        while (right < k && f->step[right] * f->sign[right] < 0.0) right++;
        if (right == k) return k;
        k = right;
    }
}

/* Regressions of the dense Omega, without forbidden edges, and its diagonal. */
static void regress(state *s, const double *Omega) {
    const int64_t m = s->m;
    for (int64_t j = 0; j < m; j++) {
        int64_t n = 0;
        const double d = Omega[j * m + j];
        for (int64_t i = 0; i < m; i++) {
            const double w = Omega[j * m + i];
            if (i != j && w != 0.0 && price(s, j, i) < INFINITY) s->index[j * m + n] = (int32_t)i, s->value[j * m + n++] = -w / d;
        }
        s->count[j] = n;
        s->diagonal[j] = d;
    }
}

/* ---- one component ---- */

/* A first dual point: S soft-thresholded, or the identity drawn towards S. Returns the least pivot of its factor, at least; 0 where
   it is not positive definite. */
static double cold_start(state *s, int drawn, const mssl_lapack *lapack) {
    const int64_t m = s->m;
    int dominant = !drawn;
    for (int64_t i = 0; i < m && !drawn; i++) {
        const double *Si, *Li;
        load_row(s, i, &Si, &Li);
        double total = 0.0, *restrict row = s->W + i * m;
        for (int64_t j = 0; j < m; j++) {
            const double size = fabs(Si[j]) - Li[j];
            row[j] = size > 0.0 ? copysign(size, Si[j]) : 0.0;
            total += fabs(row[j]);
        }
        row[i] = 1.0;
        dominant = dominant && total < 1.999;
    }
    if (drawn) draw(s, NULL, 1, s->W);
    memset(s->count, 0, (size_t)m * sizeof(int64_t));
    for (int64_t i = 0; i < m; i++) s->diagonal[i] = 1.0;
    if (dominant) return 1.0;
    memcpy(s->product, s->W, (size_t)(m * m) * sizeof(double));
    if (isnan(factor_in_place(s->product, m, s->factor, lapack))) return 0.0;
    double pivot = 1.0;
    for (int64_t i = 0; i < m; i++) pivot = least(pivot, s->product[i * m + i] * s->product[i * m + i]);
    return pivot;
}

/* The answer where no edge has a price: the inverse of S', whose factor is accurate to a pivot of INVERTIBLE a variable. */
static int64_t invert_moment(state *s, const mssl_lapack *lapack, double *Sigma, point *at) {
    const int64_t m = s->m;
    double *Omega = s->omega, *M = s->gram + 2 * m * m, terms;
    draw(s, NULL, 0, s->W);
    memcpy(Omega, s->W, (size_t)(m * m) * sizeof(double));
    const double log_det = -factor_in_place(Omega, m, s->factor, lapack);
    if (isnan(log_det)) return MSSL_BROKE;
    for (int64_t i = 0; i < m; i++)
        if (!(Omega[i * m + i] * Omega[i * m + i] > INVERTIBLE * (double)m)) return MSSL_BROKE;
    invert_in_place(Omega, m, s->factor, lapack);
    *at = certify_dense(s, Omega, s->W, log_det, NEAR_LARGE, M, &terms);
    memcpy(Sigma, s->W, (size_t)(m * m) * sizeof(double));
    return MSSL_DONE;
}

/* Omega and Sigma, p x p, as those of the component. */
static void take_scaled(const state *s, const double *Omega, const double *Sigma, double *O, double *Z) {
    const int64_t m = s->m;
    for (int64_t a = 0; a < m; a++)
        for (int64_t b = 0; b < m; b++) {
            const int64_t place = at(s->own, a) * s->p + at(s->own, b);
            const double unit = s->unit[a] * s->unit[b];
            O[a * m + b] = Omega[place] / unit, Z[a * m + b] = Sigma[place] * unit;
        }
}

/* Newton steps from the dense Omega and its inverse Sigma, in place, over the pairs that are or should be edges, until the gap is at most
   target. On a face the objective is self-concordant: a step of length 1/(1 + decrement) stays positive definite and descends. It ends
   where an entry reaches zero. */
static int64_t newton(state *s, double *Omega, double *Sigma, face *f, double target, double far, point *at) {
    const int64_t m = s->m;
    double *R = s->factor, *M = s->gram + 2 * m * m, terms;
    for (int taken = 0; taken < NEWTON_STEPS; taken++) {
        int64_t first, blocking = -1, n = find_face(s, Omega, Sigma, f, &first);
        n = n > 0 ? solve_face(s, Sigma, f, n, first) : 0;
        const double decrement = sqrt(most(dot(f->slope, f->step, n), 0.0));
        if (n == 0 || decrement > far) return MSSL_LIMIT;
        double length = decrement < 0.25 ? 1.0 : 1.0 / (1.0 + decrement);
        for (int64_t a = 0; a < n; a++) {
            const double old = Omega[f->row[a] * m + f->col[a]];
            if (old != 0.0 && (old - length * f->step[a]) * f->sign[a] < 0.0) length = old / f->step[a], blocking = a;
        }
        for (int64_t a = 0; a < n; a++) {
            const int64_t i = f->row[a], j = f->col[a];
            Omega[i * m + j] = Omega[j * m + i] = a == blocking ? 0.0 : Omega[i * m + j] - length * f->step[a];
        }
        const double log_det = factor(Omega, m, R);
        if (isnan(log_det)) return MSSL_LIMIT;
        invert(R, m, Sigma);
        *at = certify_dense(s, Omega, Sigma, log_det, NEAR_LARGE, M, &terms);
        if (at->gap <= target) {
            memcpy(s->W, M, (size_t)(m * m) * sizeof(double)); /* the dual point of the certificate */
            return MSSL_DONE;
        }
    }
    return MSSL_LIMIT;
}

/* Descend until the gap is at most target; *done counts the sweeps. Sigma gets the inverse; Omega stays in compressed rows. */
static int64_t solve_block(state *s, double target, int64_t max_sweeps, int64_t digits, const mssl_lapack *lapack, mssl_watch *watch,
                           face *f, double *Sigma, point *at, int64_t *done) {
    const int64_t m = s->m;
    double accuracy = most(STOP * target, 1e-28), fine = least(accuracy, POLISHED * (double)m);
    s->before = INFINITY;
    while (*done < max_sweeps && accuracy > 1e-30) {
        const int small = m <= DENSE_UP_TO, quick = small && *done < NEWTON_SWEEPS;
        const int64_t left = max_sweeps - *done, look = quick ? BURST : LOOK, burst = left < look ? left : look;
        int64_t made;
        int64_t ended = sweep_columns(s, accuracy, burst, watch, &made), more = 0;
        if (ended == MSSL_DONE && small && digits && made < burst && s->before > fine)
            ended = sweep_columns(s, fine, POLISHING / m, watch, &more);
        if (ended != MSSL_DONE) return ended;
        *done += made + more;
        assemble(s, s->factor);
        *at = certify(s, lapack);
        if (at->gap <= target) {
            inverse(s, Sigma, lapack);
            return MSSL_DONE;
        }
        if (quick && made == burst && !isnan(at->log_determinant)) {
            double *Omega = s->omega, *M = s->gram + 2 * m * m, square;
            inverse(s, Sigma, lapack);
            assemble(s, Omega);
            if (newton(s, Omega, Sigma, f, target, INFINITY, at) == MSSL_DONE) return MSSL_DONE;
            draw(s, Sigma, 0, M);
            compress(s, Omega);
            if (distance(s, M, 1.0, &square) < 0.9) {
                memcpy(s->W, M, (size_t)(m * m) * sizeof(double));
                regress(s, Omega);
            }
            s->before = INFINITY;
        } else if (quick || made < burst) {
            accuracy *= at->gap == INFINITY ? 0.1 : least(most(STOP * target / at->gap, 0.01), 0.3);
            s->column_tol = least(s->column_tol, sqrt(accuracy) / (double)m);
        }
    }
    assemble(s, s->factor);
    *at = certify(s, lapack);
    if (at->gap < INFINITY) inverse(s, Sigma, lapack);
    return MSSL_LIMIT;
}

/* Start from a solution of a nearby problem: its Omega (regressions), and its inverse as dual point, clipped into the box or, where
   that is not near, drawn towards S as far as the penalties ask. Returns the tolerance of the first columns: 0 where the start is
   no good, infinite where Newton steps ended at the solution already. */
static double warm_start(state *s, const double *Omega, const double *Sigma, const mssl_lapack *lapack, face *f, double *Z,
                         double target, point *at) {
    const int64_t m = s->m;
    double *O = s->omega, *nearby = s->gram + 2 * m * m, square;
    take_scaled(s, Omega, Sigma, O, Z);
    if (m <= DENSE_UP_TO && newton(s, O, Z, f, target, NEAR_ENOUGH, at) == MSSL_DONE) return INFINITY;
    compress(s, O);
    regress(s, O);
    memcpy(nearby, Z, (size_t)(m * m) * sizeof(double)); /* Z may be room of the bound below */
    draw(s, nearby, 0, s->W);
    if (distance(s, s->W, 1.0, &square) < 0.9) return 1e-4;
    draw(s, nearby, 1, s->W);
    memcpy(s->product, s->W, (size_t)(m * m) * sizeof(double));
    return isnan(factor_in_place(s->product, m, s->factor, lapack)) ? 0.0 : 1e-5;
}

/* ---- the whole ---- */

int64_t MSSL(graph_check)(int64_t p, const double *S) {
    int good = 1;
    for (int64_t i0 = 0; i0 < p && good; i0 += 8)
        for (int64_t j0 = 0; j0 <= i0; j0 += 8) {
            const int64_t i1 = i0 + 8 < p ? i0 + 8 : p, j1 = j0 + 8 < p ? j0 + 8 : p;
            for (int64_t i = i0; i < i1; i++)
                for (int64_t j = j0; j < j1; j++) good &= (S[i * p + j] == S[j * p + i]) & (fabs(S[i * p + j]) < INFINITY);
        }
    for (int64_t i = 0; i < p; i++) good &= S[i * p + i] >= 0.0;
    return good;
}

int64_t MSSL(graph_components)(int64_t p, const double *S, double alpha, const double *weights, int64_t *labels) {
    int64_t *stack = malloc((size_t)(p + 1) * sizeof(int64_t));
    if (stack == NULL) return -1;
    for (int64_t i = 0; i < p; i++) labels[i] = -1;
    int64_t count = 0, largest = 0;
    for (int64_t start = 0; start < p; start++) {
        if (labels[start] >= 0) continue;
        labels[start] = count;
        stack[0] = start;
        int64_t top = 1, size = 0;
        while (top > 0) {
            const int64_t i = stack[--top];
            const double *row = S + i * p, *w = weights == NULL ? NULL : weights + i * p;
            size++;
            for (int64_t j = 0; j < p; j++)
                if (fabs(row[j]) > (w == NULL ? alpha : alpha * w[j]) && labels[j] < 0) {
                    labels[j] = count;
                    stack[top++] = j;
                }
        }
        if (size > largest) largest = size;
        count++;
    }
    free(stack);
    return largest;
}

/* Largest number of pairs of a face of components with at most this number of variables. */
static int64_t face_pairs(int64_t largest) { return largest * (largest + 1) / 2 < MOST_FACE ? largest * (largest + 1) / 2 : MOST_FACE; }

/* MSSL(graph_lasso) to an accuracy relative to |p + log det of the scaling|, given the components' labels, the size of the largest, and
   room. */
static int64_t solve_components(int64_t p, const double *S, double alpha, const double *weights, const double *e, double tol,
                                int64_t max_sweeps, int64_t digits, const double *warm_Omega, const double *warm_Sigma, double *Omega,
                                double *Sigma, double *dual, const int64_t *labels, int64_t largest, double *room,
                                const mssl_lapack *lapack, mssl_watch *watch, double *answer) {
    double *root = room, *units = root + p, gap = 0.0, value = 0.0, log_det = 0.0, constant = 0.0;
    int64_t *index = (int64_t *)(units + p), *begin = index + p, count = 0, longest = 0, status = MSSL_DONE;
    double *place = (double *)(begin + p + 2);
    const int64_t n = face_pairs(largest);
    face f = {n, (int64_t *)place, (int64_t *)place + n, place + 2 * n, place + 3 * n, place + 4 * n, place + 5 * n, place + 5 * n + n * n};
    double *block = place + 5 * n + 2 * n * n;
    for (int64_t i = 0; i < p; i++) count = labels[i] + 1 > count ? labels[i] + 1 : count;
    const int everything = count == 1 && p > DENSE_UP_TO; /* one large component: the answers' space is its room */
    for (int64_t i = 0; i < p; i++) {
        const double d = S[i * p + i] + e[i];
        if (!(d > 0.0)) return answer[0] = (double)i, MSSL_UNBOUNDED;
        root[i] = sqrt(d);
        constant += 2.0 * log(root[i]);
    }
    if (!everything) {
        memset(Omega, 0, (size_t)(p * p) * sizeof(double));
        memset(Sigma, 0, (size_t)(p * p) * sizeof(double));
        memset(dual, 0, (size_t)(p * p) * sizeof(double));
    }
    /* variables by component: counting sort; afterwards begin[c + 1] is where component c starts */
    for (int64_t c = 0; c <= count; c++) begin[c] = 0;
    for (int64_t i = 0; i < p; i++) begin[labels[i] + 1]++;
    for (int64_t c = 0; c < count; c++) begin[c + 1] += begin[c];
    for (int64_t i = p - 1; i >= 0; i--) index[--begin[labels[i] + 1]] = i;
    for (int64_t i = 0; i < p; i++) units[i] = 1.0 / root[index[i]];
    const double target = tol * most(1.0, fabs((double)p + constant));
    for (int64_t c = 0; c < count; c++) {
        const int64_t first = begin[c + 1], m = (c + 1 < count ? begin[c + 2] : p) - first, *own = index + first;
        if (m == 1) {
            const int64_t i = own[0];
            const double v = root[i] * root[i];
            Omega[i * p + i] = 1.0 / v, Sigma[i * p + i] = v, dual[i * p + i] = v;
            value += 1.0;
            continue;
        }
        state s = {.p = p, .whole = S, .weights = weights, .alpha = alpha, .own = m == p ? NULL : own, .unit = units + first};
        double *Z = everything ? Sigma : block;
        lay_out(&s, m, everything ? block : block + m * m, everything ? Omega : NULL, Sigma);
        const double share = target * (double)m / (double)p;
        point at = {INFINITY, 0.0, 0.0};
        int64_t ended = MSSL_BROKE, done = 0;
        const int priced = has_price(&s);
        if (!priced) ended = invert_moment(&s, lapack, Z, &at);
        for (int attempt = warm_Omega == NULL; attempt < 3 && priced && ended == MSSL_BROKE; attempt++) {
            const double pivot = attempt == 0 ? 0.0 : cold_start(&s, attempt == 2, lapack);
            s.column_tol = attempt == 0            ? warm_start(&s, warm_Omega, warm_Sigma, lapack, &f, Z, share, &at)
                           : pivot > ILL_CONDITIONED ? 1e-2
                           : attempt == 2 && pivot > 0.0 ? 1e-5 : 0.0;
            if (s.column_tol == INFINITY) ended = MSSL_DONE;
            else if (s.column_tol > 0.0) ended = solve_block(&s, share, max_sweeps, digits, lapack, watch, &f, Z, &at, &done);
        }
        longest = done > longest ? done : longest;
        if (ended == MSSL_STOPPED) return ended;
        if (ended == MSSL_LIMIT) status = ended;
        if (ended == MSSL_BROKE || !(at.gap < INFINITY)) return answer[0] = INFINITY, answer[3] = (double)longest, ended;
        gap += at.gap, value += at.trace, log_det += at.log_determinant;
        if (everything) memset(Omega, 0, (size_t)(p * p) * sizeof(double));
        for (int64_t a = 0; a < m; a++) {
            const int64_t row = own[a] * p;
            const double r = root[own[a]];
            for (int64_t b = s.starts[a]; b < s.starts[a + 1]; b++) {
                const int64_t j = own[s.columns[b]];
                Omega[row + j] = s.entries[b] / (r * root[j]);
            }
            for (int64_t b = 0; b < m; b++) {
                Sigma[row + own[b]] = Z[a * m + b] * (r * root[own[b]]);
                dual[row + own[b]] = s.W[a * m + b] * (r * root[own[b]]);
            }
        }
    }
    answer[0] = gap, answer[1] = value - log_det + constant, answer[2] = log_det - constant, answer[3] = (double)longest;
    for (int64_t i = 0; i < p; i++)
        if (!(Omega[i * p + i] > 0.0 && Omega[i * p + i] < INFINITY)) {
            answer[0] = INFINITY;
            return MSSL_BROKE;
        }
    return status;
}

int64_t MSSL(graph_lasso)(int64_t p, const double *S, double alpha, const double *weights, const double *e, double tol,
                          int64_t max_sweeps, int64_t digits, const double *warm_Omega, const double *warm_Sigma, double *Omega,
                          double *Sigma, double *dual, int64_t *labels, const mssl_lapack *lapack, double answer[4],
                          mssl_watch *watch) {
    const int64_t largest = MSSL(graph_components)(p, S, alpha, weights, labels), n = face_pairs(largest);
    const int64_t doubles = 4 * p + 2 + 5 * n + 2 * n * n + room_for(largest) + largest * largest;
    double *room = largest < 0 ? NULL : malloc((size_t)doubles * sizeof(double)), *found = NULL, accuracy = tol;
    int64_t ended = MSSL_BROKE;
    answer[0] = INFINITY, answer[1] = answer[2] = answer[3] = 0.0;
    for (int attempt = 0; room != NULL && attempt < ATTEMPTS; attempt++) {
        ended = solve_components(p, S, alpha, weights, e, accuracy, max_sweeps, digits, warm_Omega, warm_Sigma, Omega, Sigma, dual,
                                 labels, largest, room, lapack, watch, answer);
        if (ended != MSSL_DONE && ended != MSSL_LIMIT) break;
        const double goal = tol * most(1.0, fabs(answer[1])), missed = answer[0] / goal;
        if (missed <= 1.0 || ended == MSSL_LIMIT) {
            ended = missed <= 1.0 ? MSSL_DONE : MSSL_LIMIT;
            break;
        }
        /* The accuracy was relative to an objective of another size. The next attempt starts at this result. */
        ended = MSSL_LIMIT, accuracy *= 0.5 / missed;
        if (found == NULL) found = malloc((size_t)(2 * p * p) * sizeof(double));
        if (found == NULL) break;
        warm_Omega = memcpy(found, Omega, (size_t)(p * p) * sizeof(double));
        warm_Sigma = memcpy(found + p * p, Sigma, (size_t)(p * p) * sizeof(double));
    }
    free(room), free(found);
    return ended;
}

/* log det of a dual point far from the optimum: M, or if that is better the box's point nearest to Sigma, drawn towards S
   soft-thresholded (where that is not positive definite, the identity drawn towards S) until it is positive definite. NaN where there
   is none. */
static double dual_log_determinant(state *s, const double *M, const double *Sigma, const mssl_lapack *lapack) {
    const int64_t m = s->m;
    double *N = s->away, *R = s->gram;
    const double best = log_det_of(M, m, R, lapack);
    draw(s, Sigma, 0, N);
    double found = log_det_of(N, m, R, lapack);
    for (int drawn = 0; drawn < 2 && isnan(found); drawn++) {
        cold_start(s, drawn, lapack);
        const double anchor = log_det_of(s->W, m, R, lapack);
        for (int halving = 0; !isnan(anchor) && halving < 60 && isnan(found); halving++) {
            for (int64_t a = 0; a < m * m; a++) N[a] = 0.5 * (N[a] + s->W[a]);
            found = log_det_of(N, m, R, lapack);
        }
        if (isnan(found)) found = anchor; /* next to a singular anchor rounding decides what is positive definite */
    }
    return found > best || isnan(best) ? found : best;
}

double MSSL(graph_gap)(int64_t p, const double *S, double alpha, const double *weights, const double *e, const double *Omega,
                       const double *Sigma, double log_det, const mssl_lapack *lapack, double trace[1]) {
    double *unit = malloc((size_t)(p + room_for(p)) * sizeof(double)), terms;
    *trace = 0.0;
    if (unit == NULL) return NAN;
    state s = {.p = p, .whole = S, .weights = weights, .unit = unit, .alpha = alpha};
    for (int64_t i = 0; i < p; i++) unit[i] = 1.0 / sqrt(S[i * p + i] + e[i]), log_det -= 2.0 * log(unit[i]);
    lay_out(&s, p, unit + p, NULL, NULL);
    double *Z = s.factor, *M = s.gram + 2 * p * p;
    take_scaled(&s, Omega, Sigma, s.omega, Z);
    point at = certify_dense(&s, s.omega, Z, log_det, p <= SMALL ? NEAR : NEAR_LARGE, M, &terms);
    *trace = at.trace;
    if (at.gap == INFINITY && isfinite(at.trace)) {
        const double found = dual_log_determinant(&s, M, Z, lapack);
        if (!isnan(found)) at.gap = most(at.trace - (double)p - log_det - found, 0.0) + DBL_EPSILON * terms;
    }
    free(unit);
    return at.gap;
}
