// Update against reserve and commit, for every cache, and a plain copy of what Update copies.
#include <fmt/format.h>

#include <memory>

#include "caches/registry.h"
#include "reports/bench/entries.h"
#include "reports/bench/write_case.h"

namespace lockstep::internal {
namespace {

// Of a run: rows are read at their source and written into the slot, or into scratch memory, from
// where what was handed to Update is read again and stored as the cache stores it.
double BytesMoved(const WriteCase& written, const CacheSpec& spec, const WriteGeometry& geometry) {
  int64_t bytes = 2 * geometry.copied_bytes() * written.tokens() + written.handed_over();
  const int64_t floats = written.handed_over() / static_cast<int64_t>(sizeof(float));
  if (floats > 0)
    bytes += RowBytes(spec.key_type, floats / 2) + RowBytes(spec.value_type, floats / 2);
  return static_cast<double>(bytes);
}

MadeBench MadeWrite(const CacheSpec& spec, const WriteGeometry& geometry, WritePath path,
                    int32_t tokens) {
  const auto made = std::make_shared<WriteCase>(spec.name, geometry, path, tokens);
  made->Run();
  return {.run = [made] { made->Run(); },
          .digest = [made] { return made->digest(); },
          .work = {.bytes = BytesMoved(*made, spec, geometry)},
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
        entries.push_back({.name = name, .bits = name, .make = [spec, geometry, path, tokens] {
                             return MadeWrite(spec, geometry, path, tokens);
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
