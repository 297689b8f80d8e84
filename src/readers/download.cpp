#include "readers/download.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/file_operations.h"
#include "core/hash.h"
#include "core/text.h"

namespace xformer::readers {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kConnectSeconds = 20;
constexpr auto kPause = std::chrono::milliseconds(200);  // before an attempt after the first

// libcurl, loaded when something is fetched: with all that it needs it is larger than the program, which does the rest
// without it.
struct Library {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;

  Library() {
    void* const handle = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    XF_CHECK(handle != nullptr, ResourceError,
             "fetching needs libcurl.so.4 (Debian's libcurl4), which cannot be loaded: {}", ::dlerror());
    const auto find = [handle](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
      XF_CHECK(function != nullptr, ResourceError, "libcurl.so.4 has no {}", name);
    };
    find(global_init, "curl_global_init");
    find(easy_init, "curl_easy_init");
    find(easy_cleanup, "curl_easy_cleanup");
    find(easy_reset, "curl_easy_reset");
    find(easy_setopt, "curl_easy_setopt");
    find(easy_perform, "curl_easy_perform");
    find(easy_getinfo, "curl_easy_getinfo");
    find(easy_strerror, "curl_easy_strerror");
    find(slist_append, "curl_slist_append");
    find(slist_free_all, "curl_slist_free_all");
    XF_ASSERT(global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl does not start");
  }
};
const Library& libcurl() {
  static const Library kLibrary;
  return kLibrary;
}

// What one attempt ended with.
struct Outcome {
  bool done = false;
  bool worth_another = false;  // the connection broke; the same address may go on
  std::string reason;
};

class Transfer {
 public:
  Transfer(const RemoteFile& file, const Path& part, const DownloadOptions& options)
      : file_(file), part_(part), tag_(part.string() + ".tag"), options_(options), curl_(libcurl().easy_init()) {
    XF_ASSERT(curl_ != nullptr, "libcurl gave no handle");
  }
  ~Transfer() {
    libcurl().easy_cleanup(curl_);
    if (out_ != nullptr) std::fclose(out_);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  Outcome attempt(const std::string& url) {
    begin_at_ = tag_known() && fs::exists(part_) ? fs::file_size(part_) : 0;
    new_tag_.clear();
    write_error_ = 0;
    stopped_ = false;
    libcurl().easy_reset(curl_);
    const auto set = [this](CURLoption option, auto value) {
      XF_ASSERT(libcurl().easy_setopt(curl_, option, value) == CURLE_OK, "libcurl refuses option {}",
                static_cast<int>(option));
    };
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, static_cast<long>(options_.redirects));
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    // A server that was reached safely may not hand over to one that is not.
    set(CURLOPT_REDIR_PROTOCOLS_STR, url.starts_with("https:") ? "https" : "http,https");
    set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(kConnectSeconds));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.stall_seconds));
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_USERAGENT, "xformer");
    if (!options_.certificates.empty()) set(CURLOPT_CAINFO, options_.certificates.c_str());
    std::array<char, CURL_ERROR_SIZE> message{};
    set(CURLOPT_ERRORBUFFER, message.data());
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
    set(CURLOPT_XFERINFODATA, this);
    curl_slist* headers = nullptr;
    std::string range;
    if (begin_at_ > 0) {
      headers = libcurl().slist_append(nullptr, fmt::format("If-Range: {}", read_file(tag_)).c_str());
      set(CURLOPT_HTTPHEADER, headers);
      // Not CURLOPT_RESUME_FROM, which refuses a server that begins anew.
      range = fmt::format("{}-", begin_at_);
      set(CURLOPT_RANGE, range.c_str());
    }
    const CURLcode code = libcurl().easy_perform(curl_);
    libcurl().slist_free_all(headers);
    if (out_ != nullptr && std::fclose(std::exchange(out_, nullptr)) != 0 && write_error_ == 0) write_error_ = errno;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (write_error_ != 0) file_operations::fail("write", part_, write_error_);
    if (stopped_)
      throw Interrupted(fmt::format("stopped by a signal; the same command goes on with {}", part_.string()));
    return outcome_of(code, message.data());
  }

 private:
  [[nodiscard]] bool tag_known() const { return fs::exists(tag_); }

  Outcome outcome_of(CURLcode code, const char* message) {
    if (code == CURLE_OK) return {true, false, ""};
    long status = 0;
    libcurl().easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
    const std::string text = *message != '\0' ? message : libcurl().easy_strerror(code);
    switch (code) {
      case CURLE_HTTP_RETURNED_ERROR:
        // The part is as long as the file, or longer: it is not one of this version.
        if (status == 416) {
          std::error_code ignored;
          fs::remove(part_, ignored);
          return {false, true, "the server has no more than what is here"};
        }
        return {false, status >= 500, fmt::format("the server answers {}", status)};
      case CURLE_COULDNT_RESOLVE_HOST:
      case CURLE_COULDNT_RESOLVE_PROXY:
      case CURLE_COULDNT_CONNECT:
        return {false, false, fmt::format("no network, or nobody answers there: {}", text)};
      case CURLE_OPERATION_TIMEDOUT:
        return {false, true, fmt::format("no byte came for {} s", options_.stall_seconds)};
      case CURLE_TOO_MANY_REDIRECTS:
        return {false, false, fmt::format("more than {} redirections", options_.redirects)};
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
        return {false, false, fmt::format("the server's certificate is not to be trusted: {}", text)};
      case CURLE_PARTIAL_FILE:
      case CURLE_RECV_ERROR:
      case CURLE_SEND_ERROR:
      case CURLE_GOT_NOTHING:
      case CURLE_HTTP2_STREAM:
        return {false, true, fmt::format("the connection broke: {}", text)};
      default:
        return {false, false, text};
    }
  }

  // Where the body begins it is known whether the server goes on or begins anew.
  bool begin_body() {
    long status = 0;
    libcurl().easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
    const bool goes_on = begin_at_ > 0 && status == 206;
    if (!goes_on) begin_at_ = 0;
    out_ = std::fopen(part_.c_str(), goes_on ? "ab" : "wb");
    if (out_ == nullptr) {
      write_error_ = errno;
      return false;
    }
    std::error_code ignored;
    if (new_tag_.empty()) fs::remove(tag_, ignored);
    else write_file_atomically(tag_, new_tag_);
    return true;
  }

  // libcurl's frames are C: what is thrown here waits until it has returned. `failed`: what ends the transfer.
  template <class Result, class Action>
  static Result guarded(void* self_pointer, Result failed, const Action& action) {
    auto& self = *static_cast<Transfer*>(self_pointer);
    try {
      return action(self);
    } catch (...) {
      self.failure_ = std::current_exception();
      return failed;
    }
  }

  static size_t on_body(char* bytes, size_t, size_t count, void* self) {
    return guarded(self, size_t{0}, [&](Transfer& transfer) { return transfer.take_body(bytes, count); });
  }
  static size_t on_header(char* bytes, size_t, size_t count, void* self) {
    return guarded(self, size_t{0}, [&](Transfer& transfer) { return transfer.take_header({bytes, count}); });
  }
  static int on_progress(void* self, curl_off_t total, curl_off_t now, curl_off_t, curl_off_t) {
    return guarded(self, 1, [&](Transfer& transfer) { return transfer.take_progress(total, now); });
  }

  size_t take_body(const char* bytes, size_t count) {
    if (out_ == nullptr && !begin_body()) return 0;
    size_t written = std::fwrite(bytes, 1, count, out_);
    if (const int fault = testing::file_fault ? testing::file_fault("write", 0) : 0) {
      errno = fault;
      written = 0;
    }
    if (written != count) write_error_ = errno;
    return written;
  }

  size_t take_header(std::string line) {
    const size_t count = line.size();
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    if (line.starts_with("HTTP/")) new_tag_.clear();  // of the answer after a redirection
    const size_t colon = line.find(':');
    if (colon == line.npos) return count;
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const size_t value = line.find_first_not_of(' ', colon + 1);
    // A weak tag ("W/...") does not say that bytes are the same.
    if (value == line.npos || line.compare(value, 2, "W/") == 0) return count;
    if (name == "etag" || (name == "last-modified" && new_tag_.empty())) new_tag_ = line.substr(value);
    return count;
  }

  int take_progress(curl_off_t total, curl_off_t now) {
    stopped_ = options_.stop_requested();
    if (total > 0)
      options_.progress("fetching " + file_.name, begin_at_ + static_cast<uint64_t>(now),
                        begin_at_ + static_cast<uint64_t>(total));
    return stopped_ ? 1 : 0;
  }

  const RemoteFile& file_;
  Path part_, tag_;
  const DownloadOptions& options_;
  CURL* curl_;
  std::FILE* out_ = nullptr;
  uint64_t begin_at_ = 0;
  bool stopped_ = false;
  std::string new_tag_;
  int write_error_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

