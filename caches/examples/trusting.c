/* A plug-in that trusts its caller: blocks of 4 positions, a short write path, and the mistakes
 * that such caches are published with. `lockstep conform` names each of them:
 *   - a commit moves the length without looking at the reservation or at max_length;
 *   - an update sets the length to its last position, also when that is below the old length;
 *   - a gap shows whatever the memory held;
 *   - a reservation takes its block at once, and an abandoned one never gives it back. */
#include <stdlib.h>
#include <string.h>

#include "caches/plugin.h"

enum { kBlock = 4 };

typedef struct cache {
  lockstep_kv_geometry geometry;
  size_t stride;
  int32_t num_blocks, next_free; /* blocks are taken in order and never given back */
  int32_t* table;                /* [num_blocks], the block of each run of 4 positions, -1: none */
  int32_t pending, pending_at;   /* a reserved block that no commit has put into the table */
  int32_t* lengths;              /* [num_layers] */
  float *keys, *values;          /* [num_blocks, num_layers, kBlock, stride] */
} cache;

static float* row(const cache* c, float* base, int32_t block, int32_t layer, int32_t position) {
  const size_t plane = (size_t)block * (size_t)c->geometry.num_layers + (size_t)layer;
  return base + (plane * kBlock + (size_t)(position % kBlock)) * c->stride;
}

static void destroy(void* self) {
  cache* c = self;
  free(c->table);
  free(c->lengths);
  free(c->keys);
  free(c->values);
  free(c);
}

static void* create(const lockstep_kv_geometry* g) {
  cache* c;
  size_t elements, i;
  if (g->num_layers < 1 || g->num_kv_heads < 1 || g->head_dim < 1 || g->max_length < 1) return NULL;
  c = calloc(1, sizeof *c);
  if (c == NULL) return NULL;
  c->geometry = *g;
  c->stride = (size_t)g->num_kv_heads * (size_t)g->head_dim;
  c->num_blocks = (g->max_length + kBlock - 1) / kBlock;
  c->pending = -1;
  elements = (size_t)c->num_blocks * (size_t)g->num_layers * kBlock * c->stride;
  c->table = malloc((size_t)c->num_blocks * sizeof *c->table);
  c->lengths = calloc((size_t)g->num_layers, sizeof *c->lengths);
  c->keys = malloc(elements * sizeof *c->keys);
  c->values = malloc(elements * sizeof *c->values);
  if (c->table == NULL || c->lengths == NULL || c->keys == NULL || c->values == NULL) {
    destroy(c);
    return NULL;
  }
  for (i = 0; i < (size_t)c->num_blocks; ++i) c->table[i] = -1;
  for (i = 0; i < elements; ++i) c->keys[i] = c->values[i] = 42.0f; /* "uninitialised" */
  return c;
}

static int32_t length(const void* self, int32_t layer) {
  const cache* c = self;
  return layer >= 0 && layer < c->geometry.num_layers ? c->lengths[layer] : -1;
}

static lockstep_kv_status read_row(const void* self, int32_t layer, int32_t position, float* keys,
                                   float* values) {
  const cache* c = self;
  const int32_t at = position / kBlock;
  size_t i;
  if (position < 0 || position >= length(self, layer)) return LOCKSTEP_KV_OUT_OF_RANGE;
  if (at >= c->num_blocks || c->table[at] < 0) { /* never written: some memory or other */
    for (i = 0; i < c->stride; ++i) keys[i] = values[i] = 42.0f;
    return LOCKSTEP_KV_OK;
  }
  memcpy(keys, row(c, c->keys, c->table[at], layer, position), c->stride * sizeof(float));
  memcpy(values, row(c, c->values, c->table[at], layer, position), c->stride * sizeof(float));
  return LOCKSTEP_KV_OK;
}

static int32_t take_block(cache* c) { return c->next_free < c->num_blocks ? c->next_free++ : -1; }

