// Another engine's opinion of what a model computes: llama.cpp's, or that of any engine that speaks
// the engine protocol. What lockstep's own reference has wrong in the same way as the engine, this
// sees.
//
// Both are given the same tokens one by one, random ones, then those that lockstep chooses
// greedily, and after each both say how likely every token of the vocabulary is. They do it twice:
//
//   twin     on the model in F32: the matrices decoded by lockstep, the token embeddings as they
//            are. Neither side rounds an activation, so both compute the same function, and the
//            distributions agree but for the order of additions: kTwinLogMax. The peer also goes on
//            alone behind the random tokens, and has to choose the same ones, but where lockstep
//            holds the two nearly even.
//   stored   on the file as it is. Engines round activations, each in its own way, where they meet
//            narrow weights, so that both are off the function of the twin. What is checked is that
//            lockstep's rounding costs no more than the peer's: PeerBound.
//
// And both turn the same texts into token ids, which have to be equal.
#ifndef LOCKSTEP_REPORTS_PEER_CHECK_H_
#define LOCKSTEP_REPORTS_PEER_CHECK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"
#include "engine/synthetic.h"
#include "reports/peer_engine.h"
#include "reports/peer_plants.h"
#include "reports/table.h"

namespace lockstep {

// |ln p - ln q| of any token on the twin; the models of the tests show up to 5e-4.
inline constexpr double kTwinLogMax = 1e-3;
// The same for models with GELU, which llama.cpp looks up in a table of F16 values by an argument
// rounded to F16. They show up to 0.034, and 0.003 when lockstep rounds there too.
inline constexpr double kTwinLogMaxGelu = 0.1;

// On weights as stored.
struct PeerBound {
  GgmlType type = GgmlType::kF32;  // of the weights
  // How much farther than the peer's lockstep's distributions may be from the twin's, in the mean
  // of |ln p - ln q| over all tokens and positions.
  double rounding = 0;
  std::string_view why;  // what rounds, on both sides
};

// All bounds, in the order of GgmlType.
std::span<const PeerBound> PeerBounds();
// Of the types of a model's matrices, the one that allows most. REQUIRES: types with traits.
const PeerBound& PeerBoundOf(const GgufFile& file);

// What llama.cpp is known to make of a model, and nothing else is excused: token ids and whatever
// else is compared have to be equal all the same.
struct PeerKnown {
  enum class Kind : uint8_t {
    kNothing,
    kRefuses,     // it does not load the model, and says `text`
    kIgnoresKey,  // it computes the model without the metadata key `text`: so do we, for this once
  };
  Kind kind = Kind::kNothing;
  std::string text = {};
  std::string_view why = {};
};

struct PeerCheckModel {
  std::string name;                      // as a report names it
  std::string path;                      // of the file that the peer reads
  std::shared_ptr<const GgufFile> file;  // the same
  PeerKnown known = {};                  // of llama.cpp; any other peer differs where this does
};

// The preset's image for `seed`, written below `folder`.
PeerCheckModel SyntheticPeerModel(const SyntheticSpec& spec, uint64_t seed,
                                  const std::string& folder);

struct PeerCheckOptions {
  std::vector<std::string> command;  // the engine
  int timeout_seconds = 120;
  std::vector<EngineOption> options = {{"kv", "f32"}};  // those that the engine has are given
  int32_t random_tokens = 24;
  int32_t greedy_tokens = 24;
  uint64_t seed = 1;                        // of the random tokens
  std::optional<PeerPlantKind> plant = {};  // a fault of ours that has to be found
  std::function<void(const std::string& text)> on_progress = {};  // may be empty
};

// Of two sequences of distributions, position by position.
struct PeerDistance {
  int32_t positions = 0;
  int64_t tokens = 0;                // compared, over all positions
  int64_t left_out = 0;              // held to be too unlikely by both
  double log_max = 0, log_mean = 0;  // |ln p - ln q|
  double kl_max = 0, kl_mean = 0;    // nats a position
  int32_t likeliest_equal = 0;       // positions
};

struct PeerCheckRow {
  enum class Verdict : uint8_t {
    kHolds,
    kDiffers,  // a bound is passed, or ids differ, or the engine failed
    kKnown,    // it differs as PeerKnown says, and in no other way
  };

  std::string model, architecture, weights;
  Verdict verdict = Verdict::kDiffers;
  std::string detail = {};           // what differs or why it was refused, one sentence
  const PeerBound* bound = nullptr;  // nullptr: a vocabulary alone
  double twin_bound = kTwinLogMax;
  PeerDistance twin = {}, stored = {};                  // ours from theirs
  PeerDistance our_rounding = {}, their_rounding = {};  // of each side, stored from twin
  int32_t greedy_equal = 0;  // tokens of the twin that the peer chose alone, until one differs
  int32_t greedy_tokens = 0;
  double greedy_gap = 0;  // by how much lockstep prefers its token there
  // Known: llama.cpp takes tokens for control tokens by their text, whatever the file says of them.
  int32_t texts_equal = 0, texts_known = 0, texts = 0;
};

struct PeerCheckResult {
  std::string engine;  // as it says
  uint64_t seed = 0;
  std::vector<PeerCheckRow> rows;

  bool differs() const;   // some row does
  bool compared() const;  // some row holds
};

// Models that a plant does not change are left out. Throws Error when the engine cannot be started
// or is none, for a model that lockstep does not read, and when a plant changes no model. A peer
// that crashes or hangs is a row's detail; the next model meets a new process.
PeerCheckResult RunPeerCheck(std::span<const PeerCheckModel> models,
                             const PeerCheckOptions& options);

// Texts that tokenizers disagree about. Valid UTF-8.
std::span<const std::string_view> AwkwardTexts();

Table PeerCheckTable(const PeerCheckResult& result);
Table PeerBoundTable();
std::string PeerCheckMarkdown(const PeerCheckResult& result, const std::string& command);
std::string PeerCheckJson(const PeerCheckResult& result, const std::string& command);
// One sentence: "HOLDS: 25 models ...".
std::string PeerCheckVerdict(const PeerCheckResult& result);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_PEER_CHECK_H_
