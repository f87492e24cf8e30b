/* The compiled part of mssl: its functions and their arguments.

   The code is C11 without Python and without global state. Functions take arrays and sizes and return a status. Matrices are in row
   order, with K tasks, d features and n rows; integers are int64. mssl.kernels.binding reads this file: const arguments are read, all
   others are written, and numbers in brackets are the sizes of arrays. Arrays that are written must not overlap others; the Python
   side checks this.

   The files that include this one are compiled once for every SIMD level with its name in MSSL_LEVEL; MSSL(f) is mssl_f_<level>.
   Long calls take an mssl_watch, which can end them with MSSL_STOPPED. Results do not depend on how often it is called. */
#ifndef MSSL_H
#define MSSL_H

#include <stdint.h>

#ifndef MSSL_LEVEL
#define MSSL_LEVEL base
#endif
#define MSSL_JOIN2(name, level) mssl_##name##_##level
#define MSSL_JOIN(name, level) MSSL_JOIN2(name, level)
#define MSSL(name) MSSL_JOIN(name, MSSL_LEVEL)

enum {
    MSSL_DONE = 0,      /* the tolerance is reached */
    MSSL_LIMIT = 1,     /* the limit of sweeps is reached */
    MSSL_BROKE = 2,     /* a matrix is not definite, or memory is lacking */
    MSSL_UNBOUNDED = 3, /* a variable has no variance */
    MSSL_AGAIN = 4,     /* the work is not finished: call again */
    MSSL_STOPPED = 5    /* mssl_watch ended the call */
};

enum { MSSL_LAPACK_FROM = 64 }; /* with at least this number of variables, LAPACK factorises faster than the loops here */

/* ---- cpu.c: once for all levels ---- */

int64_t mssl_header(void); /* the checksum (CRC-32) of this file as it was compiled */
int64_t mssl_level(void);  /* 0 base, 1 AVX2 with FMA, 2 AVX-512 (F, DQ, BW, VL), as processor and system allow */

/* A long call calls look() at intervals of `every` seconds and ends if the result is not 0. due: the time of the next call of look(). */
typedef struct {
    int64_t (*look)(void);
    double every, due;
} mssl_watch;
int64_t mssl_stopped(mssl_watch *watch); /* with watch NULL, it returns 0 */

/* ---- structs of arguments ---- */

/* The addresses of LAPACK functions. */
typedef struct {
    void (*potrf)(char *uplo, int *n, double *a, int *lda, int *info);
    void (*potri)(char *uplo, int *n, double *a, int *lda, int *info);
} mssl_lapack;

/* C = P - rho u u' over tasks, with P in compressed rows whose diagonal is always stored. u may be NULL if rho = 0. */
typedef struct {
    const int64_t *starts, *columns; /* of sizes K + 1 and the number of entries */
    const double *values, *u;
    double rho;
} mssl_coupling;

/* The same C with dense P, its inverse, u = P1 and C^-1 = P^-1 + tau 11'. */
typedef struct {
    const double *P, *inverse, *u;
    double rho, tau;
} mssl_prior;

/* sum g(w) over weights: MSSL_ABSOLUTE: t|w|; MSSL_CONCAVE: t|w| - w^2/(2 theta) up to |w| = theta t, constant beyond.
   A weight with infinite strength is 0. A new penalty needs a code here and a branch in weights.c. */
enum { MSSL_ABSOLUTE = 0, MSSL_CONCAVE = 1 };
typedef struct {
    int64_t code, positive; /* positive: weights must be >= 0 */
    const double *strengths, *concavities; /* one per weight; concavities are NULL for MSSL_ABSOLUTE */
} mssl_penalty;

/* Columns of all tasks. Feature j of task k is column base[k] + j. Dense columns hold all rows of the task; sparse columns hold the
   rows in `rows`, which are counted from row_start[k]. */
typedef struct {
    const double *data;
    const int64_t *rows, *starts, *base, *row_start;
    int64_t is_sparse;
} mssl_columns;

