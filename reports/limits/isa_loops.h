// The loops of isa_limits.h over a set of vector operations. Everything here has internal linkage:
// each instruction set compiles its own copy with its own flags.
//
// `Vector` gives:
//   Float, Int                    vector types
//   kBytes                        of a vector
//   Floats(float), Ints(int8_t)   the value in every lane, every byte
//   Load(const std::byte*), Or(Int, Int), First(Int), First(Float)
//   Fma(Float acc, Float x)       acc * x + x, or acc + x * x: one fused multiply-add of a chain
//   Dot0, Dot1(Int acc, Int x)    acc + products of the bytes of x
//   Opaque(Int*)                  no instruction: the compiler has to take the value for a new one
#ifndef LOCKSTEP_REPORTS_LIMITS_ISA_LOOPS_H_
#define LOCKSTEP_REPORTS_LIMITS_ISA_LOOPS_H_

#include "reports/limits/isa_limits.h"

namespace lockstep::internal {
namespace {

template <typename Vector, int kStreams>
uint64_t ReadAs(const std::byte* data, size_t bytes) {
  constexpr int kVectors = 4;  // of a stream, in one turn
  const size_t part = bytes / kStreams;
  typename Vector::Int sums[kVectors];
  for (auto& sum : sums) sum = Vector::Ints(0);
  for (size_t at = 0; at < part; at += kVectors * Vector::kBytes) {
#pragma GCC unroll 4
    for (int stream = 0; stream < kStreams; ++stream) {
      const std::byte* from = data + static_cast<size_t>(stream) * part + at;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[v] = Vector::Or(sums[v], Vector::Load(from + static_cast<size_t>(v) * Vector::kBytes));
      }
    }
  }
  return Vector::First(Vector::Or(Vector::Or(sums[0], sums[1]), Vector::Or(sums[2], sums[3])));
}

template <typename Vector>
uint64_t Read(const std::byte* data, size_t bytes, int streams) {
  if (streams == 1) return ReadAs<Vector, 1>(data, bytes);
  if (streams == 2) return ReadAs<Vector, 2>(data, bytes);
  return ReadAs<Vector, 4>(data, bytes);
}

// More chains than latency times throughput, fewer than there are registers.
constexpr int kFmaChains = 12;

template <typename Vector>
uint64_t RunFma(int64_t iterations) {
  typename Vector::Float chains[kFmaChains];
#pragma GCC unroll 16
  for (int i = 0; i < kFmaChains; ++i) chains[i] = Vector::Floats(static_cast<float>(i));
  const typename Vector::Float x = Vector::Floats(0.5f);  // the chains converge to 1
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kFmaChains; ++i) chains[i] = Vector::Fma(chains[i], x);
  }
  uint64_t result = 0;
#pragma GCC unroll 16
  for (int i = 0; i < kFmaChains; ++i) result ^= Vector::First(chains[i]);
  return result;
}

template <typename Vector, auto kDot, size_t kChains>
uint64_t RunDot(int64_t iterations) {
  typename Vector::Int chains[kChains];
#pragma GCC unroll 16
  for (size_t i = 0; i < kChains; ++i) chains[i] = Vector::Ints(static_cast<int8_t>(i));
  typename Vector::Int x = Vector::Ints(3);
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (size_t i = 0; i < kChains; ++i) {
      Vector::Opaque(&x);
      chains[i] = kDot(chains[i], x);
    }
  }
  uint64_t result = 0;
#pragma GCC unroll 16
  for (size_t i = 0; i < kChains; ++i) result ^= Vector::First(chains[i]);
  return result;
}

template <typename Vector>
constexpr PeakLoop FmaLoop() {
  return {RunFma<Vector>,
          static_cast<double>(kFmaChains * sizeof(typename Vector::Float) / sizeof(float))};
}

// `products` of one call of kDot.
template <typename Vector, auto kDot, size_t kChains>
constexpr PeakLoop DotLoop(int products) {
  return {RunDot<Vector, kDot, kChains>, static_cast<double>(kChains) * products};
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_LIMITS_ISA_LOOPS_H_
