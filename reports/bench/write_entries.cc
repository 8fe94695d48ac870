// Update against reserve and commit, for every cache, and a plain copy of what Update copies.
#include <fmt/format.h>

#include <memory>

#include "caches/registry.h"
#include "reports/bench/entries.h"
#include "reports/bench/write_case.h"

namespace lockstep::internal {
namespace {

MadeBench MadeWrite(const std::string& cache, const WriteGeometry& geometry, WritePath path,
                    int32_t tokens) {
  const auto made = std::make_shared<WriteCase>(cache, geometry, path, tokens);
  // Read and written: into the slot, or into scratch memory and from there into the cache.
  const double copies = path == WritePath::kDirect ? 1 : 2;
  return {.run = [made] { made->Run(); },
          .digest = [made] { return made->digest(); },
          .work = {.bytes = 2 * copies * static_cast<double>(geometry.copied_bytes() * tokens)},
          .bound = "memory"};
}

}  // namespace

std::vector<BenchEntry> WriteEntries(bool small) {
  const int32_t tokens = small ? 2 : 64;
  std::vector<BenchEntry> entries;
  for (const WriteGeometry& geometry : WriteGeometries()) {
    for (const CacheSpec& spec : AllCaches()) {
      const auto add = [&](WritePath path, std::string_view path_name) {
        const std::string name =
            fmt::format("write/{}/{}/{}", path_name, geometry.name, BenchWord(spec.name));
        entries.push_back(
            {.name = name, .bits = name, .make = [name = spec.name, geometry, path, tokens] {
               return MadeWrite(name, geometry, path, tokens);
             }});
      };
      add(WritePath::kUpdate, "update");
      if (spec.grants_host_slots) add(WritePath::kDirect, "direct");
    }
    const std::string name = fmt::format("write/memcpy/{}", geometry.name);
    entries.push_back(
        {.name = name, .bits = name, .make = [geometry, tokens] {
           const auto made = std::make_shared<CopyCase>(geometry, tokens);
           return MadeBench{
               .run = [made] { made->Run(); },
               .digest = [made] { return made->digest(); },
               .work = {.bytes = 2 * static_cast<double>(geometry.copied_bytes() * tokens)},
               .bound = "memory"};
         }});
  }
  return entries;
}

}  // namespace lockstep::internal
