/* The header alone, as C99 with every warning an error; plugin_cache_test.cc compares. */
#include <stddef.h>

#include "caches/plugin.h"

size_t lockstep_plugin_size_in_c(void);
size_t lockstep_plugin_last_field_in_c(void);

size_t lockstep_plugin_size_in_c(void) { return sizeof(lockstep_kv_plugin); }
size_t lockstep_plugin_last_field_in_c(void) { return offsetof(lockstep_kv_plugin, used_blocks); }
