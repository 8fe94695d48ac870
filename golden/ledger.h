// The ledger: why each golden file is what it is. One JSON object a line, in the order of
// acceptance; lines are added at the end, and none is changed or removed:
//
//   {"date":"2026-11-30T10:00:00Z","author":"Ada <ada@example.org>","case":"gqa","file":
//    "f32.golden","old":"none","new":"<32 hex digits>","reason":"first recording of the case",
//    "issue":"12","arithmetic":1,"previous":"<32 hex digits>","digest":"<32 hex digits>"}
//
// "issue" may be absent. `digest` is that of the line without it, `previous` the digest of the line
// before, so that a line that was edited, removed or put elsewhere shows. What was cut off at the
// end shows in the golden files: they are not what the ledger says last (CompareWithLedger).
#ifndef LOCKSTEP_GOLDEN_LEDGER_H_
#define LOCKSTEP_GOLDEN_LEDGER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Stands for the digest of a golden file that is not there.
inline constexpr std::string_view kNoGolden = "none";

// XXH3-128 of a golden file's text in hex.
std::string GoldenTextDigest(std::string_view text);

// A golden file as the ledger names it: the case and the file in its folder.
struct GoldenName {
  std::string scenario;  // "gqa"
  std::string file;      // "f32.golden"

  std::string Text() const { return scenario + "/" + file; }
  friend auto operator<=>(const GoldenName&, const GoldenName&) = default;
};

// One acceptance of one golden file.
struct LedgerEntry {
  std::string date;    // UTC, to the second: "2026-11-30T10:00:00Z"
  std::string author;  // "Ada <ada@example.org>"
  GoldenName golden;
  std::string old_digest;  // what the ledger said of the file before; kNoGolden at first
  std::string new_digest;  // kNoGolden: the file was removed
  std::string reason;
  std::string issue;          // empty: none
  int32_t arithmetic = 0;     // kArithmeticVersion of the binary that accepted it
  std::string previous = {};  // filled in by Append
  std::string digest = {};    // the same

  friend bool operator==(const LedgerEntry&, const LedgerEntry&) = default;
};

class Ledger {
 public:
  // Every line is checked: form, order of the keys, chain, and that each `old` is what the ledger
  // said of the file before. Throws Error with `where`, line and remedy.
  static Ledger Parse(std::string_view text, const std::string& where);
  // An absent file is an empty ledger.
  static Ledger Read(const std::string& path);

  // Fills in the chain. REQUIRES: the entry's old digest is DigestOf its golden; texts are UTF-8.
  void Append(LedgerEntry entry);

  const std::vector<LedgerEntry>& entries() const { return entries_; }
  // The last entry of a golden file; null when there is none.
  const LedgerEntry* Last(const GoldenName& golden) const;
  // What the ledger says last of it, or kNoGolden.
  std::string DigestOf(const GoldenName& golden) const;
  // The names that the ledger says are there, sorted.
  std::vector<GoldenName> Present() const;
  const std::string& text() const { return text_; }

 private:
  std::vector<LedgerEntry> entries_;
  std::map<GoldenName, size_t> last_;  // index in entries_
  std::string text_;
};

// Golden files whose text is not what the ledger says last of them: edited by hand, put there
// without `lockstep golden accept`, or left by an acceptance that was interrupted.
struct LedgerFinding {
  GoldenName golden;
  std::string sentence;  // "gqa/f32.golden: ... (remedy)"
};

// `goldens`: digest of every golden file in the tree.
std::vector<LedgerFinding> CompareWithLedger(const Ledger& ledger,
                                             const std::map<GoldenName, std::string>& goldens);

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_LEDGER_H_
