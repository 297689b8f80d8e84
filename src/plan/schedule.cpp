#include "plan/schedule.h"

#define XFORMER_DESCRIBE_TYPE xformer::plan::ScheduleDescriptor
#include "plan/schedules.inc"

namespace xformer::plan {

const Registry<ScheduleDescriptor>& all_schedules() {
  static const Registry<ScheduleDescriptor> kSchedules("schedule", [] {
    std::vector<ScheduleDescriptor> result;
    schedules::for_each_family([&](ScheduleDescriptor one) { result.push_back(std::move(one)); });
    return result;
  }());
  return kSchedules;
}

ScheduleValues schedule_at(const ScheduleOptions& options, int64_t step) {
  return all_schedules().get(options.name).at(options, step);
}

}  // namespace xformer::plan
