// A decode step allocates nothing once the workspace and the view have grown. A binary of its own,
// because it replaces operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "caches/simple_kv_cache.h"
#include "engine/row_watch.h"
#include "engine/synthetic.h"
#include "engine/transformer.h"

namespace {

std::atomic<int64_t> allocations{0};

void* Count(void* memory) {
  ++allocations;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Count(std::malloc(size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  const auto a = static_cast<size_t>(alignment);
  return Count(std::aligned_alloc(a, (size + a - 1) / a * a));
}
// Out of line: a compiler that sees one half of a pair inlined, and the other not, warns of it.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace lockstep {
namespace {

// The legacy path, without a forwarding decorator: positions with a gap get no slot.
void ExpectNoAllocations(const char* preset, int32_t stride, bool adapters = false) {
  const auto model = Model::Load(MakeSyntheticModel(SyntheticPreset(preset), 1));
  Transformer transformer(model);
  if (adapters) transformer.SetAdapters({{MakeSyntheticAdapter(model->config(), {}, 1), 0.5f}});
  SimpleKvCache cache(model->config().geometry(128));
  const int32_t tokens[2] = {5, 6};
  int32_t next = 0;
  const auto decode = [&] {
    const int32_t positions[2] = {next, next + stride};
    next += stride + 1;
    return transformer.Forward(tokens, positions, cache).front();
  };
  const int64_t start = allocations;
  decode();
  ASSERT_GT(allocations, start) << "the counter does not count";
  const int64_t warm = allocations;
  for (int32_t step = 0; step < 20; ++step) decode();
  EXPECT_EQ(allocations, warm) << preset;
}

TEST(AllocationTest, DirectStepsAllocateNothing) {
  ExpectNoAllocations("tiny-gqa-9x3-q8_0", 1);
  ExpectNoAllocations("tiny-mha-4x4-f32", 1);
  ExpectNoAllocations("tiny-bias-qknorm-6x2-q8_0", 1);
  ExpectNoAllocations("tiny-gemma3-3x1-f16", 1);
  ExpectNoAllocations("tiny-qwen2moe-3x1-f16", 1);
}

TEST(AllocationTest, LegacyStepsAllocateNothing) {
  ExpectNoAllocations("tiny-gqa-9x3-q8_0", 3);
  ExpectNoAllocations("tiny-bias-qknorm-6x2-q8_0", 3);
}

TEST(AllocationTest, StepsWithAdaptersAllocateNothing) {
  ExpectNoAllocations("tiny-gqa-9x3-q8_0", 1, true);
  ExpectNoAllocations("tiny-bias-qknorm-6x2-q8_0", 3, true);
}

// Two sequences in a step, on a team, watched.
TEST(AllocationTest, BatchesOnATeamAllocateNothing) {
  const auto model = Model::Load(MakeSyntheticModel(SyntheticPreset("tiny-gqa-9x3-q8_0"), 1));
  Transformer transformer(model, {.threads = 3});
  SimpleKvCache first(model->config().geometry(64)), second(model->config().geometry(64));
  RowWatch watch;
  const int32_t token = 5;
  int32_t position = 0;
  const auto decode = [&] {
    const BatchSequence batch[] = {{{&token, 1}, {&position, 1}, &first},
                                   {{&token, 1}, {&position, 1}, &second}};
    transformer.ForwardBatch(batch);
    EXPECT_EQ(watch.OfRows(first, {&position, 1}), watch.OfRows(second, {&position, 1}));
    ++position;
  };
  decode();
  const int64_t warm = allocations;
  for (int32_t step = 0; step < 20; ++step) decode();
  EXPECT_EQ(allocations, warm);
}

}  // namespace
}  // namespace lockstep
