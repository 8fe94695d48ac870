/* The correct example with one deed added to one of its functions, for tests of the kit itself:
 * LOCKSTEP_HOSTILE="CALL:DEED" in the environment when its table is asked for. Deeds that need no
 * particular call are in Any; the others stand in their functions. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define lockstep_kv_plugin_v1 contiguous_plugin
#include "caches/examples/contiguous.c"
#undef lockstep_kv_plugin_v1

void hostile_throw(void); /* C++ */

static char wanted[64];     /* "CALL:DEED" */
static const cache* oldest; /* of those that are alive, but for forks */

static int does(const char* call, const char* deed) {
  const size_t n = strlen(call);
  return strncmp(wanted, call, n) == 0 && wanted[n] == ':' && strcmp(wanted + n + 1, deed) == 0;
}

static void leave_a_child(void) {
  static int left;
  if (left++ == 0 && fork() == 0) {
    for (;;) pause();
  }
}

static void any(const char* call) {
  static volatile int* const nowhere = NULL;
  static void* volatile leaked;
  if (does(call, "abort")) abort();
  if (does(call, "fault")) *nowhere = 1;
  if (does(call, "hang")) {
    for (;;) pause();
  }
  if (does(call, "exit")) exit(0);
  if (does(call, "throw")) hostile_throw();
  if (does(call, "print")) printf("%s\n", call);
  if (does(call, "close")) close(STDERR_FILENO);
  if (does(call, "open")) dup(STDERR_FILENO);
  if (does(call, "child")) leave_a_child();
  if (does(call, "signal")) signal(SIGUSR2, SIG_IGN);
  if (does(call, "locale")) setlocale(LC_ALL, "C.UTF-8");
  if (does(call, "rounding")) fesetround(FE_UPWARD);
  if (does(call, "directory") && chdir("/") != 0) abort();
  if (does(call, "leak")) leaked = malloc(24);
}

static void* hostile_create(const lockstep_kv_geometry* g) {
  static const lockstep_kv_geometry small = {1, 1, 1, 1};
  cache* made;
  any("create");
  made = create(does("create", "accept") ? &small : g);
  if (oldest == NULL) oldest = made;
  return made;
}

static void hostile_destroy(void* self) {
  any("destroy");
  if (self == oldest) oldest = NULL;
  if (!does("destroy", "nothing")) destroy(self);
}

static int32_t hostile_length(const void* self, int32_t at) {
  any("length");
  return does("length", "huge") ? INT32_MAX : length(self, at);
}

static lockstep_kv_status hostile_read_row(const void* self, int32_t at, int32_t position,
                                           float* keys, float* values) {
  const size_t stride = ((const cache*)self)->stride;
  any("read_row");
  if (does("read_row", "overrun")) keys[stride] = values[stride] = 1.0f;
  if (does("read_row", "underrun")) keys[-1] = 1.0f;
  return read_row(self, at, position, keys, values);
}

/* An update through memory that all caches share. */
static lockstep_kv_status update_through_scratch(cache* c, int32_t at, const int32_t* positions,
                                                 int32_t n, const float* keys,
                                                 const float* values) {
  static float scratch[1 << 16];
  static int calls;
  const size_t elements = (size_t)n * c->stride;
  memcpy(scratch, keys, elements * sizeof *keys);
  if (++calls % 4 == 0) { /* not always: it takes long. Asleep, so that the other thread writes. */
    const struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  return update(c, at, positions, n, scratch, values);
}

static lockstep_kv_status hostile_update(void* self, int32_t at, const int32_t* positions,
                                         int32_t n, const float* keys, const float* values) {
  static const int32_t* kept;
  cache* c = self;
  const size_t elements = (size_t)n * c->stride;
  volatile float element = 0.0f;
  any("update");
  if (does("update", "status")) return (lockstep_kv_status)77;
  if (does("update", "overread")) element = keys[elements];
  if (does("update", "scribble") && n > 0) ((float*)keys)[0] = element;
  if (does("update", "keep") && n > 0) {
    if (kept != NULL) element += (float)kept[0];
    kept = positions;
  }
  if (does("update", "forget") && oldest != NULL &&
      oldest->geometry.num_kv_heads != c->geometry.num_kv_heads) {
    n = 0; /* of the oldest cache's kind are all relatives of it */
  }
  if (does("update", "unchecked")) {
    volatile char* memory = malloc(8);
    memory[0] = 1;
    free((void*)memory);
  }
  if (does("update", "late")) { /* out of memory when the rows are there already */
    const lockstep_kv_status status = update(c, at, positions, n, keys, values);
    void* memory = malloc(8);
    free(memory);
    return memory == NULL ? LOCKSTEP_KV_EXHAUSTED : status;
  }
  if (does("update", "garbage")) { /* decides by memory that nobody set */
    volatile int32_t* memory = malloc(sizeof *memory);
    if (memory != NULL && *memory == -1) n = 0;
    free((void*)memory);
  }
  if (does("update", "scratch") && n > 0 && n < 100) {
    return update_through_scratch(c, at, positions, n, keys, values);
  }
  return update(c, at, positions, n, keys, values);
}

static lockstep_kv_status hostile_try_reserve_slot(void* self, int32_t at, const int32_t* positions,
                                                   int32_t n, float** keys, float** values) {
  lockstep_kv_status status;
  any("try_reserve_slot");
  status = try_reserve_slot(self, at, positions, n, keys, values);
  if (does("try_reserve_slot", "null") && status == LOCKSTEP_KV_OK) *keys = NULL;
  return status;
}

static lockstep_kv_status hostile_commit_slot(void* self, int32_t at, const int32_t* positions,
                                              int32_t n) {
  any("commit_slot");
  if (does("commit_slot", "allocate")) {
    void* memory = malloc(8);
    if (memory == NULL) return LOCKSTEP_KV_EXHAUSTED;
    free(memory);
  }
  return commit_slot(self, at, positions, n);
}

static lockstep_kv_status hostile_rollback(void* self, int32_t to) {
  any("rollback");
  return rollback(self, to);
}

static void hostile_clear(void* self) {
  any("clear");
  clear(self);
}

static void* hostile_fork(void* self) {
  any("fork");
  return fork_cache(self);
}

static const char* environment(void) {
  const char* text = getenv("LOCKSTEP_HOSTILE");
  return text == NULL ? "" : text;
}

__attribute__((constructor)) static void on_load(void) {
  if (strcmp(environment(), "load:abort") == 0) abort();
}

const lockstep_kv_plugin* lockstep_kv_plugin_v1(void) {
  static lockstep_kv_plugin table;
  strncpy(wanted, environment(), sizeof wanted - 1);
  table = *contiguous_plugin();
  table.name = "<hostile> & \"co\"";
  table.create = hostile_create;
  table.destroy = hostile_destroy;
  table.length = hostile_length;
  table.read_row = hostile_read_row;
  table.update = hostile_update;
  table.try_reserve_slot = hostile_try_reserve_slot;
  table.commit_slot = hostile_commit_slot;
  table.rollback = hostile_rollback;
  table.clear = hostile_clear;
  table.fork = hostile_fork;
  return &table;
}
