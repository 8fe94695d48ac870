// What the tests of this folder share: edited model images, a cache that can be told to misbehave,
// and the reference run of the real test model.
#ifndef LOCKSTEP_ENGINE_MODEL_TEST_SUPPORT_H_
#define LOCKSTEP_ENGINE_MODEL_TEST_SUPPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "caches/kv_cache.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "engine/synthetic.h"

namespace lockstep::testing {

// A GGUF image taken apart, so that a test changes one thing and puts it together again.
struct EditableImage {
  std::map<std::string, GgufValue, std::less<>> metadata;
  struct Tensor {
    std::string name;
    GgmlType type = GgmlType::kF32;
    std::vector<int64_t> shape;
    std::vector<std::byte> data;
  };
  std::vector<Tensor> tensors;

  explicit EditableImage(const GgufFile& file);

  Tensor& at(std::string_view name);  // aborts when absent
  void Remove(std::string_view name);
  void AddZeros(std::string name, std::vector<int64_t> shape);  // F32
  std::shared_ptr<const GgufFile> Build(std::string name = "edited") const;
};

// What loading the image as a model throws, or "loaded".
std::string LoadError(const EditableImage& image);

// The preset's model with seed 1, made once a process.
std::shared_ptr<const Model> PresetModel(std::string_view preset);

// Every preset but smollm-135m.
std::vector<std::string> SmallPresets();

// A test name: letters, digits and underscores.
std::string TestName(std::string_view text);

std::vector<int32_t> Iota(int32_t first, int32_t count);

// `count` token ids that differ from each other and stay inside the vocabulary.
std::vector<int32_t> SomeTokens(const ModelConfig& config, int32_t count);

// Bits, not values: -0.0f and NaN payloads count.
std::vector<uint32_t> Bits(std::span<const float> values);

enum class CacheCall { kReserve, kCommit, kUpdate, kView, kViewForQuery };

// Forwards everything to another cache; the public fields change how.
class ProbeCache final : public KvCache {
 public:
  explicit ProbeCache(std::unique_ptr<KvCache> inner) : inner_(std::move(inner)) {}

  // Called before and after each forwarded call; may throw.
  std::function<void(CacheCall, int32_t layer, bool before)> on_call;
  std::function<void()> on_rollback;    // called before a rollback; may throw
  bool refuse_slots = false;            // the legacy path
  bool view_per_query = false;          // view_depends_on_query()
  std::optional<int32_t> step_rows;     // max_step_rows()
  std::optional<int32_t> forget_layer;  // its commits and updates never arrive
  size_t missing_slot_floats = 0;       // taken off each slot's end
  bool refuse_rollback = false;         // a rollback fails the test

  KvCache& inner() { return *inner_; }
  int32_t writes() const { return writes_; }  // calls that may change the cache
  int32_t views() const { return views_; }    // View
  const std::vector<int32_t>& query_positions() const { return query_positions_; }

  const KvGeometry& geometry() const override { return inner_->geometry(); }
  std::string name() const override { return "probe:" + inner_->name(); }
  RowType key_type() const override { return inner_->key_type(); }
  RowType value_type() const override { return inner_->value_type(); }
  int32_t max_step_rows() const override { return step_rows.value_or(inner_->max_step_rows()); }
  int32_t attention_window(int32_t layer) const override { return inner_->attention_window(layer); }
  int32_t first_position(int32_t layer) const override { return inner_->first_position(layer); }
  int32_t length(int32_t layer) const override { return inner_->length(layer); }
  int32_t current_length() const override { return inner_->current_length(); }
  void View(int32_t layer, KvView* view) const override;
  void ViewForQuery(int32_t layer, int32_t position, KvView* view) const override;
  bool view_depends_on_query() const override { return view_per_query; }
  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;
  void Rollback(int32_t length) override;
  void Clear() override { inner_->Clear(); }
  std::unique_ptr<KvCache> Fork() override { return inner_->Fork(); }
  Digest StorageDigest() const override { return inner_->StorageDigest(); }
  void SaveState(StateWriter* writer) const override { inner_->SaveState(writer); }
  void LoadState(StateReader* reader) override { inner_->LoadState(reader); }

 private:
  void Note(CacheCall call, int32_t layer, bool before) const {
    if (on_call) on_call(call, layer, before);
  }

  std::unique_ptr<KvCache> inner_;
  int32_t writes_ = 0;
  mutable int32_t views_ = 0;
  mutable std::vector<int32_t> query_positions_;
};

// A SimpleKvCache for the model, behind a probe.
std::unique_ptr<ProbeCache> NewProbe(const Model& model, int32_t max_length);

// ref/stories260K-f32.libllama.*: another engine's greedy run of the real test model.
struct ReferenceRun {
  std::vector<int32_t> prompt;
  std::vector<int32_t> generated;  // 200
  std::vector<float> logits;       // [200, 512], step s follows the prompt and s generated tokens
};
std::optional<ReferenceRun> LoadReferenceRun();

}  // namespace lockstep::testing

#endif  // LOCKSTEP_ENGINE_MODEL_TEST_SUPPORT_H_
