/* A correct plug-in in plain C: contiguous rows, the whole contract. Build it with
 *   cc -shared -fPIC -I ROOT caches/examples/contiguous.c -o libcontiguous.so
 * and prove it with `lockstep conform ./libcontiguous.so`. */
#include <stdlib.h>
#include <string.h>

#include "caches/plugin.h"

typedef struct layer {
  int32_t length;
  int32_t first, count; /* the open reservation; count 0: none */
} layer;

typedef struct cache {
  lockstep_kv_geometry geometry;
  size_t stride;        /* elements of a row */
  float *keys, *values; /* [num_layers, max_length, stride] */
  layer* layers;        /* [num_layers] */
} cache;

static size_t rows_of(const cache* c) {
  return (size_t)c->geometry.num_layers * (size_t)c->geometry.max_length;
}

static float* row(const cache* c, float* base, int32_t at, int32_t position) {
  return base + ((size_t)at * (size_t)c->geometry.max_length + (size_t)position) * c->stride;
}

static int has_layer(const cache* c, int32_t at) { return at >= 0 && at < c->geometry.num_layers; }

static void destroy(void* self) {
  cache* c = self;
  free(c->keys);
  free(c->values);
  free(c->layers);
  free(c);
}

static void* create(const lockstep_kv_geometry* g) {
  cache* c;
  if (g->num_layers < 1 || g->num_kv_heads < 1 || g->head_dim < 1 || g->max_length < 1) return NULL;
  c = calloc(1, sizeof *c);
  if (c == NULL) return NULL;
  c->geometry = *g;
  c->stride = (size_t)g->num_kv_heads * (size_t)g->head_dim;
  c->keys = calloc(rows_of(c), c->stride * sizeof(float));
  c->values = calloc(rows_of(c), c->stride * sizeof(float));
  c->layers = calloc((size_t)g->num_layers, sizeof(layer));
  if (c->keys == NULL || c->values == NULL || c->layers == NULL) {
    destroy(c);
    return NULL;
  }
  return c;
}

static int32_t length(const void* self, int32_t at) {
  const cache* c = self;
  return has_layer(c, at) ? c->layers[at].length : -1;
}

static lockstep_kv_status read_row(const void* self, int32_t at, int32_t position, float* keys,
                                   float* values) {
  const cache* c = self;
  if (!has_layer(c, at) || position < 0 || position >= c->layers[at].length) {
    return LOCKSTEP_KV_OUT_OF_RANGE;
  }
  memcpy(keys, row(c, c->keys, at, position), c->stride * sizeof(float));
  memcpy(values, row(c, c->values, at, position), c->stride * sizeof(float));
  return LOCKSTEP_KV_OK;
}

/* V2: rows between the length and `end` come into being as zeros. */
static void zero_gap(cache* c, int32_t at, int32_t end) {
  int32_t p;
  for (p = c->layers[at].length; p < end; ++p) {
    memset(row(c, c->keys, at, p), 0, c->stride * sizeof(float));
    memset(row(c, c->values, at, p), 0, c->stride * sizeof(float));
  }
}

static lockstep_kv_status update(void* self, int32_t at, const int32_t* positions, int32_t n,
                                 const float* keys, const float* values) {
  cache* c = self;
  int32_t i, end = 0;
  if (!has_layer(c, at)) return LOCKSTEP_KV_OUT_OF_RANGE;
  for (i = 0; i < n; ++i) { /* U1: everything is looked at before anything is written */
    if (positions[i] < 0 || positions[i] >= c->geometry.max_length) return LOCKSTEP_KV_OUT_OF_RANGE;
    if (positions[i] >= end) end = positions[i] + 1;
  }
  if (n == 0) return LOCKSTEP_KV_OK;
  zero_gap(c, at, end);
  for (i = 0; i < n; ++i) {
    const size_t from = (size_t)i * c->stride;
    memcpy(row(c, c->keys, at, positions[i]), keys + from, c->stride * sizeof(float));
    memcpy(row(c, c->values, at, positions[i]), values + from, c->stride * sizeof(float));
  }
  if (end > c->layers[at].length) c->layers[at].length = end;
  c->layers[at].count = 0; /* U6 */
  return LOCKSTEP_KV_OK;
}

