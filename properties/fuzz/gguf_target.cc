// Model files: a small sound image that is damaged by its own fields, or raw bytes. It must be
// refused by lockstep::Error or keep every promise of engine/gguf.h; its vocabulary and its model
// must load or be refused the same way, and a model that loads must compute.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "caches/check.h"
#include "caches/error.h"
#include "caches/simple_kv_cache.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "engine/synthetic.h"
#include "engine/thread_team.h"
#include "engine/tokenizer.h"
#include "engine/transformer.h"
#include "properties/fuzz/chunks.h"
#include "properties/fuzz/gguf_edits.h"
#include "properties/fuzz/gguf_pieces.h"

namespace lockstep::fuzz {
namespace {

constexpr std::string_view kFile = "fuzz.gguf";
constexpr size_t kRaw = 3;       // the head's value for raw bytes
constexpr size_t kRawLine = 16;  // bytes of one operation then

SyntheticSpec BaseSpec(GgmlType type) {
  SyntheticSpec spec;
  spec.name = "fuzz";
  spec.dim = spec.ffn_dim = 32;
  spec.num_layers = 1;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 16;
  spec.vocab_size = 270;
  spec.context_length = 64;
  spec.weight_type = type;
  spec.qkv_bias = type == GgmlType::kF32;
  spec.qk_norm = type == GgmlType::kF32;
  return spec;
}

// What `call` threw, other than Error; nullopt also when it threw nothing.
template <typename Call>
std::optional<FuzzFinding> ThrowsErrorAlone(std::string_view what, const Call& call) {
  try {
    call();
  } catch (const Error&) {
  } catch (const std::exception& e) {
    return FuzzFinding{fmt::format("{} throws no lockstep::Error", what), e.what()};
  }
  return std::nullopt;
}

std::optional<FuzzFinding> CheckTensors(const GgufFile& file) {
  const auto broken = [](const GgufTensor& tensor, std::string_view what) {
    return FuzzFinding{fmt::format("a tensor {}", what),
                       fmt::format("'{}'", Printable(tensor.name))};
  };
  const std::span<const std::byte> all = file.bytes();
  std::vector<std::span<const std::byte>> regions;
  for (const GgufTensor& tensor : file.tensors()) {
    const auto& [name, type, shape, data] = tensor;
    if (file.FindTensor(name) != &tensor) return broken(tensor, "is not found by its name");
    if (shape.empty() || shape.size() > 4 || std::ranges::min(shape) < 1) {
      return broken(tensor, "has no sound shape");
    }
    if (data.empty() || data.data() < all.data() ||
        data.data() + data.size() > all.data() + all.size()) {
      return broken(tensor, "lies outside the file");
    }
    const auto traits = TraitsOf(type);
    if (traits && static_cast<int64_t>(data.size()) !=
                      tensor.elements() / traits->block_elements * traits->block_bytes) {
      return broken(tensor, "has another size than its type needs");
    }
    regions.push_back(data);
  }
  std::ranges::sort(regions, {}, [](std::span<const std::byte> region) { return region.data(); });
  for (size_t i = 1; i < regions.size(); ++i) {
    if (regions[i - 1].data() + regions[i - 1].size() > regions[i].data()) {
      return FuzzFinding{"two tensors share bytes", ""};
    }
  }
  return std::nullopt;
}

std::optional<FuzzFinding> CheckKeys(const GgufFile& file) {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  for (const auto& entry : file.metadata()) {
    const std::string& key = entry.first;
    int getters = 0;
    const auto get = [&](const auto& getter) {
      return ThrowsErrorAlone("a getter", [&] { getter(), ++getters; });
    };
    for (const auto& finding :
         {get([&] { file.RequireInt(key, kLow, kHigh); }), get([&] { file.RequireFloat(key); }),
          get([&] { file.RequireString(key); }), get([&] { file.RequireStrings(key); }),
          get([&] { file.FindBool(key); }), get([&] { file.FindFloats(key); }),
          get([&] { file.FindInts(key); })}) {
      if (finding) return finding;
    }
    if (getters > 1) return FuzzFinding{"a key has two kinds", Printable(key)};
  }
  return std::nullopt;
}

void LoadAndEncode(const GgufFile& file) {
  const auto tokenizer = Tokenizer::Load(file);
  tokenizer->Decode(tokenizer->EncodePrompt("the \xc3\xa9\xff 12"));
}

std::optional<FuzzFinding> CheckModel(const std::shared_ptr<const GgufFile>& file) {
  std::shared_ptr<const Model> model;
  ThreadTeam team(1);
  if (auto finding = ThrowsErrorAlone("loading a model",
                                      [&] { model = Model::Load(file, {.team = &team}); })) {
    return finding;
  }
  if (model == nullptr) return std::nullopt;
  SimpleKvCache cache(model->config().geometry(std::min(model->config().context_length, 2)));
  try {
    const int32_t token = model->config().vocab_size - 1;
    const int32_t position = 0;
    Transformer transformer(model, {.max_step_tokens = 1});
    transformer.Forward({&token, 1}, {&position, 1}, cache);
  } catch (const std::exception& e) {
    return FuzzFinding{"a model that loads does not compute", e.what()};
  }
  return std::nullopt;
}

class GgufTarget final : public ChunkTarget {
 public:
  explicit GgufTarget(const FuzzTargetOptions& options) : ChunkTarget("gguf"), options_(options) {
    for (const GgmlType type : {GgmlType::kF32, GgmlType::kQ8_0, GgmlType::kQ4_0}) {
      bases_.push_back(TakeApart(MakeSyntheticImage(BaseSpec(type), 1)));
    }
  }

