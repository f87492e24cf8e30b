/* Whole fits of few tasks: the rounds of mssl.solvers.alternation without Python between them; see mssl.h. */
#include "mssl.h"

#include "dense.h"

#define GRAPH_SWEEPS 1000

/* ---- weight steps ---- */

/* The best weights for C from W, which is projected onto the domain of the penalty first; HW = s_k H_k w_k is written. Returns the
   bound of the suboptimality, or NaN if conjugate gradients did not reach tol. */
static double weight_step(const mssl_task_loss *f, const mssl_prior *C, double *W, double *HW, double tol) {
    const int64_t K = f->K, d = f->d;
    if (f->g != NULL)
        for (int64_t a = 0; a < K * d; a++) {
            if (f->g->positive && W[a] < 0.0) W[a] = 0.0;
            if (f->g->strengths[a] == INFINITY) W[a] = 0.0;
        }
    MSSL(gram_products)(K, d, f->n_grams, f->H, f->scale, W, HW);
    if (f->g == NULL) {
        double gap = INFINITY;
        MSSL(weight_system)(K, d, f->n_grams, f->H, f->scale, f->q, C, W, HW, f->ridge, f->inverses, tol, f->max_inner, &gap);
        return gap <= tol ? gap : NAN;
    }
    double made[2];
    MSSL(weight_descent)(K, d, f->n_grams, f->H, f->scale, f->q, f->g, C, W, HW, tol, f->max_inner, made, NULL);
    return made[1];
}

static double loss_of(const mssl_task_loss *f, const double *W, const double *HW) {
    double total = f->null;
    for (int64_t a = 0; a < f->K * f->d; a++) total += W[a] * (0.5 * HW[a] - f->q[a]);
    if (f->g != NULL)
        for (int64_t a = 0; a < f->K * f->d; a++)
            if (W[a] != 0.0) total += f->g->strengths[a] * fabs(W[a]);
    return total;
}

/* rho W'u, the shared mean. */
static void shared_mean(int64_t K, int64_t d, double rho, const double *u, const double *W, double *mean) {
    memset(mean, 0, (size_t)d * sizeof(double));
    if (rho == 0.0) return;
    add_rows(u, NULL, K, W, d, d, mean);
    for (int64_t j = 0; j < d; j++) mean[j] *= rho;
}

/* ---- rounds ---- */

/* The values at weights and a precision. */
typedef struct {
    double log_det, value, gap; /* of Omega at S: its share of F, and the bound, both in units of F */
    double loss, objective;
    int64_t known;              /* whether Omega is the result of a graph step; the next graph step then starts there */
} facts_of_spot;

/* Weights and a precision; the arrays are consecutive. */
typedef struct {
    double *W, *Omega, *Sigma, *S, *mean;
    facts_of_spot is;
} spot;

typedef struct {
    spot now, last, before; /* the present round, and the last two accepted ones */
    double *Omega, *Sigma, *P, *inverse, *dual, *moment; /* spare, K x K */
    double *from, *HW, *u;
    int64_t *labels;
    int64_t n_points, rounds, used, idle, careful;
    double allowed, gap_weights, earlier, change;
} rounds;

#define ROUNDS_ROOM ((int64_t)(sizeof(rounds) / sizeof(double)) + 1)
#define SPOT_ROOM(K, d) ((K) * (d) + 3 * (K) * (K) + (d))

int64_t MSSL(fit_room)(int64_t K, int64_t d) { return ROUNDS_ROOM + 3 * SPOT_ROOM(K, d) + 2 * K * d + 6 * K * K + 2 * K; }

static void lay_out(rounds *r, double *room, int64_t K, int64_t d) {
    spot *spots[] = {&r->now, &r->last, &r->before};
    double **tables[] = {&r->Omega, &r->Sigma, &r->P, &r->inverse, &r->dual, &r->moment};
    room += ROUNDS_ROOM;
    for (int a = 0; a < 3; a++, room += SPOT_ROOM(K, d)) {
        spot *p = spots[a];
        p->W = room, p->Omega = p->W + K * d, p->Sigma = p->Omega + K * K, p->S = p->Sigma + K * K, p->mean = p->S + K * K;
    }
    for (int a = 0; a < 6; a++, room += K * K) *tables[a] = room;
    r->from = room, r->HW = r->from + K * d, r->u = r->HW + K * d, r->labels = (int64_t *)(r->u + K);
}

