#include "properties/plugin_border.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "caches/check.h"

namespace lockstep {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kRoom = 16 * kPage;  // bytes; scripts have far smaller arrays

// Memory for one array, between two pages without access.
class Room {
 public:
  enum class State : uint8_t { kClosed, kReadOnly, kOpen };

  void Become(State state) {
    if (base_ == nullptr) {
      void* base = mmap(nullptr, kRoom + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      LS_CHECK(base != MAP_FAILED, "mmap");
      base_ = static_cast<char*>(base);
    }
    if (state == state_) return;
    const int access = state == State::kOpen       ? PROT_READ | PROT_WRITE
                       : state == State::kReadOnly ? PROT_READ
                                                   : PROT_NONE;
    LS_CHECK(mprotect(base_ + kPage, kRoom, access) == 0, "mprotect");
    state_ = state;
  }

  void* Place(size_t bytes, bool at_end) const {
    LS_CHECK(bytes <= kRoom, "{} bytes", bytes);
    return base_ + kPage + (at_end ? kRoom - bytes : 0);
  }

  // What an access to `address` was, for a sentence; empty when it was not here.
  std::string_view Mistake(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    const auto base = reinterpret_cast<uintptr_t>(base_);
    if (base_ == nullptr || at < base || at >= base + kRoom + 2 * kPage) return "";
    if (state_ == State::kClosed) return " touched an array of an earlier call: ";
    const bool inside = at >= base + kPage && at < base + kPage + kRoom;
    return inside ? " wrote to the array it may only read: " : " went past the array: ";
  }

 private:
  char* base_ = nullptr;
  State state_ = State::kClosed;
};

// Where one argument goes: two rooms in turn, so that what a call was given stays closed in the
// next.
class LentArray {
 public:
  explicit LentArray(std::string_view name) : name_(name) {}

  std::string_view name() const { return name_; }

  // A copy that may be read until Return. `data` may be nullptr when `bytes` is 0.
  const void* Lend(const void* data, size_t bytes, bool at_end) {
    if (bytes == 0) return nullptr;  // the header allows it
    void* to = LendForWriting(bytes, at_end);
    std::memcpy(to, data, bytes);
    rooms_[turn_].Become(Room::State::kReadOnly);
    return to;
  }

  void* LendForWriting(size_t bytes, bool at_end) {
    turn_ = 1 - turn_;
    rooms_[turn_].Become(Room::State::kOpen);
    return rooms_[turn_].Place(bytes, at_end);
  }

  void Return() { rooms_[turn_].Become(Room::State::kClosed); }

  std::string_view Mistake(const void* address) const {
    const std::string_view mistake = rooms_[0].Mistake(address);
    return mistake.empty() ? rooms_[1].Mistake(address) : mistake;
  }

 private:
  std::string_view name_;
  std::array<Room, 2> rooms_;
  size_t turn_ = 0;
};

// The functions of a table have no argument for it, so the one border of a process is global.
struct Border {
  std::shared_ptr<const PluginLibrary> plugin;
  lockstep_kv_plugin table = {};
  size_t stride = 0;  // elements of a row, of the last create
  uint64_t calls = 0;
  std::string_view call = "nothing";
  LentArray geometry{"geometry"};
  LentArray positions{"positions"};
  LentArray keys{"keys"};
  LentArray values{"values"};
  LentArray read_keys{"keys"};
  LentArray read_values{"values"};
  LentArray bytes{"bytes"};

  std::array<LentArray*, 7> arrays() {
    return {&geometry, &positions, &keys, &values, &read_keys, &read_values, &bytes};
  }
  const lockstep_kv_plugin& real() const { return plugin->table(); }
};

Border* border = nullptr;

// One call: says which, and where its arrays go; takes them back at the end.
class Crossing {
 public:
  explicit Crossing(std::string_view call) : at_end_(border->calls++ % 2 == 0) {
    border->call = call;
  }
  ~Crossing() {
    border->call = "nothing";
    for (LentArray* array : lent_) {
      if (array != nullptr) array->Return();
    }
  }
  Crossing(const Crossing&) = delete;
  Crossing& operator=(const Crossing&) = delete;

  template <typename T>
  const T* Lend(LentArray& array, const T* data, size_t count) {
    lent_[size_++] = &array;
    return static_cast<const T*>(array.Lend(data, count * sizeof(T), at_end_));
  }
  bool at_end() const { return at_end_; }

