#include "core/hash.h"

#include <openssl/evp.h>

#include <array>

#include "core/error.h"

namespace xformer {
namespace {

using Digest = std::array<unsigned char, EVP_MAX_MD_SIZE>;

std::string hex_of(const Digest& digest, unsigned length) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  for (unsigned i = 0; i < length; ++i) {
    result.push_back(kDigits[digest[i] >> 4]);
    result.push_back(kDigits[digest[i] & 15]);
  }
  return result;
}

}  // namespace

struct Sha256::Context {
  EVP_MD_CTX* state = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(state); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  XF_ASSERT(context_->state != nullptr && EVP_DigestInit_ex(context_->state, EVP_sha256(), nullptr) == 1,
            "libcrypto offers no SHA-256");
}

Sha256::~Sha256() = default;

void Sha256::update(std::string_view bytes) {
  XF_ASSERT(EVP_DigestUpdate(context_->state, bytes.data(), bytes.size()) == 1, "SHA-256 took no bytes");
}

std::string Sha256::hex() {
  Digest digest{};
  unsigned length = 0;
  XF_ASSERT(EVP_DigestFinal_ex(context_->state, digest.data(), &length) == 1, "SHA-256 was ended twice");
  return hex_of(digest, length);
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
  Digest digest{};
  unsigned length = 0;
  XF_ASSERT(EVP_Digest(file.bytes().data(), file.bytes().size(), digest.data(), &length, EVP_md5(), nullptr) == 1,
            "libcrypto offers no MD5");
  return hex_of(digest, length);
}

}  // namespace xformer