/* S of the weights less their shared mean. */
static void moment(const mssl_sparse_prior *prior, int64_t K, int64_t d, const double *W, const double *mean, double rho, double *S) {
    const double nu = prior->shrinkage;
    for (int64_t k = 0; k < K; k++)
        for (int64_t l = 0; l <= k; l++) {
            const double *restrict one = W + k * d, *restrict other = W + l * d;
            double total = 0.0;
            if (rho == 0.0) total = dot(one, other, d);
            else
                for (int64_t j = 0; j < d; j++) total += (one[j] - mean[j]) * (other[j] - mean[j]);
            total = total / (double)d + rho;
            if (k == l) total += nu * prior->variances[k];
            S[k * K + l] = S[l * K + k] = total / (1.0 + nu);
        }
}

static double prior_weight(const mssl_sparse_prior *prior, int64_t d) {
    return 0.5 * prior->eta * (double)d * (1.0 + prior->shrinkage);
}

/* P = eta Omega and u = P1 of C = P - rho u u'; returns rho. */
static double couple_to(rounds *r, const mssl_sparse_prior *prior, int64_t K, const double *Omega) {
    double total = 0.0;
    for (int64_t a = 0; a < K * K; a++) r->P[a] = prior->eta * Omega[a];
    for (int64_t k = 0; k < K; k++) {
        r->u[k] = 0.0;
        for (int64_t l = 0; l < K; l++) r->u[k] += r->P[k * K + l];
        total += r->u[k];
    }
    return prior->tau > 0.0 ? 1.0 / (1.0 / prior->tau + total) : 0.0;
}

/* F and the certificate of Omega at the spot's weights, whose loss is known; r->P and r->u belong to Omega. Returns 0 if the
   gap is not known. */
static int evaluate(rounds *r, const mssl_sparse_prior *prior, int64_t K, int64_t d, double rho, const mssl_lapack *lapack, spot *p) {
    const double weight = prior_weight(prior, d);
    double trace;
    shared_mean(K, d, rho, r->u, p->W, p->mean);
    moment(prior, K, d, p->W, p->mean, rho, p->S);
    const double gap = MSSL(graph_gap)(K, p->S, 1.0, prior->L, prior->e, p->Omega, p->Sigma, p->is.log_det, lapack, &trace);
    if (!(gap < INFINITY)) return 0;
    p->is.gap = weight * gap, p->is.value = weight * (trace - p->is.log_det);
    double more = 0.0;
    if (prior->tau > 0.0) {
        double total = 0.0;
        for (int64_t k = 0; k < K; k++) total += r->u[k];
        const double x = prior->tau * total;
        more = 0.5 * dot(p->mean, p->mean, d) / prior->tau + 0.5 * (double)d * (log1p(x) - x / (1.0 + x));
    }
    p->is.objective = p->is.loss + p->is.value + more;
    return 1;
}

static double size_of(const spot *p) { return most(1.0, fabs(p->is.objective)); }

/* Sum of penalised products, tr((S + diag e) Omega) + sum L |Omega|. */
static double penalised_trace(const mssl_sparse_prior *prior, int64_t K, const double *S, const double *Omega) {
    double total = 0.0;
    for (int64_t i = 0; i < K; i++)
        for (int64_t j = 0; j < K; j++) {
            const int64_t a = i * K + j;
            if (Omega[a] != 0.0) total += Omega[a] * (S[a] + (i == j ? prior->e[i] : copysign(prior->L[a], Omega[a])));
        }
    return total;
}

/* A better Omega for the moment S, to the gap tol in units of F, never worse than the present one; returns 0 if the step fails. */
static int update(rounds *r, const mssl_sparse_prior *prior, int64_t K, int64_t d, const double *S, double tol, const mssl_lapack *lapack,
                  spot *p) {
    const double weight = prior_weight(prior, d), goal = tol / weight / most(1.0, fabs(p->is.value / weight));
    const double *Omega = p->is.known ? p->Omega : NULL, *Sigma = p->is.known ? p->Sigma : NULL;
    double answer[4];
    if (MSSL(graph_lasso)(K, S, 1.0, prior->L, prior->e, goal, GRAPH_SWEEPS, 0, Omega, Sigma, r->Omega, r->Sigma, r->dual, r->labels,
                          lapack, answer, NULL) != MSSL_DONE)
        return 0;
    if (p->is.known) {
        const double before = penalised_trace(prior, K, S, p->Omega) - p->is.log_det;
        if (answer[1] > before) {
            p->is.value = weight * before, p->is.gap = weight * most(answer[0] - (answer[1] - before), 0.0);
            return 1;
        }
    }
    memcpy(p->Omega, r->Omega, (size_t)(K * K) * sizeof(double));
    memcpy(p->Sigma, r->Sigma, (size_t)(K * K) * sizeof(double));
    p->is.gap = weight * answer[0], p->is.value = weight * answer[1], p->is.log_det = answer[2], p->is.known = 1;
    return 1;
}

