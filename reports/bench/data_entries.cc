// What stands around the engine: codecs, digests, loading, tokenizers, checked scripts.
#include <fmt/format.h>

#include <memory>

#include "caches/codec.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "engine/synthetic.h"
#include "engine/tokenizer.h"
#include "properties/script_builder.h"
#include "properties/script_runner.h"
#include "reports/bench/entries.h"
#include "reports/bench/write_case.h"

namespace lockstep::internal {
namespace {

constexpr std::string_view kDataPreset = "tiny-gqa-9x3-q8_0";

BenchEntry Named(const std::string& name, std::function<MadeBench()> make) {
  return {.name = name, .bits = name, .make = std::move(make)};
}

MadeBench MadeDecodeRow(RowType type, int64_t elements) {
  struct Data {
    std::vector<std::byte> stored;
    std::vector<float> row;
  };
  const auto data = std::make_shared<Data>();
  Random random(4);
  data->row.resize(static_cast<size_t>(elements));
  for (float& value : data->row) value = static_cast<float>(random.Between(-999, 999)) * 0x1p-9f;
  data->stored.resize(static_cast<size_t>(RowBytes(type, elements)));
  EncodeRow(type, data->row, data->stored);
  return {.run = [data, type] { DecodeRow(type, data->stored, data->row); },
          .digest = [data] { return DigestOfFloats(data->row); },
          .work = {.bytes = static_cast<double>(RowBytes(type, elements) + 4 * elements)},
          .bound = "memory"};
}

MadeBench MadeCacheDigest(const std::string& cache, int32_t tokens) {
  const WriteGeometry geometry = WriteGeometries().front();
  const auto written = std::make_shared<WriteCase>(cache, geometry, WritePath::kUpdate, tokens);
  written->Run();
  const auto digest = std::make_shared<Digest>();
  return {.run = [=] { *digest = written->digest(); },
          .digest = [digest] { return *digest; },
          .work = {.bytes = static_cast<double>(geometry.copied_bytes() * tokens)},
          .bound = "memory"};
}

MadeBench MadeParse(bool small) {
  const auto& spec = SyntheticPreset(small ? kDataPreset : "smollm-135m");
  const auto image = std::make_shared<std::vector<std::byte>>(MakeSyntheticImage(spec, 1));
  const auto tensors = std::make_shared<size_t>();
  return {.run =
              [=] {
                // The file keeps its bytes: they go in and a copy stays, which is in the time.
                const auto file = GgufFile::FromBytes(*image, "bench.gguf");
                *tensors = file->tensors().size();
              },
          .digest =
              [=] {
                DigestBuilder builder;
                builder.AddU64(*tensors);
                builder.AddBytes(*image);
                return builder.Finish();
              },
          .work = {.bytes = 2 * static_cast<double>(image->size())},
          .bound = "memory"};
}

MadeBench MadeLoad() {
  const auto file = MakeSyntheticModel(SyntheticPreset(kDataPreset), 1);
  const auto norm = std::make_shared<std::vector<float>>();
  return {.run = [=] { *norm = Model::Load(file)->output_norm(); },
          .digest = [norm] { return DigestOfFloats(*norm); }};
}

MadeBench MadeTokenizer(int32_t words) {
  struct Data {
    std::unique_ptr<const Tokenizer> tokenizer;
    std::string text;
    std::vector<int32_t> ids;
  };
  const auto data = std::make_shared<Data>();
  data->tokenizer = Tokenizer::Load(*MakeSyntheticModel(SyntheticPreset(kDataPreset), 1));
  Random random(6);
  for (int32_t i = 0; i < words; ++i) {
    for (int32_t left = random.Between(1, 9); left > 0; --left) {
      data->text.push_back(static_cast<char>('a' + random.Between(0, 25)));
    }
    data->text.push_back(' ');
  }
  return {.run = [data] { data->ids = data->tokenizer->Encode(data->text); },
          .digest = [data] { return DigestOfBytes(std::as_bytes(std::span(data->ids))); },
          .work = {.bytes = static_cast<double>(data->text.size())}};
}

MadeBench MadeScripts(const std::string& cache, int32_t count) {
  struct Data {
    ScriptSubject subject;
    std::vector<CacheScript> scripts = {};
    ScriptCounts counts = {};
  };
  const auto data = std::make_shared<Data>(Data{.subject = RegisteredSubject(cache)});
  Random random(8);
  for (int32_t i = 0; i < count; ++i) {
    data->scripts.push_back(GenerateScript(cache, random.Next(), 60));
  }
  return {.run =
              [data] {
                data->counts = {};
                for (const CacheScript& script : data->scripts) {
                  data->counts += RunScript(script, data->subject).counts;
                }
              },
          .digest =
              [data] {
                DigestBuilder builder;
                builder.AddU64(static_cast<uint64_t>(data->counts.operations));
                builder.AddU64(static_cast<uint64_t>(data->counts.rows_compared));
                return builder.Finish();
              }};
}

}  // namespace

std::vector<BenchEntry> DataEntries(bool small) {
  std::vector<BenchEntry> entries;
  for (const RowType type : {RowType::kF16, RowType::kBf16, RowType::kQ8_0, RowType::kQ4_0}) {
    const int64_t elements = small ? 64 : int64_t{1} << 22;
    entries.push_back(Named(fmt::format("codec/decode_{}", RowTypeName(type)),
                            [=] { return MadeDecodeRow(type, elements); }));
  }
  for (const char* cache : {"simple", "paged/16", "quantized/q8_0+q8_0/w4"}) {
    entries.push_back(Named("digest/" + BenchWord(cache),
                            [=] { return MadeCacheDigest(cache, small ? 2 : 64); }));
  }
  entries.push_back(Named("load/gguf", [=] { return MadeParse(small); }));
  entries.push_back(Named("load/model", MadeLoad));
  entries.push_back(Named("tokenizer/encode", [=] { return MadeTokenizer(small ? 4 : 400); }));
  for (const char* cache : {"simple", "paged/4", "quantized/q8_0+q8_0/w4"}) {
    entries.push_back(
        Named("scripts/" + BenchWord(cache), [=] { return MadeScripts(cache, small ? 2 : 20); }));
  }
  return entries;
}

}  // namespace lockstep::internal