namespace {

// Two calls at once fetch a file once. Whoever ends takes the lock's file away, and the folder if it holds nothing; one
// that waited meanwhile has a lock on a file that is gone, and asks again.
class DownloadLock {
 public:
  explicit DownloadLock(const Path& path) : path_(path), lock_(wait(path)) {}
  ~DownloadLock() {
    std::error_code ignored;
    fs::remove(path_, ignored);
    fs::remove(path_.parent_path(), ignored);  // not if there is anything in it
  }
  DownloadLock(const DownloadLock&) = delete;
  DownloadLock& operator=(const DownloadLock&) = delete;

 private:
  static FileLock wait(const Path& path) {
    while (true) {
      std::error_code error;
      fs::create_directories(path.parent_path(), error);
      if (error) file_operations::fail("make the folder", path.parent_path(), error.value());
      FileLock lock = FileLock::wait(path);
      struct stat held {
      }, there{};
      if (::fstat(lock.descriptor(), &held) == 0 && ::stat(path.c_str(), &there) == 0 && held.st_ino == there.st_ino)
        return lock;
    }
  }

  Path path_;
  FileLock lock_;
};

}  // namespace

std::string difference(const ExpectedFile& meant, const Path& path) {
  const uint64_t size = fs::file_size(path);
  if (meant.bytes && size != *meant.bytes) return fmt::format("has {} bytes, expected {}", size, *meant.bytes);
  for (const auto& [name, stated, hash] :
       {std::tuple{"sha256", &meant.sha256, &sha256_of_file}, {"md5", &meant.md5, &md5_of_file}}) {
    if (stated->empty()) continue;
    if (const std::string found = hash(path); found != *stated)
      return fmt::format("has {} {}, expected {}", name, found, *stated);
  }
  return "";
}

