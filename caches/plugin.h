// A KV cache of any engine, as a shared library that lockstep can put under test.
//
// Plain C, no allocation across the border, no exceptions: a cache implements the functions below
// and exports one symbol,
//
//     const lockstep_kv_plugin *lockstep_kv_plugin_v1(void);
//
// What the functions have to do is caches/CONTRACT.md; the clause ids in brackets are its. A row is
// one position's K or V vector of num_kv_heads * head_dim binary32 elements at one layer.
//
// Every function that returns a lockstep_kv_status leaves the cache as it was when the status is
// not LOCKSTEP_KV_OK [U1]. Pointers handed in are valid during the call only. One cache is never
// called from two threads at once; two caches may be, when neither is a fork of the other.
#ifndef LOCKSTEP_CACHES_PLUGIN_H_
#define LOCKSTEP_CACHES_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a field is added; a plug-in built for a lower version keeps working. */
#define LOCKSTEP_KV_ABI_VERSION 1

typedef enum lockstep_kv_status {
  LOCKSTEP_KV_OK = 0,
  LOCKSTEP_KV_REFUSED = 1,          /* try_reserve_slot: this run cannot be written in place [R2] */
  LOCKSTEP_KV_OUT_OF_RANGE = 2,     /* layer, position or length that does not exist */
  LOCKSTEP_KV_INVALID_ARGUMENT = 3, /* a construction of the wrong shape */
  LOCKSTEP_KV_LOGIC_ERROR = 4,      /* a commit without its reservation [C2] */
  LOCKSTEP_KV_EXHAUSTED = 5,        /* no free block */
  LOCKSTEP_KV_UNSUPPORTED = 6       /* declared by a missing feature flag */
} lockstep_kv_status;

/* What a cache is able to do; what is not declared is reported as "unsupported as declared". */
enum {
  LOCKSTEP_KV_GRANTS_SLOTS = 1 << 0, /* else every reservation is refused [R3] */
  LOCKSTEP_KV_FORKS = 1 << 1         /* fork is implemented [B4] */
};

typedef struct lockstep_kv_geometry {
  int32_t num_layers;
  int32_t num_kv_heads;
  int32_t head_dim;   /* elements */
  int32_t max_length; /* positions */
} lockstep_kv_geometry;

typedef struct lockstep_kv_plugin {
  uint32_t abi_version;      /* LOCKSTEP_KV_ABI_VERSION */
  uint32_t features;         /* LOCKSTEP_KV_... flags */
  const char* name;          /* short, printable; static */
  int32_t block_size;        /* positions of a block; 0: any run is in one piece */
  int32_t head_dim_multiple; /* head_dim has to be a multiple of it; at least 1 */

  /* NULL when the geometry cannot be held. */
  void* (*create)(const lockstep_kv_geometry* geometry);
  void (*destroy)(void* cache);

  /* 1 + the highest position written at the layer; -1 for a layer that does not exist. */
  int32_t (*length)(const void* cache, int32_t layer);

  /* Copies row `position` of the layer, as a query reads it, into keys and values [V1, V2]. */
  lockstep_kv_status (*read_row)(const void* cache, int32_t layer, int32_t position, float* keys,
                                 float* values);

  /* n rows, row i at positions[i] [U1 - U6]. keys and values: [n, num_kv_heads * head_dim]. */
  lockstep_kv_status (*update)(void* cache, int32_t layer, const int32_t* positions, int32_t n,
                               const float* keys, const float* values);

  /* On LOCKSTEP_KV_OK, *keys and *values point into the cache's own memory for the n rows of the
   * run, in order, one after another; the caller fills them and commits [R1 - R7]. */
  lockstep_kv_status (*try_reserve_slot)(void* cache, int32_t layer, const int32_t* positions,
                                         int32_t n, float** keys, float** values);
  lockstep_kv_status (*commit_slot)(void* cache, int32_t layer, const int32_t* positions,
                                    int32_t n); /* [C1 - C3] */

  lockstep_kv_status (*rollback)(void* cache, int32_t length); /* [B1, B2] */
  void (*clear)(void* cache);                                  /* [B2] */

  /* An independent sequence with the same rows; NULL when out of memory or not declared [B4]. */
  void* (*fork)(void* cache);
} lockstep_kv_plugin;

/* The one exported symbol. Returns a static table. */
typedef const lockstep_kv_plugin* (*lockstep_kv_plugin_function)(void);
#define LOCKSTEP_KV_PLUGIN_SYMBOL "lockstep_kv_plugin_v1"

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif  // LOCKSTEP_CACHES_PLUGIN_H_
