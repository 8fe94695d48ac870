#include "ci/mutation/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "caches/error.h"
#include "caches/temporary_folder.h"

namespace lockstep::mutation {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class CatalogueTest : public testing::Test {
 protected:
  CatalogueTest() { std::filesystem::create_directories(folder_ + "/caches"); }

  void Write(const std::string& file, const std::string& text) const {
    std::ofstream(folder_ + "/" + file) << text;
  }

  static std::string FaultText(const std::string& name, const std::string& before) {
    return "[[fault]]\nname = \"" + name +
           "\"\nclass = \"F01\"\nstands_for = \"a/b#1\"\nsays = \"A.\"\nfile = \"caches/a.cc\"\n"
           "before = '''" +
           before + "'''\nafter = \"x\"\ncatcher = \"a_test\"\n";
  }

  std::string ErrorOf() const {
    try {
      ReadFaults(folder_);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(CatalogueTest, FaultsAreReadInTheOrderOfFilesAndTables) {
  Write("f02.toml", FaultText("third", "c"));
  Write("f01.toml", FaultText("first", "a\n  b") + FaultText("second", "b"));
  Write("equivalent.toml",
        "[[equivalent]]\nfile = \"f\"\nline = \"l\"\nafter = \"a\"\nwhy = \"w\"\n");
  const std::vector<Fault> faults = ReadFaults(folder_);
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_EQ(faults[0].name, "first");
  EXPECT_EQ(faults[0].edit.before, "a\n  b");
  EXPECT_EQ(faults[0].edit.after, "x");
  EXPECT_EQ(faults[0].catcher, "a_test");
  EXPECT_EQ(faults[1].name, "second");
  EXPECT_EQ(faults[2].name, "third");
  const std::vector<EquivalentMutant> equivalent = ReadEquivalentMutants(folder_);
  ASSERT_EQ(equivalent.size(), 1u);
  EXPECT_EQ(equivalent[0].why, "w");
}

TEST_F(CatalogueTest, WhatIsNotAsTheFormatSaysIsAnErrorWithItsPlace) {
  Write("f01.toml", "[[fault]]\nname = 'a'\n");
  EXPECT_THAT(ErrorOf(), HasSubstr("f01.toml:1: has no text 'class'"));
  Write("f01.toml", FaultText("a", "b") + "catchers = 'x'\n");
  EXPECT_THAT(ErrorOf(), HasSubstr("the field 'catchers' is not known"));
  Write("f01.toml", "[[faults]]\n");
  EXPECT_THAT(ErrorOf(), HasSubstr("f01.toml:1: 'faults' is not known"));
  Write("f01.toml", "[[fault]\n");
  EXPECT_THAT(ErrorOf(), HasSubstr("f01.toml:1: "));
  std::filesystem::remove_all(folder_);
  EXPECT_THAT(ErrorOf(), HasSubstr("give the folder"));
}

TEST_F(CatalogueTest, EditsReplaceTextThatIsThereOnce) {
  const SourceEdit edit{"caches/a.cc", "<", "<="};
  EXPECT_EQ(ApplyEdit(edit, "a < b;"), "a <= b;");
  EXPECT_THROW(ApplyEdit(edit, "a < b < c;"), Error);
  EXPECT_THROW(ApplyEdit(edit, "a > b;"), Error);
  EXPECT_THROW(ApplyEdit({"caches/a.cc", "<", "<"}, "a < b;"), Error);
  EXPECT_THROW(ApplyEdit({"caches/a.cc", "", "x"}, "a < b;"), Error);
  // Overlapping places are two.
  EXPECT_THROW(ApplyEdit({"caches/a.cc", "aa", "x"}, "aaa"), Error);
}

TEST_F(CatalogueTest, ACatalogueThatDoesNotApplyIsSaidSo) {
  Write("caches/a.cc", "one two\n");
  Write("f01.toml", FaultText("a", "one") + FaultText("a", "three"));
  const std::vector<std::string> problems = CheckCatalogue(ReadFaults(folder_), folder_);
  EXPECT_THAT(problems, Contains("a: the name is used twice"));
  EXPECT_THAT(problems, Contains(HasSubstr("'three' is there not at all")));
  EXPECT_THAT(problems, Contains(HasSubstr("class F02")));
  EXPECT_THAT(problems, Not(Contains(HasSubstr("class F01"))));
}

// What the lint catches for its width says nothing of what else would catch it.
TEST_F(CatalogueTest, AFaultThatTheLintSeesForItsWidthIsSaidSo) {
  const std::string before(60, 'a');
  Write("caches/a.cc", "one " + before + " two three\n");
  const auto fault = [&](const std::string& name, size_t width) {
    std::string text = FaultText(name, name);
    return text.replace(text.find("\"x\""), 3, "\"" + std::string(width, 'x') + "\\ny\"");
  };
  Write("f01.toml", fault("two", 35) + fault("one", 101));
  const std::vector<std::string> problems = CheckCatalogue(ReadFaults(folder_), folder_);
  EXPECT_THAT(problems, Contains("one: a line of more than 100 columns, which the lint catches"));
  EXPECT_THAT(problems, Not(Contains(HasSubstr("two: a line"))));
  Write("f01.toml", fault("two", 36) + fault("one", 100));
  EXPECT_THAT(CheckCatalogue(ReadFaults(folder_), folder_),
              Contains("two: a line of more than 100 columns, which the lint catches"));
}

TEST_F(CatalogueTest, WhatAnExplanationHasToSayIsOptional) {
  Write("caches/a.cc", "one two three\n");
  Write("f01.toml", FaultText("a", "one") +
                        "stage = \"key_rope\"\nlayer = \"0\"\ncause = \"wrong position\"\n" +
                        FaultText("b", "two") + "stage = \"nowhere\"\ncause = \"bad luck\"\n" +
                        FaultText("c", "three") + "stage = \"rows\"\n");
  const std::vector<Fault> faults = ReadFaults(folder_);
  EXPECT_EQ(faults[0].stage, "key_rope");
  EXPECT_EQ(faults[0].layer, "0");
  EXPECT_EQ(faults[0].cause, "wrong position");
  const std::vector<std::string> problems = CheckCatalogue(faults, folder_);
  EXPECT_THAT(problems, Contains("b: there is no stage 'nowhere'"));
  EXPECT_THAT(problems, Contains("b: there is no cause 'bad luck'"));
  EXPECT_THAT(problems, Contains("c: a stage without a cause, or the reverse"));
  EXPECT_THAT(problems, Not(Contains(HasSubstr("a:"))));
  Write("f01.toml", FaultText("a", "one") + "layer = 0\n");
  EXPECT_THAT(ErrorOf(), HasSubstr("the field 'layer' is not known"));
}

}  // namespace
}  // namespace lockstep::mutation
