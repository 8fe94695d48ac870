// How to add an instruction set "x": write kernels_x.cc that defines `const IsaKernels kXKernels`
// (start from PortableKernels("x") and replace the functions worth it, one by one), declare it in
// isa_kernels.h, give the file its compiler flags in CMakeLists.txt, and add one line to
// FindKernels with the processor features that the flags assume. Every test runs over every table.
#include <fmt/format.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "caches/check.h"
#include "caches/error.h"
#include "engine/kernels.h"
#include "engine/kernels/attention_tile.h"
#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep {
namespace {

using internal::IsaKernels;

bool IsBlockFormat(RowType type) { return type == RowType::kQ8_0 || type == RowType::kQ4_0; }

void CheckAttention(const AttentionShape& shape, const AttentionQueries& queries,
                    const KvView& view) {
  for (int32_t i = 0; i < queries.count; ++i) {
    const int32_t visible = queries.visible[i];
    LS_CHECK(visible > 0 && visible <= view.length, "visible {} of {} rows", visible, view.length);
    const int32_t from = shape.window > 0 && visible > shape.window ? visible - shape.window : 0;
    LS_CHECK(from >= view.first(), "rows from {} are seen, they begin at {}", from, view.first());
    LS_CHECK(i == 0 || visible > queries.visible[i - 1], "query {} sees {} rows, the one before {}",
             i, visible, queries.visible[i - 1]);
  }
  LS_CHECK(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0,
           "{} heads over {} KV heads", shape.num_heads, shape.num_kv_heads);
  int32_t next = view.first();
  for (const KvSegment& segment : view.segments) {
    LS_CHECK(segment.first == next, "segment starts at {}, expected {}", segment.first, next);
    LS_CHECK(shape.head_dim % internal::kBlock == 0 ||
                 !(IsBlockFormat(segment.key_type) || IsBlockFormat(segment.value_type)),
             "head_dim {} in a block format", shape.head_dim);
    next += segment.count;
  }
  LS_CHECK(next == view.length, "segments cover {} of {} rows", next, view.length);
}

// One table over one instruction set: translation of arguments, checks, a direct call.
template <const IsaKernels& kIsa>
struct Adapter {
  static void Matmul(const PackedMatrix& w, const Activations& x, int32_t group_begin,
                     int32_t group_end, float* const* y) {
    LS_CHECK(x.cols == w.cols(), "activations have {} columns, the matrix {}", x.cols, w.cols());
    LS_CHECK(group_begin >= 0 && group_end <= w.groups(), "groups [{}, {}) of {}", group_begin,
             group_end, w.groups());
    LS_CHECK(w.quantized() ? x.blocks != nullptr : x.values != nullptr,
             "activations lack what weights of type {} need", static_cast<uint32_t>(w.type()));
    if (group_begin >= group_end) return;
    const internal::PackedView view = {
        .type = w.type(),
        .rows = w.rows(),
        .cols = w.cols(),
        .group_bytes = w.group_bytes(),
        .bytes = reinterpret_cast<const uint8_t*>(w.data()),
    };
    kIsa.matmul(view, x, group_begin, group_end, y);
  }

  static void QuantizeActivations(const float* x, int32_t cols, ActivationBlock* blocks) {
    LS_CHECK(cols % internal::kBlock == 0, "{} columns are no multiple of 32", cols);
    kIsa.quantize_activations(x, cols, blocks);
  }

  static void Attention(const AttentionShape& shape, const AttentionQueries& queries,
                        const KvView& view, int32_t head_begin, int32_t head_end, float* scratch) {
    CheckAttention(shape, queries, view);
    LS_CHECK(head_begin >= 0 && head_end <= shape.num_heads, "heads [{}, {}) of {}", head_begin,
             head_end, shape.num_heads);
    if (queries.count == 0 || head_begin >= head_end) return;
    kIsa.attention(shape, queries, view.segments.data(), head_begin, head_end, scratch);
  }

  static KernelTable Table() {
    return {
        .name = kIsa.name,
        .matmul = Matmul,
        .quantize_activations = QuantizeActivations,
        .rms_norm = kIsa.rms_norm,
        .rope_interleaved = kIsa.rope_interleaved,
        .rope_halves = kIsa.rope_halves,
        .attention = Attention,
        .silu_gate = kIsa.silu_gate,
        .gelu_gate = kIsa.gelu_gate,
        .add = kIsa.add,
        .scale = kIsa.scale,
        .soft_cap = kIsa.soft_cap,
    };
  }
};

template <const IsaKernels& kIsa>
const KernelTable* TableOf() {
  static const KernelTable table = Adapter<kIsa>::Table();
  return &table;
}

#if defined(__x86_64__)
// clang 14 does not know this feature by its name.
bool SupportsF16c() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

std::vector<const KernelTable*> FindKernels() {
  std::vector<const KernelTable*> tables = {TableOf<internal::kScalarKernels>()};
#if defined(__x86_64__)
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && SupportsF16c();
  if (avx2) tables.push_back(TableOf<internal::kAvx2Kernels>());
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2 && avx512) tables.push_back(TableOf<internal::kAvx512Kernels>());
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  if (avx2 && vnni) tables.push_back(TableOf<internal::kAvx512VnniKernels>());
#elif defined(__aarch64__)
  tables.push_back(TableOf<internal::kNeonKernels>());
  const bool dot_products = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  if (dot_products) tables.push_back(TableOf<internal::kNeonDotprodKernels>());
#endif
  return tables;
}

}  // namespace

int64_t AttentionScratch(const AttentionShape& shape, int32_t visible) {
  using namespace internal;  // the layout
  return kAttentionRows * ScoreStride(visible) +
         (kKeyRows + kAttentionRows) * ScoreStride(shape.head_dim);
}

std::span<const KernelTable* const> AvailableKernels() {
  static const std::vector<const KernelTable*> tables = FindKernels();
  return tables;
}

const KernelTable& SelectKernels(std::string_view name) {
  std::string where = "kernels";
  if (name.empty()) {
    const char* forced = std::getenv("LOCKSTEP_ISA");
    if (forced != nullptr && *forced != '\0') {
      name = forced;
      where = "LOCKSTEP_ISA";
    }
  }
  if (name.empty()) return *AvailableKernels().back();
  std::string names;
  for (const KernelTable* table : AvailableKernels()) {
    if (table->name == name) return *table;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", table->name);
  }
  throw Error({.where = where,
               .what = fmt::format("this machine has no kernels named '{}'", name),
               .remedy = fmt::format("choose one of: {}", names)});
}

}  // namespace lockstep