/* Least squares of K tasks on Grams for weight_descent or, if g is NULL, for weight_system, whose preconditioner is in ridge and
   inverses. null is the loss at W = 0, max_inner the limit of sweeps or iterations of a weight step. */
typedef struct {
    int64_t K, d, n_grams, max_inner;
    const double *H, *scale, *q;
    const mssl_penalty *g;
    double *ridge, *inverses, null;
} mssl_task_loss;

/* The prior of a sparse task precision Omega: strength eta, variance tau of the shared mean, shrinkage nu/r towards the variances,
   and the penalties e (K) of the diagonal and L (K, K) of the edges. */
typedef struct {
    double eta, tau, shrinkage;
    const double *variances, *e, *L;
} mssl_sparse_prior;

/* The constants of the rounds; mssl.solvers.alternation explains them. */
typedef struct {
    double tol, share, loose, rounding;
    int64_t turns;
} mssl_rounds_limits;

/* ---- weights.c: coordinate descent over W (K, d) ----

   All functions minimise loss(W) + 1/2 tr(W'CW) + sum g(w). They visit one task after the other until a sweep gains at most `enough`
   or n_sweeps are made. A visit makes a pass over all coordinates and a few passes over those that are not zero. With few features,
   a linear solve on the support ends the visit. With many, the support's Gram is gathered and the passes are extrapolated (Anderson).
   mean = W'u is kept up to date. made: the number of sweeps, and a lower bound of the last gain. */

/* loss = sum_k 1/2 s_k w_k'H_k w_k - q_k'w_k with Grams H (n_grams = 1: one for all tasks); HW = s_k H_k w_k is kept up to date. With
   `sets`, each task has its own set of features, features[starts[k] .. starts[k + 1]]. q, HW and the parameters of the penalty then have
   the same order as `features`, and the Gram of task k begins at H[corners[k]]. */
typedef struct {
    const int64_t *corners, *features, *starts;
} mssl_sets;
int64_t MSSL(gram_sweeps)(int64_t K, int64_t d, int64_t n_grams, const double *H, const double scale[K], const double *q,
                          const mssl_sets *sets, const mssl_coupling *C, const mssl_penalty *g, double W[K * d], double *HW,
                          double mean[d], const int64_t *tasks, int64_t n_tasks, int64_t n_sweeps, double enough, double made[2],
                          mssl_watch *watch);

/* loss = sum_k 1/2 sum_i c_i (y_i - sum_j (a_ij - mu_kj) w_kj)^2 on stored columns a, centring and intercept included.
   v = c (y - sum_j a_j w_j); state[k] = (sum_j mu_kj w_kj, sum_i v_i); sums = sum_i c_i a_ij, h = sum_i c_i (a_ij - mu_kj)^2,
   totals = sum_i c_i. */
int64_t MSSL(design_sweeps)(int64_t K, int64_t d, const mssl_columns *X, const double *c, const double totals[K],
                            const double mu[K * d], const double sums[K * d], const double h[K * d], const mssl_coupling *C,
                            const mssl_penalty *g, double W[K * d], double *v, double state[K * 2], double mean[d],
                            const int64_t *tasks, int64_t n_tasks, int64_t n_sweeps, double enough, double made[2],
                            mssl_watch *watch);

/* Tasks coupled through residuals: 1/2 sum_kl A_kl e_k'e_l + 1/2 sum_k ridge_k |w_k|^2, e_k = y_k - X_k w_k.
   shared: one X, G = X'X, q_k = X'y_k; D = WG - q is kept up to date.
   aligned: X_k (d, n), H_k = X_k'X_k; HW and the residuals E are kept up to date.
   feature: no Grams, h_kj = |x_kj|^2; n_blocks = 1: one X for all tasks. */
int64_t MSSL(shared_sweeps)(int64_t K, int64_t d, const double G[d * d], const double q[K * d], const double ridge[K],
                            const mssl_coupling *A, const mssl_penalty *g, double W[K * d], double D[K * d], int64_t n_sweeps,
                            double enough, double made[2], mssl_watch *watch);
