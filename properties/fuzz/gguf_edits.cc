#include "properties/fuzz/gguf_edits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace lockstep::fuzz {
namespace {

struct Edit {
  size_t kind = 0;
  size_t piece = 0;
  size_t field = 0;
  uint64_t how = 0;
  uint64_t argument = 0;
};

constexpr size_t kSetKinds = 8;  // kinds below set a field; the others follow
enum Kind : size_t {
  kDrop = kSetKinds,
  kRepeat,
  kExchange,
  kCut,
  kFileByte,
  kByte,
  kRetype,
  kInsert
};
constexpr size_t kKinds = 16;

Edit Read(const Chunk& bytes) {
  return {NumberAt(bytes, 0, 1) % kKinds, NumberAt(bytes, 1, 1), NumberAt(bytes, 2, 1),
          NumberAt(bytes, 3, 1), NumberAt(bytes, 4, 2)};
}

class Editor {
 public:
  explicit Editor(GgufPieces pieces) : pieces_(std::move(pieces)) {}

  // What it did.
  std::string Apply(const Edit& edit) {
    const size_t at = edit.piece % pieces_.size();
    if (edit.kind < kSetKinds) return SetField(at, edit);
    switch (edit.kind) {
      case kDrop:
      case kRepeat:
      case kExchange:
        return Rearrange(at, edit);
      case kCut:
      case kFileByte:
        late_.push_back(edit);
        return edit.kind == kCut ? fmt::format("cuts the file at {}/65536", edit.argument)
                                 : fmt::format("xors the byte at {}/65536 of the file with {}",
                                               edit.argument, edit.how);
      case kByte:
        return ChangeByte(at, edit);
      case kRetype:
        return Retype(at, edit);
      default:
        return Insert(at, edit);
    }
  }

  std::vector<std::byte> Finish() const {
    std::vector<std::byte> image = Assemble(pieces_);
    for (const Edit& edit : late_) {
      const size_t place = static_cast<size_t>(image.size() * edit.argument / 65536);
      if (edit.kind == kCut) {
        image.resize(place);
      } else if (place < image.size()) {
        image[place] ^= static_cast<std::byte>(edit.how);
      }
    }
    return image;
  }

 private:
  static uint64_t Get(const GgufPiece& piece, const GgufField& field) {
    uint64_t value = 0;
    std::memcpy(&value, piece.bytes.data() + field.offset, field.bytes);
    return value;
  }

  // Near the ends of each width, near what is there, near what stands elsewhere.
  uint64_t Value(const GgufPiece& piece, const GgufField& field, const Edit& edit) const {
    const uint64_t argument = edit.argument;
    const uint64_t power = uint64_t{1} << (argument % 64);
    switch (edit.how % 8) {
      case 0:
        return argument % 32;
      case 1:
        return power;
      case 2:
        return power - 1 - argument / 64 % 16;
      case 3:
        return ~uint64_t{0} - argument % 64;
      case 4:
        return Get(piece, field) + 1 + argument % 8;
      case 5:
        return Get(piece, field) - 1 - argument % 8;
      case 6: {
        const GgufPiece& other = pieces_.at(argument % pieces_.size());
        if (other.fields.empty()) return 0;
        return Get(other, other.fields[argument / 256 % other.fields.size()]);
      }
      default:
        return pieces_.data.size() + argument % 32 - 16;
    }
  }

  std::string SetField(size_t at, const Edit& edit) {
    GgufPiece& piece = pieces_.at(at);
    if (piece.fields.empty()) return "sets nothing";
    const GgufField& field = piece.fields[edit.field % piece.fields.size()];
    const uint64_t value = Value(piece, field, edit);
    std::memcpy(piece.bytes.data() + field.offset, &value, field.bytes);
    if (at == 0 && field.bytes == 8) pieces_.counts_changed = true;
    return fmt::format("{}: {} = {}", Printable(piece.name), field.name, value);
  }

  // Of the metadata or of the tensor table; the header stays.
  std::string Rearrange(size_t at, const Edit& edit) {
    if (at == 0) return "leaves the header";
    const bool is_tensor = at > pieces_.metadata.size();
    std::vector<GgufPiece>& list = is_tensor ? pieces_.tensors : pieces_.metadata;
    const size_t index = is_tensor ? at - 1 - pieces_.metadata.size() : at - 1;
    const std::string name = Printable(list[index].name);
    if (edit.kind == kDrop) {
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(index));
      return name + ": dropped";
    }
    if (edit.kind == kRepeat) {
      list.push_back(GgufPiece(list[index]));
      return name + ": repeated";
    }
    const size_t other = edit.argument % list.size();
    if (other != index) std::swap(list[index], list[other]);
    return fmt::format("{}: exchanged with the place of {}", name, Printable(list[index].name));
  }

  std::string ChangeByte(size_t at, const Edit& edit) {
    GgufPiece& piece = pieces_.at(at);
    if (piece.bytes.empty()) return "changes nothing";
    const size_t place = edit.argument % piece.bytes.size();
    piece.bytes[place] ^= static_cast<std::byte>(edit.how);
    return fmt::format("{}: byte {} xor {}", Printable(piece.name), place, edit.how);
  }

  // Another value in place of a metadata entry's.
  std::string Retype(size_t at, const Edit& edit) {
    GgufPiece& piece = pieces_.at(at);
    if (at == 0 || at > pieces_.metadata.size() || piece.fields.size() < 2)
      return "retypes nothing";
    constexpr std::array<size_t, 13> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
    const uint64_t type = edit.how % kBytes.size();
    const size_t type_at = piece.fields[1].offset;
    piece.fields.resize(2);
    piece.bytes.resize(type_at + 4 + kBytes.at(type));
    std::memcpy(piece.bytes.data() + type_at, &type, 4);
    std::byte* value = piece.bytes.data() + type_at + 4;
    std::memset(value, 0, kBytes.at(type));
    std::memcpy(value, &edit.argument, std::min<size_t>(kBytes.at(type), 2));
    if (type != 8 && type != 9) piece.fields.push_back({"value", type_at + 4, kBytes.at(type)});
    return fmt::format("{}: of type {} with value {}", Printable(piece.name), type, edit.argument);
  }

  std::string Insert(size_t at, const Edit& edit) {
    GgufPiece& piece = pieces_.at(at);
    const size_t count = edit.how % 16;
    const size_t place = edit.field % (piece.bytes.size() + 1);
    piece.bytes.insert(piece.bytes.begin() + static_cast<std::ptrdiff_t>(place), count,
                       static_cast<std::byte>(edit.argument));
    return fmt::format("{}: {} bytes inserted at {}", Printable(piece.name), count, place);
  }

  GgufPieces pieces_;
  std::vector<Edit> late_;
};

}  // namespace

std::vector<std::byte> ApplyGgufEdits(const GgufPieces& sound, std::span<const Chunk> edits) {
  Editor editor(sound);
  for (const Chunk& edit : edits) editor.Apply(Read(edit));
  return editor.Finish();
}

std::string DescribeGgufEdit(const GgufPieces& sound, std::span<const Chunk> edits) {
  Editor editor(sound);
  std::string last;
  for (const Chunk& edit : edits) last = editor.Apply(Read(edit));
  return last;
}

}  // namespace lockstep::fuzz
