// A KV cache of any engine, as a shared library that lockstep can put under test.
//
// A cache implements the functions of lockstep_kv_plugin below and exports one symbol,
//
//     const lockstep_kv_plugin *lockstep_kv_plugin_v1(void);
//
// which returns a static table. In C or any language with C functions:
//
//     cc -shared -fPIC -I LOCKSTEP my_cache.c -o libmy_cache.so
//     lockstep conform ./libmy_cache.so
//
// What the functions have to do is caches/CONTRACT.md; the clause ids in brackets are its. A row is
// one position's K or V vector of num_kv_heads * head_dim binary32 elements at one layer. Of the
// contract, alignment [R4], stored bytes [X2], steps without allocation [M1] and what only engines
// owe [F1 - F3] do not bind a plug-in.
//
// Errors. Every function that returns a lockstep_kv_status leaves the cache, its open reservations
// included, as it was when the status is not LOCKSTEP_KV_OK [U1]. When a call is wrong in several
// ways a bad layer comes first [R1, U4, C2]. A failed allocation is LOCKSTEP_KV_EXHAUSTED, of
// try_reserve_slot LOCKSTEP_KV_REFUSED, and leaves no trace [M2]; commit_slot, rollback, clear,
// destroy, length and read_row cannot fail for want of memory [C1]. No exception and no longjmp
// leaves a function, and none ends the process.
//
// Ownership. What create and fork return is the plug-in's until destroy, which gets each of them
// once, never NULL, in any order [B4]. Arrays that are handed in belong to the caller, are valid
// during the call only, are as long as `n` says, and are not written through pointers to const.
// Slot pointers belong to the plug-in and are valid for the n rows until the next call with that
// cache that is not length or read_row [R4].
//
// NULL. No argument is NULL, except that the arrays of a call with n == 0 may be. n is never
// negative. Layers, positions, lengths and geometries may be any int32_t.
//
// Threads. One cache is never called from two threads at once; two caches may be, when neither is a
// fork of the other, directly or over others. LOCKSTEP_KV_CONCURRENT_FORKS takes the exception
// away.
//
// The process. Nothing is written to standard output; descriptors, children, signal handlers, the
// working directory, the locale and the floating-point environment stay as they were. Standard
// error is free.
//
// Versions. `abi_version` is the LOCKSTEP_KV_ABI_VERSION that the plug-in was compiled with. Later
// versions add fields at the end of the table and flags, and change nothing else. lockstep takes
// every version up to its own: fields that a version did not have are not read, flags that it did
// not have do not count. A plug-in of a later version is refused.
#ifndef LOCKSTEP_CACHES_PLUGIN_H_
#define LOCKSTEP_CACHES_PLUGIN_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 2: save, restore, used_blocks, and the flags of these and of concurrent forks. */
#define LOCKSTEP_KV_ABI_VERSION 2

typedef enum lockstep_kv_status {
  LOCKSTEP_KV_OK = 0,
  LOCKSTEP_KV_REFUSED = 1,          /* try_reserve_slot: this run cannot be written in place [R2] */
  LOCKSTEP_KV_OUT_OF_RANGE = 2,     /* layer, position or length that does not exist */
  LOCKSTEP_KV_INVALID_ARGUMENT = 3, /* restore: not a save of this plug-in and geometry [S2] */
  LOCKSTEP_KV_LOGIC_ERROR = 4,      /* a commit without its reservation [C2] */
  LOCKSTEP_KV_EXHAUSTED = 5,        /* no free block, no memory */
  LOCKSTEP_KV_UNSUPPORTED = 6,      /* declared by a missing feature flag */
  LOCKSTEP_KV_STATUS_IS_INT = 0x7fffffff /* no status: it makes the type as wide as an int */
} lockstep_kv_status;

/* What a cache is able to do; what is not declared is reported as "unsupported, as declared". */
enum {
  LOCKSTEP_KV_GRANTS_SLOTS = 1 << 0, /* else every reservation is refused [R3] */
  LOCKSTEP_KV_FORKS = 1 << 1,        /* fork is implemented [B4] */
  /* Since version 2. */
  LOCKSTEP_KV_SAVES = 1 << 2,           /* save and restore are implemented [S1, S2] */
  LOCKSTEP_KV_COUNTS_BLOCKS = 1 << 3,   /* used_blocks is implemented [B3] */
  LOCKSTEP_KV_CONCURRENT_FORKS = 1 << 4 /* a cache and its forks may be called at once */
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

  /* NULL when the geometry cannot be held: a number below 1, a head_dim that is no multiple, a size
   * that does not fit memory or that overflows [U7]. What create and fork return can hold
   * max_length positions at every layer, whatever its relatives hold: no call on it is
   * LOCKSTEP_KV_EXHAUSTED for another reason than a failed allocation. */
  void* (*create)(const lockstep_kv_geometry* geometry);
  void (*destroy)(void* cache);

  /* 1 + the highest position written at the layer; -1 for a layer that does not exist. */
  int32_t (*length)(const void* cache, int32_t layer);

  /* Copies row `position` of the layer, as a query reads it, into keys and values, each
   * [num_kv_heads * head_dim] [V1, V2]. LOCKSTEP_KV_OUT_OF_RANGE for a position outside the
   * layer's length. */
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

  /* An independent sequence with the same rows, which may outlive its source; the source's open
   * reservations are cancelled. NULL when out of memory [B4]. The field is NULL when not declared.
   */
  void* (*fork)(void* cache);

  /* ---- Since version 2; each is NULL when it is not declared ---- */

  /* The bytes that the cache would be saved in; writes them when `capacity` is enough, else
   * nothing. Open reservations are not saved. -1 when out of memory. */
  int64_t (*save)(const void* cache, void* bytes, int64_t capacity);

  /* Rows and lengths become the saved ones, open reservations are cancelled [S1]. Any change of any
   * byte is LOCKSTEP_KV_INVALID_ARGUMENT, and so are more or fewer bytes and the save of a cache of
   * another geometry [S2]. */
  lockstep_kv_status (*restore)(void* cache, const void* bytes, int64_t size);

  /* Blocks in use by this cache and all its relatives by fork, each counted once [B3]. */
  int32_t (*used_blocks)(const void* cache);
} lockstep_kv_plugin;

/* The one exported symbol. Returns a static table. */
typedef const lockstep_kv_plugin* (*lockstep_kv_plugin_function)(void);
#define LOCKSTEP_KV_PLUGIN_SYMBOL "lockstep_kv_plugin_v1"

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif  // LOCKSTEP_CACHES_PLUGIN_H_
