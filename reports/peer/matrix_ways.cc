#include "reports/peer/matrix_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "caches/random.h"

namespace lockstep::internal {
namespace {

using Tokens = std::span<const int32_t>;

int32_t Size(Tokens tokens) { return static_cast<int32_t>(tokens.size()); }

// tokens[first, last) on a sequence, one by one; each is recorded where `records`.
void OneByOne(const WayInput& in, int32_t sequence, Tokens tokens, int32_t first, int32_t last,
              bool records) {
  for (int32_t position = first; position < last; ++position) {
    const std::vector<float> values =
        in.session.Step(EngineRows{.sequence = sequence,
                                   .position = position,
                                   .tokens = tokens.subspan(static_cast<size_t>(position), 1),
                                   .output = records});
    if (records) in.record(position, values);
  }
}

void Text(const WayInput& in) { OneByOne(in, 0, in.text, 0, Size(in.text), true); }

// Steps of next() tokens, then the last few one by one: what they read is what the steps wrote.
void InChunks(const WayInput& in, const std::function<int32_t()>& next) {
  constexpr int32_t kAlone = 8;
  const int32_t end = Size(in.text) - kAlone;
  for (int32_t position = 0; position < end;) {
    const int32_t count = std::min(next(), end - position);
    const EngineRows rows{
        .position = position,
        .tokens = in.text.subspan(static_cast<size_t>(position), static_cast<size_t>(count))};
    in.record(position + count - 1, in.session.Step(rows));
    position += count;
  }
  OneByOne(in, 0, in.text, end, Size(in.text), true);
}

// Each step has a token of the text at `place` among those of two other texts.
void InBatch(const WayInput& in, size_t place) {
  const size_t count = 3;
  std::array<Tokens, count> texts = {in.other[0], in.other[1], {}};
  std::rotate(texts.begin() + static_cast<int64_t>(place), texts.end() - 1, texts.end());
  texts[place] = in.text;
  for (int32_t position = 0; position < Size(in.text); ++position) {
    std::vector<EngineRows> rows;
    for (size_t i = 0; i < count; ++i) {
      rows.push_back({.sequence = static_cast<int32_t>(i),
                      .position = position,
                      .tokens = texts[i].subspan(static_cast<size_t>(position), 1)});
    }
    in.record(position, in.session.Step(rows)[place]);
  }
}

// Each step has a token of the text behind a prompt of another sequence.
void BesidePrompts(const WayInput& in) {
  const int32_t prompt = std::min(16, Size(in.text));
  for (int32_t position = 0; position < Size(in.text); ++position) {
    const std::array rows = {
        EngineRows{.sequence = 1, .tokens = in.other[0].first(static_cast<size_t>(prompt))},
        EngineRows{.position = position,
                   .tokens = in.text.subspan(static_cast<size_t>(position), 1)}};
    in.record(position, in.session.Step(rows)[1]);
    in.session.Rollback(1, 0);
  }
}

// Every third position is first written with `rejected` other tokens, which are taken back.
void WithRejected(const WayInput& in, int32_t rejected) {
  for (int32_t position = 0; position < Size(in.text); ++position) {
    if (position % 3 == 1 && position + rejected <= Size(in.text)) {
      OneByOne(in, 0, in.other[0], position, position + rejected, false);
      in.session.Rollback(0, position);
    }
    OneByOne(in, 0, in.text, position, position + 1, true);
  }
}

void AllAgain(const WayInput& in) {
  OneByOne(in, 0, in.other[0], 0, Size(in.text), false);
  in.session.Rollback(0, 0);
  Text(in);
}

// Half of the text, a fork, and then the other half on `subject`, while the other of the two goes
// on with another text.
void Forked(const WayInput& in, int32_t subject, bool ends_first) {
  const int32_t half = Size(in.text) / 2;
  OneByOne(in, 0, in.text, 0, half, true);
  in.session.Fork(0, 1);
  const int32_t other = 1 - subject;
  if (ends_first) {
    in.session.Rollback(other, 0);
    OneByOne(in, other, in.other[0], 0, Size(in.text), false);
  }
  for (int32_t position = half; position < Size(in.text); ++position) {
    if (!ends_first) OneByOne(in, other, in.other[0], position, position + 1, false);
    OneByOne(in, subject, in.text, position, position + 1, true);
  }
}

// Half of the text, a request that has to be refused, and the other half as if nothing was.
void Refusing(const WayInput& in, const std::string& request) {
  const int32_t half = Size(in.text) / 2;
  OneByOne(in, 0, in.text, 0, half, true);
  if (in.session.ErrorOf(request).empty()) throw WrongAnswer("it was not refused: " + request);
  OneByOne(in, 0, in.text, half, Size(in.text), true);
}

void AddChunks(std::vector<Way>* ways) {
  for (const int32_t chunk : {2, 7, 16}) {
    ways->push_back({.axis = "chunking", .value = fmt::format("{}", chunk), .run = [=](auto& in) {
                       InChunks(in, [=] { return chunk; });
                     }});
  }
  ways->push_back({.axis = "chunking", .value = "whole", .run = [](const WayInput& in) {
                     InChunks(in, [] { return INT32_MAX; });
                   }});
  ways->push_back({.axis = "chunking", .value = "random", .run = [](const WayInput& in) {
                     Random random = Random(in.seed).Split(1);
                     InChunks(in, [&] { return random.Between(1, 20); });
                   }});
}

void AddRefusals(std::vector<Way>* ways) {
  // The text is half written then: no position but its length is right.
  const std::pair<const char*, const char*> refusals[] = {
      {"unknown key", R"({"do":"reset","really":true})"},
      {"unknown request", R"({"do":"forget"})"},
      {"position too far",
       R"({"do":"step","rows":[{"sequence":0,"position":100000,"tokens":[1],"output":false}]})"},
      {"position again",
       R"({"do":"step","rows":[{"sequence":0,"position":0,"tokens":[1],"output":false}]})"},
      {"unknown token",
       R"({"do":"step","rows":[{"sequence":0,"position":LENGTH,"tokens":[1,16777216],)"
       R"("output":false}]})"},
      {"rollback ahead", R"({"do":"rollback","sequence":0,"length":100000})"},
      {"unknown sequence", R"({"do":"rollback","sequence":1,"length":0})"},
  };
  for (const auto& [value, text] : refusals) {
    ways->push_back(
        {.axis = "refusals", .value = value, .run = [text = std::string(text)](const WayInput& in) {
           std::string request = text;
           const size_t at = request.find("LENGTH");
           if (at != request.npos) request.replace(at, 6, fmt::format("{}", in.text.size() / 2));
           Refusing(in, request);
         }});
  }
}

}  // namespace

std::vector<Way> AllWays(std::span<const int32_t> threads) {
  std::vector<Way> ways;
  ways.push_back({.axis = "repeat", .value = "after reset", .run = [](const WayInput& in) {
                    OneByOne(in, 0, in.other[0], 0, Size(in.text), false);
                    in.session.Reset();
                    Text(in);
                  }});
  ways.push_back({.axis = "repeat", .value = "loaded again", .run = [](const WayInput& in) {
                    OneByOne(in, 0, in.other[0], 0, Size(in.text) / 2, false);
                    in.load();
                    Text(in);
                  }});
  ways.push_back({.axis = "repeat", .value = "another process", .run = Text, .new_process = true});
  AddChunks(&ways);
  for (const int32_t count : threads) {
    ways.push_back(
        {.axis = "threads", .value = fmt::format("{}", count), .run = Text, .threads = count});
  }
  constexpr std::array kPlaces = {"first of 3", "middle of 3", "last of 3"};
  for (size_t place = 0; place < kPlaces.size(); ++place) {
    ways.push_back({.axis = "batch",
                    .value = kPlaces[place],
                    .run = [place](const WayInput& in) { InBatch(in, place); },
                    .sequences = 3});
  }
  ways.push_back(
      {.axis = "batch", .value = "behind prompts", .run = BesidePrompts, .sequences = 2});
  for (const int32_t rejected : {1, 3}) {
    ways.push_back({.axis = "rollback",
                    .value = fmt::format("{} rejected", rejected),
                    .run = [rejected](const WayInput& in) { WithRejected(in, rejected); }});
  }
  ways.push_back({.axis = "rollback", .value = "all again", .run = AllAgain});
  const auto add_fork = [&](const char* value, int32_t subject, bool ends_first) {
    ways.push_back({.axis = "fork",
                    .value = value,
                    .run = [=](const WayInput& in) { Forked(in, subject, ends_first); },
                    .sequences = 2,
                    .needs_fork = true});
  };
  add_fork("parent", 0, false);
  add_fork("child", 1, false);
  add_fork("child alone", 1, true);
  AddRefusals(&ways);
  return ways;
}

}  // namespace lockstep::internal
