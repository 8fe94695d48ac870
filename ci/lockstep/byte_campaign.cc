#include "ci/lockstep/byte_campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "caches/digest.h"
#include "caches/error.h"
#include "properties/isolated_run.h"

namespace lockstep::cli {
namespace {

constexpr int32_t kBatchSecondsMax = 120;
constexpr int32_t kInputSecondsMax = 10;
constexpr int64_t kCanaryInputs = 20000;
constexpr size_t kNewBytesMax = 400;
constexpr size_t kBytesMax = 4096;

// What crosses the process border: the input's number in its batch, the place, the sentence.
std::string Message(size_t index, const FuzzFinding& finding) {
  return fmt::format("{}\n{}\n{}", index, finding.place, finding.what);
}

struct Told {
  size_t index = 0;
  FuzzFinding finding;
};

std::optional<Told> ParseMessage(const std::string& text) {
  const size_t first = text.find('\n');
  const size_t second = text.find('\n', first + 1);
  if (first == text.npos || second == text.npos) return std::nullopt;
  Told told;
  std::from_chars(text.data(), text.data() + first, told.index);
  told.finding = {text.substr(first + 1, second - first - 1), text.substr(second + 1)};
  return told;
}

using End = IsolatedResult::End;

std::optional<FuzzFinding> FindingOf(const IsolatedResult& result) {
  if (result.end == End::kSignal) {
    return FuzzFinding{"a crash", "ended by " + SignalName(result.signal)};
  }
  if (result.end == End::kTimeout) {
    return FuzzFinding{"a hang", fmt::format("did not return in {} s", kInputSecondsMax)};
  }
  const auto told = ParseMessage(result.output);
  return told ? std::optional(told->finding) : std::nullopt;
}

std::optional<FuzzFinding> RunAlone(const std::function<std::optional<FuzzFinding>()>& run) {
  return FindingOf(RunIsolated(
      [&] {
        const auto finding = run();
        return finding ? Message(0, *finding) : std::string();
      },
      kInputSecondsMax));
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
      shard_(options.shard) {}

void ByteCampaign::Run(
    int64_t count, const std::function<bool(const FuzzFinding&)>& known,
    const std::function<bool(const FuzzFinding&, const std::string&)>& on_finding) {
  std::vector<std::pair<int64_t, Bytes>> batch;
  for (const int64_t end = drawn_ + count; drawn_ < end; ++drawn_) {
    Bytes input = source_.Next();  // of every shard, so that any shard draws the same ones
    if (shard_.Has(drawn_)) batch.emplace_back(drawn_, std::move(input));
  }
  const auto count_to = [&](size_t first, size_t end, std::string_view place) {
    for (size_t i = first; i < end; ++i) {
      const auto& [number, input] = batch[i];
      const std::string gave = DigestOfBytes(input).Hex();
      result_.Add(number, i + 1 == end ? gave + std::string(place) : gave);
    }
  };
  // Each process goes on behind the input at which the last one ended.
  for (size_t first = 0; first < batch.size();) {
    const IsolatedResult ran = RunIsolated(
        [&]() -> std::string {
          for (size_t i = first; i < batch.size(); ++i) {
            if (const auto finding = target_->Run(batch[i].second)) return Message(i, *finding);
          }
          return "";
        },
        kBatchSecondsMax);
    auto told = ran.end == End::kReturned ? ParseMessage(ran.output) : std::nullopt;
    if (ran.end == End::kReturned && !told) return count_to(first, batch.size(), "");
    for (size_t i = first; !told && i < batch.size(); ++i) {
      if (const auto finding = JudgeAlone(batch[i].second)) told = Told{i, *finding};
    }
    if (!told) {
      throw Error(
          {"fuzz",
           fmt::format("{} inputs crash together and none of them alone", batch.size() - first),
           "run them under the sanitizers (ci/fuzz)"});
    }
    count_to(first, told->index + 1, told->finding.place);
    first = told->index + 1;
    if (!Report(batch.at(told->index).second, told->finding, known, on_finding)) return;
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
      kBatchSecondsMax);
  return result.output == found;
}

}  // namespace lockstep::cli
