// Event files are read back by a parser that shares no code with the writer.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/error.h"
#include "reporting/event_file.h"

namespace {

using xformer::Path;
using xformer::reporting::EventFile;

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "xformer-events-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::vector<Path> files() const {
    std::vector<Path> found(std::filesystem::directory_iterator{path}, {});
    std::sort(found.begin(), found.end());
    return found;
  }
  Path path;
};

// Bit by bit, unlike the table of the writer.
uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78U : crc >> 1;
  }
  return ~crc;
}

uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U; }

template <class T>
T take(std::string_view& bytes) {
  REQUIRE(bytes.size() >= sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    REQUIRE(shift < 70);
    const auto byte = take<uint8_t>(bytes);
    value |= uint64_t{byte & 0x7FU} << shift;
    if ((byte & 0x80U) == 0) return value;
  }
}

// Field number -> content: the bytes of a number or the payload of a field with a length.
std::map<uint64_t, std::string> fields(std::string_view message) {
  std::map<uint64_t, std::string> found;
  while (!message.empty()) {
    const uint64_t key = take_varint(message);
    size_t length = 0;
    switch (key & 7) {
      case 0: {
        const uint64_t value = take_varint(message);
        found[key >> 3] = std::string(reinterpret_cast<const char*>(&value), sizeof value);
        continue;
      }
      case 1:
        length = 8;
        break;
      case 2:
        length = take_varint(message);
        break;
      case 5:
        length = 4;
        break;
      default:
        FAIL("wire type " << (key & 7));
    }
    REQUIRE(length <= message.size());
    found[key >> 3] = std::string(message.substr(0, length));
    message.remove_prefix(length);
  }
  return found;
}

template <class T>
T number(const std::string& bytes) {
  std::string_view rest = bytes;
  const T value = take<T>(rest);
  REQUIRE(rest.empty());
  return value;
}

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string version, tag;
  std::optional<float> value;
  std::optional<uint64_t> session;
  std::string metadata;  // of a value that has some
};

std::vector<Event> read(const Path& path) {
  const std::string content = xformer::read_file(path);
  std::string_view bytes = content;
  std::vector<Event> events;
  while (!bytes.empty()) {
    const std::string_view length_bytes = bytes.substr(0, 8);
    const auto length = take<uint64_t>(bytes);
    REQUIRE(take<uint32_t>(bytes) == masked(crc32c(length_bytes)));
    REQUIRE(length <= bytes.size());
    const std::string_view payload = bytes.substr(0, length);
    bytes.remove_prefix(length);
    REQUIRE(take<uint32_t>(bytes) == masked(crc32c(payload)));

    Event event;
    for (const auto& [field, value] : fields(payload)) {
      if (field == 1) event.wall_time = number<double>(value);
      else if (field == 2) event.step = number<int64_t>(value);
      else if (field == 3) event.version = value;
      else if (field == 7) event.session = number<uint64_t>(fields(value).at(1));
      else {
        REQUIRE(field == 5);
        const auto entry = fields(fields(value).at(1));
        event.tag = entry.at(1);
        if (entry.contains(2)) event.value = number<float>(entry.at(2));
        if (entry.contains(9)) event.metadata = entry.at(9);
      }
    }
    events.push_back(event);
  }
  return events;
}

void write_steps(EventFile& file, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) file.scalar("train/loss", 1.0 / static_cast<double>(step), step);
}

}  // namespace

TEST_CASE("the test's own CRC-32C gives the published check value") {
  CHECK(crc32c("123456789") == 0xE3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAU);  // RFC 3720, B.4
}

TEST_CASE("an event file opens with its version and holds every scalar in order") {
  const Folder folder;
  {
    EventFile file(folder.path, 0);
    write_steps(file, 1, 3);
    file.scalar("dev/accuracy", 0.375, 3);
  }
  const std::vector<Path> files = folder.files();
  REQUIRE(files.size() == 1);
  CHECK(files[0].filename().string().starts_with("events.out.tfevents."));
  const std::vector<Event> events = read(files[0]);
  REQUIRE(events.size() == 5);
  CHECK(events[0].version == "brain.Event:2");
  CHECK_FALSE(events[0].value.has_value());
  for (size_t i = 1; i <= 3; ++i) {
    CHECK(events[i].tag == "train/loss");
    CHECK(events[i].step == static_cast<int64_t>(i));
    CHECK(events[i].value == 1.0F / static_cast<float>(i));
  }
  CHECK(events[4].tag == "dev/accuracy");
  CHECK(events[4].value == 0.375F);
  for (const Event& event : events) {
    CHECK(event.wall_time > 1.6e9);
    CHECK_FALSE(event.session.has_value());
  }
}

TEST_CASE("a file that begins at a later step voids the steps from there on") {
  const Folder folder;
  { const EventFile file(folder.path, 6); }
  const std::vector<Event> events = read(folder.files().at(0));
  REQUIRE(events.size() == 2);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[0].step == 0);
  CHECK(events[1].session == 1U);
  CHECK(events[1].step == 6);
}