 private:
  static size_t BaseOf(const ChunkInput& input) { return NumberAt(input.head, 0, 1) % (kRaw + 1); }

  ChunkInput Decode(std::span<const std::byte> bytes) const override {
    ChunkInput input;
    if (bytes.empty()) return input;
    input.head = {bytes[0]};
    bytes = bytes.subspan(1);
    const size_t size = BaseOf(input) == kRaw ? kRawLine : kGgufEditBytes;
    while (!bytes.empty()) {
      const auto op = bytes.first(std::min(size, bytes.size()));
      input.ops.emplace_back(op.begin(), op.end());
      bytes = bytes.subspan(op.size());
    }
    return input;
  }

  std::vector<std::byte> Image(const ChunkInput& input) const {
    const size_t base = BaseOf(input);
    if (base != kRaw) return ApplyGgufEdits(bases_.at(base), input.ops);
    std::vector<std::byte> image;
    for (const Chunk& op : input.ops) image.insert(image.end(), op.begin(), op.end());
    return image;
  }

  std::shared_ptr<const GgufFile> Open(const ChunkInput& input) const {
    try {
      return GgufFile::FromBytes(Image(input), std::string(kFile));
    } catch (const Error& error) {
      const bool refusal = std::string_view(error.what()).find("63 bits") != std::string_view::npos;
      if (!options_.plant.empty() && refusal) throw std::length_error(error.what());
      throw;
    }
  }

  std::optional<FuzzFinding> Judge(const ChunkInput& input) const override {
    std::shared_ptr<const GgufFile> file;
    if (auto finding = ThrowsErrorAlone("parsing", [&] { file = Open(input); })) return finding;
    if (file == nullptr) return std::nullopt;
    if (auto finding = CheckTensors(*file)) return finding;
    if (auto finding = CheckKeys(*file)) return finding;
    if (auto finding = ThrowsErrorAlone("loading a vocabulary", [&] { LoadAndEncode(*file); })) {
      return finding;
    }
    return CheckModel(file);
  }

  std::string DescribeHead(const ChunkInput& input) const override {
    constexpr std::array<std::string_view, kRaw + 1> kHeads = {
        "a sound F32 model", "a sound Q8_0 model", "a sound Q4_0 model", "raw bytes"};
    return std::string(kHeads.at(BaseOf(input)));
  }

  std::string DescribeOp(const ChunkInput& input, size_t op) const override {
    if (BaseOf(input) == kRaw) {
      const Chunk& bytes = input.ops[op];
      return Printable({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    return DescribeGgufEdit(bases_.at(BaseOf(input)), std::span(input.ops).first(op + 1));
  }

  FuzzTargetOptions options_;
  std::vector<GgufPieces> bases_;
};

}  // namespace

std::unique_ptr<FuzzTarget> MakeGgufTarget(const FuzzTargetOptions& options) {
  RequireCanary("gguf", options);
  return std::make_unique<GgufTarget>(options);
}

}  // namespace lockstep::fuzz