static lockstep_kv_status update(void* self, int32_t layer, const int32_t* positions, int32_t n,
                                 const float* keys, const float* values) {
  cache* c = self;
  int32_t i;
  if (layer < 0 || layer >= c->geometry.num_layers) return LOCKSTEP_KV_OUT_OF_RANGE;
  for (i = 0; i < n; ++i) {
    if (positions[i] < 0 || positions[i] >= c->geometry.max_length) return LOCKSTEP_KV_OUT_OF_RANGE;
  }
  for (i = 0; i < n; ++i) {
    const int32_t at = positions[i] / kBlock;
    if (c->table[at] < 0) c->table[at] = take_block(c);
    if (c->table[at] < 0) return LOCKSTEP_KV_EXHAUSTED;
    memcpy(row(c, c->keys, c->table[at], layer, positions[i]), keys + (size_t)i * c->stride,
           c->stride * sizeof(float));
    memcpy(row(c, c->values, c->table[at], layer, positions[i]), values + (size_t)i * c->stride,
           c->stride * sizeof(float));
    c->lengths[layer] = positions[i] + 1;
  }
  return LOCKSTEP_KV_OK;
}

static lockstep_kv_status try_reserve_slot(void* self, int32_t layer, const int32_t* positions,
                                           int32_t n, float** keys, float** values) {
  cache* c = self;
  int32_t i, at;
  if (layer < 0 || layer >= c->geometry.num_layers) return LOCKSTEP_KV_OUT_OF_RANGE;
  if (n < 1 || n > kBlock || positions[0] < 0 || positions[0] > c->geometry.max_length - n) {
    return LOCKSTEP_KV_REFUSED;
  }
  for (i = 1; i < n; ++i) {
    if (positions[i] != positions[0] + i) return LOCKSTEP_KV_REFUSED;
  }
  at = positions[0] / kBlock;
  if (at != positions[n - 1] / kBlock) return LOCKSTEP_KV_REFUSED;
  c->pending = c->table[at] >= 0 ? c->table[at] : take_block(c);
  c->pending_at = at;
  if (c->pending < 0) return LOCKSTEP_KV_REFUSED;
  *keys = row(c, c->keys, c->pending, layer, positions[0]);
  *values = row(c, c->values, c->pending, layer, positions[0]);
  return LOCKSTEP_KV_OK;
}

static lockstep_kv_status commit_slot(void* self, int32_t layer, const int32_t* positions,
                                      int32_t n) {
  cache* c = self;
  if (layer < 0 || layer >= c->geometry.num_layers) return LOCKSTEP_KV_OUT_OF_RANGE;
  if (n == 0 || positions[n - 1] < 0 || positions[n - 1] == INT32_MAX) return LOCKSTEP_KV_OK;
  if (c->pending >= 0) c->table[c->pending_at] = c->pending;
  c->pending = -1;
  if (positions[n - 1] >= c->lengths[layer]) c->lengths[layer] = positions[n - 1] + 1;
  return LOCKSTEP_KV_OK;
}

static lockstep_kv_status rollback(void* self, int32_t to) {
  cache* c = self;
  int32_t layer, longest = 0;
  for (layer = 0; layer < c->geometry.num_layers; ++layer) {
    if (c->lengths[layer] > longest) longest = c->lengths[layer];
  }
  if (to < 0 || to > longest) return LOCKSTEP_KV_OUT_OF_RANGE;
  for (layer = 0; layer < c->geometry.num_layers; ++layer) {
    if (c->lengths[layer] > to) c->lengths[layer] = to;
  }
  c->pending = -1;
  return LOCKSTEP_KV_OK;
}

static void clear(void* self) {
  cache* c = self;
  int32_t i;
  rollback(c, 0);
  for (i = 0; i < c->num_blocks; ++i) c->table[i] = -1;
  c->next_free = 0;
}

const lockstep_kv_plugin* lockstep_kv_plugin_v1(void) {
  static const lockstep_kv_plugin table = {.abi_version = LOCKSTEP_KV_ABI_VERSION,
                                           .features = LOCKSTEP_KV_GRANTS_SLOTS,
                                           .name = "trusting",
                                           .block_size = kBlock,
                                           .head_dim_multiple = 1,
                                           .create = create,
                                           .destroy = destroy,
                                           .length = length,
                                           .read_row = read_row,
                                           .update = update,
                                           .try_reserve_slot = try_reserve_slot,
                                           .commit_slot = commit_slot,
                                           .rollback = rollback,
                                           .clear = clear};
  return &table;
}
