/* The inner loops of kernel.py, which says what each must compute, to the last bit.

   Plain C functions, called through ctypes without the interpreter's lock; nothing of Python is
   needed to build or to load them. Every product and sum is one rounding, in a stated order: to be
   compiled with -ffp-contract=off and never with -ffast-math. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* One binary for every x86-64: the loader picks the variant that the processor can run. */
#if !defined __x86_64__ || !defined __GLIBC__
#undef ONE_VARIANT
#define ONE_VARIANT
#endif
#ifdef ONE_VARIANT
#define VARIANTS
#else
#define VARIANTS __attribute__((target_clones("default", "avx2", "avx512f")))
#endif
#ifdef __clang__
#define COLUMN_BY_COLUMN _Pragma("clang loop vectorize(assume_safety)")
#else
#define COLUMN_BY_COLUMN _Pragma("GCC ivdep")
/* One copies short lines by a slow `rep movs`, the other makes loops that nothing can make vectors of. */
#pragma GCC optimize("no-tree-loop-distribute-patterns", "no-loop-unroll-and-jam")
#endif
#define INLINE static inline __attribute__((always_inline))

enum { VERSION = 2 }; /* as in kernel_compiled.py */
enum { OUT_OF_MEMORY = 1 };
enum { MINIMUM = 1, MAXIMUM = 2, BOTH = 3, RUN = 4 }; /* as in network.py */
enum { CHUNK = 1024, LANES = 16 };           /* columns; as in kernel.py */
enum { HALF = LANES / 2 };                   /* lanes in a register, but in a wide one */
enum { TALL = 4, WIDE = 2 };                 /* the points whose distances are taken at a time */
enum { TILE = 128 };                         /* columns whose N lines lie in the innermost cache */
enum { PIECE = 16, PIECES = TILE / PIECE };  /* columns that memory delivers at a time */
enum { GROUP = 4 };                          /* rows that are added at a time */
enum { AHEAD = 2 * TILE };                   /* how far ahead memory is asked for while tiles are sorted */
enum { STRETCH = 8192, FAR = 1024 };         /* columns of a few rows that are added in one go; how far ahead then */
enum { ALIGNMENT = 64 };                     /* bytes */
enum { INFINITE = 0x7f800000 };              /* the bits of a float */

typedef float f8 __attribute__((vector_size(32), may_alias));
typedef float f16 __attribute__((vector_size(64), may_alias));
/* Rows may begin at any byte. */
typedef float row_float __attribute__((aligned(1), may_alias));
typedef uint32_t row_bits __attribute__((aligned(1), may_alias));

int foedus_version(void) { return VERSION; }

/* Whether all lanes fit into a register. */
static int has_wide_registers(void) {
#ifdef ONE_VARIANT
#ifdef __AVX512F__
    return 1;
#else
    return 0;
#endif
#else
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") != 0;
#endif
}

const char *foedus_variant(void) {
#ifndef ONE_VARIANT
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return "avx512f";
    if (__builtin_cpu_supports("avx2")) return "avx2";
#endif
    return "baseline";
}

static float *lines_for(ptrdiff_t num_lines, ptrdiff_t columns) { /* zeros, or NULL */
    size_t bytes = (size_t)num_lines * (size_t)columns * sizeof(float);
    float *lines = aligned_alloc(ALIGNMENT, bytes);
    if (lines) memset(lines, 0, bytes);
    return lines;
}

INLINE ptrdiff_t smaller(ptrdiff_t x, ptrdiff_t y) { return x < y ? x : y; }

/* Grows with the size of the float with these bits; NaN and the infinities have at least INFINITE. */
INLINE int32_t size_of(uint32_t bits) { return (int32_t)(bits & 0x7fffffffu); }

INLINE int32_t larger(int32_t x, int32_t y) { return x > y ? x : y; }

