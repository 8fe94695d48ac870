// What test plug-ins in C++ do with exceptions: they end at the border of the ABI.
#ifndef LOCKSTEP_PROPERTIES_TEST_PLUGIN_H_
#define LOCKSTEP_PROPERTIES_TEST_PLUGIN_H_

#include <new>
#include <stdexcept>
#include <type_traits>

#include "caches/error.h"
#include "caches/kv_cache.h"
#include "caches/plugin.h"

namespace lockstep {

// What `call` returns, or LOCKSTEP_KV_OK where it returns nothing, or what its exception means.
template <typename Call>
lockstep_kv_status StatusOf(Call&& call) {
  try {
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return LOCKSTEP_KV_OK;
    } else {
      return call();
    }
  } catch (const PoolExhausted&) {
    return LOCKSTEP_KV_EXHAUSTED;
  } catch (const std::bad_alloc&) {
    return LOCKSTEP_KV_EXHAUSTED;
  } catch (const std::out_of_range&) {
    return LOCKSTEP_KV_OUT_OF_RANGE;
  } catch (const std::invalid_argument&) {
    return LOCKSTEP_KV_INVALID_ARGUMENT;
  } catch (const Error&) {
    return LOCKSTEP_KV_INVALID_ARGUMENT;
  } catch (const std::logic_error&) {
    return LOCKSTEP_KV_LOGIC_ERROR;
  }
}

// The object that `call` makes, or null for its exception.
template <typename Call>
void* PointerOf(Call&& call) {
  try {
    return call();
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_TEST_PLUGIN_H_
