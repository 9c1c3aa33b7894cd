// The name of the layout that pack_panels() writes, for whoever keeps packed bytes (files/packed_file.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace quire {

// All instruction sets read this one layout. One that wants its own gives it a name of its own.
inline constexpr std::string_view kPackedLayoutName = "rows16";
// Raised with every change of packed_layout.h, pack.cc or of where the model places its weights that makes
// other bytes of the same tensors: files of another version are not read. packed_version_test.cc notices a
// change of the panels.
inline constexpr uint32_t kPackedLayoutVersion = 1;

}  // namespace quire