/* Copies some columns of a row; returns the largest size. */
INLINE int32_t copy(uint32_t *restrict line, const row_bits *restrict row, ptrdiff_t columns) {
    int32_t largest = 0;
    for (ptrdiff_t c = 0; c < columns; c++) {
        line[c] = row[c];
        largest = larger(largest, size_of(row[c]));
    }
    return largest;
}

/* The same for a line of `length` columns, where the row may end earlier: zeros stand behind. */
INLINE int32_t take(float *line, const float *row, ptrdiff_t columns, int length) {
    if (columns >= length) return copy((uint32_t *)line, (const row_bits *)row, length);
    memset(line, 0, (size_t)length * sizeof(float));
    return copy((uint32_t *)line, (const row_bits *)row, columns);
}

/* ---- squared distances ---- */

/* Sums the squared differences of TALL points and WIDE others over one chunk, the lanes of one register apart.
   Meanwhile memory is asked for a row's next chunk. */
#define SQUARES(name, lanes)                                                                      \
    INLINE void name(const float *x, const float *y, const row_float *next, float *out) {         \
        lanes sums[TALL][WIDE] = {{{0}}};                                                         \
        for (int k = 0; k < CHUNK; k += LANES) {                                                  \
            __builtin_prefetch(next + k);                                                         \
            for (int j = 0; j < WIDE; j++) {                                                      \
                lanes other = *(const lanes *)(y + j * CHUNK + k);                                \
                for (int i = 0; i < TALL; i++) {                                                  \
                    lanes difference = *(const lanes *)(x + i * CHUNK + k) - other;               \
                    sums[i][j] += difference * difference;                                        \
                }                                                                                 \
            }                                                                                     \
        }                                                                                         \
        for (int i = 0; i < TALL; i++)                                                            \
            for (int j = 0; j < WIDE; j++) *(lanes *)(out + (i * WIDE + j) * LANES) = sums[i][j]; \
    }
SQUARES(squares_of_half, f8)
SQUARES(squares, f16)

/* The squared distances between TALL points and WIDE others over one chunk. */
INLINE void tile_distances(const float *x, const float *y, const row_float *next, int wide, double out[TALL][WIDE]) {
    float sums[TALL * WIDE * LANES] __attribute__((aligned(ALIGNMENT)));
    if (wide)
        squares(x, y, next, sums);
    else
        for (int half = 0; half < LANES; half += HALF) squares_of_half(x + half, y + half, next, sums + half);
    for (int i = 0; i < TALL; i++)
        for (int j = 0; j < WIDE; j++) {
            const float *lanes = sums + (i * WIDE + j) * LANES;
            double folded[HALF];
            for (int l = 0; l < HALF; l++) folded[l] = (double)lanes[l] + (double)lanes[l + HALF];
            for (int half = HALF / 2; half; half /= 2)
                for (int l = 0; l < half; l++) folded[l] += folded[l + half];
            out[i][j] = folded[0];
        }
}

/* Adds to a symmetric matrix of num_rows + 1 points, the last being the origin. Returns 0 or OUT_OF_MEMORY. */
VARIANTS int foedus_squared_distances(const float *const *rows, int num_rows, ptrdiff_t columns, double *sums) {
    ptrdiff_t num_points = (ptrdiff_t)num_rows + 1;
    int wide = has_wide_registers();
    float *points = lines_for(num_points + TALL, CHUNK); /* a tile may look beyond the last */
    if (!points) return OUT_OF_MEMORY;
    for (ptrdiff_t start = 0; start < columns; start += CHUNK) {
        for (int i = 0; i < num_rows; i++)
            take(points + (ptrdiff_t)i * CHUNK, rows[i] + start, columns - start, CHUNK);
        int asked = start + CHUNK < columns ? 0 : num_rows;
        for (ptrdiff_t i = 0; i < num_points; i += TALL)
            for (ptrdiff_t j = i + 1; j < num_points; j += WIDE) {
                const row_float *next = asked < num_rows ? rows[asked++] + start + CHUNK : points;
                double tile[TALL][WIDE];
                tile_distances(points + i * CHUNK, points + j * CHUNK, next, wide, tile);
                for (ptrdiff_t u = i; u < i + TALL; u++)
                    for (ptrdiff_t v = j; v < smaller(j + WIDE, num_points); v++)
                        if (u < v) sums[u * num_points + v] += tile[u - i][v - j];
            }
    }
    free(points);
    for (ptrdiff_t i = 0; i < num_points; i++)
        for (ptrdiff_t j = 0; j < i; j++) sums[i * num_points + j] = sums[j * num_points + i];
    return 0;
}