/* A better Omega in r->now, whose weights, loss, moment, value and gap are those of a point. With a shared mean, Omega and the mean
   are updated in turns, which needs no pass over the data. S is the first moment. */
static int improve(rounds *r, const mssl_sparse_prior *prior, const mssl_rounds_limits *by, int64_t K, int64_t d, const double *S,
                   double needed, double enough, double tighter, const mssl_lapack *lapack) {
    spot *p = &r->now;
    const double goal = most(needed, enough);
    for (int64_t turn = 0; turn < by->turns && !(p->is.gap <= needed); turn++) {
        if (!update(r, prior, K, d, S, tighter * most(needed, least(enough, by->loose * p->is.gap)), lapack, p)) return 0;
        if (prior->tau <= 0.0) break;
        if (!evaluate(r, prior, K, d, couple_to(r, prior, K, p->Omega), lapack, p)) return 0;
        S = p->S;
        if (p->is.gap <= goal) break;
    }
    return 1;
}

static int64_t count_edges(int64_t K, const double *Omega) {
    int64_t n = 0;
    for (int64_t i = 0; i < K; i++)
        for (int64_t j = 0; j < i; j++) n += Omega[i * K + j] != 0.0;
    return n;
}

/* The first Omega, if the weights are the best for the given one already. */
static int begin(rounds *r, const mssl_task_loss *f, const mssl_sparse_prior *prior, const mssl_rounds_limits *by, int64_t ready,
                 const mssl_lapack *lapack) {
    const int64_t K = f->K, d = f->d;
    spot *p = &r->now;
    MSSL(gram_products)(K, d, f->n_grams, f->H, f->scale, p->W, r->HW);
    p->is.loss = loss_of(f, p->W, r->HW);
    p->is.log_det = factor(p->Omega, K, r->P);
    if (isnan(p->is.log_det)) return 0;
    r->allowed = by->share * by->tol * most(1.0, fabs(p->is.loss));
    if (!ready) return 1;
    if (!evaluate(r, prior, K, d, couple_to(r, prior, K, p->Omega), lapack, p)) return 0;
    r->allowed = most(r->allowed, by->loose * p->is.gap);
    return improve(r, prior, by, K, d, p->S, by->share * by->tol * size_of(p), by->loose * p->is.gap, 1.0, lapack);
}

/* From the last point to the weights and the precision of the next round. The precision is fitted to weights that are
   extrapolated along the last change. */
static int advance(rounds *r, const mssl_task_loss *f, const mssl_sparse_prior *prior, const mssl_rounds_limits *by,
                   const mssl_lapack *lapack) {
    const int64_t K = f->K, d = f->d;
    const double needed = by->share * by->tol * size_of(&r->last), gained = r->earlier - r->last.is.objective;
    const double gap = r->gap_weights + r->last.is.gap;
    r->allowed = r->careful ? needed : most(needed, by->loose * least(gap, gained));
    r->used = r->rounds >= 2;
    r->idle = r->change == 0.0 ? r->idle + 1 : 0;
    r->now.is = r->last.is;
    memcpy(r->now.W, r->last.W, (size_t)SPOT_ROOM(K, d) * sizeof(double));
    double *S = r->now.S;
    if (r->used) {
        const double share = (double)(r->rounds - 1) / (double)(r->rounds + 2);
        for (int64_t a = 0; a < K * d; a++) r->from[a] = r->last.W[a] + share * (r->last.W[a] - r->before.W[a]);
        const double rho = couple_to(r, prior, K, r->last.Omega);
        double *mean = r->HW;
        shared_mean(K, d, rho, r->u, r->from, mean);
        S = r->moment;
        moment(prior, K, d, r->from, mean, rho, S);
    }
    const double enough = r->careful ? needed : by->loose * least(r->last.is.gap, 3.0 * gained);
    const double tighter = most(pow(0.1, (double)r->idle), least(by->rounding / (by->share * by->tol), 1.0));
    const int found = improve(r, prior, by, K, d, S, needed, enough, tighter, lapack);
    if (r->used) memcpy(r->now.W, r->from, (size_t)(K * d) * sizeof(double));
    return found;
}

