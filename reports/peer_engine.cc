#include "reports/peer_engine.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "reports/peer/process.h"

namespace lockstep {
namespace {

using nlohmann::json;

// A line of an answer for a message, cut.
std::string Shown(const std::string& line) {
  constexpr size_t kShown = 200;
  return line.size() <= kShown ? line : line.substr(0, kShown) + "...";
}

}  // namespace

class EngineSession::Impl {
 public:
  Impl(const std::vector<std::string>& argv, int timeout_seconds)
      : name_(argv.at(0)), process_(argv, timeout_seconds) {
    const json answer = Ask({{"do", "hello"}, {"protocol", kEngineProtocolVersion}},
                            {"protocol", "engine", "values", "can", "options"});
    if (Int(answer, "protocol") != kEngineProtocolVersion) Fail("speaks another protocol");
    hello_.engine = Text(answer, "engine");
    const std::string values = Text(answer, "values");
    if (values != "logits" && values != "probabilities") Fail("'values' is " + Shown(values));
    hello_.probabilities = values == "probabilities";
    for (const std::string& what : Texts(answer, "can")) {
      if (what != "fork" && what != "tokenize") Fail("'can' holds " + Shown(what));
      (what == "fork" ? hello_.can_fork : hello_.can_tokenize) = true;
    }
    hello_.options = Texts(answer, "options");
  }

  const EngineHello& hello() const { return hello_; }

  int32_t Load(const EngineLoad& load) {
    json options = json::object();
    for (const EngineOption& option : load.options) options[option.name] = option.value;
    const json answer = Ask({{"do", "load"},
                             {"model", load.model},
                             {"positions", load.positions},
                             {"sequences", load.sequences},
                             {"threads", load.threads},
                             {"options", std::move(options)}},
                            {"vocabulary"});
    const int64_t vocabulary = Int(answer, "vocabulary");
    if (vocabulary < 1 || vocabulary > (1 << 24)) Fail("loaded a vocabulary of no size");
    vocabulary_ = static_cast<int32_t>(vocabulary);
    return vocabulary_;
  }

  std::vector<std::vector<float>> Step(std::span<const EngineRows> rows) {
    json list = json::array();
    size_t outputs = 0;
    for (const EngineRows& of_one : rows) {
      list.push_back({{"sequence", of_one.sequence},
                      {"position", of_one.position},
                      {"tokens", std::vector<int32_t>(of_one.tokens.begin(), of_one.tokens.end())},
                      {"output", of_one.output}});
      outputs += of_one.output ? 1 : 0;
    }
    const json answer = Ask({{"do", "step"}, {"rows", std::move(list)}}, {"bytes"});
    const size_t row_bytes = static_cast<size_t>(vocabulary_) * sizeof(float);
    if (Int(answer, "bytes") != static_cast<int64_t>(outputs * row_bytes)) {
      Fail(fmt::format("gives {} bytes where {} rows of {} values were asked for",
                       Int(answer, "bytes"), outputs, vocabulary_));
    }
    const std::vector<std::byte> bytes =
        Guarded([&] { return process_.ReadBytes(outputs * row_bytes); });
    std::vector<std::vector<float>> values(outputs,
                                           std::vector<float>(static_cast<size_t>(vocabulary_)));
    static_assert(std::endian::native == std::endian::little);
    for (size_t i = 0; i < outputs; ++i) {
      std::memcpy(values[i].data(), bytes.data() + i * row_bytes, row_bytes);
    }
    return values;
  }

  std::vector<int32_t> Tokenize(std::string_view text) {
    const json answer = Ask({{"do", "tokenize"}, {"text", text}}, {"tokens"});
    std::vector<int32_t> tokens;
    if (!answer["tokens"].is_array()) Fail("'tokens' is no array");
    for (const json& token : answer["tokens"]) {
      if (!token.is_number_integer()) Fail("a token is no whole number");
      tokens.push_back(token.get<int32_t>());
    }
    return tokens;
  }