/* ---- weighted sum ---- */

/* Asks memory for TILE columns of a row. */
INLINE void ask_for(const float *row) {
    for (int piece = 0; piece < PIECES; piece++) __builtin_prefetch((const row_float *)row + piece * PIECE);
}

/* Adds four weighted rows to the sum of some columns, one after the other. */
INLINE void add_rows(double *sum, const float *const *rows, const double *weights, ptrdiff_t start, ptrdiff_t columns) {
    const row_float *r0 = rows[0] + start, *r1 = rows[1] + start, *r2 = rows[2] + start, *r3 = rows[3] + start;
    double w0 = weights[0], w1 = weights[1], w2 = weights[2], w3 = weights[3];
    COLUMN_BY_COLUMN
    for (ptrdiff_t c = 0; c < columns; c++)
        sum[c] = (((sum[c] + w0 * (double)r0[c]) + w1 * (double)r1[c]) + w2 * (double)r2[c]) + w3 * (double)r3[c];
}

INLINE void add_row(double *sum, const row_float *row, double weight, ptrdiff_t columns) {
    COLUMN_BY_COLUMN
    for (ptrdiff_t c = 0; c < columns; c++) sum[c] += weight * (double)row[c];
}

VARIANTS void foedus_weighted_sum(const float *const *rows, int num_rows, ptrdiff_t columns, const double *weights,
                                  float *out) {
    double sum[STRETCH] __attribute__((aligned(ALIGNMENT)));
    for (ptrdiff_t start = 0; start < columns; start += STRETCH) {
        ptrdiff_t stretch = smaller(STRETCH, columns - start);
        for (ptrdiff_t c = 0; c < stretch; c++) sum[c] = 0;
        int i = 0;
        for (; i + GROUP <= num_rows; i += GROUP)
            for (ptrdiff_t c = 0; c < stretch; c += TILE) {
                if (start + c + FAR < columns)
                    for (int g = 0; g < GROUP; g++) ask_for(rows[i + g] + start + c + FAR);
                add_rows(sum + c, rows + i, weights + i, start + c, smaller(TILE, stretch - c));
            }
        for (; i < num_rows; i++) add_row(sum, rows[i] + start, weights[i], stretch);
        for (ptrdiff_t c = 0; c < stretch; c++) out[start + c] = (float)sum[c];
    }
}

/* ---- one coordinate at a time ---- */

/* Puts two values into order. */
#define ORDER(x, y) { float low_ = x < y ? x : y; y = x > y ? x : y; x = low_; }

/* Sorts a run of TILE columns out of RUN rows; returns the largest size. */
INLINE int32_t sort(const float *const rows[RUN], float *run) {
    const row_float *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3];
    const row_bits *b0 = (const row_bits *)r0, *b1 = (const row_bits *)r1;
    const row_bits *b2 = (const row_bits *)r2, *b3 = (const row_bits *)r3;
    int32_t largest = 0;
    COLUMN_BY_COLUMN
    for (int c = 0; c < TILE; c++) {
        float x0 = r0[c], x1 = r1[c], x2 = r2[c], x3 = r3[c];
        int32_t size01 = larger(size_of(b0[c]), size_of(b1[c])), size23 = larger(size_of(b2[c]), size_of(b3[c]));
        largest = larger(largest, larger(size01, size23));
        ORDER(x0, x1) ORDER(x2, x3)
        ORDER(x0, x2) ORDER(x1, x3)
        ORDER(x1, x2)
        run[c] = x0, run[TILE + c] = x1, run[2 * TILE + c] = x2, run[3 * TILE + c] = x3;
    }
    return largest;
}

