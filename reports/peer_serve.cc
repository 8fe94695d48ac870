#include "reports/peer_serve.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "caches/error.h"
#include "caches/registry.h"
#include "engine/model.h"
#include "engine/thread_team.h"
#include "engine/tokenizer.h"
#include "engine/transformer.h"
#include "reports/peer_engine.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr int32_t kSequencesMax = 64;

[[noreturn]] void Refuse(const std::string& what) { throw Error({"request", what, ""}); }

// A request, read key by key: Finish refuses what nobody asked for.
class Request {
 public:
  explicit Request(const json& object) : object_(object) {
    if (!object.is_object()) Refuse("it holds something else than an object");
  }

  int32_t Int(const char* key, int32_t low, int32_t high) {
    const json& value = Get(key);
    if (!value.is_number_integer() || value < low || value > high) {
      Refuse(fmt::format("'{}' is no whole number from {} to {}", key, low, high));
    }
    return value.get<int32_t>();
  }

  std::string Text(const char* key) {
    const json& value = Get(key);
    if (!value.is_string()) Refuse(fmt::format("'{}' is no text", key));
    return value.get<std::string>();
  }

  bool Bool(const char* key) {
    const json& value = Get(key);
    if (!value.is_boolean()) Refuse(fmt::format("'{}' is neither true nor false", key));
    return value.get<bool>();
  }

  const json& Array(const char* key) {
    const json& value = Get(key);
    if (!value.is_array()) Refuse(fmt::format("'{}' is no array", key));
    return value;
  }

  const json& Get(const char* key) {
    if (!object_.contains(key)) Refuse(fmt::format("'{}' is missing", key));
    ++read_;
    return object_[key];
  }

  void Finish() const {
    if (object_.size() != read_) Refuse("it has a key that the protocol does not know");
  }

 private:
  const json& object_;
  size_t read_ = 0;
};

}  // namespace

class EngineServer::Impl {
 public:
  explicit Impl(const EngineServerOptions& options) : options_(options) {
    const MatrixControl* control = options.control;
    if (control != nullptr && control->kernels == nullptr && control->odd_kernels == nullptr &&
        control->wrap == nullptr) {
      throw Error({"--control",
                   fmt::format("{} is a build, not a fault of an engine", control->name),
                   "choose another one"});
    }
  }

  bool ended() const { return ended_; }

  std::string Answer(const std::string& line) {
    json answer = json::object();
    std::vector<float> values;
    try {
      const json object = json::parse(line, nullptr, false);
      Request request(object);
      answer["id"] = nullptr;
      const json& id = request.Get("id");
      if (!id.is_number_integer()) Refuse("'id' is no whole number");
      answer["id"] = id;
      const std::string what = request.Text("do");
      if (what == "quit") {
        request.Finish();
        ended_ = true;
      } else {
        Do(what, &request, &answer, &values);
      }
    } catch (const std::exception& error) {
      answer = {{"id", answer.value("id", json())}, {"error", error.what()}};
      values.clear();
    }
    std::string text = answer.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    const auto bytes = std::as_bytes(std::span(values));
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return text;
  }

 private:
  void Do(const std::string& what, Request* request, json* answer, std::vector<float>* values) {
    if (what == "hello") return Hello(request, answer);
    if (what == "load") return Load(request, answer);
    if (what == "step") return Step(request, answer, values);
    if (what == "rollback") return Rollback(request);
    if (what == "fork") return Fork(request);
    if (what == "reset") return Reset(request);
    if (what == "tokenize") return Tokenize(request, answer);
    Refuse(fmt::format("there is nothing to do that is called '{}'", what));
  }

  static void Hello(Request* request, json* answer) {
    request->Int("protocol", kEngineProtocolVersion, kEngineProtocolVersion);
    request->Finish();
    (*answer)["protocol"] = kEngineProtocolVersion;
    (*answer)["engine"] = "lockstep";
    (*answer)["values"] = "logits";
    (*answer)["can"] = {"fork", "tokenize"};
    (*answer)["options"] = {"cache", "isa"};
  }

  const KernelTable& Kernels(const std::string& isa) const {
    const MatrixControl* control = options_.control;
    if (control != nullptr && control->kernels != nullptr) return *control->kernels();
    if (control != nullptr && control->odd_kernels != nullptr) return *control->odd_kernels();
    return SelectKernels(isa);
  }

  void Load(Request* request, json* answer) {
    const std::string path = request->Text("model");
    const int32_t positions = request->Int("positions", 0, INT32_MAX);
    const int32_t sequences = request->Int("sequences", 1, kSequencesMax);
    const int32_t threads = request->Int("threads", 1, ThreadTeam::kMaxSize);
    Request options(request->Get("options"));
    request->Finish();
    const json& given = request->Get("options");
    const std::string cache = given.contains("cache") ? options.Text("cache") : "simple";
    const std::string isa = given.contains("isa") ? options.Text("isa") : "";
    options.Finish();

    const auto file = GgufFile::Open(path);
    std::unique_ptr<const Tokenizer> tokenizer = Tokenizer::Load(*file);
    if (positions > 0) LoadModel(file, positions, sequences, threads, cache, isa);
    if (positions == 0) DropModel();
    tokenizer_ = std::move(tokenizer);
    (*answer)["vocabulary"] =
        positions > 0 ? transformer_->model().config().vocab_size : tokenizer_->vocab_size();
  }

