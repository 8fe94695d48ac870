#include "ci/lockstep/byte_campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "caches/digest.h"
#include "caches/error.h"
#include "properties/isolated_run.h"

namespace lockstep::cli {
namespace {

constexpr int32_t kCanarySecondsMax = 120;
constexpr int64_t kCanaryInputs = 20000;
constexpr size_t kNewBytesMax = 400;
constexpr size_t kBytesMax = 4096;
constexpr size_t kSentenceMax = 1000;  // so that those of a batch fit through the border

// What crosses the process border: the place and the sentence; nothing where nothing is found.
std::string Message(const std::optional<FuzzFinding>& finding) {
  if (!finding) return "";
  return fmt::format("{}\n{}", finding->place, finding->what.substr(0, kSentenceMax));
}

std::optional<FuzzFinding> ParseMessage(const std::string& text) {
  const size_t end = text.find('\n');
  if (end == text.npos) return std::nullopt;
  return FuzzFinding{text.substr(0, end), text.substr(end + 1)};
}

}  // namespace

Bytes ByteSource::Next() {
  Bytes bytes;
  if (corpus_.empty() || random_.Below(4) == 0) {
    bytes.resize(1 + random_.Below(1 + random_.Below(kNewBytesMax)));
    // Small numbers mean something more often than large ones.
    const uint32_t bound = random_.Below(4) == 0 ? 16 : 256;
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_.Below(bound));
    return bytes;
  }
  bytes = corpus_[random_.Below(static_cast<uint32_t>(corpus_.size()))];
  for (uint32_t changes = 1 + random_.Below(5); changes > 0; --changes) Change(&bytes);
  if (bytes.size() > kBytesMax) bytes.resize(kBytesMax);
  return bytes;
}

void ByteSource::Change(Bytes* bytes) {
  const auto size = static_cast<uint32_t>(bytes->size());
  const uint32_t at = random_.Below(size + 1);
  const uint32_t count = std::min(1 + random_.Below(16), size - at);
  const auto place = bytes->begin() + at;
  switch (random_.Below(5)) {
    case 0:
      bytes->insert(place, static_cast<std::byte>(random_.Below(256)));
      return;
    case 1:
      bytes->erase(place, place + count);
      return;
    case 2: {
      const Bytes piece(place, place + count);
      bytes->insert(bytes->begin() + random_.Below(size + 1), piece.begin(), piece.end());
      return;
    }
    case 3: {
      const Bytes& other = corpus_[random_.Below(static_cast<uint32_t>(corpus_.size()))];
      const uint32_t from = random_.Below(static_cast<uint32_t>(other.size()) + 1);
      bytes->resize(at);
      bytes->insert(bytes->end(), other.begin() + from, other.end());
      return;
    }
    default:
      if (at < size) (*bytes)[at] ^= static_cast<std::byte>(1u << random_.Below(8));
      return;
  }
}

std::vector<Bytes> ReadCorpus(const std::string& folder, std::string_view target) {
  std::vector<std::string> paths;
  std::error_code error;
  const std::filesystem::path place = std::filesystem::path(folder) / target;
  for (const auto& entry : std::filesystem::directory_iterator(place, error)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) throw Error({path, "cannot be read", "give a folder of readable files"});
    const auto bytes = std::as_bytes(std::span(text));
    corpus.emplace_back(bytes.begin(), bytes.end());
  }
  return corpus;
}

ByteCampaign::ByteCampaign(const FuzzTargetInfo& info, ByteCampaignOptions options)
    : target_(info.make({.plant = options.plant})),
      source_(options.seed, std::move(options.corpus)),
      shard_(options.shard),
      input_ms_(options.input_ms) {}

void ByteCampaign::Run(
    int64_t count, const std::function<bool(const FuzzFinding&)>& known,
    const std::function<bool(const FuzzFinding&, const std::string&)>& on_finding) {
  std::vector<std::pair<int64_t, Bytes>> batch;
  for (const int64_t end = drawn_ + count; drawn_ < end; ++drawn_) {
    Bytes input = source_.Next();  // of every shard, so that any shard draws the same ones
    if (shard_.Has(drawn_)) batch.emplace_back(drawn_, std::move(input));
  }
  // Each process goes on behind the input at which the last one ended.
  for (size_t first = 0; first < batch.size();) {
    const IsolatedBatch ran = RunIsolatedBatch(
        static_cast<int32_t>(batch.size() - first),
        [&](int32_t i) {
          return Message(target_->Run(batch[first + static_cast<size_t>(i)].second));
        },
        input_ms_);
    const auto take = [&](const std::optional<FuzzFinding>& finding) {
      const auto& [number, input] = batch[first++];
      const std::string gave = DigestOfBytes(input).Hex();
      result_.Add(number, finding ? gave + finding->place : gave);
      return !finding || Report(input, *finding, known, on_finding);
    };
    for (const std::string& output : ran.outputs) {
      if (!take(ParseMessage(output))) return;
    }
    if (ran.end.kind == IsolatedEnd::Kind::kReturned || first == batch.size()) return;
    const auto finding = JudgeAlone(batch[first].second);
    // One that was only slow, since the machine was busy with others, is none.
    if (!finding && ran.end.kind != IsolatedEnd::Kind::kTimeout) {
      throw Error({"fuzz",
                   fmt::format("an input {} after {} others, and holds alone", ran.end.Text(),
                               ran.outputs.size()),
                   "run the campaign under the sanitizers (ci/fuzz)"});
    }
    if (!take(finding)) return;
  }
}

std::optional<FuzzFinding> ByteCampaign::RunAlone(
    const std::function<std::optional<FuzzFinding>()>& run) const {
  const IsolatedCall call = RunIsolatedCall([&] { return Message(run()); }, input_ms_);
  switch (call.end.kind) {
    case IsolatedEnd::Kind::kReturned:
      return ParseMessage(call.output);
    case IsolatedEnd::Kind::kTimeout:
      return FuzzFinding{"a hang", fmt::format("did not return in {} ms", input_ms_)};
    default:
      return FuzzFinding{"a crash", call.end.Text()};
  }
}

std::optional<FuzzFinding> ByteCampaign::JudgeText(const std::string& text) const {
  return RunAlone([&] { return target_->RunText(text, "input"); });
}

std::optional<FuzzFinding> ByteCampaign::JudgeAlone(const Bytes& input) const {
  return RunAlone([&] { return target_->Run(input); });
}

bool ByteCampaign::Report(
    const Bytes& input, const FuzzFinding& finding,
    const std::function<bool(const FuzzFinding&)>& known,
    const std::function<bool(const FuzzFinding&, const std::string&)>& on_finding) const {
  if (known(finding)) return true;
  const FuzzJudge judge = [&](const std::string& text) { return JudgeText(text); };
  const std::string text = target_->Shrink(target_->Text(input), judge);
  return on_finding(JudgeText(text).value_or(finding), text);
}

bool FindsCanary(const FuzzTargetInfo& info, uint64_t seed) {
  const std::string found = "found";
  const IsolatedResult result = RunIsolated(
      [&] {
        ByteSource source(seed, {});
        const auto target = info.make({.plant = std::string(info.canary)});
        for (int64_t i = 0; i < kCanaryInputs; ++i) {
          if (target->Run(source.Next())) return found;
        }
        return std::string();
      },
      kCanarySecondsMax);
  return result.output == found;
}

}  // namespace lockstep::cli
