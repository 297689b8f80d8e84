// An attention from a shared library of one's own: `plugin:FILE` (docs/own-attention.md).
//
// The library is made of a file as src/attention/variants has them, by xformer_attention() of the CMake package
// (cmake/xformer-config.cmake.in), which adds the two symbols below. Nothing is linked into it: functions of the
// program, LibTorch and fmt are found in the process that opens it, so that there is one of each
// (cmake/exported_symbols.list).
#pragma once

#include <torch/version.h>

#include <vector>

#include "attention/descriptor.h"
#include "attention/interface.inc"  // generated: XFORMER_HEADERS, a hash of the headers of this layer and those below
#include "attention/own_file.h"

#define XFORMER_TEXT_OF(x) #x
#define XFORMER_TEXT(x) XFORMER_TEXT_OF(x)
// All that program and library must have compiled alike. Program and library hold it as this text, which is read in the
// file before anything of it runs.
#define XFORMER_INTERFACE_MARK "xformer attention interface: "
#define XFORMER_INTERFACE \
  XFORMER_INTERFACE_MARK "headers " XFORMER_HEADERS ", LibTorch " XFORMER_TEXT(TORCH_VERSION_MAJOR) \
  "." XFORMER_TEXT(TORCH_VERSION_MINOR) ", nlohmann_json " XFORMER_TEXT(NLOHMANN_JSON_VERSION_MAJOR) \
  "." XFORMER_TEXT(NLOHMANN_JSON_VERSION_MINOR) "." XFORMER_TEXT(NLOHMANN_JSON_VERSION_PATCH)        \
  ", libstdc++ strings " XFORMER_TEXT(_GLIBCXX_USE_CXX11_ABI)

extern "C" {
#pragma GCC visibility push(default)  // libraries are compiled with hidden names
// What the library was compiled with: XFORMER_INTERFACE.
extern const char xformer_attention_interface[];
// Adds what the library's file describes: one attention.
void xformer_attention(std::vector<xformer::attention::Descriptor>& into);
#pragma GCC visibility pop
}

namespace xformer::attention {

// The descriptor of the library behind kPlugin; one more option, `sha256`, makes the file part of a plan. DataError
// when it is missing, was compiled for another program, or is no such library, with the reason; UserError when the file
// has changed since this process opened it. Its address stays, and so does the library.
[[nodiscard]] const Descriptor& plugin_attention(const std::string& name);

}  // namespace xformer::attention