  // The answer's object, which has "id" and `keys` and nothing else, or "id" and "error".
  json Ask(json request, const std::vector<std::string>& keys) {
    json answer = AskAnything(std::move(request));
    const std::string line = answer.dump();
    for (const std::string& key : keys) {
      if (!answer.contains(key)) Fail(fmt::format("answered without '{}': {}", key, Shown(line)));
    }
    if (answer.size() != keys.size() + 1) {
      Fail("answered with keys that the protocol does not have: " + Shown(line));
    }
    return answer;
  }

  // An answer that is no error, with any keys.
  json AskAnything(json request) {
    request["id"] = ++id_;
    // Text that is no UTF-8 goes over as U+FFFD.
    const std::string line = Guarded(
        [&] { return process_.Ask(request.dump(-1, ' ', false, json::error_handler_t::replace)); });
    json answer = json::parse(line, nullptr, false);
    if (!answer.is_object()) Fail("answered " + Shown(line));
    if (!answer.contains("id") || answer["id"] != id_) Fail("answered without the id: " + line);
    if (answer.contains("error")) {
      if (answer.size() != 2 || !answer["error"].is_string()) Fail("answered " + Shown(line));
      throw EngineRefusal({name_, answer["error"].get<std::string>(), ""});
    }
    return answer;
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const { throw EngineFailure({name_, what, ""}); }

  template <typename Talk>
  std::invoke_result_t<Talk> Guarded(const Talk& talk) const {
    try {
      return talk();
    } catch (const internal::ProcessFailure& failure) {
      throw EngineFailure(failure.parts());
    }
  }

  int64_t Int(const json& answer, const char* key) const {
    if (!answer[key].is_number_integer()) Fail(fmt::format("'{}' is no whole number", key));
    return answer[key].get<int64_t>();
  }

  std::string Text(const json& answer, const char* key) const {
    if (!answer[key].is_string()) Fail(fmt::format("'{}' is no text", key));
    return answer[key].get<std::string>();
  }

  std::vector<std::string> Texts(const json& answer, const char* key) const {
    std::vector<std::string> texts;
    if (!answer[key].is_array()) Fail(fmt::format("'{}' is no array", key));
    for (const json& text : answer[key]) {
      if (!text.is_string()) Fail(fmt::format("'{}' holds something else than text", key));
      texts.push_back(text.get<std::string>());
    }
    return texts;
  }

  std::string name_;
  internal::LineProcess process_;
  EngineHello hello_;
  int64_t id_ = 0;
  int32_t vocabulary_ = 0;
};

EngineSession::EngineSession(const std::vector<std::string>& argv, int timeout_seconds)
    : impl_(std::make_unique<Impl>(argv, timeout_seconds)) {}
EngineSession::~EngineSession() = default;

const EngineHello& EngineSession::hello() const { return impl_->hello(); }
int32_t EngineSession::Load(const EngineLoad& load) { return impl_->Load(load); }

std::vector<std::vector<float>> EngineSession::Step(std::span<const EngineRows> rows) {
  return impl_->Step(rows);
}

std::vector<float> EngineSession::Step(const EngineRows& rows) {
  std::vector<std::vector<float>> values = impl_->Step({&rows, 1});
  return values.empty() ? std::vector<float>() : std::move(values.front());
}

void EngineSession::Rollback(int32_t sequence, int32_t length) {
  impl_->Ask({{"do", "rollback"}, {"sequence", sequence}, {"length", length}}, {});
}

void EngineSession::Fork(int32_t from, int32_t to) {
  impl_->Ask({{"do", "fork"}, {"from", from}, {"to", to}}, {});
}

void EngineSession::Reset() { impl_->Ask({{"do", "reset"}}, {}); }

std::vector<int32_t> EngineSession::Tokenize(std::string_view text) {
  return impl_->Tokenize(text);
}

std::string EngineSession::ErrorOf(const std::string& request) {
  try {
    impl_->AskAnything(json::parse(request));
  } catch (const EngineRefusal& refusal) {
    return refusal.parts().what;
  }
  return "";
}

}  // namespace lockstep
