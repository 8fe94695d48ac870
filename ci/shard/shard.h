// A campaign cut into shards, and the results of shards joined again.
//
// The inputs of a campaign are numbered, from 0. Shard i of n (i from 1) runs the inputs whose
// number leaves i - 1 when it is divided by n, so any n runs the same inputs. What an input gave is
// a digest; the digests of all inputs are added up, which is the same in any order, so the union of
// n shards has the digest of one run.
#ifndef LOCKSTEP_CI_SHARD_SHARD_H_
#define LOCKSTEP_CI_SHARD_SHARD_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "caches/digest.h"

namespace lockstep {

struct Shard {
  int32_t index = 1;  // of [1, count]
  int32_t count = 1;

  bool Has(int64_t input) const { return input % count == index - 1; }
  bool is_all() const { return count == 1; }
  std::string Text() const;  // "2/7"

  friend bool operator==(const Shard&, const Shard&) = default;
};

// Leaves the shard's of what a campaign has, in order, and returns how many there were.
template <typename Input>
int64_t KeepShard(const Shard& shard, std::vector<Input>* inputs) {
  std::vector<Input> all = std::exchange(*inputs, {});
  for (size_t i = 0; i < all.size(); ++i) {
    if (shard.Has(static_cast<int64_t>(i))) inputs->push_back(std::move(all[i]));
  }
  return std::ssize(all);
}

// "i/n", both in decimal, 1 <= i <= n <= 100000. Throws Error for anything else.
Shard ParseShard(std::string_view text);

// a + b modulo 2^128.
Digest SumOfDigests(const Digest& a, const Digest& b);

struct ShardFinding {
  std::string place;  // names it: findings of one place are one
  std::string what;
  std::string input;  // the smallest that shows it, as text; or how to see it again

  friend auto operator<=>(const ShardFinding&, const ShardFinding&) = default;
};

struct ShardResult {
  std::string build;     // digest of the program that ran, BuildDigest()
  std::string campaign;  // the command without --shard: equal for all shards
  Shard shard;
  int64_t inputs_of_all = 0;                // of the campaign
  int64_t inputs = 0;                       // that ran
  Digest sum;                               // of each input that ran, SumOfDigests
  std::map<std::string, int64_t> counters;  // add up
  std::vector<ShardFinding> findings;

  // Counts one input: its number and what it gave.
  void Add(int64_t input, std::string_view gave);

  friend bool operator==(const ShardResult&, const ShardResult&) = default;
};

// Digest of this process's executable file: results of two programs are not one campaign's.
std::string BuildDigest();

std::string ShardJson(const ShardResult& result);

// Writes what this program's shard "i/n" gave, unless `path` is empty; sets build and shard.
void WriteShardFile(const std::string& path, std::string_view shard, ShardResult result);

// Throws Error with `where` for text that is no result, whole and of this format.
ShardResult ParseShardJson(std::string_view json, std::string_view where);

struct MergedShards {
  ShardResult whole;  // shard 1/1: what one run would have given, when nothing is missing
  std::vector<int32_t> missing;     // shards of which there is no result
  std::vector<int32_t> repeated;    // given more than once, with one result
  std::vector<int32_t> disagree;    // given more than once, with different results
  std::vector<int32_t> unfinished;  // that ran fewer inputs than are theirs
};

// In any order, each any number of times. Throws Error naming the two (`names`, one a result) when
// they are of different builds, campaigns or numbers of shards. REQUIRES: results is not empty.
MergedShards MergeShards(std::span<const ShardResult> results, std::span<const std::string> names);

}  // namespace lockstep

#endif  // LOCKSTEP_CI_SHARD_SHARD_H_
