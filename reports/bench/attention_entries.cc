// Attention over a paged cache where its blocks lie, and over rows that are gathered first.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "caches/aligned_buffer.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "engine/kernels.h"
#include "reports/bench/entries.h"

namespace lockstep::internal {
namespace {

constexpr AttentionShape kGqa = {.num_heads = 32, .num_kv_heads = 8, .head_dim = 128};

struct PagedData {
  explicit PagedData(int32_t rows)
      : cache(ParseCacheSpec("paged/16")
                  .make({.geometry = {.num_layers = 1,
                                      .num_kv_heads = kGqa.num_kv_heads,
                                      .head_dim = kGqa.head_dim,
                                      .max_length = rows},
                         .sequences = 1})),
        visible(rows),
        q(Values(kGqa.num_heads * kGqa.head_dim, 2)),
        out(q.size()),
        gathered(2 * rows * stride()),
        scratch(AttentionScratch(kGqa, rows)) {
    const std::vector<float> row = Values(2 * stride(), 3);
    for (int32_t i = 0; i < rows; ++i) {
      const auto stride_size = static_cast<size_t>(stride());
      std::vector<float> keys(row.begin(), row.begin() + stride());
      keys[static_cast<size_t>(i) % stride_size] += 1;
      cache->Update(0, {&i, 1}, keys, std::span(row).last(stride_size));
    }
  }

  int64_t stride() const { return cache->geometry().kv_stride(); }

  static std::vector<float> Values(int64_t count, uint64_t seed) {
    Random random(seed);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(random.Between(-999, 999)) * 0x1p-10f;
    return values;
  }

  void Attend(const KvView& over) {
    const AttentionQueries queries = {
        .count = 1, .q = q.data(), .out = out.data(), .visible = &visible};
    SelectKernels().attention(kGqa, queries, over, 0, kGqa.num_heads, scratch.data());
  }

  // One piece of memory with all rows, as an engine does that cannot read blocks.
  void Gather() {
    const int64_t half = visible * stride();
    for (const KvSegment& segment : view.segments) {
      const auto size = static_cast<size_t>(segment.count * stride()) * sizeof(float);
      std::memcpy(gathered.data() + segment.first * stride(), segment.keys, size);
      std::memcpy(gathered.data() + half + segment.first * stride(), segment.values, size);
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(gathered.data());
    one_piece.length = visible;
    one_piece.segments = {{.first = 0,
                           .count = visible,
                           .keys = bytes,
                           .values = bytes + half * static_cast<int64_t>(sizeof(float))}};
  }

  std::unique_ptr<KvCache> cache;
  int32_t visible;
  std::vector<float> q, out;
  AlignedBuffer<float> gathered;  // [2, rows, kv_stride]
  AlignedBuffer<float> scratch;
  KvView view, one_piece;
};

BenchEntry PagedEntry(std::string_view length, int32_t rows, bool gather) {
  return {.name = fmt::format("attention/{}/{}", gather ? "gathered" : "in_place", length),
          .bits = fmt::format("attention/{}", length),
          .make = [rows, gather] {
            const auto data = std::make_shared<PagedData>(rows);
            const double row_bytes = 2.0 * static_cast<double>(data->stride()) * sizeof(float);
            return MadeBench{
                .run =
                    [data, gather] {
                      data->cache->View(0, &data->view);
                      if (gather) data->Gather();
                      data->Attend(gather ? data->one_piece : data->view);
                    },
                .digest = [data] { return DigestOfFloats(data->out); },
                // Gathering reads and writes every row once more.
                .work = {.bytes = (gather ? 3 : 1) * row_bytes * rows,
                         .fma_multiply_adds = 2.0 * kGqa.num_heads * kGqa.head_dim * rows},
                .bound = "memory"};
          }};
}

}  // namespace

std::vector<BenchEntry> AttentionEntries(bool small) {
  std::vector<BenchEntry> entries;
  for (const bool gather : {false, true}) {
    entries.push_back(PagedEntry("short", small ? 20 : 256, gather));
    entries.push_back(PagedEntry("long", small ? 50 : 4096, gather));
  }
  return entries;
}

}  // namespace lockstep::internal
