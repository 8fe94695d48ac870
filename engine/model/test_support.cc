#include "engine/model/test_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "caches/check.h"
#include "caches/error.h"
#include "caches/simple_kv_cache.h"
#include "engine/test_models.h"

namespace lockstep::testing {
namespace {

struct AddValue {
  GgufWriter& writer;
  const std::string& key;

  void operator()(uint64_t v) const { writer.AddUint32(key, static_cast<uint32_t>(v)); }
  // Negative on purpose in tests: the nearest kind that the writer has.
  void operator()(int64_t v) const { writer.AddInt32s(key, {{static_cast<int32_t>(v)}}); }
  void operator()(double v) const { writer.AddFloat32(key, static_cast<float>(v)); }
  void operator()(bool v) const { writer.AddBool(key, v); }
  void operator()(const std::string& v) const { writer.AddString(key, v); }
  void operator()(const std::vector<std::string>& v) const { writer.AddStrings(key, v); }
  void operator()(const std::vector<uint64_t>& v) const { AddInts(v); }
  void operator()(const std::vector<int64_t>& v) const { AddInts(v); }
  void operator()(const std::vector<double>& v) const {
    std::vector<float> narrowed;
    for (double x : v) narrowed.push_back(static_cast<float>(x));
    writer.AddFloat32s(key, narrowed);
  }
  void operator()(const std::vector<bool>&) const { LS_CHECK(false, "{}: bool array", key); }

  template <typename T>
  void AddInts(const std::vector<T>& v) const {
    std::vector<int32_t> narrowed;
    for (T x : v) narrowed.push_back(static_cast<int32_t>(x));
    writer.AddInt32s(key, narrowed);
  }
};

std::vector<int32_t> IdsAfter(const std::string& line) {
  std::istringstream text(line.substr(line.find(':') + 1));
  return {std::istream_iterator<int32_t>(text), std::istream_iterator<int32_t>()};
}

}  // namespace

EditableImage::EditableImage(const GgufFile& file) : metadata(file.metadata()) {
  for (const GgufTensor& t : file.tensors()) {
    tensors.push_back({t.name, t.type, t.shape, {t.data.begin(), t.data.end()}});
  }
}

EditableImage::Tensor& EditableImage::at(std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  LS_CHECK(found != tensors.end(), "no tensor {}", name);
  return *found;
}

void EditableImage::Remove(std::string_view name) {
  const size_t removed =
      std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
  LS_CHECK(removed == 1, "no tensor {}", name);
}

void EditableImage::AddZeros(std::string name, std::vector<int64_t> shape) {
  int64_t elements = 1;
  for (int64_t dimension : shape) elements *= dimension;
  tensors.push_back({std::move(name), GgmlType::kF32, std::move(shape),
                     std::vector<std::byte>(static_cast<size_t>(elements) * 4)});
}

std::shared_ptr<const GgufFile> EditableImage::Build(std::string name) const {
  GgufWriter writer;
  for (const auto& [key, value] : metadata) std::visit(AddValue{writer, key}, value);
  for (const Tensor& t : tensors) writer.AddTensor(t.name, t.type, t.shape, t.data);
  return GgufFile::FromBytes(writer.Finish(), std::move(name));
}

std::string LoadError(const EditableImage& image) {
  try {
    Model::Load(image.Build());
  } catch (const Error& error) {
    return error.what();
  }
  return "loaded";
}

std::shared_ptr<const Model> PresetModel(std::string_view preset) {
  static std::map<std::string, std::shared_ptr<const Model>, std::less<>> models;
  const auto found = models.find(preset);
  if (found != models.end()) return found->second;
  auto model = Model::Load(MakeSyntheticModel(SyntheticPreset(preset), 1));
  models.emplace(preset, model);
  return model;
}

std::vector<std::string> SmallPresets() {
  std::vector<std::string> names;
  for (const SyntheticSpec& spec : SyntheticPresets()) {
    if (spec.name != "smollm-135m") names.push_back(spec.name);
  }
  return names;
}

std::string TestName(std::string_view text) {
  std::string name(text);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

std::vector<int32_t> Iota(int32_t first, int32_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<int32_t> SomeTokens(const ModelConfig& config, int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((7 + i * 37) % config.vocab_size);
  return tokens;
}

std::vector<uint32_t> Bits(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

void ProbeCache::View(int32_t layer, KvView* view) const {
  Note(CacheCall::kView, layer, true);
  ++views_;
  inner_->View(layer, view);
  Note(CacheCall::kView, layer, false);
}

void ProbeCache::ViewForQuery(int32_t layer, int32_t position, KvView* view) const {
  Note(CacheCall::kViewForQuery, layer, true);
  query_positions_.push_back(position);
  inner_->ViewForQuery(layer, position, view);
  Note(CacheCall::kViewForQuery, layer, false);
}

void ProbeCache::Update(int32_t layer, std::span<const int32_t> positions,
                        std::span<const float> keys, std::span<const float> values) {
  ++writes_;
  Note(CacheCall::kUpdate, layer, true);
  if (layer != forget_layer) inner_->Update(layer, positions, keys, values);
  Note(CacheCall::kUpdate, layer, false);
}

std::optional<KvSlot> ProbeCache::TryReserveSlot(int32_t layer,
                                                 std::span<const int32_t> positions) {
  ++writes_;
  Note(CacheCall::kReserve, layer, true);
  if (refuse_slots) return std::nullopt;
  auto slot = inner_->TryReserveSlot(layer, positions);
  if (slot) slot->keys = slot->keys.first(slot->keys.size() - missing_slot_floats);
  Note(CacheCall::kReserve, layer, false);
  return slot;
}

void ProbeCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  ++writes_;
  Note(CacheCall::kCommit, layer, true);
  if (layer != forget_layer) inner_->CommitSlot(layer, positions);
  Note(CacheCall::kCommit, layer, false);
}

void ProbeCache::Rollback(int32_t length) {
  ++writes_;
  EXPECT_FALSE(refuse_rollback) << "rollback to " << length;
  if (on_rollback) on_rollback();
  inner_->Rollback(length);
}

std::unique_ptr<ProbeCache> NewProbe(const Model& model, int32_t max_length) {
  return std::make_unique<ProbeCache>(
      std::make_unique<SimpleKvCache>(model.config().geometry(max_length)));
}

std::optional<ReferenceRun> LoadReferenceRun() {
  const auto text_path = FindTestModel("ref/stories260K-f32.libllama.txt");
  const auto logits_path = FindTestModel("ref/stories260K-f32.libllama.logits.f32");
  if (!text_path || !logits_path) return std::nullopt;
  ReferenceRun run;
  std::ifstream text(*text_path);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("prompt:")) run.prompt = IdsAfter(line);
    if (line.starts_with("gen:")) run.generated = IdsAfter(line);
  }
  std::ifstream file(*logits_path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  run.logits.resize(bytes.size() / sizeof(float));
  std::memcpy(run.logits.data(), bytes.data(), run.logits.size() * sizeof(float));
  return run;
}

}  // namespace lockstep::testing
