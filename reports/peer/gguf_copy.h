// A GGUF file taken apart, to be changed and written again.
#ifndef LOCKSTEP_REPORTS_PEER_GGUF_COPY_H_
#define LOCKSTEP_REPORTS_PEER_GGUF_COPY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"

namespace lockstep::internal {

struct TensorCopy {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;

  // Bytes of one row: shape[0] elements.
  size_t row_bytes() const;
};

struct GgufCopy {
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<TensorCopy> tensors;

  // Throws Error for a tensor of a type that lockstep does not compute with.
  explicit GgufCopy(const GgufFile& file);

  TensorCopy* FindTensor(std::string_view name);  // nullptr when absent

  // Integers are written as 32 bits, floats as binary32, whatever they were: Error for one that
  // does not fit, and for arrays of truth values.
  std::vector<std::byte> Image() const;
};

// The model in F32: every matrix decoded, but the token embeddings, which any engine reads without
// rounding. Where they are the head too, that is split off in F32; with `tied` they are decoded
// instead, for engines that take no other head for the family.
std::vector<std::byte> F32Twin(const GgufFile& file, bool tied);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_PEER_GGUF_COPY_H_
