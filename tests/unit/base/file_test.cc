#include "base/file.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "support/temp_folder.h"

namespace snug {
namespace {

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(MappedFile, ReadsAndMoves) {
  const test::TempFolder folder;
  const std::string text(10'000, 'q');
  auto file = MappedFile::open(folder.write("a.bin", text));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(text_of(*file), text);
  const auto* address = file->bytes().data();
  const MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes().data(), address);
  EXPECT_TRUE(file->bytes().empty());  // NOLINT: what was moved from holds nothing
  EXPECT_EQ(moved.path(), folder.path() / "a.bin");
  moved.will_need(5000, 100);
  moved.drop(0, text.size());
  EXPECT_EQ(text_of(moved), text);  // dropped pages come back from the file
}

TEST(MappedFile, NamesWhatCannotBeMapped) {
  const test::TempFolder folder;
  const std::pair<std::filesystem::path, const char*> cases[] = {
      {folder.path() / "missing.bin", "missing.bin"},
      {folder.write("empty.bin", ""), "empty"},
      {folder.path(), "not a regular file"},
  };
  for (const auto& [path, words] : cases) {
    const auto file = MappedFile::open(path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_EQ(file.error().code, ErrorCode::bad_file);
    EXPECT_NE(file.error().message.find(path.string()), std::string::npos) << file.error().message;
    EXPECT_NE(file.error().message.find(words), std::string::npos) << file.error().message;
  }
}

TEST(TextFile, HasASizeLimit) {
  const test::TempFolder folder;
  const auto path = folder.write("a.txt", "12345");
  EXPECT_EQ(*read_text_file(path, 5), "12345");
  EXPECT_EQ(*read_text_file(folder.write("empty.txt", ""), 5), "");
  for (const auto& result : {read_text_file(path, 4), read_text_file(folder.path() / "none", 4),
                             read_text_file(folder.path(), 4)}) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::bad_file);
  }
}

TEST(WriteFile, ReplacesWholeAndLeavesNothingBeside) {
  const test::TempFolder folder;
  const auto path = folder.path() / "out.bin";
  ASSERT_TRUE(write_file_atomically(path, bytes_of("first, longer")).ok());
  ASSERT_TRUE(write_file_atomically(path, bytes_of("second")).ok());
  EXPECT_EQ(*read_text_file(path, 100), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(WriteFile, FailsWithThePath) {
  const test::TempFolder folder;
  const auto status = write_file_atomically(folder.path() / "no" / "such" / "out.bin", bytes_of("x"));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("out.bin"), std::string::npos);
  // A folder in the way: nothing is overwritten.
  std::filesystem::create_directories(folder.path() / "dir" / "inside");
  EXPECT_FALSE(write_file_atomically(folder.path() / "dir", bytes_of("x")).ok());
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() / "dir" / "inside"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);  // no half file stays
}

}  // namespace
}  // namespace snug
