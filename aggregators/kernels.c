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
#if defined __GNUC__ && !defined __clang__
#pragma GCC optimize("no-tree-loop-distribute-patterns") /* its `rep movs` copies short lines slowly */
#endif
#define INLINE static inline __attribute__((always_inline))

enum { VERSION = 1 }; /* as in kernel_compiled.py */
enum { OUT_OF_MEMORY = 1 };
enum { MINIMUM = 1, MAXIMUM = 2, BOTH = 3 }; /* as in network.py */
enum { CHUNK = 1024, LANES = 16 };           /* columns; as in kernel.py */
enum { HALF = LANES / 2 };                   /* lanes in a register */
enum { TALL = 4, WIDE = 2 };                 /* the points whose distances are taken at a time */
enum { TILE = 128 };                         /* columns whose N lines lie in the innermost cache */
enum { PIECE = 16, PIECES = TILE / PIECE };  /* columns that memory delivers at a time */
enum { ALIGNMENT = 64 };                     /* bytes */

typedef float f4 __attribute__((vector_size(16)));
typedef float f8 __attribute__((vector_size(32)));
typedef double d4 __attribute__((vector_size(32)));
typedef int64_t l4 __attribute__((vector_size(32)));
/* Rows may begin at any byte. */
typedef float row_float __attribute__((aligned(1), may_alias));
typedef uint32_t row_bits __attribute__((aligned(1), may_alias));
typedef f4 row_f4 __attribute__((aligned(1), may_alias));

int foedus_version(void) { return VERSION; }

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

INLINE d4 widened(f4 x) { return __builtin_convertvector(x, d4); }

INLINE f4 narrowed(d4 x) { return __builtin_convertvector(x, f4); }

/* Whether a float with these bits is NaN or infinite. */
INLINE uint32_t not_finite(uint32_t bits) { return (bits & 0x7f800000u) == 0x7f800000u; }

/* Copies some columns of a row; returns whether one is not finite. */
INLINE uint32_t copy(uint32_t *restrict line, const row_bits *restrict row, ptrdiff_t columns) {
    uint32_t found = 0;
    for (ptrdiff_t c = 0; c < columns; c++) {
        line[c] = row[c];
        found |= not_finite(row[c]);
    }
    return found;
}

/* The same for a line of `length` columns, where the row may end earlier: zeros stand behind. */
INLINE uint32_t take(float *line, const float *row, ptrdiff_t columns, int length) {
    if (columns >= length) return copy((uint32_t *)line, (const row_bits *)row, length);
    memset(line, 0, (size_t)length * sizeof(float));
    return copy((uint32_t *)line, (const row_bits *)row, columns);
}

/* ---- squared distances ---- */

/* Those between TALL points and WIDE others over one chunk; meanwhile memory is asked for two rows' next chunks. */
INLINE void tile_distances(const float *x, const float *y, const row_float *const next[2], double out[TALL][WIDE]) {
    f8 lanes[2][TALL][WIDE];
    for (int half = 0; half < 2; half++) {
        f8 sums[TALL][WIDE] = {{{0}}};
        for (int k = 0; k < CHUNK; k += LANES) {
            __builtin_prefetch(next[half] + k);
            for (int j = 0; j < WIDE; j++) {
                f8 other = *(const f8 *)(y + j * CHUNK + k + half * HALF);
                for (int i = 0; i < TALL; i++) {
                    f8 difference = *(const f8 *)(x + i * CHUNK + k + half * HALF) - other;
                    sums[i][j] += difference * difference;
                }
            }
        }
        memcpy(lanes[half], sums, sizeof sums);
    }
    for (int i = 0; i < TALL; i++)
        for (int j = 0; j < WIDE; j++) {
            double folded[HALF];
            for (int l = 0; l < HALF; l++) folded[l] = (double)lanes[0][i][j][l] + (double)lanes[1][i][j][l];
            for (int half = HALF / 2; half; half /= 2)
                for (int l = 0; l < half; l++) folded[l] += folded[l + half];
            out[i][j] = folded[0];
        }
}

