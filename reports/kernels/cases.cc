#include "reports/kernels/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "caches/aligned_buffer.h"
#include "caches/codec.h"
#include "engine/quantize.h"

namespace lockstep::internal {
namespace {

constexpr int32_t kCols = 1536;  // a row of the FFN of SmolLM-135M
constexpr AttentionShape kShape = {.num_heads = 9, .num_kv_heads = 3, .head_dim = 64};
constexpr int32_t kStride = 3 * 64;  // elements of a K or V row
constexpr int32_t kPrefillTokens = 64;

std::vector<float> Floats(size_t count, Random random) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(random.Between(-(1 << 22), 1 << 22)) * 0x1p-22f;
  }
  return values;
}

// A matrix whose rows repeat: 64 are different, which is enough for bits and quick to make.
PackedMatrix Matrix(GgmlType type, int32_t rows, Random random) {
  constexpr int32_t kDistinct = 64;
  const GgmlTypeTraits traits = *TraitsOf(type);
  const auto row_bytes = static_cast<size_t>(kCols / traits.block_elements * traits.block_bytes);
  std::vector<std::byte> data(static_cast<size_t>(rows) * row_bytes);
  for (int32_t r = 0; r < rows; ++r) {
    const auto out = std::span(data).subspan(static_cast<size_t>(r) * row_bytes, row_bytes);
    if (r >= kDistinct) {
      std::memcpy(out.data(), data.data() + static_cast<size_t>(r % kDistinct) * row_bytes,
                  row_bytes);
      continue;
    }
    const std::vector<float> row = Floats(kCols, random.Split(static_cast<uint64_t>(r)));
    QuantizeWeights(type, row, out);
  }
  return PackedMatrix(type, rows, kCols, data);
}

struct MatmulData {
  PackedMatrix matrix;
  std::vector<float> x;                   // [tokens, kCols]
  AlignedBuffer<ActivationBlock> blocks;  // [tokens, kCols / 32]
  std::vector<float> y;                   // [tokens, rows]
  std::vector<float*> rows_of_y;          // [tokens]
};

KernelCase MatmulCase(GgmlType type, int32_t tokens, int64_t bytes, const Random& random) {
  const GgmlTypeTraits traits = *TraitsOf(type);
  const int64_t row_bytes = kCols / traits.block_elements * traits.block_bytes;
  const auto rows = static_cast<int32_t>(std::max<int64_t>(bytes / row_bytes / 16, 1) * 16);
  const auto data = std::make_shared<MatmulData>();
  data->matrix = Matrix(type, rows, random);
  data->x = Floats(static_cast<size_t>(tokens) * kCols, random.Split(1));
  data->blocks = AlignedBuffer<ActivationBlock>(int64_t{tokens} * kCols / 32);
  for (int32_t t = 0; t < tokens; ++t) {
    AvailableKernels().front()->quantize_activations(data->x.data() + t * kCols, kCols,
                                                     data->blocks.data() + t * (kCols / 32));
  }
  data->y.resize(static_cast<size_t>(tokens) * static_cast<size_t>(rows));
  for (int32_t t = 0; t < tokens; ++t) {
    data->rows_of_y.push_back(data->y.data() + static_cast<ptrdiff_t>(t) * rows);
  }
  KernelCase result;
  result.name = fmt::format("matmul {}, {} token{}", traits.name, tokens, tokens == 1 ? "" : "s");
  result.work.bytes = static_cast<double>(rows) * static_cast<double>(row_bytes);
  const double multiply_adds = static_cast<double>(rows) * kCols * tokens;
  (data->matrix.quantized() ? result.work.dot_multiply_adds : result.work.fma_multiply_adds) =
      multiply_adds;
  result.run = [data, tokens](const KernelTable& kernels) {
    const Activations x = {
        .tokens = tokens, .cols = kCols, .values = data->x.data(), .blocks = data->blocks.data()};
    kernels.matmul(data->matrix, x, 0, data->matrix.groups(), data->rows_of_y.data());
  };
  result.digest = [data] { return DigestOfFloats(data->y); };
  result.streams = {data->matrix.data(),
                    static_cast<size_t>(data->matrix.groups() * data->matrix.group_bytes())};
  return result;
}

struct AttentionData {
  AlignedBuffer<std::byte> rows;  // [layers, keys then values, visible, row bytes]
  std::vector<KvView> views;      // [layers]
  std::vector<float> q, out;      // [queries, heads * head_dim]
  std::vector<int32_t> visible;   // [queries]
  AlignedBuffer<float> scratch;
};

