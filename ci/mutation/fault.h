// Faults as data: a one-place edit of lockstep's own source, what it stands for, and what should
// catch it. The catalogue is properties/faults/*.toml (README.md there gives the format).
#ifndef LOCKSTEP_CI_MUTATION_FAULT_H_
#define LOCKSTEP_CI_MUTATION_FAULT_H_

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::mutation {

// `before` occurs exactly once in the file, which is given relative to the root of the tree.
struct SourceEdit {
  std::string file;
  std::string before;
  std::string after;
};

struct Fault {
  std::string name = {};        // unique in the catalogue
  std::string class_name = {};  // "F01", "S1"; of a mutant its operator, "comparison"
  std::string stands_for = {};  // the public fault, "owner/repo#N"
  std::string says = {};        // one sentence: what is wrong with the edit in place
  SourceEdit edit = {};
  std::string catcher =
      {};  // a check, optionally ':' and a filter of gtest; empty: none is expected

  // What `lockstep golden explain` has to say of it; empty where no golden file shows it.
  std::string stage = {};  // a stage of engine/trace.h, or another fact of golden/facts.h
  std::string layer = {};  // empty: the fact belongs to none
  std::string cause = {};  // a name of golden/cause.h
};

// A mutant that changes nothing anybody can observe, and why.
struct EquivalentMutant {
  std::string file;
  std::string line;   // the source line, without the blanks around it
  std::string after;  // the same after the mutation
  std::string why;
};

// Both read every file FOLDER/*.toml, in the order of their names: tables [[fault]], and in
// equivalent.toml [[equivalent]]. Throw Error with file and line for what is not as README.md says.
std::vector<Fault> ReadFaults(const std::string& folder);
std::vector<EquivalentMutant> ReadEquivalentMutants(const std::string& folder);

// `text` with the edit made. Throws Error when `before` is not there exactly once, or when `after`
// is the same.
std::string ApplyEdit(const SourceEdit& edit, std::string_view text);

// What is wrong with the catalogue, one sentence each: an edit that does not apply to the tree at
// `root`, a name used twice, a class of `classes` with fewer than two faults, a fault of no class.
std::vector<std::string> CheckCatalogue(const std::vector<Fault>& faults, const std::string& root);

// The classes of properties/faults/README.md in order, and how many faults each has to have.
struct FaultClass {
  std::string_view name;
  std::string_view meaning;
  int faults_min;
};
const std::vector<FaultClass>& FaultClasses();

}  // namespace lockstep::mutation

#endif  // LOCKSTEP_CI_MUTATION_FAULT_H_