int64_t MSSL(fit_rounds)(int64_t K, int64_t d, const mssl_task_loss *f, const mssl_sparse_prior *prior, const mssl_rounds_limits *by,
                         int64_t ready, int64_t known, int64_t n_rounds, double *W, double *Omega, double *Sigma,
                         double *mean, double *table, double facts[6], const mssl_lapack *lapack, double *room, mssl_watch *watch) {
    rounds *r = (rounds *)room;
    int64_t made = 0, ended = MSSL_AGAIN;
    if (!(int64_t)facts[0]) {
        memset(r, 0, sizeof(rounds));
        lay_out(r, room, K, d);
        memcpy(r->now.W, W, (size_t)(K * d) * sizeof(double));
        memcpy(r->now.Omega, Omega, (size_t)(K * K) * sizeof(double));
        memcpy(r->now.Sigma, Sigma, (size_t)(K * K) * sizeof(double));
        r->now.is.known = known, r->earlier = r->last.is.objective = INFINITY;
        if (!begin(r, f, prior, by, ready, lapack)) return MSSL_BROKE;
    } else if (!advance(r, f, prior, by, lapack)) {
        return MSSL_BROKE;
    }
    for (;;) {
        spot *p = &r->now;
        memcpy(r->from, p->W, (size_t)(K * d) * sizeof(double));
        const double rho = couple_to(r, prior, K, p->Omega);
        for (int64_t a = 0; a < K * K; a++) r->inverse[a] = p->Sigma[a] / prior->eta;
        const mssl_prior C = {r->P, r->inverse, r->u, rho, prior->tau};
        const double gap = weight_step(f, &C, p->W, r->HW, r->allowed);
        double moved = 0.0;
        for (int64_t a = 0; a < K * d; a++) moved += (p->W[a] - r->from[a]) * (p->W[a] - r->from[a]);
        r->change = sqrt(moved) / most(sqrt(dot(p->W, p->W, K * d)), 1e-300);
        p->is.loss = loss_of(f, p->W, r->HW);
        if (!isfinite(gap) || !evaluate(r, prior, K, d, rho, lapack, p)) {
            ended = MSSL_BROKE;
            break;
        }
        const double rise = p->is.objective - r->last.is.objective;
        if (r->n_points > 0 && !(rise <= (r->used ? 0.0 : by->rounding * size_of(&r->last)))) {
            if (!r->used && r->careful) {
                ended = MSSL_LIMIT;
                break;
            }
            /* F rose. If momentum did not cause this, a step was not accurate enough. */
            r->careful = r->careful || !r->used;
            r->n_points = 1, r->rounds = 1;
        } else {
            const spot free = r->before;
            r->earlier = r->last.is.objective;
            r->before = r->last, r->last = r->now, r->now = free;
            r->n_points = r->n_points < 2 ? r->n_points + 1 : 2;
            r->rounds++, r->careful = 0, r->gap_weights = gap;
            double *row = table + 4 * made++;
            row[0] = r->last.is.objective, row[1] = gap, row[2] = r->last.is.gap, row[3] = (double)count_edges(K, r->last.Omega);
            if ((gap + r->last.is.gap) / size_of(&r->last) <= by->tol) {
                ended = MSSL_DONE;
                break;
            }
            if (made == n_rounds) break;
        }
        if (mssl_stopped(watch)) {
            ended = MSSL_STOPPED;
            break;
        }
        if (!advance(r, f, prior, by, lapack)) {
            ended = MSSL_BROKE;
            break;
        }
    }
    facts[0] += (double)made;
    if (r->n_points > 0) {
        const spot *p = &r->last;
        memcpy(W, p->W, (size_t)(K * d) * sizeof(double));
        memcpy(Omega, p->Omega, (size_t)(K * K) * sizeof(double));
        memcpy(Sigma, p->Sigma, (size_t)(K * K) * sizeof(double));
        memcpy(mean, p->mean, (size_t)d * sizeof(double));
        facts[1] = p->is.objective, facts[2] = p->is.value, facts[3] = p->is.gap, facts[4] = p->is.log_det, facts[5] = (double)p->is.known;
    }
    return ended;
}
