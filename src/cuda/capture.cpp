#include "cuda/capture.h"

#include <exception>

namespace xformer::cuda {

namespace {

// False when it threw: there was nothing to take back, or an error that matters less than the one before it.
bool attempt(const std::function<void()>& action) {
  try {
    action();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void abandon(Capture& capture, PoolId pool, bool begun) {
  attempt([&] { capture.stop_stream(); });
  for (const Memory memory : {Memory::kDevice, Memory::kHost}) {
    // A `begin` that threw began the pools that can be ended.
    const bool ended = attempt([&] { capture.end_pool(memory, pool); });
    if ((begun || ended) && !capture.releases_pools()) attempt([&] { capture.release_pool(memory, pool); });
  }
  attempt([&] { capture.stop_generator(); });
}

}  // namespace

std::shared_ptr<const PoolId> SharedPool::capture(Capture& capture, const std::function<void()>& work) {
  std::shared_ptr<const PoolId> pool = current_.lock();
  if (!pool) current_ = pool = std::make_shared<const PoolId>(fresh_());
  bool begun = false;
  try {
    capture.begin(*pool);
    begun = true;
    work();
    capture.end();
  } catch (...) {
    current_.reset();
    abandon(capture, *pool, begun);
    throw;
  }
  return pool;
}

}  // namespace xformer::cuda
