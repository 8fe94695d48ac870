// What waits for a decision: golden files that would change, appear or go, found on the disk
// without running anything.
#ifndef LOCKSTEP_GOLDEN_PENDING_H_
#define LOCKSTEP_GOLDEN_PENDING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "golden/facts.h"
#include "golden/ledger.h"
#include "golden/publish.h"
#include "golden/store.h"

namespace lockstep {

struct PendingGolden {
  enum class Kind : uint8_t {
    kNew,          // a pending file, and no golden file
    kChanged,      // both
    kRemoved,      // a golden file that no case produces, or one that the ledger alone knows
    kUnaccounted,  // a golden file without a pending one, whose reason the ledger lacks
  };
  Kind kind = Kind::kChanged;
  GoldenPlace place;
  std::string text = {};                  // that would be the golden file's; empty: kRemoved
  std::optional<GoldenFile> before = {};  // nothing: there is none, or it cannot be read
  std::optional<GoldenFile> after = {};   // nothing: kRemoved
  std::vector<FactChange> changes = {};   // between the two, where both are there
};

// By case and file. Throws Error for what cannot be read: a case.toml, the ledger, a pending file.
std::vector<PendingGolden> FindPending(const GoldenTree& tree, const Ledger& ledger);

// Golden files that are there, pending, or in the ledger.
std::vector<GoldenPlace> GoldenPlaces(const GoldenTree& tree, const Ledger& ledger);

// Whether the name chooses the file: "gqa" every file of the case, "gqa/f32.golden" or "gqa/f32"
// one.
bool ChoosesGolden(std::string_view name, const GoldenName& golden);

// Those of `all` that `names` choose. Throws Error for a name that chooses none.
std::vector<PendingGolden> ChoosePending(std::span<const PendingGolden> all,
                                         std::span<const std::string> names);

// ---- For people who decide ----------------------------------------------------------------

// "  topic    text\n", broken between words so that no line is longer than 100 characters.
std::string TopicText(std::string_view topic, std::string_view text);

// "gqa/f32.golden: 212 of 431 facts change".
std::string PendingTitle(const PendingGolden& pending);

// What a change consists of, some lines, each ended: the first place, how many facts by step, layer
// and kind of fact, tokens and values before and after. With `detail` every fact, a line each.
std::string PendingText(const PendingGolden& pending, bool detail);

// All of them for a pull request, in Markdown. `reason` and `author` may be empty: not yet
// accepted.
std::string PendingMarkdown(std::span<const PendingGolden> all, const Acceptance& acceptance);

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_PENDING_H_
