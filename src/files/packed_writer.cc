#include "files/packed_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

template <size_t size>
void pad_text(std::string_view text, std::array<char, size>& padded) {
  text = text.substr(0, size);
  std::ranges::copy(text, padded.begin());
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::vector<PackedEntry> table_of(const PackedPlan& plan, std::span<const ContentHash> hashes) {
  CHECK(hashes.size() == plan.sections.size());
  std::vector<PackedEntry> table(plan.sections.size());
  for (size_t i = 0; i < table.size(); ++i) {
    const PackedSection& section = plan.sections[i];
    pad_text(section.name, table[i].name);
    table[i].type = section.type;
    table[i].out = section.out;
    table[i].in = section.in;
    table[i].offset = section.offset;
    table[i].bytes = section.bytes;
    table[i].piece_bytes = section.piece_bytes;
    table[i].hash = hashes[i];
  }
  return table;
}

}  // namespace

Result<PackedWriter> PackedWriter::create(const std::string& path, const PackedPlan& plan) {
  PackedWriter writer(path, plan);
  TRY(writer.make_temporary());
  const uint64_t bytes = packed_data_offset(plan.sections.size()) + plan.data_bytes;
  // A full disk is told now, not in the middle. File systems that cannot reserve tell it when it comes.
  const bool reserved = ::fallocate(writer.file_.get(), 0, 0, static_cast<off_t>(bytes)) == 0;
  if (!reserved && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO))
    return writer.failed("cannot reserve room for");
  return writer;
}

// A cleaner may take the file away before it is locked: then once more.
Result<> PackedWriter::make_temporary() {
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  for (int attempt = 0; attempt < 8; ++attempt) {
    temporary_ = folder + "/" + std::string(kPackingPrefix) + "XXXXXX";
    file_ = FileDescriptor(::mkostemp(temporary_.data(), O_CLOEXEC));
    if (!file_.is_open()) {
      const int fault = errno;
      temporary_.clear();
      return fail(ErrorCode::kIo, "path", "cannot write in {}: {}", folder, std::strerror(fault));
    }
    // Waits for a cleaner that just looks. Where files cannot be locked, cleaners leave this one alone.
    while (::flock(file_.get(), LOCK_SH) != 0 && errno == EINTR) continue;
    struct stat info;
    if (::fstat(file_.get(), &info) == 0 && info.st_nlink > 0) return {};
  }
  return fail(ErrorCode::kIo, "path", "cannot write in {}: new files vanish", folder);
}

PackedWriter::PackedWriter(PackedWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      plan_(other.plan_),
      file_(std::move(other.file_)) {}

PackedWriter::~PackedWriter() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

std::unexpected<Error> PackedWriter::failed(std::string_view what) const {
  const int fault = errno;
  return fail(ErrorCode::kIo, "path", "{} {}: {}", what, path_, std::strerror(fault));
}

Result<> PackedWriter::write_at(uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return failed("cannot write");
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Result<> PackedWriter::write(uint64_t offset, std::span<const std::byte> bytes) const {
  CHECK(offset <= plan_.data_bytes && bytes.size() <= plan_.data_bytes - offset);
  return write_at(packed_data_offset(plan_.sections.size()) + offset, bytes);
}

Result<PackedFile> PackedWriter::publish(const PackedHashes& hashes) {
  const std::vector<PackedEntry> table = table_of(plan_, hashes.sections);
  PackedHeader header;
  header.magic = kPackedMagic;
  header.format_version = kPackedFormatVersion;
  header.layout_version = plan_.layout_version;
  pad_text(plan_.layout, header.layout);
  pad_text(plan_.model, header.model);
  header.section_count = table.size();
  header.data_offset = packed_data_offset(table.size());
  header.data_bytes = plan_.data_bytes;
  header.file_bytes = header.data_offset + header.data_bytes;
  header.key = plan_.key;
  header.source_hash = hashes.source;
  header.table_hash = content_hash(std::as_bytes(std::span(table)));
  header.header_hash = content_hash(bytes_of(header).first(offsetof(PackedHeader, header_hash)));
  PackedSeen seen;
  seen.states.front() = hashes.seen;
  seen.hash = content_hash(bytes_of(seen).first(offsetof(PackedSeen, hash)));
  TRY(write_at(kPackedPage, std::as_bytes(std::span(table))));
  TRY(write_at(kPackedSeenOffset, bytes_of(seen)));
  TRY(write_at(0, bytes_of(header)));
  // Where nothing was reserved, padding at the end is not written by anybody.
  if (::ftruncate(file_.get(), static_cast<off_t>(header.file_bytes)) != 0) return failed("cannot write");
  if (::fsync(file_.get()) != 0) return failed("cannot write");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("cannot rename a file to");
  temporary_.clear();
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const FileDescriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.is_open())
    ::fsync(directory.get());  // else the name is lost with the power, and nothing more
  PackedFile file = TRY(PackedFile::adopt(std::move(file_), path_));
  TRY(file.check(plan_));
  return file;
}

}  // namespace quire