// `layers` caches of `rows` rows, and as many queries in each that see the last rows of it.
KernelCase AttentionCase(RowType type, int32_t queries, int32_t rows, int64_t bytes,
                         const Random& random) {
  const int64_t row_bytes = RowBytes(type, kStride);
  const int64_t layers = std::max<int64_t>(bytes / (2 * rows * row_bytes), 1);
  const auto data = std::make_shared<AttentionData>();
  data->rows = AlignedBuffer<std::byte>(layers * 2 * rows * row_bytes);
  for (int64_t i = 0; i < 2 * layers * rows; ++i) {
    std::byte* to = data->rows.data() + i * row_bytes;
    if (i >= 256) {  // enough different rows
      std::memcpy(to, data->rows.data() + i % 256 * row_bytes, static_cast<size_t>(row_bytes));
    } else {
      EncodeRow(type, Floats(kStride, random.Split(static_cast<uint64_t>(i))),
                {to, static_cast<size_t>(row_bytes)});
    }
  }
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::byte* keys = data->rows.data() + layer * 2 * rows * row_bytes;
    data->views.push_back({.length = rows,
                           .segments = {{.first = 0,
                                         .count = rows,
                                         .key_type = type,
                                         .value_type = type,
                                         .keys = keys,
                                         .values = keys + rows * row_bytes}}});
  }
  KernelCase result;
  for (int32_t i = 0; i < queries; ++i) {
    data->visible.push_back(rows - queries + 1 + i);
    result.work.fma_multiply_adds += 2.0 * kShape.num_heads * kShape.head_dim *
                                     data->visible.back() * static_cast<double>(layers);
  }
  const auto elements = static_cast<size_t>(queries * kShape.num_heads * kShape.head_dim);
  data->q = Floats(elements, random.Split(1000));
  data->out.resize(elements);
  data->scratch = AlignedBuffer<float>(AttentionScratch(kShape, rows));
  result.name = fmt::format("attention {}, {} quer{}", RowTypeName(type), queries,
                            queries == 1 ? "y" : "ies");
  result.work.bytes = static_cast<double>(layers * 2 * rows * row_bytes);
  result.run = [data](const KernelTable& kernels) {
    const AttentionQueries all = {.count = static_cast<int32_t>(data->visible.size()),
                                  .q = data->q.data(),
                                  .out = data->out.data(),
                                  .visible = data->visible.data()};
    for (const KvView& view : data->views) {
      kernels.attention(kShape, all, view, 0, kShape.num_heads, data->scratch.data());
    }
  };
  result.digest = [data] { return DigestOfFloats(data->out); };
  result.streams = data->rows.span();
  return result;
}

// A kernel on rows of kCols floats, one row after another, from `x` to `y`.
struct RowData {
  std::vector<float> x, weight, y;
  std::vector<ActivationBlock> blocks;
};
using RowKernel = void (*)(const KernelTable&, RowData*, size_t first, size_t row);

KernelCase RowCase(const std::string& name, RowKernel kernel, double bytes_an_element,
                   double multiply_adds_an_element, int64_t bytes, const Random& random) {
  const auto rows = static_cast<size_t>(
      std::max<int64_t>(bytes / (kCols * static_cast<int64_t>(sizeof(float))), 1));
  const auto data = std::make_shared<RowData>();
  data->x = Floats(rows * kCols, random);
  data->weight = Floats(kCols, random.Split(2));
  data->y.resize(rows * kCols);
  data->blocks.resize(rows * (kCols / 32));
  KernelCase result;
  result.name = name;
  result.work.bytes = bytes_an_element * static_cast<double>(rows) * kCols;
  result.work.fma_multiply_adds = multiply_adds_an_element * static_cast<double>(rows) * kCols;
  result.run = [data, rows, kernel](const KernelTable& kernels) {
    for (size_t row = 0; row < rows; ++row) kernel(kernels, data.get(), row * kCols, row);
  };
  result.digest = [data] {
    DigestBuilder builder;
    builder.AddFloats(data->y);
    builder.AddBytes(std::as_bytes(std::span(data->blocks)));
    return builder.Finish();
  };
  result.streams = std::as_bytes(std::span(data->x));
  return result;
}

void Quantize(const KernelTable& kernels, RowData* d, size_t first, size_t row) {
  kernels.quantize_activations(&d->x[first], kCols, &d->blocks[row * (kCols / 32)]);
}

void RmsNorm(const KernelTable& kernels, RowData* d, size_t first, size_t) {
  kernels.rms_norm(&d->x[first], d->weight.data(), kCols, 1e-5f, &d->y[first]);
}

void SiluGate(const KernelTable& kernels, RowData* d, size_t first, size_t) {
  kernels.silu_gate(&d->x[first], d->weight.data(), kCols, &d->y[first]);
}

void GeluGate(const KernelTable& kernels, RowData* d, size_t first, size_t) {
  kernels.gelu_gate(&d->x[first], d->weight.data(), kCols, &d->y[first]);
}

// Kernels in place get a copy, so that every call does the same; the copy is in the time.
float* CopyOfRow(RowData* d, size_t first) {
  std::memcpy(&d->y[first], &d->x[first], kCols * sizeof(float));
  return &d->y[first];
}

void Rope(const KernelTable& kernels, RowData* d, size_t first, size_t) {
  kernels.rope_interleaved(CopyOfRow(d, first), kCols / 64, 64, 64, d->weight.data(),
                           d->weight.data() + 32);
}