int64_t MSSL(aligned_sweeps)(int64_t K, int64_t d, int64_t n, const double X[K * d * n], const double H[K * d * d],
                             const double ridge[K], const mssl_coupling *A, const mssl_penalty *g, double W[K * d], double HW[K * d],
                             double E[K * n], int64_t n_sweeps, double enough, double made[2], mssl_watch *watch);
int64_t MSSL(feature_sweeps)(int64_t K, int64_t d, int64_t n, int64_t n_blocks, const double X[n_blocks * d * n],
                             const double h[n_blocks * d], const double ridge[K], const mssl_coupling *A, const mssl_penalty *g,
                             double W[K * d], double E[K * n], int64_t n_sweeps, double enough, double made[2], mssl_watch *watch);

/* out_k = s_k H_k v_k (K, d), scale NULL: all s_k are 1; rows of Grams whose weight is zero are skipped. */
void MSSL(gram_products)(int64_t K, int64_t d, int64_t n_grams, const double H[n_grams * d * d], const double scale[K],
                         const double V[K * d], double out[K * d]);

/* A whole weight step on Grams, for few tasks: bursts of sweeps until the bound of the suboptimality is at most tol. The bound is
   1/2 tr((G + U) C^-1 (G + U)') with the gradient G of loss plus coupling and a subgradient U of the penalty. The result is MSSL_LIMIT
   after too many sweeps, or if no weight changes any more. made: the number of sweeps, and the bound. The penalty is MSSL_ABSOLUTE. */
int64_t MSSL(weight_descent)(int64_t K, int64_t d, int64_t n_grams, const double H[n_grams * d * d], const double scale[K],
                             const double q[K * d], const mssl_penalty *g, const mssl_prior *C, double W[K * d], double HW[K * d],
                             double tol, int64_t max_sweeps, double made[2], mssl_watch *watch);

/* The same without a penalty: s_k H_k w_k + (CW)_k = q_k by conjugate gradients with the preconditioner (s_k H_k + C_kk I)^-1, which
   `inverses` (K, d, d) keeps for ridges C_kk within a factor of 2 of `ridge`. It returns the number of iterations. *gap is infinite if
   a block is not positive definite. */
int64_t MSSL(weight_system)(int64_t K, int64_t d, int64_t n_grams, const double H[n_grams * d * d], const double scale[K],
                            const double q[K * d], const mssl_prior *C, double W[K * d], double HW[K * d], double ridge[K],
                            double inverses[K * d * d], double tol, int64_t max_iter, double gap[1]);

/* ---- groups.c: joint feature selection ----

   min 1/2 sum_k s_k v_k'H_k v_k - q'V + 1/2 tr(V'CV) + alpha sum_j |V_.j|, V (K, m), by block descent over features (lift - C
   diagonally dominant, so that a block step minimises a majoriser) and Newton steps on the features in use. constant is the smooth part
   at V = 0; its gradient G is kept up to date. made: the number of sweeps and products with the Hessian, and the bound of the
   suboptimality. */
int64_t MSSL(group_descent)(int64_t K, int64_t m, int64_t n_grams, const double H[n_grams * m * m], const double scale[K],
                            const mssl_coupling *C, const double lift[K], double alpha, const double q[K * m], double constant,
                            double V[K * m], double G[K * m], double tol, int64_t max_iter, double made[2], mssl_watch *watch);

/* ---- grams.c: rows of many small tasks; task k has the rows bounds[k] .. bounds[k + 1] ---- */

/* Write the rows X (N, d) as consecutive blocks (d, n_k); if `centre`, subtract their means (K, d), which c weights. */
void MSSL(gather_blocks)(int64_t K, int64_t d, const double *X, const int64_t bounds[K + 1], const double *c, int64_t centre,
                         double *out, double means[K * d]);

/* From the columns a_j of such blocks: sum c a_j a_l (K, d, d), sum c a_j and sum r a_j (K, d). */
int64_t MSSL(block_grams)(int64_t K, int64_t d, const double *buffer, const int64_t bounds[K + 1], const double *c, const double *r,
                          double gram[K * d * d], double sums[K * d], double products[K * d]);

