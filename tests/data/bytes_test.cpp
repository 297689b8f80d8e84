// Streams in windows under every scoring protocol; files as bytes and as the characters of text8; what is no such file.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <map>

#include "archive_maker.h"
#include "core/error.h"
#include "core/hash.h"
#include "data/adapter_place.h"
#include "data/batches/batcher.h"
#include "data/check.h"
#include "data/text/stream_windows.h"

namespace xformer::bytes_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;
using Catch::Matchers::Contains;

namespace {

// Bytes without a pattern, 0 and 255 among them.
std::string stream(size_t size) {
  std::string text(size, '\0');
  Stream numbers(9);
  for (char& letter : text) letter = static_cast<char>(numbers.next_below(256));
  return text;
}

struct Window {
  std::vector<int64_t> ids, labels;
};
Window window(const DataSource& source, Split split, int64_t index) {
  HostBatch batch;
  fill_batch(source, split, {{index}, source.info().shape.max_len}, 1, batch);
  Window result{batch.whole("tokens"), batch.whole("label")};
  const auto valid = static_cast<size_t>(std::count(batch.key_valid.begin(), batch.key_valid.end(), 1));
  result.ids.resize(valid);
  result.labels.resize(valid);
  return result;
}

std::string message(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("windows count every place of a stream exactly once, with the context that they promise", "[bytes]") {
  for (const int64_t size : {0, 1, 7, 8, 9, 15, 16, 17, 64, 101})
    for (const int64_t length : {1, 2, 8, 12})
      for (int64_t stride = 1; stride <= length; ++stride) {
        CAPTURE(size, length, stride);
        const StreamWindows windows(size, length, stride);
        std::vector<int64_t> counted(static_cast<size_t>(size), 0);
        for (int64_t i = 0; i < windows.count(); ++i) {
          const StreamWindow one = windows.at(i);
          REQUIRE((one.length >= 1 && one.length <= length && one.begin + one.length <= size));
          REQUIRE(one.counted_from < one.length);
          if (i > 0) REQUIRE(one.counted_from == length - stride);
          if (i + 1 < windows.count()) REQUIRE(one.length == length);
          for (int64_t place = one.counted_from; place < one.length; ++place)
            ++counted[static_cast<size_t>(one.begin + place)];
        }
        REQUIRE(std::all_of(counted.begin(), counted.end(), [](int64_t times) { return times == 1; }));
      }
  CHECK_THROWS_AS(StreamWindows(10, 4, 5), InternalError);
}

TEST_CASE("a file's splits are its parts, and each of their bytes is a label once, behind the byte before it",
          "[bytes]") {
  const Place place;
  const std::string text = stream(1000);
  scratch::put(place.folder / "noise", text);
  for (const auto& [scoring, stride] : {std::pair{"window", 0}, std::pair{"half", 0}, std::pair{"stride", 3}}) {
    CAPTURE(scoring);
    const auto source = place.open(
        "bytes/noise",
        {{"length", 16}, {"scoring", scoring}, {"stride", stride}, {"dev_share", 0.1}, {"test_share", 0.25}});
    const DataInfo& info = source->info();
    CHECK((info.shape.vocabulary == 257 && info.shape.target.classes() == 256));
    CHECK(info.sha256 == sha256(text));
    CHECK(info.details["bytes"] == Json{{"train", {0, 650}}, {"dev", {650, 750}}, {"test", {750, 1000}}});
    CHECK(info.details["scoring"] == (scoring == std::string("stride") ? "stride 3" : scoring));
    for (const Split split : kAllSplits) {
      const auto begin = info.details["bytes"][split_name(split)][0].get<size_t>(),
                 end = info.details["bytes"][split_name(split)][1].get<size_t>();
      const int64_t step = split == Split::kTrain ? 16 : scoring == std::string("half") ? 8 : stride > 0 ? stride : 16;
      std::string labels;
      for (int64_t i = 0; i < source->size(split); ++i) {
        const auto [ids, scored] = window(*source, split, i);
        for (size_t at = 0; at < ids.size(); ++at) {
          const size_t where = begin + static_cast<size_t>(i * step) + at;
          const int64_t before = where == begin ? 0 : static_cast<uint8_t>(text[where - 1]) + 1;
          REQUIRE(ids[at] == before);
          if (scored[at] == kNoLabel) continue;
          REQUIRE(scored[at] == static_cast<uint8_t>(text[where]));
          labels += text[where];
        }
        const auto context = std::count(scored.begin(), scored.end(), kNoLabel);
        REQUIRE(context == (i == 0 ? 0 : 16 - step));
      }
      CHECK(labels == text.substr(begin, end - begin));
    }
  }
}

TEST_CASE("a hundred million bytes are cut at 90 and 95 million", "[bytes]") {
  const Place place;
  {
    std::ofstream sparse(place.folder / "enwik8", std::ios::binary);
    sparse.seekp(99'999'999);
    sparse.put('\0');
  }
  const auto source = place.open("bytes/enwik8", {{"length", 1000}});
  CHECK(source->info().details["bytes"] ==
        Json{{"train", {0, 90'000'000}}, {"dev", {90'000'000, 95'000'000}}, {"test", {95'000'000, 100'000'000}}});
  CHECK((source->size(Split::kTrain) == 90'000 && source->size(Split::kDev) == 5'000));
  CHECK_FALSE(source->info().details.contains("published_bytes"));
}

TEST_CASE("random windows are whole windows of train, functions of what they draw from", "[bytes]") {
  const Place place;
  const std::string text = stream(400);
  scratch::put(place.folder / "noise", text);
  const auto source = place.open("bytes/noise", {{"length", 16}, {"windows", "random"}});
  std::map<int64_t, int64_t> begins;
  for (uint64_t number = 0; number < 2000; ++number) {
    Stream numbers(4, number), again(4, number);
    const Example one = source->augmented(Split::kTrain, 0, numbers);
    const std::vector<int32_t> labels(one.further[0].as<int32_t>().begin(), one.further[0].as<int32_t>().end());
    REQUIRE(labels.size() == 16);
    std::string part;
    for (const int32_t label : labels) part += static_cast<char>(label);
    const size_t begin = text.find(part);
    REQUIRE(begin != text.npos);
    ++begins[static_cast<int64_t>(begin)];
    const auto repeated = source->augmented(Split::kTrain, 5, again).further[0].as<int32_t>();
    REQUIRE(std::vector<int32_t>(repeated.begin(), repeated.end()) == labels);
  }
  CHECK(begins.size() > 250);
  CHECK(begins.rbegin()->first == 360 - 16);  // the last of train
  CHECK(begins.begin()->first == 0);
}

TEST_CASE("text8 is a blank and 26 letters; any other byte is named with its place", "[bytes]") {
  const Place place;
  scratch::put(place.folder / "text8",
               " anarchism originated as a term of abuse first used against early working class");
  const auto source = place.open("bytes/text8", {{"length", 8}});
  CHECK((source->info().shape.vocabulary == 28 && source->info().shape.target.classes() == 27));
  CHECK(source->info().shape.target.parameters["symbol"] == "character");
  CHECK(window(*source, Split::kTrain, 0).labels == std::vector<int64_t>{0, 1, 14, 1, 18, 3, 8, 9});
  CHECK(window(*source, Split::kTrain, 0).ids == std::vector<int64_t>{0, 1, 2, 15, 2, 19, 4, 9});
  CHECK(source->read(Split::kTrain, 0).ids[0].as<uint8_t>().size() == 8);
  CHECK(source->info().details["published_bytes"] == 100'000'000);
  CHECK_THAT(find_dataset("bytes/text8").show(source->read(Split::kTrain, 0), source->info()), Contains("' anarchi'"));
  scratch::put(place.folder / "text8", "the early life of Anarchism and much more of it in the same vein");
  CHECK_THAT(message([&] {
               (void)place.open("bytes/text8", {{"length", 8}});
             }),
             Contains("byte 18 is 'A'") && Contains("a to z"));
}

TEST_CASE("what is no file to read is one clear error, and leaves nothing behind", "[bytes]") {
  const Place place;
  const auto opened = [&](const Json& options = {{"length", 16}}) {
    return message([&] { (void)place.open("bytes/log", options); });
  };
  CHECK_THAT(opened(), Contains("no file log (or log.txt, log.zip)") && Contains("the folder is empty"));
  scratch::put(place.folder / "log", "");
  CHECK_THAT(opened(), Contains("has 0 bytes") && Contains("data.length = 16"));
  scratch::put(place.folder / "log", "a few words");
  CHECK_THAT(opened(), Contains("has 11 bytes") && Contains("log"));
  scratch::put(place.folder / "log", "\x1f\x8b\b and so on, for much longer than a window is");
  CHECK_THAT(opened(), Contains("compressed") && Contains("gzip -d"));
  scratch::put(place.folder / "log", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  CHECK_THAT(opened(), Contains("git lfs pull"));
  std::filesystem::remove(place.folder / "log");
  std::filesystem::create_directory(place.folder / "log");
  CHECK_THAT(opened(), Contains("log is a folder"));
  DataLocation inside = place.location();  // the folder around it has a folder of the name, which is not offered
  inside.folder = place.folder / "log";
  CHECK_THAT(message([&] {
               (void)find_dataset("bytes/log").open(options_of("bytes/log", {{"length", 16}}), inside, {});
             }),
             Contains("no file log") && !Contains("did you mean"));
  CHECK_THAT(opened({{"length", 16}, {"stride", 4}}), Contains("data.stride: expected 0"));
  CHECK_THAT(opened({{"length", 16}, {"scoring", "stride"}}), Contains("data.stride: expected 1 to data.length = 16"));
  CHECK_THAT(opened({{"length", 15}, {"scoring", "half"}}), Contains("even"));
  CHECK_THAT(opened({{"length", 16}, {"dev_share", 0.6}, {"test_share", 0.4}}), Contains("nothing to train on"));
  CHECK(place.cache_is_empty());
}

TEST_CASE("an archive of the file is unpacked once; one without it says what it holds", "[bytes]") {
  const Place place;
  const std::string text = stream(500);
  const auto zip = [&](const std::string& name, const std::vector<scratch::Member>& members) {
    scratch::put(place.folder / name, scratch::archive_of(scratch::ArchiveKind::kZip, members));
  };
  zip("noise.zip", {{"noise", text, AE_IFREG, ""}, {"read.me", "no", AE_IFREG, ""}});
  CHECK(place.open("bytes/noise", {{"length", 16}})->info().sha256 == sha256(text));
  CHECK(place.open("bytes/noise", {{"length", 16}})->info().sha256 == sha256(text));
  zip("other.zip", {{"read.me", "no", AE_IFREG, ""}});
  CHECK_THAT(message([&] {
               (void)place.open("bytes/other", {{"length", 16}});
             }),
             Contains("no file other in") && Contains("read.me"));
}

TEST_CASE("the check of a file says its sizes and the entropy of its symbols", "[bytes]") {
  const Place place;
  std::string text;
  for (int i = 0; i < 500; ++i) text += "abac";
  const Place other;
  scratch::put(place.folder / "log", text);
  scratch::put(other.folder / "text8", text);
  const auto checked = [](const std::string& task, const Place& where) {
    return find_dataset(task).check(options_of(task, {{"length", 20}}), where.location(), {});
  };
  const CheckReport log = checked("bytes/log", place), letters = checked("bytes/text8", other);
  for (const CheckReport& report : {log, letters})
    CHECK(report.splits["train"] == Json{{"examples", 90}, {"bytes", 1800}, {"symbols", 3}, {"entropy_bits", 1.5}});
  CHECK(log.passed);
  CHECK_THAT(log.text(), Contains("train 1.5000, dev 1.5000, test 1.5000"));
  CHECK_THAT(letters.text(), Contains("FAIL") && Contains("expected 100000000"));
}

TEST_CASE("the genuine beginning of enwik8 is what is known of it", "[bytes]") {
  const char* const root = std::getenv("XFORMER_TEST_DATA");
  if (root == nullptr) {
    WARN("skipped: XFORMER_TEST_DATA is not set");
    SUCCEED("skipped");
    return;
  }
  const Place place;
  REQUIRE(std::system(fmt::format("gzip -dc '{}/text8/enwik8_first_4000000_bytes.gz' > '{}'", root,
                                  (place.folder / "enwik8").string())
                          .c_str()) == 0);
  const auto source = place.open("bytes/enwik8", {{"length", 512}, {"scoring", "half"}});
  CHECK(source->info().sha256 == "9f9ca3a41e2b87a0268d00380577e2c308e07959b22a94c8d7b1e8901bdefc37");
  CHECK(source->info().details["bytes"]["test"] == Json{3'800'000, 4'000'000});
  const CheckReport report = find_dataset("bytes/enwik8").check(options_of("bytes/enwik8"), place.location(), {});
  const double bits = report.splits["train"]["entropy_bits"];
  CHECK((bits > 4.9 && bits < 5.3));
}

}  // namespace xformer::bytes_test