  void DropModel() {
    transformer_.reset();
    caches_.clear();
  }

  void LoadModel(const std::shared_ptr<const GgufFile>& file, int32_t positions, int32_t sequences,
                 int32_t threads, const std::string& cache, const std::string& isa) {
    std::shared_ptr<const Model> model = Model::Load(file);
    if (positions > model->config().context_length) {
      Refuse(fmt::format("the model has {} positions", model->config().context_length));
    }
    const CacheSpec spec = ParseCacheSpec(cache);
    const KvGeometry geometry = model->config().geometry(positions);
    CheckFits(spec, geometry, "request");
    auto transformer = std::make_unique<Transformer>(
        model, TransformerOptions{.kernels = &Kernels(isa), .threads = threads});
    std::vector<std::unique_ptr<KvCache>> caches;
    for (int32_t i = 0; i < sequences; ++i) {
      caches.push_back(spec.make({.geometry = geometry, .sequences = sequences}));
      if (options_.control != nullptr && options_.control->wrap != nullptr) {
        caches.back() = options_.control->wrap(std::move(caches.back()));
      }
    }
    caches_ = std::move(caches);
    transformer_ = std::move(transformer);
  }

  KvCache& CacheOf(int32_t sequence) { return *caches_[static_cast<size_t>(sequence)]; }

  int32_t Sequence(Request* request, const char* key) {
    if (transformer_ == nullptr) Refuse("no model is loaded");
    return request->Int(key, 0, static_cast<int32_t>(caches_.size()) - 1);
  }

  // What one of a step's rows asks for.
  struct Rows {
    int32_t sequence = 0;
    std::vector<int32_t> tokens = {};
    std::vector<int32_t> positions = {};
    bool output = true;
  };

  Rows ReadRows(const json& object) {
    Request request(object);
    Rows rows{.sequence = Sequence(&request, "sequence")};
    const KvCache& cache = CacheOf(rows.sequence);
    const int32_t length = cache.current_length();
    if (request.Int("position", 0, INT32_MAX) != length) {
      Refuse(fmt::format("sequence {} has {} positions", rows.sequence, length));
    }
    rows.output = request.Bool("output");
    const json& tokens = request.Array("tokens");
    request.Finish();
    const int32_t vocabulary = transformer_->model().config().vocab_size;
    for (const json& token : tokens) {
      if (!token.is_number_integer() || token < 0 || token >= vocabulary) {
        Refuse(fmt::format("a token is no whole number below {}", vocabulary));
      }
      rows.positions.push_back(length + static_cast<int32_t>(rows.tokens.size()));
      rows.tokens.push_back(token.get<int32_t>());
    }
    if (static_cast<int64_t>(rows.tokens.size()) > cache.max_length() - length) {
      Refuse(fmt::format("sequence {} has room for {} more", rows.sequence,
                         cache.max_length() - length));
    }
    return rows;
  }

  void Step(Request* request, json* answer, std::vector<float>* values) {
    const json& list = request->Array("rows");
    request->Finish();
    std::vector<Rows> rows;
    for (const json& object : list) rows.push_back(ReadRows(object));
    std::vector<BatchSequence> batch;
    for (const Rows& of_one : rows) {
      batch.push_back({of_one.tokens, of_one.positions, &CacheOf(of_one.sequence)});
    }
    const std::span<const float> logits = transformer_->ForwardBatch(batch);
    const size_t vocabulary = logits.size() / rows.size();
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span<const float> row = logits.subspan(i * vocabulary, vocabulary);
      if (rows[i].output) values->insert(values->end(), row.begin(), row.end());
    }
    (*answer)["bytes"] = values->size() * sizeof(float);
  }

  void Rollback(Request* request) {
    const int32_t sequence = Sequence(request, "sequence");
    const int32_t length = request->Int("length", 0, CacheOf(sequence).current_length());
    request->Finish();
    if (!CanRollback(CacheOf(sequence), length)) {
      Refuse(fmt::format("the cache has forgotten rows that length {} needs", length));
    }
    CacheOf(sequence).Rollback(length);
  }

  void Fork(Request* request) {
    const int32_t from = Sequence(request, "from"), to = Sequence(request, "to");
    request->Finish();
    if (CacheOf(to).current_length() != 0) Refuse(fmt::format("sequence {} is not empty", to));
    if (from != to) caches_[static_cast<size_t>(to)] = CacheOf(from).Fork();
  }

  void Reset(Request* request) {
    request->Finish();
    for (const auto& cache : caches_) cache->Clear();
  }

  void Tokenize(Request* request, json* answer) {
    const std::string text = request->Text("text");
    request->Finish();
    if (tokenizer_ == nullptr) Refuse("no model is loaded");
    (*answer)["tokens"] = tokenizer_->Encode(text);
  }

  EngineServerOptions options_;
  bool ended_ = false;
  std::unique_ptr<Transformer> transformer_;
  std::vector<std::unique_ptr<KvCache>> caches_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

EngineServer::EngineServer(const EngineServerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
EngineServer::~EngineServer() = default;
std::string EngineServer::Answer(const std::string& line) { return impl_->Answer(line); }
bool EngineServer::ended() const { return impl_->ended(); }

}  // namespace lockstep
