// TensorBoard event files, written by hand: TFRecord frames around Event protobufs with scalar summaries, and a run's
// options for the table of TensorBoard's plugin HPARAMS.
//
// Format: uint64 length, masked CRC-32C of it, payload, masked CRC-32C of the payload; the first event
// carries file_version "brain.Event:2" (TensorFlow's record_writer and event.proto). Options: a summary without a value
// whose metadata holds HParamsPluginData (tensorboard/plugins/hparams/plugin_data.proto).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/files.h"
#include "core/json.h"

namespace xformer::reporting {

class EventFile {
 public:
  // Opens a new events.out.tfevents.* file in `folder`. `start_step` > 0 says that steps at or above it
  // in earlier files of the folder are void (SessionLog START), as after a resume.
  EventFile(const Path& folder, int64_t start_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  void scalar(std::string_view tag, double value, int64_t step);
  // What the run is, by option. Its metrics are its scalars.
  void run_begins(const Json& options);
  void run_is_done();
  void flush();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace xformer::reporting