void RopeHalves(const KernelTable& kernels, RowData* d, size_t first, size_t) {
  kernels.rope_halves(CopyOfRow(d, first), kCols / 64, 64, 64, d->weight.data(),
                      d->weight.data() + 32);
}

void Scale(const KernelTable& kernels, RowData* d, size_t first, size_t) {
  kernels.scale(0x1.4p-3f, kCols, CopyOfRow(d, first));
}

void SoftCap(const KernelTable& kernels, RowData* d, size_t first, size_t) {
  kernels.soft_cap(0.5f, kCols, CopyOfRow(d, first));
}

void Add(const KernelTable& kernels, RowData* d, size_t first, size_t) {
  std::memcpy(&d->y[first], d->weight.data(), kCols * sizeof(float));
  kernels.add(&d->x[first], kCols, &d->y[first]);
}

struct EncodeData {
  std::vector<float> x;
  std::vector<std::byte> stored;
};

KernelCase EncodeCase(RowType type, int64_t bytes, const Random& random) {
  const auto data = std::make_shared<EncodeData>();
  const int64_t elements = std::max<int64_t>(bytes / 4 / kCols, 1) * kCols;
  data->x = Floats(static_cast<size_t>(elements), random);
  data->stored.resize(static_cast<size_t>(RowBytes(type, elements)));
  KernelCase result;
  result.name = fmt::format("encode rows as {}", RowTypeName(type));
  result.work.bytes = static_cast<double>(4 * elements + RowBytes(type, elements));
  result.uses_table = false;
  result.run = [data, type](const KernelTable&) { EncodeRow(type, data->x, data->stored); };
  result.digest = [data] { return DigestOfBytes(data->stored); };
  result.streams = std::as_bytes(std::span(data->x));
  return result;
}

struct DigestData {
  std::vector<float> x;
  Digest digest;
};

KernelCase DigestCase(int64_t bytes, const Random& random) {
  const auto data = std::make_shared<DigestData>();
  data->x = Floats(static_cast<size_t>(std::max<int64_t>(bytes / 4, 1)), random);
  KernelCase result;
  result.name = "digest of floats";
  result.work.bytes = 4.0 * static_cast<double>(data->x.size());
  result.uses_table = false;
  result.run = [data](const KernelTable&) { data->digest = DigestOfFloats(data->x); };
  result.digest = [data] { return data->digest; };
  result.streams = std::as_bytes(std::span(data->x));
  return result;
}

}  // namespace

std::vector<KernelCaseMaker> KernelCases(int64_t bytes, Random random) {
  std::vector<KernelCaseMaker> cases;
  constexpr int64_t kCached = int64_t{1} << 20;  // what a prefill kernel reuses
  const auto small = std::min(bytes, kCached);
  for (GgmlType type :
       {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0, GgmlType::kQ4_0,
        GgmlType::kQ4_1, GgmlType::kQ5_0, GgmlType::kQ5_1, GgmlType::kQ2_K, GgmlType::kQ3_K,
        GgmlType::kQ4_K, GgmlType::kQ5_K, GgmlType::kQ6_K, GgmlType::kIQ4_NL, GgmlType::kIQ4_XS}) {
    cases.push_back([=] { return MatmulCase(type, 1, bytes, random); });
    cases.push_back([=] { return MatmulCase(type, kPrefillTokens, small, random); });
  }
  for (RowType type :
       {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8_0, RowType::kQ4_0}) {
    cases.push_back([=] { return AttentionCase(type, 1, 1024, bytes, random); });
    cases.push_back([=] { return AttentionCase(type, kPrefillTokens, 512, 0, random); });
  }
  // Bytes an element: read, written. Multiply-adds: as engine/ARITHMETIC.md counts them, exp as 10
  // and tanh as 16.
  cases.push_back(
      [=] { return RowCase("quantize_activations", Quantize, 4 + 40.0 / 32, 2, bytes, random); });
  cases.push_back([=] { return RowCase("rms_norm", RmsNorm, 8, 3, bytes, random); });
  cases.push_back([=] { return RowCase("rope", Rope, 8, 2, bytes, random); });
  cases.push_back([=] { return RowCase("silu_gate", SiluGate, 8, 13, bytes, random); });
  cases.push_back([=] { return RowCase("gelu_gate", GeluGate, 8, 17, bytes, random); });
  cases.push_back([=] { return RowCase("rope_halves", RopeHalves, 8, 2, bytes, random); });
  cases.push_back([=] { return RowCase("scale", Scale, 8, 1, bytes, random); });
  cases.push_back([=] { return RowCase("soft_cap", SoftCap, 8, 18, bytes, random); });
  for (RowType type : {RowType::kF16, RowType::kBf16, RowType::kQ8_0, RowType::kQ4_0}) {
    cases.push_back([=] { return EncodeCase(type, bytes, random); });
  }
  cases.push_back([=] { return DigestCase(bytes, random); });
  cases.push_back([=] { return RowCase("add", Add, 8, 1, bytes, random); });
  return cases;
}

}  // namespace lockstep::internal
