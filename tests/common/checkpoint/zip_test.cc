// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/common/checkpoint/torch_files.h"

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;

ZipBuilder Two() {
  return {.entries = {{.name = "a", .data = "first"}, {.name = "b", .data = ""}}};
}

void ExpectZipRefused(const std::string& bytes, const std::string& why,
                      absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const auto read = ReadStoredZip(MemoryFile(bytes, "bad.zip"));
  EXPECT_EQ(read.status().code(), code) << why;
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("bad.zip"));
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(why));
}

void ExpectTwo(const ZipBuilder& zip) {
  const std::string bytes = zip.Build();
  const auto entries = ReadStoredZip(MemoryFile(bytes));
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>((*entries)[0].data.data()), 5), "first");
  EXPECT_EQ((*entries)[0].data.size(), 5u);
  EXPECT_EQ((*entries)[1].data.size(), 0u);
}

TEST(StoredZip, ReadsEntriesWithAndWithoutZip64) {
  ZipBuilder zip = Two();
  ExpectTwo(zip);
  zip.zip64_end = true;
  ExpectTwo(zip);
  zip.zip64_entries = true;
  ExpectTwo(zip);
  zip.zip64_end = false;
  ExpectTwo(zip);
  zip.comment = "some words";
  ExpectTwo(zip);
}

TEST(StoredZip, AnEmptyContainerHasNoEntries) {
  const std::string bytes = ZipBuilder().Build();
  const auto entries = ReadStoredZip(MemoryFile(bytes));
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_TRUE(entries->empty());
}

TEST(StoredZip, RefusesEveryTruncation) {
  ZipBuilder zip = Two();
  zip.zip64_end = true;
  const std::string bytes = zip.Build();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ReadStoredZip(MemoryFile(std::string_view(bytes).substr(0, size))).ok()) << size;
  }
}

TEST(StoredZip, RefusesWhatItCannotRead) {
  using enum absl::StatusCode;
  ZipBuilder zip = Two();
  zip.entries[0].method = 8;
  ExpectZipRefused(zip.Build(), "entry \"a\" is compressed (method 8)", kUnimplemented);
  zip = Two();
  zip.entries[1].flags |= 1;
  ExpectZipRefused(zip.Build(), "entry \"b\" is encrypted", kUnimplemented);
  ExpectZipRefused("PK, but no more than that, whatever comes", "no end record");
}

TEST(StoredZip, RefusesEntriesThatLieAboutTheirPlace) {
  const auto refused = [](const ZipFileEntry& second, const std::string& why, bool zip64 = false) {
    ZipBuilder zip = Two();
    zip.entries[1] = second;
    zip.zip64_entries = zip64;
    ExpectZipRefused(zip.Build(), why);
  };
  refused({.name = "b", .data = "12345678", .extra_size = 1}, "8 stored bytes of 9");
  refused({.name = "b", .data = "12345678", .extra_size = 100, .extra_packed = 100},
          "reach beyond");
  for (const int64_t huge : {int64_t{1} << 62, -int64_t{9}, INT64_MAX - 8}) {
    refused({.name = "b", .data = "12345678", .extra_size = huge, .extra_packed = huge},
            "reach beyond", true);
    refused({.name = "b", .data = "12345678", .extra_offset = huge}, "no local header", true);
  }
  refused({.name = "a", .data = "12345678"}, "stands twice");
  refused({.name = "b", .data = "12345678", .local_name = "c"}, "says otherwise");
}

TEST(StoredZip, RefusesEntriesThatOverlap) {
  // The first entry's data are the local header and the data of the second.
  const ZipBuilder inner{.entries = {{.name = "b", .data = "second"}}};
  const std::string local = inner.Build().substr(0, inner.Build().find("PK\x01\x02"));
  ZipBuilder zip{.entries = {{.name = "a", .data = local}, {.name = "b", .data = "second"}}};
  const std::string good = zip.Build();
  ASSERT_TRUE(ReadStoredZip(MemoryFile(good)).ok());
  const size_t inside = good.find("PK\x03\x04", 4), own = good.find("PK\x03\x04", inside + 4);
  ASSERT_NE(own, std::string::npos);
  zip.entries[1].extra_offset = static_cast<int64_t>(inside) - static_cast<int64_t>(own);
  ExpectZipRefused(zip.Build(), "entry \"a\": its");

  // Both at one place, under two names for one header.
  zip.entries[0].data = "first";
  zip.entries[0].local_name = zip.entries[0].name = "c";
  zip.entries[1].extra_offset = -static_cast<int64_t>(zip.Build().find("PK\x03\x04", 4));
  ExpectZipRefused(zip.Build(), "entry \"");
}

TEST(StoredZip, RefusesEndRecordsThatDoNotFitTheDirectory) {
  for (const bool zip64 : {false, true}) {
    const auto refused = [zip64](ZipBuilder zip, const std::string& why) {
      zip.entries = Two().entries;
      zip.zip64_end = zip64;
      ExpectZipRefused(zip.Build(), why);
    };
    refused({.extra_entries = 1}, "3 entries in a directory of");
    refused({.extra_entries = -1}, "1 entries end at");
    refused({.extra_entries = 10'000}, "10002 entries in a directory of");
    refused({.extra_directory = 1}, "does not end at");
    refused({.extra_begin = 1}, "does not end at");
    refused({.extra_directory = 1, .extra_begin = -2}, "does not end at");
    refused({.between = "x"}, "does not end at");
  }
  ZipBuilder zip = Two();
  zip.zip64_end = true;
  for (const int64_t shift : {int64_t{1}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    zip.extra_locator = shift;
    ExpectZipRefused(zip.Build(), "no zip64 end record");
  }
  zip.extra_locator = 0;
  zip.extra_entries = INT64_MAX;
  ExpectZipRefused(zip.Build(), "entries in a directory");
}

}  // namespace
}  // namespace baton::checkpoint
