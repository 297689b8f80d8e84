// Sounds in folders by class: what becomes of their samples, of lists and of what is no sound.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "data/adapter_place.h"
#include "data/batches/batcher.h"
#include "data/check.h"
#include "wav_maker.h"

namespace xformer::speech_commands_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;
using Catch::Matchers::Contains;
using scratch::wav_of;

namespace {

const Json kShort{{"length", 4}};

void put_below(const Path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  scratch::put(path, content);
}

// Four sounds of each of two classes, another folder and another file.
void put_sounds(const Place& place, bool lists = true) {
  for (const std::string name : {"left", "right"})
    for (int i = 0; i < 4; ++i)
      put_below(place.folder / name / fmt::format("{}.wav", i),
                wav_of({i * 1000, 100, name == "left" ? -200 : 200, 16384, 5, 6}));
  put_below(place.folder / "right" / "3.wav", wav_of({-16384, 8192}));
  put_below(place.folder / "_background_noise_" / "noise.wav", "no sound at all");
  put_below(place.folder / "left" / "notes.txt", "by whom");
  if (!lists) return;
  put_below(place.folder / "validation_list.txt", "left/2.wav\r\nright/2.wav\n");
  put_below(place.folder / "testing_list.txt", "left/3.wav\nright/3.wav\n");
}

std::string refused(const Place& place, const std::string& task = "speech-commands/two", const Json& given = kShort) {
  return scratch::message_of<DataError>([&] { (void)place.open(task, given); });
}

}  // namespace

TEST_CASE("sounds are cut, filled up with zeros and standardised by train", "[speech]") {
  const Place place;
  put_sounds(place);
  const auto source = place.open("speech-commands/two", kShort);
  const DataInfo& info = source->info();
  CHECK((info.shape.max_len == 4 && info.shape.width == 1 && info.shape.target.classes() == 2));
  CHECK((source->size(Split::kTrain) == 4 && source->size(Split::kDev) == 2 && source->size(Split::kTest) == 2));
  CHECK(info.details["classes"] == Json{"left", "right"});
  // By definition, over the four training sounds.
  std::vector<double> train;
  for (const double sign : {-1.0, 1.0})
    for (const double first : {0.0, 1000.0})
      for (const double sample : {first, 100.0, sign * 200, 16384.0}) train.push_back(sample / 32768);
  double mean = 0, square = 0;
  for (const double x : train) mean += x / 16;
  for (const double x : train) square += (x - mean) * (x - mean) / 16;
  const double deviation = std::sqrt(square);
  CHECK(info.details["mean"].get<double>() == Approx(mean));
  CHECK(info.details["deviation"].get<double>() == Approx(deviation));
  const auto numbers = [&](const DataSource& of) {
    HostBatch batch;
    fill_batch(of, Split::kTest, {{1}, 4}, 1, batch);
    return std::pair(batch.numbers("values"), batch.key_valid);
  };
  CHECK(source->name(Split::kTest, 1) == "right/3.wav");
  const auto [values, valid] = numbers(*source);
  const std::vector<double> meant{-0.5, 0.25, 0, 0};
  for (size_t i = 0; i < 4; ++i) CHECK(values[i] == Approx((meant[i] - mean) / deviation).epsilon(1e-5));
  CHECK(valid == std::vector<uint8_t>{1, 1, 1, 1});
  const auto plain =
      place.open("speech-commands/two", {{"length", 4}, {"standardise", "none"}, {"filling", "nothing"}});
  const auto [raw, real] = numbers(*plain);
  CHECK((raw[0] == -0.5F && raw[1] == 0.25F));
  CHECK(real == std::vector<uint8_t>{1, 1, 0, 0});
  CHECK(scratch::names_in(place.cache / "speech-commands").size() <= 2);  // one cache for both, and its lock
}

TEST_CASE("without lists every class is split by itself; the check says so", "[speech]") {
  const Place place;
  put_sounds(place, /*lists=*/false);
  Json options = options_of("speech-commands/two", kShort);
  options.update(Json{{"dev_share", 0.25}, {"test_share", 0.25}});
  const auto source = place.open("speech-commands/two", options);
  CHECK((source->size(Split::kTrain) == 4 && source->size(Split::kDev) == 2 && source->size(Split::kTest) == 2));
  std::set<std::string> names;
  for (const Split split : kAllSplits)
    for (int64_t i = 0; i < source->size(split); ++i) names.insert(source->name(split, i));
  CHECK(names.size() == 8);
  const CheckReport report = find_dataset("speech-commands/two").check(options, place.location(), {});
  CHECK(report.passed);
  CHECK_THAT(report.text(), Contains("8 sounds") && Contains("drawn by data.split_seed") && Contains("left out: 1") &&
                                Contains("samples are read: 7") && Contains("filled up: 1"));
  CHECK_THAT(find_dataset("speech-commands/two").show(source->read(Split::kTest, 0), source->info()),
             Contains("4 samples, label 0 (left)"));
}