/* ---- graph.c: the graphical lasso ----

   min tr(S'Omega) - log det Omega + sum_{i != j} L_ij |Omega_ij|, S' = S + diag(e), L = alpha times the weights (NULL: all 1;
   infinite ones forbid an edge), over positive definite Omega (p, p). */

/* Whether S is finite and symmetric, and has no negative variances. */
int64_t MSSL(graph_check)(int64_t p, const double S[p * p]);

/* Labels of the components of |S_ij| > L_ij; returns the size of the largest one, or -1 if memory is lacking. */
int64_t MSSL(graph_components)(int64_t p, const double S[p * p], double alpha, const double weights[p * p], int64_t labels[p]);

/* The whole graphical lasso, until the gap is at most tol max(1, |objective|). Every component is scaled to a unit diagonal and solved by
   dual block coordinate descent. The start is warm_Omega and its inverse (or a dual point) if they are not NULL. Newton steps help if
   few variables are ill-conditioned. The certificate uses the dual point W of the descent, with the entries of the support set to
   S + L sign(Omega): with E = Omega^1/2 W Omega^1/2 - I of spectral radius r, the gap is at most 1/2 |E|^2 / (1 - r). The error of Omega
   is about the square root of the gap; with `digits`, a few more sweeps give up to six digits if there are few variables. Omega, its
   inverse Sigma, the dual point and the labels of components are written. answer: gap, objective, log det Omega, number of sweeps. The
   gap is infinite if there is no result; with MSSL_UNBOUNDED the first number is the variable. */
int64_t MSSL(graph_lasso)(int64_t p, const double S[p * p], double alpha, const double weights[p * p], const double e[p], double tol,
                          int64_t max_sweeps, int64_t digits, const double warm_Omega[p * p],
                          const double warm_Sigma[p * p], double Omega[p * p], double Sigma[p * p], double dual[p * p],
                          int64_t labels[p], const mssl_lapack *lapack, double answer[4], mssl_watch *watch);

/* The gap of a given Omega with its inverse and log det, by the same bound, with Sigma clipped into the box off the support. Far from
   the optimum a dual point is factorised: the point of the signs, or Sigma clipped into the box and moved until it is definite. The
   result is infinite if there is no such point or if Omega has a forbidden edge, and NaN if memory is lacking.
   *trace: tr(S'Omega) + sum L|Omega|. */
double MSSL(graph_gap)(int64_t p, const double S[p * p], double alpha, const double weights[p * p], const double e[p],
                       const double Omega[p * p], const double Sigma[p * p], double log_det, const mssl_lapack *lapack,
                       double trace[1]);

/* ---- fit.c: whole fits of few tasks ----

   The same rounds as in mssl.solvers.alternation, with the same results, on Grams with a sparse precision. */

/* Rounds of weight steps and graph steps, from W and Omega with its inverse Sigma (`ready`: W is the best for Omega; `known`: Omega is
   the result of a graph step). MSSL_DONE: the certificate is within by->tol. MSSL_AGAIN: n_rounds are made; call again with the same
   room and facts. MSSL_LIMIT: F rises even with accurate steps. MSSL_BROKE: a step failed; W, Omega and Sigma are the last valid ones.
   table (n_rounds, 4): objective, gap of the weights, gap of Omega, edges. facts: number of rounds of all calls (0 at first), objective,
   share of Omega in F and its gap, log det Omega, whether Omega is the result of a graph step. room: fit_room numbers. */
int64_t MSSL(fit_room)(int64_t K, int64_t d);
int64_t MSSL(fit_rounds)(int64_t K, int64_t d, const mssl_task_loss *f, const mssl_sparse_prior *prior, const mssl_rounds_limits *by,
                         int64_t ready, int64_t known, int64_t n_rounds, double W[K * d], double Omega[K * K],
                         double Sigma[K * K], double mean[d], double table[n_rounds * 4], double facts[6],
                         const mssl_lapack *lapack, double *room, mssl_watch *watch);

#endif