Downloaded download(const RemoteFile& file, const Path& folder, const DownloadOptions& options) {
  const Path target = folder / file.name, part = folder / (file.name + ".part");
  const DownloadLock lock(folder / ("." + file.name + ".lock"));
  if (fs::exists(target)) {
    const std::string wrong = difference(file, target);
    XF_CHECK(wrong.empty(), DataError, "{} is there, but it {}; remove it to have it fetched anew", target.string(),
             wrong);
    return {target, sha256_of_file(target), true};
  }
  std::vector<std::string> reasons;
  for (const std::string& url : file.urls) {
    Transfer transfer(file, part, options);
    Outcome outcome;
    for (int64_t i = 0; i < options.attempts && !outcome.done; ++i) {
      if (i > 0) std::this_thread::sleep_for(kPause);
      outcome = transfer.attempt(url);
      if (!outcome.worth_another) break;
    }
    if (!outcome.done) {
      reasons.push_back(fmt::format("{}: {}", url, outcome.reason));
      continue;
    }
    std::error_code ignored;
    fs::remove(part.string() + ".tag", ignored);
    // An answer without a body is a file without bytes.
    if (!fs::exists(part)) write_file_atomically(part, "");
    if (const std::string wrong = difference(file, part); !wrong.empty()) {
      fs::remove(part, ignored);
      reasons.push_back(fmt::format("{}: what came is not {}: it {}", url, file.name, wrong));
      if (&url == &file.urls.back()) throw DataError(fmt::format("{}", fmt::join(reasons, "; ")));
      continue;
    }
    if (const int error = file_operations::rename(part, target); error != 0)
      file_operations::fail("rename", target, error);
    return {target, sha256_of_file(target), false};
  }
  throw ResourceError(fmt::format("{} could not be fetched ({}); to go on by hand, put it into {}", file.name,
                                  reasons.empty() ? "no address is known" : fmt::format("{}", fmt::join(reasons, "; ")),
                                  folder.string()));
}

}  // namespace xformer::readers
