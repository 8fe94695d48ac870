// Must not compile, but for the control: UpdateOnlyCache is update-only by type, so no class
// derived from it may open the direct path again, nor write or fork in another way. ctest runs the
// compiler over this file once with CONTROL and once with each of the other names.
#include "oracle/decorators.h"

namespace lockstep {

class Derived : public UpdateOnlyCache {
 public:
  using UpdateOnlyCache::UpdateOnlyCache;

#if defined(CONTROL)
  int32_t current_length() const override { return inner().current_length(); }
#elif defined(TRY_RESERVE_SLOT)
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override {
    return inner().TryReserveSlot(layer, positions);
  }
#elif defined(DEVICE_KV)
  DeviceKv* device_kv(int32_t layer) override { return inner().device_kv(layer); }
#elif defined(COMMIT_SLOT)
  void CommitSlot(int32_t, std::span<const int32_t>) override {}
#elif defined(UPDATE)
  void Update(int32_t, std::span<const int32_t>, std::span<const float>,
              std::span<const float>) override {}
#elif defined(ROLLBACK)
  void Rollback(int32_t) override {}
#elif defined(CLEAR)
  void Clear() override {}
#elif defined(FORK)
  std::unique_ptr<KvCache> Fork() override { return inner().Fork(); }
#elif defined(LOAD_STATE)
  void LoadState(StateReader*) override {}
#endif
};

}  // namespace lockstep