TEST_CASE("steps, values and tags of any size survive") {
  const Folder folder;
  const std::string long_tag(300, 'x');
  {
    EventFile file(folder.path, 0);
    file.scalar(long_tag, std::numeric_limits<double>::infinity(), std::numeric_limits<int64_t>::max());
    file.scalar("", std::nan(""), -1);
    file.scalar("zero", -0.0, 0);
  }
  const std::vector<Event> events = read(folder.files().at(0));
  REQUIRE(events.size() == 4);
  CHECK(events[1].tag == long_tag);
  CHECK(events[1].step == std::numeric_limits<int64_t>::max());
  CHECK(std::isinf(events[1].value.value()));
  CHECK(events[2].step == -1);
  CHECK(std::isnan(events[2].value.value()));
  CHECK(events[3].step == 0);
  CHECK(std::signbit(events[3].value.value()));
}

TEST_CASE("a flush makes everything readable and more than a buffer is kept whole") {
  const Folder folder;
  EventFile file(folder.path, 0);
  CHECK(read(folder.files().at(0)).size() == 1);
  write_steps(file, 1, 5000);
  file.flush();
  const std::vector<Event> events = read(folder.files().at(0));
  REQUIRE(events.size() == 5001);
  CHECK(events.back().step == 5000);
}

TEST_CASE("a run's options and its end stand in TensorBoard's table of runs") {
  const Folder folder;
  {
    EventFile file(folder.path, 0);
    file.run_begins({{"model", "linear"},
                     {"training.batch", 32},
                     {"model.attention_bias", true},
                     {"model.mask_output", false},
                     {"attention.scales", {1, 2}}});
    file.scalar("test/accuracy", 0.5, 7);
    file.run_is_done();
  }
  const std::vector<Event> events = read(folder.files().at(0));
  REQUIRE(events.size() == 4);
  // SummaryMetadata.plugin_data {plugin_name, content}; content: HParamsPluginData of version 0, which is left out.
  const auto content = [&](const Event& event) {
    CHECK(event.step == 0);
    const auto plugin = fields(fields(event.metadata).at(1));
    CHECK(plugin.at(1) == "hparams");
    return fields(plugin.at(2));
  };
  CHECK(events[1].tag == "_hparams_/session_start_info");
  CHECK(events[3].tag == "_hparams_/session_end_info");
  CHECK(number<uint64_t>(fields(content(events[3]).at(4)).at(1)) == 1);  // STATUS_SUCCESS
  const std::string start = content(events[1]).at(3);
  CHECK(number<double>(fields(start).at(5)) > 1.6e9);
  // Entries of a map are one field many times.
  std::map<std::string, std::map<uint64_t, std::string>> options;
  std::string_view rest = start;
  while (!rest.empty() && take_varint(rest) == ((1 << 3) | 2)) {
    const size_t length = take_varint(rest);
    const auto entry = fields(rest.substr(0, length));
    options[entry.at(1)] = fields(entry.at(2));
    rest.remove_prefix(length);
  }
  REQUIRE(options.size() == 5);
  CHECK(number<double>(options["training.batch"].at(2)) == 32.0);
  CHECK(options["model"].at(3) == "linear");
  CHECK(number<uint64_t>(options["model.attention_bias"].at(4)) == 1);
  CHECK(number<uint64_t>(options["model.mask_output"].at(4)) == 0);
  CHECK(options["attention.scales"].at(3) == "[1,2]");
}

TEST_CASE("each new file of a folder sorts after all earlier ones, whatever the clock says") {
  const Folder folder;
  const std::string from_the_future = "events.out.tfevents.9000000000.elsewhere.1.0";
  xformer::write_file_atomically(folder.path / from_the_future, "");
  xformer::write_file_atomically(folder.path / "events.out.tfevents.of-no-number", "");
  std::vector<Path> known = folder.files();
  for (int i = 0; i < 12; ++i) {
    { const EventFile file(folder.path, 1); }
    const std::vector<Path> now = folder.files();
    REQUIRE(now.size() == known.size() + 1);
    std::vector<Path> added;
    std::set_difference(now.begin(), now.end(), known.begin(), known.end(), std::back_inserter(added));
    REQUIRE(added.size() == 1);
    for (const Path& earlier : known)
      if (earlier.filename() != "events.out.tfevents.of-no-number") CHECK(earlier < added[0]);
    known = now;
  }
}

TEST_CASE("a folder that is missing is named in the error") {
  const Folder folder;
  const Path missing = folder.path / "nowhere";
  CHECK_THROWS_WITH(EventFile(missing, 0), Catch::Contains(missing.string()));
  CHECK_THROWS_AS(EventFile(missing, 0), xformer::DataError);
}

// Hidden: scripts/check-tensorboard runs it to have files for TensorBoard's own reader.
TEST_CASE("a run of ten steps resumed at step six is written for TensorBoard", "[.tensorboard-sample]") {
  const char* const folder = std::getenv("XFORMER_EVENT_FOLDER");
  REQUIRE(folder != nullptr);
  {
    EventFile first(folder, 0);
    first.run_begins({{"model", "linear"}, {"training.batch", 32}, {"model.attention_bias", true}});
    write_steps(first, 1, 10);
  }
  EventFile second(folder, 6);
  write_steps(second, 6, 8);
  second.run_is_done();
  second.flush();
  CHECK(std::distance(std::filesystem::directory_iterator{folder}, {}) == 2);
}
