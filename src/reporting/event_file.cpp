// Event files for TensorBoard: protobuf fields by hand, CRC-32C from a table, frames into an AppendFile.
#include "reporting/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <string>

#include "core/error.h"

namespace xformer::reporting {
namespace {

// Enough for a few hundred scalars: a training step must not wait for a system call per metric.
constexpr size_t kBufferBytes = size_t{1} << 16;
constexpr std::string_view kNameStart = "events.out.tfevents.";

// Field numbers of event.proto and summary.proto, and the wire types of protobuf.
enum class EventField : uint32_t { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum class ValueField : uint32_t { kTag = 1, kSimpleValue = 2 };
enum class WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
constexpr uint32_t kSummaryValue = 1, kSessionStatus = 1;
constexpr uint64_t kSessionStart = 1;

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78U : 0U);
    table[i] = value;
  }
  return table;
}();

// TFRecord rotates and shifts a checksum, so that a checksum of data that holds checksums stays useful.
uint32_t masked_crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes) crc = kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFFU] ^ (crc >> 8);
  return std::rotr(~crc, 15) + 0xA282EAD8U;
}

template <class Unsigned>
void append_little_endian(std::string& into, Unsigned value) {
  for (size_t i = 0; i < sizeof value; ++i) into += static_cast<char>((value >> (8 * i)) & 0xFFU);
}

void append_varint(std::string& into, uint64_t value) {
  for (; value >= 0x80; value >>= 7) into += static_cast<char>((value & 0x7F) | 0x80);
  into += static_cast<char>(value);
}

template <class Field>
void append_key(std::string& into, Field field, WireType type) {
  append_varint(into, (static_cast<uint32_t>(field) << 3) | static_cast<uint32_t>(type));
}

template <class Field>
void append_bytes(std::string& into, Field field, std::string_view bytes) {
  append_key(into, field, WireType::kBytes);
  append_varint(into, bytes.size());
  into += bytes;
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string event_start(int64_t step) {
  std::string event;
  append_key(event, EventField::kWallTime, WireType::kFixed64);
  append_little_endian(event, std::bit_cast<uint64_t>(now_seconds()));
  if (step != 0) {
    append_key(event, EventField::kStep, WireType::kVarint);
    append_varint(event, static_cast<uint64_t>(step));  // negative: ten bytes, as protobuf wants it
  }
  return event;
}

// TensorBoard reads the files of a folder in the order of their names, and START voids only what was read
// before it. A new file therefore takes a second after every file that is there already, even when the
// clock went back or a run was resumed within the same second.
int64_t second_after_all_files(const Path& folder) {
  auto second = static_cast<int64_t>(now_seconds());
  std::error_code problem;
  for (std::filesystem::directory_iterator entry(folder, problem), end; !problem && entry != end;
       entry.increment(problem)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kNameStart)) continue;
    int64_t other = 0;
    const char* const from = name.data() + kNameStart.size();
    if (std::from_chars(from, name.data() + name.size(), other).ec != std::errc{}) continue;
    if (other >= second) second = other + 1;
  }
  XF_CHECK(!problem, DataError, "cannot list the folder {} for event files: {}", folder.string(), problem.message());
  return second;
}

Path new_file_name(const Path& folder) {
  const int64_t second = second_after_all_files(folder);
  for (int64_t number = 0;; ++number) {
    Path path = folder / fmt::format("{}{:010}.xformer.{}.{}", kNameStart, second, ::getpid(), number);
    if (!std::filesystem::exists(path)) return path;
  }
}

}  // namespace

struct EventFile::State {
  explicit State(const Path& folder) : file(new_file_name(folder)) {}

  void add(std::string_view event) {
    std::string length;
    append_little_endian(length, static_cast<uint64_t>(event.size()));
    buffer += length;
    append_little_endian(buffer, masked_crc32c(length));
    buffer += event;
    append_little_endian(buffer, masked_crc32c(event));
    if (buffer.size() >= kBufferBytes) flush();
  }

  void flush() {
    if (buffer.empty()) return;
    // Emptied before the write: after a failed write the same frames must not follow a torn one.
    std::string full;
    full.swap(buffer);
    file.write(full);
  }

  AppendFile file;
  std::string buffer;
};

EventFile::EventFile(const Path& folder, int64_t start_step) : state_(std::make_unique<State>(folder)) {
  std::string version = event_start(0);
  append_bytes(version, EventField::kFileVersion, "brain.Event:2");
  state_->add(version);
  if (start_step > 0) {
    std::string log;
    append_key(log, kSessionStatus, WireType::kVarint);
    append_varint(log, kSessionStart);
    std::string start = event_start(start_step);
    append_bytes(start, EventField::kSessionLog, log);
    state_->add(start);
  }
  state_->flush();
}

EventFile::~EventFile() {
  try {
    state_->flush();
  } catch (const Error&) {
    // A destructor cannot report it; who must know calls flush().
  }
}

void EventFile::scalar(std::string_view tag, double value, int64_t step) {
  std::string entry;
  append_bytes(entry, ValueField::kTag, tag);
  append_key(entry, ValueField::kSimpleValue, WireType::kFixed32);
  append_little_endian(entry, std::bit_cast<uint32_t>(static_cast<float>(value)));
  std::string summary;
  append_bytes(summary, kSummaryValue, entry);
  std::string event = event_start(step);
  append_bytes(event, EventField::kSummary, summary);
  state_->add(event);
}

void EventFile::flush() { state_->flush(); }

}  // namespace xformer::reporting