/* Of two sorted runs makes the smaller and the larger half of both, or only one of them. */
INLINE void merge(float *low, float *high, int what) {
    COLUMN_BY_COLUMN
    for (int c = 0; c < TILE; c++) {
        float x0 = low[c], x1 = low[TILE + c], x2 = low[2 * TILE + c], x3 = low[3 * TILE + c];
        float y0 = high[c], y1 = high[TILE + c], y2 = high[2 * TILE + c], y3 = high[3 * TILE + c];
        ORDER(x0, y0) ORDER(x1, y1) ORDER(x2, y2) ORDER(x3, y3)
        ORDER(x2, y0) ORDER(x3, y1)
        ORDER(x1, x2) ORDER(x3, y0) ORDER(y1, y2)
        if (what & MINIMUM) low[c] = x0, low[TILE + c] = x1, low[2 * TILE + c] = x2, low[3 * TILE + c] = x3;
        if (what & MAXIMUM) high[c] = y0, high[TILE + c] = y1, high[2 * TILE + c] = y2, high[3 * TILE + c] = y3;
    }
}

typedef struct {
    const float *const *rows;
    int num_rows;
    ptrdiff_t columns;
    const int32_t *runs; /* as in network.py, three numbers each */
    ptrdiff_t num_runs;
} block;

/* The lines of TILE columns after the network; returns the largest size. */
INLINE int32_t put_in_place(float *lines, block b, ptrdiff_t start) {
    int32_t largest = 0;
    /* Runs of rows that do not end here are sorted without a copy. */
    int direct = b.num_runs && start + TILE <= b.columns ? b.num_rows / RUN * RUN : 0;
    for (int i = direct; i < b.num_rows; i++)
        largest = larger(largest, take(lines + (ptrdiff_t)i * TILE, b.rows[i] + start, b.columns - start, TILE));
    /* Memory is asked for later columns meanwhile, those of a few rows with every run. */
    int asked = start + AHEAD < b.columns ? 0 : b.num_rows;
    ptrdiff_t share = b.num_rows / (b.num_runs + 1) + 1;
    for (const int32_t *run = b.runs; run < b.runs + 3 * b.num_runs; run += 3) {
        for (ptrdiff_t k = 0; k < share && asked < b.num_rows; k++) ask_for(b.rows[asked++] + start + AHEAD);
        float *low = lines + (ptrdiff_t)run[0] * TILE, *high = lines + (ptrdiff_t)run[1] * TILE;
        if (low == high) {
            const float *copied[RUN] = {low, low + TILE, low + 2 * TILE, low + 3 * TILE}, *taken[RUN];
            for (int k = 0; k < RUN; k++) taken[k] = run[0] < direct ? b.rows[run[0] + k] + start : copied[k];
            int32_t size = sort(taken, low);
            if (run[0] < direct) largest = larger(largest, size); /* the others' last lines may be infinite */
        } else if (run[2] == BOTH) {
            merge(low, high, BOTH);
        } else if (run[2] == MINIMUM) {
            merge(low, high, MINIMUM);
        } else {
            merge(low, high, MAXIMUM);
        }
    }
    return largest;
}

