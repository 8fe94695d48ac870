#include "engine/device/adapters.h"

#include <algorithm>

#include "caches/check.h"

namespace lockstep::device {

bool DeviceAdapters::Reserve(int32_t rows, int32_t rank) {
  const int64_t floats = int64_t{rows} * rank;
  if (floats <= low_rank_.size()) return false;
  low_rank_ = {};
  low_rank_ = DeviceBuffer<float>(device_, floats);
  return true;
}

void DeviceAdapters::Prepare(std::span<const StepPiece> pieces) {
  std::erase_if(uploaded_, [](const Uploaded& one) { return one.host.expired(); });
  for (const StepPiece& piece : pieces) {
    for (const AppliedAdapter& applied : piece.adapters) {
      const bool there = std::ranges::any_of(
          uploaded_, [&](const Uploaded& one) { return one.address == applied.adapter.get(); });
      if (!there && applied.scale != 0.0f) uploaded_.push_back(Upload(applied.adapter));
    }
  }
}

DeviceAdapters::Uploaded DeviceAdapters::Upload(const std::shared_ptr<const LoraAdapter>& adapter) {
  Uploaded out;
  out.host = adapter;
  out.address = adapter.get();
  out.serial = serials_++;
  out.layers.resize(static_cast<size_t>(layers_));
  for (int32_t layer = 0; layer < layers_; ++layer) {
    for (size_t target = 0; target < kAdapterTargets; ++target) {
      const LoraPair* pair = adapter->Find(layer, static_cast<AdapterTarget>(target));
      if (pair == nullptr) continue;
      out.layers[static_cast<size_t>(layer)][target].emplace(
          Pair{{device_, stream_, pair->a}, {device_, stream_, pair->b}});
    }
  }
  stream_.Synchronize();  // the host's matrices were read
  return out;
}

const DeviceAdapters::Uploaded& DeviceAdapters::Find(const LoraAdapter& adapter) const {
  const auto found = std::ranges::find(uploaded_, &adapter, &Uploaded::address);
  LS_CHECK(found != uploaded_.end(), "adapter '{}' was not uploaded", adapter.name());
  return *found;
}

void DeviceAdapters::Add(const AppliedAdapter& applied, int32_t layer, AdapterTarget target,
                         int32_t rows, Global<const float> x, Global<float> y) {
  const auto& pair =
      Find(*applied.adapter).layers[static_cast<size_t>(layer)][static_cast<size_t>(target)];
  const int32_t rank = pair->a.matrix().rows;
  MatMulArgs down;
  down.w = pair->a.matrix();
  down.tokens = rows;
  down.x = x;
  down.y = {low_rank_.all().data, int64_t{rows} * rank};
  MatMul(stream_, down);
  MatMulArgs up;
  up.w = pair->b.matrix();
  up.tokens = rows;
  up.x = {low_rank_.all().data, int64_t{rows} * rank};
  up.scale = applied.scale * applied.adapter->Find(layer, target)->scale;
  up.residual = y;
  MatMul(stream_, up);
}

}  // namespace lockstep::device
