#include "engine/tokenizer/user_tokens.h"

#include <functional>
#include <map>
#include <utility>

#include "engine/tokenizer/merge.h"

namespace lockstep {

UserTokens::UserTokens(const Vocabulary& vocabulary) {
  std::map<size_t, Level, std::greater<>> by_length;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id];
    if (vocabulary.kinds[id] != TokenKind::kUserDefined || token.empty()) continue;
    Level& level = by_length[token.size()];
    level.length = token.size();
    level.first_bytes.set(static_cast<uint8_t>(token[0]));
    level.tokens.emplace(token, static_cast<int32_t>(id));
  }
  for (auto& [length, level] : by_length) levels_.push_back(std::move(level));
}

std::vector<UserTokens::Run> UserTokens::Split(std::string_view text) const {
  if (text.empty()) return {};
  std::vector<Run> runs = {{text, kNoToken}};
  std::vector<Run> finer;
  for (const Level& level : levels_) {
    finer.clear();
    for (const Run& run : runs) {
      if (run.token != kNoToken || run.text.size() < level.length) {
        finer.push_back(run);
      } else {
        Place(level, run.text, &finer);
      }
    }
    runs.swap(finer);
  }
  return runs;
}

void UserTokens::Place(const Level& level, std::string_view text, std::vector<Run>* runs) {
  size_t plain = 0;  // where the plain text before `at` begins
  for (size_t at = 0; at + level.length <= text.size();) {
    const std::string_view candidate = text.substr(at, level.length);
    const auto found = level.first_bytes.test(static_cast<uint8_t>(candidate[0]))
                           ? level.tokens.find(candidate)
                           : level.tokens.end();
    if (found == level.tokens.end()) {
      ++at;
      continue;
    }
    if (at > plain) runs->push_back({text.substr(plain, at - plain), kNoToken});
    runs->push_back({candidate, found->second});
    at += level.length;
    plain = at;
  }
  if (plain < text.size()) runs->push_back({text.substr(plain), kNoToken});
}

}  // namespace lockstep
