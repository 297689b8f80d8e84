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
enum class ValueField : uint32_t { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
enum class WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
constexpr uint32_t kSummaryValue = 1, kSessionStatus = 1;
constexpr uint64_t kSessionStart = 1;

// Of SummaryMetadata and of plugin_data.proto, api.proto and struct.proto, which is what HPARAMS reads.
constexpr uint32_t kPluginData = 1, kMapKey = 1, kMapValue = 2, kEndStatus = 1;
enum class PluginField : uint32_t { kName = 1, kContent = 2 };
enum class HparamsField : uint32_t { kStart = 3, kEnd = 4 };
enum class StartField : uint32_t { kOptions = 1, kTime = 5 };
enum class StructField : uint32_t { kNumber = 2, kText = 3, kBool = 4 };
constexpr uint64_t kSuccess = 1;
// A TensorProto of type float and shape [0]: the plugin wants one, and reads its metadata alone.
constexpr std::string_view kNoTensor{"\x08\x01\x12\x02\x12\x00", 6};

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

template <class Field>
void append_double(std::string& into, Field field, double value) {
  append_key(into, field, WireType::kFixed64);
  append_little_endian(into, std::bit_cast<uint64_t>(value));
}

// A google.protobuf.Value; what is neither number, text nor bool (a list) as its text.
std::string struct_value(const Json& value) {
  std::string result;
  if (value.is_boolean()) {
    append_key(result, StructField::kBool, WireType::kVarint);
    append_varint(result, value.get<bool>() ? 1 : 0);
  } else if (value.is_number()) {
    append_double(result, StructField::kNumber, value.get<double>());
  } else {
    append_bytes(result, StructField::kText, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return result;
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string event_start(int64_t step) {
  std::string event;
  append_double(event, EventField::kWallTime, now_seconds());
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

  // A summary of one value.
  void add_value(std::string_view value, int64_t step) {
    std::string summary;
    append_bytes(summary, kSummaryValue, value);
    std::string event = event_start(step);
    append_bytes(event, EventField::kSummary, summary);
    add(event);
  }

  void add_hparams(std::string_view tag, HparamsField field, std::string_view message) {
    std::string content, plugin, metadata, value;
    append_bytes(content, field, message);
    append_bytes(plugin, PluginField::kName, "hparams");
    append_bytes(plugin, PluginField::kContent, content);
    append_bytes(metadata, kPluginData, plugin);
    append_bytes(value, ValueField::kTag, tag);
    append_bytes(value, ValueField::kTensor, kNoTensor);
    append_bytes(value, ValueField::kMetadata, metadata);
    add_value(value, 0);
  }

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
  state_->add_value(entry, step);
}

void EventFile::run_begins(const Json& options) {
  std::string message;
  for (const auto& [name, value] : options.items()) {
    std::string entry;
    append_bytes(entry, kMapKey, name);
    append_bytes(entry, kMapValue, struct_value(value));
    append_bytes(message, StartField::kOptions, entry);
  }
  append_double(message, StartField::kTime, now_seconds());
  state_->add_hparams("_hparams_/session_start_info", HparamsField::kStart, message);
}

void EventFile::run_is_done() {
  std::string message;
  append_key(message, kEndStatus, WireType::kVarint);
  append_varint(message, kSuccess);
  state_->add_hparams("_hparams_/session_end_info", HparamsField::kEnd, message);
}

void EventFile::flush() { state_->flush(); }

}  // namespace xformer::reporting
