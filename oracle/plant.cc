// The text form of planted faults.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <string>

#include "caches/check.h"
#include "caches/error.h"
#include "oracle/faulty_cache.h"

namespace lockstep {
namespace {

const PlantInfo& InfoOf(PlantKind kind) {
  const auto index = static_cast<size_t>(kind);
  LS_CHECK(index < KnownPlants().size(), "plant kind {}", index);
  return KnownPlants()[index];
}

bool IsFlip(PlantKind kind) { return kind == PlantKind::kFlipK || kind == PlantKind::kFlipV; }

int64_t ParseNumber(std::string_view where, std::string_view field, std::string_view text,
                    int64_t high) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0 || value > high) {
    throw Error({std::string(where),
                 fmt::format("{}='{}' is no number in [0, {}]", field, text, high), ""});
  }
  return value;
}

void SetField(Plant* plant, std::string_view where, std::string_view field, std::string_view text) {
  constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
  const auto number = [&](int64_t high) { return ParseNumber(where, field, text, high); };
  if (field == "layer") plant->layer = static_cast<int32_t>(number(kInt32Max));
  if (field == "position") plant->position = static_cast<int32_t>(number(kInt32Max));
  if (field == "element") plant->element = number(std::numeric_limits<int64_t>::max());
  if (field == "byte") plant->byte = static_cast<int32_t>(number(3));
  if (field == "step") plant->step = static_cast<int32_t>(number(kInt32Max));
}

[[noreturn]] void ThrowUnknownKind(const std::string& where, std::string_view kind) {
  std::vector<std::string> usages;
  for (const PlantInfo& info : KnownPlants()) usages.push_back(info.Usage());
  throw Error({where, fmt::format("there is no plant '{}'", kind),
               fmt::format("known plants: {}", fmt::join(usages, "; "))});
}

}  // namespace

std::string PlantInfo::Usage() const {
  std::vector<std::string> required, optional;
  for (const PlantField& field : fields) {
    (field.required ? required : optional).push_back(fmt::format("{}=N", field.name));
  }
  if (required.empty()) return fmt::format("{}[:{}]", name, fmt::join(optional, ","));
  return fmt::format("{}:{}[,{}]", name, fmt::join(required, ","), fmt::join(optional, ","));
}

const std::vector<PlantInfo>& KnownPlants() {
  const std::vector<PlantField> place = {{"layer", true}, {"step"}};
  const std::vector<PlantField> row = {
      {"layer", true}, {"position", true}, {"element", true}, {"byte"}, {"step"}};
  static const std::vector<PlantInfo> plants = {
      {PlantKind::kFlipK, "flip-k", "one byte of a stored K row flips before a step", row},
      {PlantKind::kFlipV, "flip-v", "one byte of a stored V row flips before a step", row},
      {PlantKind::kSkipCommit, "skip-commit", "commits at the layer are lost", place},
      {PlantKind::kDropUpdate, "drop-update", "updates at the layer are lost", place},
      {PlantKind::kSwapKv, "swap-kv", "K and V are exchanged at the layer", place},
      {PlantKind::kWritePast, "write-past", "writes fill one row more than they were given", place},
      {PlantKind::kOffByOne, "off-by-one", "rows land one position early", place},
      {PlantKind::kStaleRow, "stale-row", "a rejected row comes back after a rollback", place},
      {PlantKind::kKeepRow, "keep-row", "a rollback keeps one row too many", {{"step"}}},
      {PlantKind::kStaleView, "stale-view", "views show an older row as the newest", place},
      {PlantKind::kRefuseReserve, "refuse-reserve", "the layer refuses the direct path", place},
  };
  return plants;
}

Plant ParsePlant(std::string_view text) {
  const std::string where = fmt::format("plant '{}'", text);
  const std::string_view name = text.substr(0, text.find(':'));
  const auto info = std::ranges::find(KnownPlants(), name, &PlantInfo::name);
  if (info == KnownPlants().end()) ThrowUnknownKind(where, name);
  Plant plant;
  plant.kind = info->kind;
  plant.step = IsFlip(plant.kind) ? 1 : 0;  // before step 0 there is no row to flip
  std::set<std::string_view> given;
  std::string_view rest = text.substr(std::min(text.size(), name.size() + 1));
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::string_view field = item.substr(0, item.find('='));
    const bool known =
        std::ranges::any_of(info->fields, [&](const PlantField& f) { return f.name == field; });
    if (!known || field.size() == item.size() || !given.insert(field).second) {
      throw Error({where, fmt::format("'{}' is no field, has no value or is given twice", item),
                   info->Usage()});
    }
    SetField(&plant, where, field, item.substr(field.size() + 1));
  }
  for (const PlantField& field : info->fields) {
    if (field.required && given.count(field.name) == 0) {
      throw Error({where, fmt::format("'{}' is missing", field.name), info->Usage()});
    }
  }
  return plant;
}

std::string PlantText(const Plant& plant) {
  const PlantInfo& info = InfoOf(plant.kind);
  std::string text(info.name);
  char separator = ':';
  for (const PlantField& field : info.fields) {
    const int64_t value = field.name == "layer"      ? plant.layer
                          : field.name == "position" ? plant.position
                          : field.name == "element"  ? plant.element
                          : field.name == "byte"     ? plant.byte
                                                     : plant.step;
    text += fmt::format("{}{}={}", separator, field.name, value);
    separator = ',';
  }
  return text;
}

}  // namespace lockstep