 private:
  bool at_end_;
  std::array<LentArray*, 3> lent_ = {};
  size_t size_ = 0;
};

void Write(std::string_view text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

// Names the mistake, if it was one at the border, and lets the access end the process.
void OnFault(int signal_number, siginfo_t* info, void*) {
  for (const LentArray* array : border->arrays()) {
    const std::string_view mistake = array->Mistake(info->si_addr);
    if (mistake.empty()) continue;
    Write(kBorderWords);
    Write(border->call);
    Write(mistake);
    Write(array->name());
    Write("\n");
  }
  signal(signal_number, SIG_DFL);
}

void CatchFaults() {
  static std::array<char, 64 * 1024> stack;
  const stack_t alternate = {.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  LS_CHECK(sigaltstack(&alternate, nullptr) == 0, "sigaltstack");
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  LS_CHECK(sigaction(SIGSEGV, &action, nullptr) == 0, "sigaction");
  LS_CHECK(sigaction(SIGBUS, &action, nullptr) == 0, "sigaction");
}

void* Create(const lockstep_kv_geometry* geometry) {
  Crossing crossing("create");
  border->stride =
      static_cast<size_t>(geometry->num_kv_heads) * static_cast<size_t>(geometry->head_dim);
  return border->real().create(crossing.Lend(border->geometry, geometry, 1));
}

void Destroy(void* cache) {
  Crossing crossing("destroy");
  border->real().destroy(cache);
}

int32_t Length(const void* cache, int32_t layer) {
  Crossing crossing("length");
  return border->real().length(cache, layer);
}

lockstep_kv_status ReadRow(const void* cache, int32_t layer, int32_t position, float* keys,
                           float* values) {
  Crossing crossing("read_row");
  const size_t bytes = border->stride * sizeof(float);
  void* k = border->read_keys.LendForWriting(bytes, crossing.at_end());
  void* v = border->read_values.LendForWriting(bytes, crossing.at_end());
  const lockstep_kv_status status = border->real().read_row(
      cache, layer, position, static_cast<float*>(k), static_cast<float*>(v));
  std::memcpy(keys, k, bytes);
  std::memcpy(values, v, bytes);
  return status;
}

lockstep_kv_status Update(void* cache, int32_t layer, const int32_t* positions, int32_t n,
                          const float* keys, const float* values) {
  Crossing crossing("update");
  const auto count = static_cast<size_t>(n);
  const int32_t* p = crossing.Lend(border->positions, positions, count);
  const float* k = crossing.Lend(border->keys, keys, count * border->stride);
  const float* v = crossing.Lend(border->values, values, count * border->stride);
  return border->real().update(cache, layer, p, n, k, v);
}

lockstep_kv_status TryReserveSlot(void* cache, int32_t layer, const int32_t* positions, int32_t n,
                                  float** keys, float** values) {
  Crossing crossing("try_reserve_slot");
  const int32_t* p = crossing.Lend(border->positions, positions, static_cast<size_t>(n));
  return border->real().try_reserve_slot(cache, layer, p, n, keys, values);
}

lockstep_kv_status CommitSlot(void* cache, int32_t layer, const int32_t* positions, int32_t n) {
  Crossing crossing("commit_slot");
  const int32_t* p = crossing.Lend(border->positions, positions, static_cast<size_t>(n));
  return border->real().commit_slot(cache, layer, p, n);
}

lockstep_kv_status Rollback(void* cache, int32_t length) {
  Crossing crossing("rollback");
  return border->real().rollback(cache, length);
}

void Clear(void* cache) {
  Crossing crossing("clear");
  border->real().clear(cache);
}

void* Fork(void* cache) {
  Crossing crossing("fork");
  return border->real().fork(cache);
}

int64_t Save(const void* cache, void* bytes, int64_t capacity) {
  Crossing crossing("save");
  const auto size = static_cast<size_t>(capacity);
  if (size > kRoom || size == 0) return border->real().save(cache, bytes, capacity);
  void* room = border->bytes.LendForWriting(size, crossing.at_end());
  const int64_t saved = border->real().save(cache, room, capacity);
  std::memcpy(bytes, room, size);
  return saved;
}

lockstep_kv_status Restore(void* cache, const void* bytes, int64_t size) {
  Crossing crossing("restore");
  if (static_cast<size_t>(size) > kRoom) return border->real().restore(cache, bytes, size);
  const auto* data = static_cast<const char*>(bytes);
  return border->real().restore(
      cache, crossing.Lend(border->bytes, data, static_cast<size_t>(size)), size);
}

int32_t UsedBlocks(const void* cache) {
  Crossing crossing("used_blocks");
  return border->real().used_blocks(cache);
}

}  // namespace

std::shared_ptr<const PluginLibrary> BehindBorder(std::shared_ptr<const PluginLibrary> plugin) {
  if (border == nullptr) {
    static Border the_border;
    border = &the_border;
    CatchFaults();
  }
  LS_CHECK(border->plugin == nullptr || border->plugin == plugin, "two borders");
  border->plugin = plugin;
  border->calls = 0;
  lockstep_kv_plugin& table = border->table;
  table = plugin->table();
  table.abi_version = LOCKSTEP_KV_ABI_VERSION;
  table.create = Create;
  table.destroy = Destroy;
  table.length = Length;
  table.read_row = ReadRow;
  table.update = Update;
  table.try_reserve_slot = TryReserveSlot;
  table.commit_slot = CommitSlot;
  table.rollback = Rollback;
  table.clear = Clear;
  if (table.fork != nullptr) table.fork = Fork;
  if (table.save != nullptr) table.save = Save;
  if (table.restore != nullptr) table.restore = Restore;
  if (table.used_blocks != nullptr) table.used_blocks = UsedBlocks;
  return PluginLibrary::FromTable(&table, std::move(plugin));
}

}  // namespace lockstep