/* Adds to a symmetric matrix of num_rows + 1 points, the last being the origin. Returns 0 or OUT_OF_MEMORY. */
VARIANTS int foedus_squared_distances(const float *const *rows, int num_rows, ptrdiff_t columns, double *sums) {
    ptrdiff_t num_points = (ptrdiff_t)num_rows + 1;
    float *points = lines_for(num_points + TALL, CHUNK); /* a tile may look beyond the last */
    if (!points) return OUT_OF_MEMORY;
    for (ptrdiff_t start = 0; start < columns; start += CHUNK) {
        for (int i = 0; i < num_rows; i++)
            take(points + (ptrdiff_t)i * CHUNK, rows[i] + start, columns - start, CHUNK);
        int asked = start + CHUNK < columns ? 0 : num_rows;
        for (ptrdiff_t i = 0; i < num_points; i += TALL)
            for (ptrdiff_t j = i + 1; j < num_points; j += WIDE) {
                const row_float *next[2] = {points, points};
                for (int half = 0; half < 2 && asked < num_rows; half++) next[half] = rows[asked++] + start + CHUNK;
                double tile[TALL][WIDE];
                tile_distances(points + i * CHUNK, points + j * CHUNK, next, tile);
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

/* Adds `count` weighted rows to the sum of some columns, one row after the other. */
INLINE void add_rows(double *sum, const float *const *rows, const double *weights, int count, ptrdiff_t start,
                     ptrdiff_t columns) {
    ptrdiff_t c = 0;
    for (; c + 4 <= columns; c += 4) {
        d4 total = *(d4 *)(sum + c);
        for (int i = 0; i < count; i++) total += weights[i] * widened(*(const row_f4 *)(rows[i] + start + c));
        *(d4 *)(sum + c) = total;
    }
    for (; c < columns; c++)
        for (int i = 0; i < count; i++) sum[c] += weights[i] * (double)((const row_float *)rows[i])[start + c];
}

VARIANTS void foedus_weighted_sum(const float *const *rows, int num_rows, ptrdiff_t columns, const double *weights,
                                  float *out) {
    double sum[CHUNK] __attribute__((aligned(ALIGNMENT)));
    for (ptrdiff_t start = 0; start < columns; start += CHUNK) {
        ptrdiff_t width = smaller(CHUNK, columns - start);
        memset(sum, 0, sizeof sum);
        int i = 0;
        for (; i + 4 <= num_rows; i += 4) add_rows(sum, rows + i, weights + i, 4, start, width);
        for (; i < num_rows; i++) add_rows(sum, rows + i, weights + i, 1, start, width);
        for (ptrdiff_t c = 0; c < width; c++) out[start + c] = (float)sum[c];
    }
}

/* ---- one coordinate at a time ---- */

INLINE void order(float *restrict low, float *restrict high) {
    for (int c = 0; c < TILE; c++) {
        float x = low[c], y = high[c];
        low[c] = x < y ? x : y;
        high[c] = x > y ? x : y;
    }
}

INLINE void keep_smaller(float *restrict low, const float *restrict high) {
    for (int c = 0; c < TILE; c++) low[c] = low[c] < high[c] ? low[c] : high[c];
}

INLINE void keep_larger(const float *restrict low, float *restrict high) {
    for (int c = 0; c < TILE; c++) high[c] = low[c] > high[c] ? low[c] : high[c];
}

typedef struct {
    const float *const *rows;
    int num_rows;
    ptrdiff_t columns;
    const int32_t *steps; /* as in network.py, three numbers each */
    ptrdiff_t num_steps;
} block;

/* The lines of TILE columns after the network; returns whether a value is not finite. */
INLINE uint32_t put_in_place(float *lines, block b, ptrdiff_t start) {
    uint32_t found = 0;
    for (int i = 0; i < b.num_rows; i++)
        found |= take(lines + (ptrdiff_t)i * TILE, b.rows[i] + start, b.columns - start, TILE);
    /* Memory is asked for the next columns meanwhile, a little with every step. */
    ptrdiff_t wanted = start + TILE < b.columns ? (ptrdiff_t)b.num_rows * PIECES : 0, asked = 0;
    ptrdiff_t share = b.num_steps ? wanted / b.num_steps + 1 : 0;
    for (ptrdiff_t s = 0; s < b.num_steps; s++) {
        for (ptrdiff_t until = smaller(asked + share, wanted); asked < until; asked++)
            __builtin_prefetch((const row_float *)b.rows[asked / PIECES] + start + TILE + asked % PIECES * PIECE);
        float *low = lines + (ptrdiff_t)b.steps[3 * s] * TILE, *high = lines + (ptrdiff_t)b.steps[3 * s + 1] * TILE;
        switch (b.steps[3 * s + 2]) {
        case BOTH: order(low, high); break;
        case MINIMUM: keep_smaller(low, high); break;
        case MAXIMUM: keep_larger(low, high); break;
        }
    }
    return found;
}

/* Four columns of a line. */
INLINE d4 four(const float *lines, ptrdiff_t line, int column) {
    return widened(*(const f4 *)(lines + line * TILE + column));
}

INLINE d4 mean_of_kept(const float *lines, const int32_t *kept, int num_kept, int column) {
    d4 sum = {0};
    for (int k = 0; k < num_kept; k++) sum += four(lines, kept[k], column);
    return sum / (double)num_kept;
}

INLINE d4 mean_of_closest(const float *lines, int num_lines, int count, int column) {
    d4 sum = {0}, median = (four(lines, (num_lines - 1) / 2, column) + four(lines, num_lines / 2, column)) / 2.0;
    for (int slot = 0; slot < count; slot++) {
        d4 low = four(lines, slot, column), value = low;
        for (int k = slot; k + count < num_lines; k += count) {
            d4 high = four(lines, k + count, column);
            l4 nearer = high - median < median - low;
            value = (d4)((nearer & (l4)high) | (~nearer & (l4)value));
            low = high;
        }
        sum += value;
    }
    return sum / (double)count;
}

/* The mean of the kept lines, or of the `count` closest where none are given. Returns 0 or OUT_OF_MEMORY. */
INLINE int combine(block b, const int32_t *kept, int count, float *out, int *finite) {
    float *lines = lines_for(b.num_rows, TILE), mean[TILE] __attribute__((aligned(ALIGNMENT)));
    if (!lines) return OUT_OF_MEMORY;
    uint32_t found = 0;
    for (ptrdiff_t start = 0; start < b.columns; start += TILE) {
        found |= put_in_place(lines, b, start);
        for (int c = 0; c < TILE; c += 4)
            *(f4 *)(mean + c) = narrowed(kept ? mean_of_kept(lines, kept, count, c)
                                              : mean_of_closest(lines, b.num_rows, count, c));
        memcpy(out + start, mean, (size_t)smaller(TILE, b.columns - start) * sizeof(float));
    }
    free(lines);
    *finite = !found;
    return 0;
}

VARIANTS int foedus_middle(const float *const *rows, int num_rows, ptrdiff_t columns, const int32_t *steps,
                           ptrdiff_t num_steps, const int32_t *kept, int num_kept, float *out, int *finite) {
    return combine((block){rows, num_rows, columns, steps, num_steps}, kept, num_kept, out, finite);
}

VARIANTS int foedus_closest(const float *const *rows, int num_rows, ptrdiff_t columns, const int32_t *steps,
                            ptrdiff_t num_steps, int count, float *out, int *finite) {
    return combine((block){rows, num_rows, columns, steps, num_steps}, NULL, count, out, finite);
}

VARIANTS void foedus_finite(const float *const *rows, int num_rows, ptrdiff_t columns, uint8_t *finite) {
    for (int i = 0; i < num_rows; i++) {
        uint32_t found = 0;
        for (ptrdiff_t c = 0; c < columns; c++) found |= not_finite(((const row_bits *)rows[i])[c]);
        finite[i] = !found;
    }
}
