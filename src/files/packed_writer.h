// Writes a packed file beside its final name, and gives it that name when all of it is on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "files/packed_file.h"

namespace quire {

// Temporary files begin so; one that nobody locks was left behind by a process that died.
inline constexpr std::string_view kPackingPrefix = ".packing-";

// What is known of a packed file's contents once they are written.
struct PackedHashes {
  ContentHash source;
  std::span<const ContentHash> sections;  // [plan.sections]
  ContentHash seen;                       // the model file's state; zeros when it may not be relied on
};

// Invariant: the final name never stands for a file that is not whole and on disk. Unless it is published,
// the destructor removes what was written. write() from any thread, the rest by one.
class PackedWriter {
 public:
  // Reserves the room on disk. `plan` outlives the writer. Errors: kIo with the path.
  static Result<PackedWriter> create(const std::string& path, const PackedPlan& plan);
  PackedWriter(PackedWriter&& other) noexcept;
  PackedWriter& operator=(PackedWriter&&) = delete;
  ~PackedWriter();

  // `offset` counts from the beginning of the data. Error: kIo.
  [[nodiscard]] Result<> write(uint64_t offset, std::span<const std::byte> bytes) const;
  // Returns the file as readers see it. Errors: kIo.
  [[nodiscard]] Result<PackedFile> publish(const PackedHashes& hashes);

 private:
  PackedWriter(std::string path, const PackedPlan& plan) : path_(std::move(path)), plan_(plan) {}
  [[nodiscard]] Result<> make_temporary();
  [[nodiscard]] Result<> write_at(uint64_t offset, std::span<const std::byte> bytes) const;
  [[nodiscard]] std::unexpected<Error> failed(std::string_view what) const;

  std::string path_;
  std::string temporary_;  // empty when there is none, or no more
  const PackedPlan& plan_;
  FileDescriptor file_;
};

}  // namespace quire
