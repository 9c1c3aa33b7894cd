// Where tests find models and shared data. A test whose data is absent is skipped, with the reason.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace quire::test {

inline std::string environment_or(const char* name, std::string fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::string(value) : std::move(fallback);
}

// A file of the model cache: $QUIRE_MODELS, else ~/.cache/quire/models.
inline std::string model_path(const std::string& file) {
  std::string home = environment_or("HOME", "");
  return environment_or("QUIRE_MODELS", home + "/.cache/quire/models") + "/" + file;
}

// The folder of shared test data: $QUIRE_SHARED, else the first folder `shared` beside one that holds this
// program.
inline std::filesystem::path shared_folder() {
  std::error_code ignored;
  std::filesystem::path found = "shared";
  for (auto at = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
       at != at.parent_path(); at = at.parent_path()) {
    if (std::filesystem::exists(at / "shared/data")) {
      found = at / "shared";
      break;
    }
  }
  return environment_or("QUIRE_SHARED", found.string());
}

inline std::string shared_path(const std::string& file) {
  return (shared_folder() / "data" / file).string();
}

}  // namespace quire::test

// Skips the running test when `path` does not exist: models and goldens lie outside the repository, and a
// checkout without them is still tested as far as it goes.
#define SKIP_WITHOUT(path)                                                                     \
  do {                                                                                         \
    if (!std::filesystem::exists(path))                                                        \
      GTEST_SKIP() << (path) << " is absent (QUIRE_SHARED: goldens; tools/get_model: models)"; \
  } while (false)
