#include "tensor/torch_errors.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <new>
#include <regex>
#include <stdexcept>
#include <string>

#include "core/error.h"

namespace xformer {

namespace {

// Who else has memory of a CUDA device, by LibTorch's words: "Process 4711 has 70.00 GiB memory in use. ", once or
// more.
std::string other_processes(const std::string& text) {
  static const std::regex kProcess("Process ([0-9]+) has ([^ ]+ [A-Za-z]+) memory in use");
  std::string result;
  for (auto found = std::sregex_iterator(text.begin(), text.end(), kProcess); found != std::sregex_iterator(); ++found)
    result += fmt::format("{}{} has {}", result.empty() ? "" : ", ", found->str(1), found->str(2));
  return result;
}

// Some of LibTorch's own words begin with it, and end with its own settings and addresses.
std::string out_of_memory(const std::string& text, const std::string& smaller) {
  const bool said = text.find("out of memory") != std::string::npos;
  // Plain steps of another length need theirs beside what captured ones hold.
  const bool captured = text.find("allocated in private pools") != std::string::npos;
  const std::string others = other_processes(text);
  std::string words = text.substr(0, text.find(" Of the allocated memory "));
  if (words.ends_with('.')) words.pop_back();
  const std::string remedy =
      others.empty() ? ""
                     : fmt::format("; other processes hold memory there ({}): wait, or take another --device", others);
  return fmt::format("{}{}; a smaller {}{} needs less{}", said ? "" : "out of memory: ", words, smaller,
                     captured ? " or --cuda-graph off" : "", remedy);
}

std::string on_the_host(const std::string& smaller) {
  return fmt::format("out of memory on the host; a smaller {} needs less", smaller);
}

// Of the CUDA runtime's error numbers, those that are not the program's: what is wrong with driver, device or power.
bool is_of_the_machine(int32_t code) {
  constexpr std::array kCodes{35,    // the driver is older than the runtime
                              46,    // the device is taken
                              100,   // no device
                              209,   // no kernel for such a device
                              214,   // memory that its correction gave up
                              220,   // a link between devices that its correction gave up
                              702,   // a kernel that the display's watchdog ended
                              802};  // the system is not ready
  return std::find(kCodes.begin(), kCodes.end(), code) != kCodes.end();
}

// LibTorch adds lines for those who debug it.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

void rethrow_translated(const std::string& next, const std::string& smaller) {
  const auto and_next = [&](const std::string& text) { return next.empty() ? text : text + "; " + next; };
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw OutOfMemory(and_next(out_of_memory(error.what_without_backtrace(), smaller)));
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(and_next(on_the_host(smaller)));
  } catch (const std::length_error&) {  // more than any memory has
    throw OutOfMemory(and_next(on_the_host(smaller)));
  } catch (const c10::AcceleratorError& error) {
    constexpr int32_t kNoMemory = 2;
    const std::string text = first_line(error.what_without_backtrace());
    if (error.get_error_code() == kNoMemory) throw OutOfMemory(and_next(out_of_memory(text, smaller)));
    if (is_of_the_machine(error.get_error_code())) throw ResourceError(and_next("the device failed: " + text));
    throw InternalError(and_next("the device refused what it was given: " + text));
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    for (const char* words : {"DefaultCPUAllocator", "out of memory", "Storage size calculation overflowed"})
      if (text.find(words) != std::string::npos) throw OutOfMemory(and_next(out_of_memory(text, smaller)));
    throw InternalError(and_next("LibTorch: " + text));
  } catch (const std::filesystem::filesystem_error& error) {
    throw ResourceError(and_next(error.what()));
  } catch (const std::exception& error) {
    throw InternalError(and_next(error.what()));
  }
}

}  // namespace xformer