/* R2: not empty, contiguous, inside [0, max_length). The order keeps every sum inside int32. */
static int is_run(const cache* c, const int32_t* positions, int32_t n) {
  int32_t i;
  if (n < 1 || positions[0] < 0 || positions[0] >= c->geometry.max_length) return 0;
  if (n > c->geometry.max_length - positions[0]) return 0;
  for (i = 1; i < n; ++i) {
    if (positions[i] != positions[0] + i) return 0;
  }
  return 1;
}

static lockstep_kv_status try_reserve_slot(void* self, int32_t at, const int32_t* positions,
                                           int32_t n, float** keys, float** values) {
  cache* c = self;
  if (!has_layer(c, at)) return LOCKSTEP_KV_OUT_OF_RANGE;
  if (!is_run(c, positions, n)) return LOCKSTEP_KV_REFUSED;
  c->layers[at].first = positions[0];
  c->layers[at].count = n;
  *keys = row(c, c->keys, at, positions[0]);
  *values = row(c, c->values, at, positions[0]);
  return LOCKSTEP_KV_OK;
}

static lockstep_kv_status commit_slot(void* self, int32_t at, const int32_t* positions, int32_t n) {
  cache* c = self;
  layer* l;
  int32_t i;
  if (!has_layer(c, at)) return LOCKSTEP_KV_OUT_OF_RANGE;
  l = &c->layers[at];
  if (l->count > 0 && n == l->count && is_run(c, positions, n) && positions[0] == l->first) {
    zero_gap(c, at, l->first);
    if (l->first + l->count > l->length) l->length = l->first + l->count;
    l->count = 0;
    return LOCKSTEP_KV_OK;
  }
  for (i = 0; i < n; ++i) { /* C2 */
    if (positions[i] < 0 || positions[i] >= l->length) return LOCKSTEP_KV_LOGIC_ERROR;
  }
  return LOCKSTEP_KV_OK;
}

static lockstep_kv_status rollback(void* self, int32_t to) {
  cache* c = self;
  int32_t at, longest = 0;
  for (at = 0; at < c->geometry.num_layers; ++at) {
    if (c->layers[at].length > longest) longest = c->layers[at].length;
  }
  if (to < 0 || to > longest) return LOCKSTEP_KV_OUT_OF_RANGE;
  for (at = 0; at < c->geometry.num_layers; ++at) {
    if (c->layers[at].length > to) c->layers[at].length = to;
    c->layers[at].count = 0;
  }
  return LOCKSTEP_KV_OK;
}

static void clear(void* self) { rollback(self, 0); }

static void* fork_cache(void* self) {
  cache* c = self;
  cache* copy = create(&c->geometry);
  int32_t at;
  if (copy == NULL) return NULL;
  memcpy(copy->keys, c->keys, rows_of(c) * c->stride * sizeof(float));
  memcpy(copy->values, c->values, rows_of(c) * c->stride * sizeof(float));
  for (at = 0; at < c->geometry.num_layers; ++at) {
    c->layers[at].count = 0; /* B4 */
    copy->layers[at] = c->layers[at];
  }
  return copy;
}

const lockstep_kv_plugin* lockstep_kv_plugin_v1(void) {
  static const lockstep_kv_plugin table = {
      .abi_version = LOCKSTEP_KV_ABI_VERSION,
      .features = LOCKSTEP_KV_GRANTS_SLOTS | LOCKSTEP_KV_FORKS | LOCKSTEP_KV_CONCURRENT_FORKS,
      .name = "contiguous",
      .block_size = 0, /* any run is in one piece */
      .head_dim_multiple = 1,
      .create = create,
      .destroy = destroy,
      .length = length,
      .read_row = read_row,
      .update = update,
      .try_reserve_slot = try_reserve_slot,
      .commit_slot = commit_slot,
      .rollback = rollback,
      .clear = clear,
      .fork = fork_cache};
  return &table;
}