TEST_CASE("what is wrong with sounds, lists and folders is told with the file", "[speech]") {
  const auto with = [](const std::string& name, const std::string& content) {
    const Place place;
    put_sounds(place);
    put_below(place.folder / name, content);
    const std::string message = refused(place);
    CHECK(place.cache_is_empty());
    return message;
  };
  CHECK_THAT(with("left/0.wav", wav_of({1, 2}, 8000)),
             Contains("left/0.wav: expected 16000 samples a second, found 8000; nothing is resampled"));
  CHECK_THAT(with("left/0.wav", ""), Contains("left/0.wav is empty"));
  CHECK_THAT(with("left/0.wav", wav_of({1, 2, 3}).substr(0, 47)), Contains("left/0.wav is cut off"));
  CHECK_THAT(with("left/0.wav", "fLaC and twelve bytes more"), Contains("found FLAC"));
  CHECK_THAT(with("left/0.wav", scratch::wav_file({.channels = 2}, "abcdabcd")), Contains("expected one channel"));
  CHECK_THAT(with("testing_list.txt", "left/3.wav\nleft/9.wav\n"),
             Contains("testing_list.txt:2: there is no sound") && Contains("left/9.wav"));
  CHECK_THAT(with("testing_list.txt", "up/1.wav\n"), Contains("testing_list.txt:1"));
  CHECK_THAT(with("testing_list.txt", "left/2.wav\n"), Contains("left/2.wav is in validation_list.txt, too"));
  CHECK_THAT(with("testing_list.txt", "\n"), Contains("testing_list.txt names no sound"));
  CHECK_THAT(with("validation_list.txt", "left/0.wav\nleft/1.wav\nleft/2.wav\nright/0.wav\nright/1.wav\nright/2.wav\n"),
             Contains("no sound to train on"));
  {
    const Place place;
    put_sounds(place);
    std::filesystem::remove(place.folder / "testing_list.txt");
    CHECK_THAT(refused(place), Contains("found validation_list.txt, and no testing_list.txt"));
  }
  {
    const Place place;
    put_sounds(place);
    std::filesystem::create_directory(place.folder / "up");
    CHECK_THAT(refused(place), Contains("no sound (.wav) of the class up"));
    CHECK_THAT(refused(place, "speech-commands"), Contains("no sounds of speech-commands") && Contains("bed"));
    CHECK_THAT(refused(place, "speech-commands/two", {{"length", 4}, {"classes", "left,rihgt"}}), Contains("right"));
  }
  const Place empty;
  CHECK_THAT(refused(empty), Contains("a folder of WAV files for each of two classes"));
}

TEST_CASE("classes may be chosen, and lists may name sounds of those that are not", "[speech]") {
  const Place place;
  put_sounds(place);
  put_below(place.folder / "up" / "0.wav", wav_of({1, 2}));
  put_below(place.folder / "testing_list.txt", "left/3.wav\nup/7.wav\nright/3.wav\n");
  const Json chosen{{"length", 4}, {"classes", "right,left"}};
  const auto source = place.open("speech-commands/two", chosen);
  CHECK(source->info().details["classes"] == Json{"right", "left"});
  CHECK((source->size(Split::kTrain) == 4 && source->size(Split::kTest) == 2));
  CHECK(find_dataset("speech-commands").shape(options_of("speech-commands")).target.classes() == 35);
}

TEST_CASE("sounds that are moved between classes, and other lists, are packed anew", "[speech]") {
  const Place place;
  put_sounds(place, /*lists=*/false);
  const auto names_of = [&](Split split) {
    const auto source = place.open("speech-commands/two", {{"length", 4}, {"dev_share", 0.25}, {"test_share", 0.25}});
    std::map<std::string, int64_t> names;
    for (int64_t i = 0; i < source->size(split); ++i) names[source->name(split, i)] = source->read(split, i).label;
    return names;
  };
  const auto all = [&] {
    std::map<std::string, int64_t> names;
    for (const Split split : kAllSplits) names.merge(names_of(split));
    return names;
  };
  CHECK(all().contains("left/1.wav"));
  std::filesystem::rename(place.folder / "left" / "1.wav", place.folder / "right" / "7.wav");
  const auto moved = all();
  REQUIRE((moved.size() == 8 && moved.contains("right/7.wav")));
  CHECK(moved.at("right/7.wav") == 1);
  put_below(place.folder / "validation_list.txt", "left/2.wav\n");
  put_below(place.folder / "testing_list.txt", "left/3.wav\n\n");
  CHECK((names_of(Split::kDev).contains("left/2.wav") && names_of(Split::kTest).contains("left/3.wav")));
  std::filesystem::rename(place.folder / "validation_list.txt", place.folder / "list");
  std::filesystem::rename(place.folder / "testing_list.txt", place.folder / "validation_list.txt");
  std::filesystem::rename(place.folder / "list", place.folder / "testing_list.txt");
  CHECK((names_of(Split::kDev).contains("left/3.wav") && names_of(Split::kTest).contains("left/2.wav")));
}

}  // namespace xformer::speech_commands_test
