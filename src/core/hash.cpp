#include "core/hash.h"

#include <nettle/md5.h>
#include <nettle/sha2.h>

#include <array>
#include <cstdint>
#include <span>

namespace xformer {
namespace {

std::string hex_of(std::span<const uint8_t> digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  for (const uint8_t byte : digest) {
    result.push_back(kDigits[byte >> 4]);
    result.push_back(kDigits[byte & 15]);
  }
  return result;
}

const uint8_t* as_bytes(std::string_view bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

}  // namespace

struct Sha256::Context {
  sha256_ctx state;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) { sha256_init(&context_->state); }

Sha256::~Sha256() = default;

void Sha256::update(std::string_view bytes) { sha256_update(&context_->state, bytes.size(), as_bytes(bytes)); }

std::string Sha256::hex() {
  std::array<uint8_t, SHA256_DIGEST_SIZE> digest;
  sha256_digest(&context_->state, digest.size(), digest.data());
  return hex_of(digest);
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_of_file(const Path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  return sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string md5_of_file(const Path& path) {
  const MappedFile file(path);
  md5_ctx state;
  md5_init(&state);
  md5_update(&state, file.bytes().size(), reinterpret_cast<const uint8_t*>(file.bytes().data()));
  std::array<uint8_t, MD5_DIGEST_SIZE> digest;
  md5_digest(&state, digest.size(), digest.data());
  return hex_of(digest);
}

}  // namespace xformer