/* Leaves the `count` values closest to the median in the first of the sorted lines. */
INLINE void choose_closest(float *lines, int num_lines, int count) {
    const float *below = lines + (ptrdiff_t)((num_lines - 1) / 2) * TILE;
    const float *above = lines + (ptrdiff_t)(num_lines / 2) * TILE;
    double middle[TILE] __attribute__((aligned(ALIGNMENT)));
    for (int c = 0; c < TILE; c++) middle[c] = (double)below[c] + (double)above[c];
    for (int k = 0; k + count < num_lines; k++) {
        const float *low = lines + (ptrdiff_t)k * TILE, *high = low + (ptrdiff_t)count * TILE;
        float *slot = lines + (ptrdiff_t)(k % count) * TILE;
        COLUMN_BY_COLUMN
        for (int c = 0; c < TILE; c++) slot[c] = (double)high[c] + (double)low[c] < middle[c] ? high[c] : slot[c];
    }
}

/* The mean of the kept lines. */
INLINE void mean_of_kept(const float *lines, const int32_t *kept, int num_kept, float *out, ptrdiff_t width) {
    double sum[TILE] __attribute__((aligned(ALIGNMENT)));
    for (int c = 0; c < TILE; c++) sum[c] = 0;
    int k = 0;
    for (; k + GROUP <= num_kept; k += GROUP) {
        const float *l0 = lines + (ptrdiff_t)kept[k] * TILE, *l1 = lines + (ptrdiff_t)kept[k + 1] * TILE;
        const float *l2 = lines + (ptrdiff_t)kept[k + 2] * TILE, *l3 = lines + (ptrdiff_t)kept[k + 3] * TILE;
        COLUMN_BY_COLUMN
        for (int c = 0; c < TILE; c++)
            sum[c] = (((sum[c] + (double)l0[c]) + (double)l1[c]) + (double)l2[c]) + (double)l3[c];
    }
    for (; k < num_kept; k++) add_row(sum, lines + (ptrdiff_t)kept[k] * TILE, 1.0, TILE);
    for (ptrdiff_t c = 0; c < width; c++) out[c] = (float)(sum[c] / (double)num_kept);
}

/* The mean of the kept lines, where it is asked for after the closest were moved there. Returns 0 or OUT_OF_MEMORY. */
INLINE int combine(block b, const int32_t *kept, int num_kept, int closest, float *out, int *finite) {
    ptrdiff_t num_lines = (b.num_rows + RUN - 1) / RUN * RUN;
    float *lines = lines_for(num_lines, TILE);
    if (!lines) return OUT_OF_MEMORY;
    for (ptrdiff_t c = (ptrdiff_t)b.num_rows * TILE; c < num_lines * TILE; c++) lines[c] = __builtin_inff();
    int32_t largest = 0;
    for (ptrdiff_t start = 0; start < b.columns; start += TILE) {
        largest = larger(largest, put_in_place(lines, b, start));
        if (closest) choose_closest(lines, b.num_rows, num_kept);
        mean_of_kept(lines, kept, num_kept, out + start, smaller(TILE, b.columns - start));
    }
    free(lines);
    *finite = largest < INFINITE;
    return 0;
}

VARIANTS int foedus_middle(const float *const *rows, int num_rows, ptrdiff_t columns, const int32_t *runs,
                           ptrdiff_t num_runs, const int32_t *kept, int num_kept, float *out, int *finite) {
    return combine((block){rows, num_rows, columns, runs, num_runs}, kept, num_kept, 0, out, finite);
}

/* `kept` are all lines, in order. */
VARIANTS int foedus_closest(const float *const *rows, int num_rows, ptrdiff_t columns, const int32_t *runs,
                            ptrdiff_t num_runs, const int32_t *kept, int count, float *out, int *finite) {
    return combine((block){rows, num_rows, columns, runs, num_runs}, kept, count, 1, out, finite);
}

VARIANTS void foedus_finite(const float *const *rows, int num_rows, ptrdiff_t columns, uint8_t *finite) {
    for (int i = 0; i < num_rows; i++) {
        int32_t largest = 0;
        for (ptrdiff_t c = 0; c < columns; c++) largest = larger(largest, size_of(((const row_bits *)rows[i])[c]));
        finite[i] = largest < INFINITE;
    }
}
