#include "caches/block_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "caches/check.h"
#include "caches/kv_checks.h"

#if defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_ASAN 1
#endif
#endif
#ifdef LOCKSTEP_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace lockstep {
namespace {

constexpr int64_t kLineFloats = kCacheAlignment / sizeof(float);

// Under AddressSanitizer a free block cannot even be read.
void ForbidAccess([[maybe_unused]] const float* first, [[maybe_unused]] int64_t count) {
#ifdef LOCKSTEP_ASAN
  ASAN_POISON_MEMORY_REGION(first, static_cast<size_t>(count) * sizeof(float));
#endif
}

void AllowAccess([[maybe_unused]] const float* first, [[maybe_unused]] int64_t count) {
#ifdef LOCKSTEP_ASAN
  ASAN_UNPOISON_MEMORY_REGION(first, static_cast<size_t>(count) * sizeof(float));
#endif
}

}  // namespace

BlockLayout::BlockLayout(const KvGeometry& geometry, int32_t positions)
    : num_layers(geometry.num_layers),
      num_kv_heads(geometry.num_kv_heads),
      head_dim(geometry.head_dim),
      block_size(positions) {
  if (positions <= 0) {
    throw std::invalid_argument(fmt::format("block size {} must be positive", positions));
  }
  KvGeometry block = geometry;  // A block is a small cache of block_size positions.
  block.max_length = positions;
  CheckGeometry(block);
  const int64_t rows = int64_t{positions} * geometry.kv_stride();
  plane_elements = (rows + kLineFloats - 1) / kLineFloats * kLineFloats;
  if (plane_elements > std::numeric_limits<int64_t>::max() / 2 / num_layers) {
    throw std::invalid_argument("block: its size overflows 64 bits");
  }
  block_elements = plane_elements * 2 * num_layers;
}

BlockPool::BlockPool(const BlockPoolOptions& options)
    : layout_(options.geometry, options.block_size), poison_on_free_(options.poison_on_free) {
  if (options.num_blocks <= 0) {
    throw std::invalid_argument(
        fmt::format("block pool: {} blocks must be positive", options.num_blocks));
  }
  if (options.num_blocks > std::numeric_limits<int64_t>::max() / layout_.block_elements) {
    throw std::invalid_argument("block pool: its size overflows 64 bits");
  }
  const auto blocks = static_cast<size_t>(options.num_blocks);
  references_.resize(blocks);
  free_.resize(blocks);
  for (size_t i = 0; i < blocks; ++i) free_[i] = static_cast<int32_t>(blocks - 1 - i);
  if (options.shuffle_seed) {
    shuffle_.emplace(*options.shuffle_seed);
    for (size_t i = blocks - 1; i > 0; --i) {
      std::swap(free_[i], free_[shuffle_->Below(static_cast<uint32_t>(i + 1))]);
    }
  }
  memory_ = AlignedBuffer<float>(int64_t{options.num_blocks} * layout_.block_elements,
                                 layout_.block_elements);
  ForbidAccess(memory_.data(), static_cast<int64_t>(memory_.size()));
}

BlockPool::~BlockPool() { AllowAccess(memory_.data(), static_cast<int64_t>(memory_.size())); }

int32_t BlockPool::references(int32_t block) const {
  LS_CHECK(block >= 0 && block < num_blocks(), "block {} of {}", block, num_blocks());
  return references_[static_cast<size_t>(block)];
}

void BlockPool::CheckUsed(int32_t block) const {
  LS_CHECK(references(block) > 0, "block {} is free", block);
}

void BlockPool::SetReclaimer(BlockReclaimer* reclaimer) {
  LS_CHECK(reclaimer == nullptr || reclaimer_ == nullptr, "a pool with two that give blocks up");
  reclaimer_ = reclaimer;
}

int32_t BlockPool::Take() {
  if (free_.empty() && reclaimable_blocks() > 0) reclaimer_->Reclaim();
  LS_CHECK(!free_.empty(), "no free block among {}", num_blocks());
  const int32_t block = free_.back();
  free_.pop_back();
  LS_CHECK(references(block) == 0, "free block {} has {} references", block, references(block));
  references_[static_cast<size_t>(block)] = 1;
  AllowAccess(At(layout_.keys_offset(block, 0)), layout_.block_elements);
  return block;
}

void BlockPool::Share(int32_t block) {
  CheckUsed(block);
  ++references_[static_cast<size_t>(block)];
}

void BlockPool::Release(int32_t block) {
  CheckUsed(block);
  if (--references_[static_cast<size_t>(block)] > 0) return;
  float* first = memory_.data() + layout_.keys_offset(block, 0);
  if (poison_on_free_) {
    std::memset(first, poison_byte(), static_cast<size_t>(layout_.block_elements) * sizeof(float));
  }
  ForbidAccess(first, layout_.block_elements);
  free_.push_back(block);
  if (shuffle_) {
    std::swap(free_.back(), free_[shuffle_->Below(static_cast<uint32_t>(free_.size()))]);
  }
}

void BlockPool::Copy(int32_t from, int32_t to) {
  CheckUsed(from);
  LS_CHECK(references(to) == 1, "block {} has {} references", to, references(to));
  std::memcpy(memory_.data() + layout_.keys_offset(to, 0), At(layout_.keys_offset(from, 0)),
              static_cast<size_t>(layout_.block_elements) * sizeof(float));
}

const float* BlockPool::keys(int32_t block, int32_t layer) const {
  CheckUsed(block);
  return At(layout_.keys_offset(block, layer));
}

const float* BlockPool::values(int32_t block, int32_t layer) const {
  CheckUsed(block);
  return At(layout_.values_offset(block, layer));
}

float* BlockPool::mutable_keys(int32_t block, int32_t layer) {
  LS_CHECK(references(block) == 1, "block {} has {} references", block, references(block));
  return memory_.data() + layout_.keys_offset(block, layer);
}

float* BlockPool::mutable_values(int32_t block, int32_t layer) {
  LS_CHECK(references(block) == 1, "block {} has {} references", block, references(block));
  return memory_.data() + layout_.values_offset(block, layer);
}

std::vector<std::string> BlockPool::Audit() const { return AuditBooks(references_, free_); }

std::vector<std::string> AuditBooks(std::span<const int32_t> references,
                                    std::span<const int32_t> free) {
  std::vector<std::string> faults;
  std::vector<int32_t> times_free(references.size());
  for (int32_t block : free) {
    if (block < 0 || static_cast<size_t>(block) >= references.size()) {
      faults.push_back(fmt::format("free list holds block {} of {}", block, references.size()));
      continue;
    }
    ++times_free[static_cast<size_t>(block)];
  }
  for (size_t b = 0; b < references.size(); ++b) {
    if (references[b] < 0) {
      faults.push_back(fmt::format("block {} has {} references", b, references[b]));
    } else if ((references[b] > 0 ? 0 : 1) != times_free[b]) {
      faults.push_back(fmt::format("block {} has {} references and is {} times in the free list", b,
                                   references[b], times_free[b]));
    }
  }
  return faults;
}

}  // namespace lockstep
