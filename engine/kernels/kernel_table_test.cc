// The choice of a table: by name, by LOCKSTEP_ISA, the best; and that the chosen one is really it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "caches/error.h"
#include "engine/kernels.h"
#include "engine/kernels/isa_kernels.h"

namespace lockstep {
namespace {

// Sets LOCKSTEP_ISA for one test and puts the old value back.
class IsaVariable {
 public:
  explicit IsaVariable(const char* value) {
    const char* old = std::getenv(kName);
    was_set_ = old != nullptr;
    if (was_set_) old_ = old;
    value != nullptr ? setenv(kName, value, 1) : unsetenv(kName);
  }
  ~IsaVariable() { was_set_ ? setenv(kName, old_.c_str(), 1) : unsetenv(kName); }
  IsaVariable(const IsaVariable&) = delete;
  IsaVariable& operator=(const IsaVariable&) = delete;

 private:
  static constexpr const char* kName = "LOCKSTEP_ISA";
  bool was_set_ = false;
  std::string old_;
};

TEST(KernelTableTest, ScalarIsFirstAndNamesAreUnique) {
  std::set<std::string_view> names;
  for (const KernelTable* table : AvailableKernels()) names.insert(table->name);
  EXPECT_EQ(AvailableKernels().front()->name, "scalar");
  EXPECT_EQ(names.size(), AvailableKernels().size());
}

TEST(KernelTableTest, TheNamedTableIsChosenAndRunsItsOwnCode) {
  std::set<const void*> functions;
  for (const KernelTable* table : AvailableKernels()) {
    const IsaVariable forced("no such table");  // the argument comes first
    EXPECT_EQ(&SelectKernels(table->name), table);
    functions.insert(reinterpret_cast<const void*>(table->matmul));
    functions.insert(reinterpret_cast<const void*>(table->attention));
    functions.insert(reinterpret_cast<const void*>(table->rms_norm));
    functions.insert(reinterpret_cast<const void*>(table->silu_gate));
  }
  EXPECT_EQ(functions.size(), 4 * AvailableKernels().size());
}

TEST(KernelTableTest, TheVariableIsChosenElseTheBest) {
  for (const KernelTable* table : AvailableKernels()) {
    const IsaVariable forced(std::string(table->name).c_str());
    EXPECT_EQ(&SelectKernels(), table);
  }
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    const IsaVariable unset(value);
    EXPECT_EQ(&SelectKernels(), AvailableKernels().back());
  }
}

TEST(KernelTableTest, AnUnknownNameIsAnErrorThatListsTheOthers) {
  const auto message = [](std::string_view name) -> std::string {
    try {
      SelectKernels(name);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const IsaVariable unset(nullptr);
  EXPECT_NE(message("avx1024").find("'avx1024'"), std::string::npos) << message("avx1024");
  EXPECT_NE(message("avx1024").find("choose one of: scalar"), std::string::npos);
  EXPECT_NE(message("Scalar"), "no error");
  const IsaVariable forced("neon9");
  EXPECT_NE(message("").find("LOCKSTEP_ISA: "), std::string::npos) << message("");
  EXPECT_NE(message("").find("'neon9'"), std::string::npos) << message("");
}

TEST(KernelTableTest, EachTableIsCompiledForItsInstructionSet) {
  EXPECT_STREQ(internal::kScalarKernels.name, "scalar");
#if defined(__x86_64__)
  EXPECT_EQ(internal::kScalarKernels.vector_bytes, 16);
  EXPECT_FALSE(internal::kScalarKernels.hardware_fma);
  EXPECT_STREQ(internal::kAvx2Kernels.name, "avx2");
  EXPECT_EQ(internal::kAvx2Kernels.vector_bytes, 32);
  EXPECT_TRUE(internal::kAvx2Kernels.hardware_fma);
  EXPECT_STREQ(internal::kAvx512Kernels.name, "avx512");
  EXPECT_EQ(internal::kAvx512Kernels.vector_bytes, 64);
  EXPECT_TRUE(internal::kAvx512Kernels.hardware_fma);
  EXPECT_FALSE(internal::kAvx512Kernels.byte_dots);
  EXPECT_STREQ(internal::kAvx512VnniKernels.name, "avx512vnni");
  EXPECT_TRUE(internal::kAvx512VnniKernels.byte_dots);
#elif defined(__aarch64__)
  EXPECT_TRUE(internal::kScalarKernels.hardware_fma);
  EXPECT_STREQ(internal::kNeonKernels.name, "neon");
  EXPECT_FALSE(internal::kNeonKernels.byte_dots);
  EXPECT_STREQ(internal::kNeonDotprodKernels.name, "neon_dotprod");
  EXPECT_TRUE(internal::kNeonDotprodKernels.byte_dots);
#endif
}

}  // namespace
}  // namespace lockstep
